"""The dashboard of the service."""

from __future__ import annotations

from tools.dashboards.grafana import Board, Query, Row, lines, stat, table
from tools.dashboards.queries import ALL, REPLICAS, age, newest, per_second, quantile, share, silence
from tools.dashboards.store import store_panels

__all__ = ["SERVICE"]

FAULTS = 'code=~"INTERNAL|UNKNOWN|UNAVAILABLE|DEADLINE_EXCEEDED|DATA_LOSS|5.."'
REFUSED = 'code!~"OK|2..|304|CANCELLED|499|INTERNAL|UNKNOWN|UNAVAILABLE|DEADLINE_EXCEEDED|DATA_LOSS|5.."'
PROMPT = 'method!~"Sync|WatchPlans|KedaStreamIsActive"'
CHOSEN = "${datasource:queryparam}&${namespace:queryparam}&${job:queryparam}"
OF_STREAM = f"/d/unskew-stream?{CHOSEN}&var-stream=${{__value.raw:percentencode}}"

_AT_A_GLANCE = [
    stat(
        "Replicas",
        "Replicas that answer Prometheus. Fewer than you run: look at the pods.",
        f"sum(up{{{ALL}}})",
        good=1,
    ),
    stat(
        "Store",
        "Whether every replica reaches the store. Down: no new plans; jobs go on by their last one. Runbook: "
        "UnskewStoreDown.",
        f"min(unskew_store_up{{{ALL}}})",
        words={0: ("down", "red"), 1: ("up", "green")},
    ),
    stat("Calls", "Calls a second, over gRPC and REST, to all replicas.", per_second("rpc_seconds_count"), "reqps"),
    stat(
        "Failed calls",
        "Share of the calls that failed by the service's own fault. Good: 0. Runbook: UnskewRpcErrors.",
        share("rpc_seconds_count", FAULTS, "rpc_seconds_count"),
        "percentunit",
        warn=0.01,
        bad=0.05,
    ),
    stat(
        "Slowest 1 %",
        "99 % of the calls take less, those left out that wait on purpose. Jobs never wait for long: they go on by "
        "their last plan. Over 1 s: look at the store and at CPU below.",
        quantile(0.99, "rpc_seconds", where=PROMPT),
        "s",
        warn=0.5,
        bad=2,
    ),
    stat(
        "Streams", "Streams that were heard of.", f"count(count by (stream) (unskew_heard_timestamp_seconds{{{ALL}}}))"
    ),
    stat(
        "Agents",
        "Agents that learn together, over all streams. 0 where no job uses learn=True.",
        f"sum({newest('agents', 'round', f'{REPLICAS}, stream', of=ALL)})",
    ),
    stat(
        "Releases",
        "Replicas by the release that they run. Two for long: an upgrade has stopped half way.",
        f"count by (version) (unskew_build_info{{{ALL}}})",
        name="{{version}}",
    ),
]

_EACH = f"{REPLICAS}, stream"
_STREAMS = table(
    "Streams",
    "Observed far over planned: the jobs do not route by the plan, or the keys have changed. A stream's name leads to "
    "its dashboard.",
    Query(newest("observed_imbalance", "observed", _EACH, of=ALL), "observed imbalance"),
    Query(newest("predicted_imbalance", "plan", _EACH, of=ALL), "planned imbalance"),
    Query(f"max by ({_EACH}) (unskew_versions_behind{{{ALL}}})", "versions behind"),
    Query(age(_EACH, ALL), "plan age"),
    Query(silence("report", _EACH, ALL), "last batch"),
    Query(newest("agents", "round", _EACH, of=ALL), "agents"),
    units={"plan age": "s", "last batch": "s"},
    link={"title": "the stream", "url": OF_STREAM},
)

_CALLS = [
    lines(
        "Calls by method",
        "Calls a second.",
        Query(per_second("rpc_seconds_count", "method"), "{{method}}"),
        unit="reqps",
    ),
    lines(
        "Failed calls",
        "By the service's own fault. INTERNAL and 500: a bug, the log has a number for each. UNAVAILABLE and 503: the "
        "store, or a replica that is going. Runbook: UnskewRpcErrors.",
        Query(f"{per_second('rpc_seconds_count', 'method, code', FAULTS)} or vector(0)", "{{method}} {{code}}"),
        unit="reqps",
    ),
    lines(
        "Refused calls",
        "By what the caller sent. Many of one code from one job: its log says which field is wrong.",
        Query(per_second("rpc_seconds_count", "method, code", REFUSED), "{{method}} {{code}}"),
        unit="reqps",
    ),
    lines(
        "Time of a call, slowest 1 %",
        "BuildPlan takes up to a second for millions of keys, all others some milliseconds.",
        Query(quantile(0.99, "rpc_seconds", "method", PROMPT), "{{method}}"),
        unit="s",
    ),
    lines(
        "Time of a Sync",
        "An agent waits here for its round, up to a DSYNC: long is right as long as rounds are complete.",
        Query(quantile(0.5, "rpc_seconds", where='method="Sync"'), "half"),
        Query(quantile(0.99, "rpc_seconds", where='method="Sync"'), "slowest 1 %"),
        unit="s",
    ),
    lines(
        "Turned away",
        "Credentials that are unknown, missing or not enough, and limits. Runbook: UnskewRejectedSurge.",
        Query(per_second("rejected_total", "reason"), "{{reason}}"),
        unit="reqps",
    ),
    lines(
        "Shed load",
        "By limit: rate (calls a second of an identity), computations (plans that wait), watches, bytes in flight. "
        "held: refusals told late, because their caller does not wait. Runbook: UnskewRejectedSurge.",
        Query(per_second("shed_total", "reason"), "{{reason}}"),
        unit="reqps",
    ),
]

_PLANNING = [
    lines(
        "Plans asked for",
        "new, kept: decided. repeated: a batch that ran again. nothing reported: no histogram came, so plain hashing "
        "stays; for long, a job does not report.",
        Query(per_second("plan_builds_total", "outcome"), "{{outcome}}"),
        unit="ops",
    ),
    lines(
        "Ways advised",
        "How batches should go, by what each way would have cost so far. Mostly same: keys change from batch to batch, "
        "and counting first pays. Mostly hash: the stream is even.",
        Query(per_second("ways_advised_total", "way"), "{{way}}"),
        unit="ops",
    ),
    lines(
        "Time to make a plan",
        "Grows with the keys that are listed. Over some seconds: fewer keys in the reports, or more CPU.",
        Query(quantile(0.5, "plan_build_seconds"), "half"),
        Query(quantile(0.99, "plan_build_seconds"), "slowest 1 %"),
        unit="s",
    ),
    lines(
        "Rounds",
        "complete: all agents came. deadline: some did not. taken over: the replica that began it went away. "
        "repeated: two merged the same, which is harmless. Runbook: UnskewRoundsFailing.",
        Query(per_second("sync_rounds_total", "outcome"), "{{outcome}}"),
        unit="ops",
    ),
    lines(
        "Time of a round",
        "From the first report to the answer. Near a DSYNC and a half: an agent is missing each time.",
        Query(quantile(0.5, "sync_round_seconds"), "half"),
        Query(quantile(0.99, "sync_round_seconds"), "slowest 1 %"),
        unit="s",
    ),
    lines(
        "Not done",
        "news, round, plan: the store was away, or another replica was first. report: it came late. Some are normal; "
        "the log has the reason of each.",
        Query(per_second("skipped_total", "what"), "{{what}}"),
        Query(per_second("stale_plans_total"), "plans served that may be old"),
        unit="ops",
    ),
    lines(
        "Watches",
        "Clients that wait for new plans, by replica. Very uneven: clients hold on to one replica; use the headless "
        "Service.",
        Query(f"sum by (instance) (unskew_watchers{{{ALL}}})", "{{instance}}"),
    ),
]

_PROCESS = [
    lines(
        "CPU",
        "Cores in use by replica. One loop takes all calls: near 1 with slow calls, add replicas.",
        Query(f"rate(process_cpu_seconds_total{{{ALL}}}[$__rate_interval])", "{{instance}}"),
    ),
    lines(
        "Memory",
        "Resident, by replica. It follows the largest histogram; for ever upwards is a leak: please report it.",
        Query(f"process_resident_memory_bytes{{{ALL}}}", "{{instance}}"),
        unit="bytes",
    ),
    lines(
        "Open files",
        "Sockets above all, as a share of what is allowed. Near 1: raise the limit or add replicas.",
        Query(f"process_open_fds{{{ALL}}} / process_max_fds{{{ALL}}}", "{{instance}}"),
        unit="percentunit",
    ),
]


SERVICE = Board(
    "unskew-service",
    "unskew / Service",
    "Whether the service is well: its calls, its store, its plans and rounds, its processes.",
    (
        Row("At a glance", [*_AT_A_GLANCE]),
        Row("Streams", [_STREAMS]),
        Row("Calls", _CALLS),
        Row("Store", list(store_panels())),
        Row("Plans and rounds", _PLANNING),
        Row("Processes", _PROCESS),
    ),
)
