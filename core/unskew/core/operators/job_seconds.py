"""What a job costs in seconds, and which way is the fastest: Spark as it is set, with one setting changed, or a plan.

A stage lasts until its last task ends, by list scheduling on the slots that there are. A task costs something to
start, and so do its rows and groups. Placing rows in flight costs a longer map stage; a plan costs counting (measured,
where it has just been done) instead. What else a job takes, reading and shuffling its rows, is the same for all ways.

The defaults are processor seconds on a machine of today (``python -m benchmarks.advice_costs``). What a row costs in
the user's own work no default can know: it is given, or the advice says from which cost on a plan is worth it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from unskew.core.arrays.types import F64
from unskew.core.errors import ConfigError
from unskew.core.operators.spark_shuffle import Job
from unskew.core.quality.measures import makespan

__all__ = ["JobCosts", "Verdict", "costs_of", "pays", "stage_seconds", "start_seconds", "verdict"]

START = 0.15  # seconds: of a query with one shuffle, before its first task and between its stages
MOVE = 0.35e-6  # a row that is read and shuffled, in seconds of a slot
STATE = 0.5e-6  # a partial state of an aggregate that is shuffled, the same
_COUNT, _COUNT_ROW = 0.3, 0.5e-6  # of a frame, and a row of it
_SAMPLE_ROW = 0.15e-6  # a row that is sampled as it passes, and written into many cells, in seconds of a slot
WORTH = 1.1  # how much longer the simpler way has to take
LEAST_SETTING, LEAST_PLAN = 0.05, 0.3  # seconds that a change has to save


@dataclass(frozen=True)
class JobCosts:
    """Seconds of a slot: for a ``task``, a ``row`` (of a join: one that goes in), a group (``key``), a row that comes
    ``out`` of a join. ``place``: what placing adds to the query. ``count``: seconds that counting took, where it has
    been measured; 0 where rows are placed in flight. ``given``: the user said what a row costs."""

    task: float
    row: float
    key: float = 0.0
    out: float = 0.0
    place: float = 0.15
    count: float | None = None
    given: bool = False

    def count_seconds(self, rows: int, job: Job) -> float:
        """Seconds until it is known what the rows are."""
        if self.count is None:
            return _COUNT + _COUNT_ROW * rows / job.slots
        return self.count or _SAMPLE_ROW * rows / (job.cores or job.slots)

    def words(self, operator: str) -> str:
        row, kind = (self.out, "a row that comes out") if operator == "join" else (self.row, "a row")
        source = "as given" if self.given else "the default, which knows nothing of your own work: give row_seconds="
        group = f", a group {self.key * 1e3:.3g} ms" if self.key else ""
        return f"{kind} costs {row * 1e6:.3g} us{group}, a task {self.task * 1e3:.3g} ms ({source})"


_PYTHON = JobCosts(task=0.04, row=0.5e-6)
_DEFAULTS = {
    "group_apply": replace(_PYTHON, key=0.9e-3),
    "aggregate": replace(_PYTHON, key=0.9e-3, place=0.5),
    "repartition": _PYTHON,
    "join": JobCosts(task=0.03, row=0.2e-6, out=0.4e-6, place=0.3),  # the result is written as Parquet
    "sql": JobCosts(task=0.005, row=0.1e-6),
}
_UNUSED = {"sql": ("row_seconds", "key_seconds"), "join": ("key_seconds",)}


def costs_of(
    operator: str, row_seconds: float | None = None, key_seconds: float | None = None, count: float | None = None
) -> JobCosts:
    """The costs of an operator's job: defaults, but for what is given."""
    for name, value in (("row_seconds", row_seconds), ("key_seconds", key_seconds)):
        if value is not None and not 0.0 <= value < float("inf"):
            raise ConfigError(name, value, "0 or more: seconds of one slot")
        if value is not None and name in _UNUSED.get(operator, ()):
            raise ConfigError(name, value, f"None for {operator}, which has no such work of yours")
    costs = replace(_DEFAULTS[operator], count=count)
    if key_seconds is not None:
        costs = replace(costs, key=key_seconds)
    if row_seconds is None:
        return costs
    if operator == "join":
        return replace(costs, out=row_seconds, task=_PYTHON.task, given=True)
    return replace(costs, row=row_seconds, given=True)


def stage_seconds(work: F64, costs: JobCosts, job: Job) -> float:
    """Of tasks with so much work each. Where slots share processors, what keeps a processor busy takes longer."""
    tasks = work + costs.task
    busy = costs.task * len(tasks) + (0.0 if costs.given else float(work.sum()))
    used = min(job.slots, max(len(tasks), 1))
    shared = busy / job.cores - busy / used if job.cores is not None and job.cores < used else 0.0
    return makespan(tasks, job.slots) + shared


def start_seconds(rows: int, job: Job) -> float:
    """Until so many rows are read and shuffled."""
    return START + MOVE * rows / (job.cores or job.slots)


@dataclass(frozen=True)
class Verdict:
    """The seconds of each way; ``best``: the setting that helps most, ``setting`` the same where it is worth it, and
    ``plan_pays``: whether placing rows by what they are is. ``row``: from which cost of a row on it would be, where it
    is not."""

    spark: float
    changed: float | None
    unskew: float
    best: str | None
    setting: str | None
    plan_pays: bool
    row: float | None

    @property
    def seconds(self) -> str:
        changed = "" if self.changed is None else f", with the setting {self.changed:.1f} s"
        return f"{self.spark:.1f} s as it is set{changed}, {self.unskew:.1f} s by unskew"


def verdict(spark: Mapping[str, F64], plan: F64, costs: JobCosts, job: Job, rows: int) -> Verdict:
    """Which way is worth it. ``spark``: the work of the tasks by setting (``spark_tasks``); ``plan``: by a plan."""
    before = start_seconds(rows, job)
    times = {setting: before + stage_seconds(work, costs, job) for setting, work in spark.items()}
    as_set = times.pop("")
    setting = min(times, key=times.__getitem__) if times else None
    changed = times[setting] if setting is not None else as_set
    over = costs.place + costs.count_seconds(rows, job)
    unskew = before + over + stage_seconds(plan, costs, job)
    worth = pays(as_set, changed, LEAST_SETTING)
    rival = changed if worth else as_set
    plan_pays = pays(rival, unskew, LEAST_PLAN)
    rival_work = makespan(spark[setting if worth and setting is not None else ""], job.slots)
    row = _break_even(rival_work, makespan(plan, job.slots), unskew + LEAST_PLAN - rival, costs)
    return Verdict(
        as_set, None if setting is None else changed, unskew, setting, setting if worth else None, plan_pays,
        None if plan_pays else row,
    )  # fmt: skip


def pays(simple: float, other: float, least: float = LEAST_SETTING) -> bool:
    """Whether a way that asks for more saves enough."""
    return simple > WORTH * other and simple - other > least


def _break_even(rival: float, plan: float, missing: float, costs: JobCosts) -> float | None:
    """The cost of a row at which a plan saves enough: at it the work's gap between the two ways has grown by what is
    missing. None where a plan is not so much evener."""
    cost = costs.out or costs.row
    if rival <= WORTH * plan or cost <= 0.0:
        return None
    return cost * (1.0 + max(missing, 0.0) / (rival - plan))
