"""The dashboard of one stream."""

from __future__ import annotations

from tools.dashboards.grafana import Board, Query, Row, bars, lines, stat
from tools.dashboards.queries import ONE, age, newest, per_second, silence

__all__ = ["STREAM"]

_LOADS = {
    "hash": newest("partition_load", "plan", "partition", 'routing="hash"'),
    "plan": newest("partition_load", "plan", "partition", 'routing="plan"'),
    "observed": newest("partition_load", "observed", "partition", 'routing="observed"'),
}
_BY_HASH = f"max({_LOADS['hash']}) / avg({_LOADS['hash']})"

_NOW = [
    stat(
        "Observed imbalance",
        "Rows of the fullest partition over the mean, in the last batch. 1 is even. Far over planned for long: "
        "runbook UnskewImbalanceHigh.",
        newest("observed_imbalance", "observed"),
        warn=1.5,
        bad=3,
    ),
    stat(
        "Planned imbalance",
        "What the latest plan promises. Over 2: one key is more than a partition can hold and may not be split; see "
        "explain, or a policy that splits.",
        newest("predicted_imbalance", "plan"),
        warn=1.5,
        bad=3,
    ),
    stat(
        "By plain hash",
        "What plain hashing would give for the same keys. Near planned: there is no skew to cure.",
        _BY_HASH,
    ),
    stat("Last batch", "Since a job reported a batch.", silence("report"), "s"),
    stat("Plan age", "Since the latest plan was first seen. Runbook: UnskewPlanStale.", age(), "s"),
    stat(
        "Versions behind",
        "Plans between that of a source's last batch and the latest then. 0 or 1 is right. Runbook: UnskewVersionSkew.",
        f"max(unskew_versions_behind{{{ONE}}})",
        warn=3,
        bad=20,
    ),
    stat("Hot keys", "Keys with a route of their own.", newest("hot_keys", "plan"), wide=3),
    stat("Fragments", "Places of the hot keys. More than keys: some are split.", newest("fragments", "plan"), wide=3),
    stat(
        "Moved",
        "Share of the rows that the last new plan sent elsewhere. Each time much, with state: a policy that moves "
        "less, as kip.",
        newest("moved_share", "plan"),
        "percentunit",
        wide=3,
    ),
    stat("Agents", "Agents with a lease.", newest("agents", "round"), wide=3),
    stat("DSYNC", "Between two reports of an agent, as it is adapted.", newest("dsync_seconds", "round"), "s", wide=3),
    stat(
        "Zone",
        "Prompt's judgement of the parallelism. Too few tasks for long: the job cannot keep up; take the advice below.",
        newest("scale_zone", "scale"),
        words={1: ("too many tasks", "yellow"), 2: ("right", "green"), 3: ("too few tasks", "red")},
        wide=3,
    ),
    stat(
        "Reduce tasks",
        "Advised. KEDA scales by this number.",
        newest("scale_partitions", "scale", where='stage="reduce"'),
        wide=3,
    ),
    stat("Map tasks", "Advised.", newest("scale_partitions", "scale", where='stage="map"'), wide=3),
]

_LOAD = bars(
    "Rows per partition",
    "hash: what plain hashing would give; plan: what the latest plan expects; observed: the last batch. Observed "
    "should look like plan. If it looks like hash, the job does not route by the plan. Up to 256 partitions.",
    "partition",
    *(Query(expr, routing) for routing, expr in _LOADS.items()),
)

_OVER_TIME = [
    lines(
        "Imbalance",
        "Fullest partition over the mean. Observed jumps when the hot keys change and is back by the next plan.",
        Query(newest("observed_imbalance", "observed"), "observed"),
        Query(newest("predicted_imbalance", "plan"), "planned"),
        Query(_BY_HASH, "by plain hash"),
        wide=12,
        least=1.0,
    ),
    lines(
        "Observed against its own plan",
        "Imbalance of the last batch over that of the plan which it was bound to. 1: as promised. For long over 1.5: "
        "the keys change faster than plans are made; plan by fresh='same', or from a shorter history.",
        Query(newest("imbalance_against_plan", "observed"), "observed / planned"),
        wide=12,
    ),
    lines(
        "Hot keys and fragments",
        "Fragments are places: those over one a key are splits.",
        Query(newest("hot_keys", "plan"), "hot keys"),
        Query(newest("fragments", "plan"), "fragments"),
        steps=True,
    ),
    lines(
        "Moved by the last new plan",
        "Share of the rows. State of that share moves with it.",
        Query(newest("moved_share", "plan"), "moved"),
        unit="percentunit",
        steps=True,
    ),
    lines(
        "Plans asked for",
        "nothing reported, for long: the job asks for plans and reports no keys.",
        Query(per_second("plan_builds_total", "outcome", of=ONE), "{{outcome}}"),
        unit="ops",
    ),
    lines(
        "Version",
        "Number of the latest plan. Back to a small one: the stream began anew, because the store had lost it.",
        Query(f"max(unskew_plan_version{{{ONE}}})", "latest"),
        steps=True,
    ),
    lines(
        "Versions behind",
        "Of the source that is most behind. Grows: a job does not take new plans.",
        Query(f"max(unskew_versions_behind{{{ONE}}})", "behind"),
        steps=True,
    ),
    lines(
        "Plan age and last batch",
        "The plan gets older while batches come: nobody makes new ones. Runbook: UnskewPlanStale.",
        Query(age(), "plan age"),
        Query(silence("report"), "since the last batch"),
        unit="s",
    ),
]

_LEARNING = [
    lines(
        "Agents",
        "With a lease. It falls with the job's tasks; an agent that dies is gone after three DSYNC.",
        Query(newest("agents", "round"), "agents"),
        steps=True,
    ),
    lines(
        "DSYNC",
        "Doubles when agents wait for answers, halves when the reducer is idle. At its maximum: the reducer cannot "
        "follow.",
        Query(newest("dsync_seconds", "round"), "DSYNC"),
        unit="s",
        steps=True,
    ),
    lines(
        "Rounds",
        "Mostly complete is right. Mostly deadline: an agent holds its lease and does not report. Runbook: "
        "UnskewRoundsFailing.",
        Query(per_second("sync_rounds_total", "outcome", of=ONE), "{{outcome}}"),
        unit="ops",
    ),
    lines(
        "Tasks advised",
        "Take it with Elastic, or let KEDA. Up and down all the time: the batch interval is too short to judge.",
        Query(newest("scale_partitions", "scale", "stage"), "{{stage}}"),
        steps=True,
    ),
    lines(
        "Zone",
        "1: too many tasks, 2: right, 3: too few.",
        Query(newest("scale_zone", "scale"), "zone"),
        steps=True,
    ),
    lines(
        "Watches and old plans",
        "Clients that wait for plans, and plans a second that were served while the store did not answer at once.",
        Query(f"sum(unskew_watchers{{{ONE}}})", "watches"),
        Query(per_second("stale_plans_total", of=ONE), "plans that may be old"),
    ),
]

STREAM = Board(
    "unskew-stream",
    "unskew / Stream",
    "One stream: how even its partitions are, by hash, as planned and as observed; its plans, agents and parallelism.",
    (
        Row("Now", _NOW),
        Row("Load", [_LOAD]),
        Row("Over time", _OVER_TIME),
        Row("Learning and parallelism", _LEARNING),
    ),
    of_stream=True,
)
