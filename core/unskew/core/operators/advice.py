"""Whether an operator should place rows by a plan at all, decided before anything runs, and why.

Spark's own way is often as good: where work is even already, where Spark combines rows before it shuffles them, where
one side of a join fits in every task, where there is little work. Then the advice is to leave it, after a change of
one setting where that is what it takes (``spark_shuffle``). The ways are compared in seconds (``job_seconds``): by what
a row costs, given or by default, and list scheduling of the tasks on the slots that there are.

Aggregates have a third way: each task makes partial states of its own input, and only states are shuffled. That is
balanced whatever the keys are if there are splits enough, and expensive where there are many states: a key has up to
one in every input split. So it is advised unless a plan ships, or holds at a time, at most half as many states. And
where a state stands for a thousand rows or more it is advised in any case: a plan would move the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from unskew.core.arrays.types import F64
from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram
from unskew.core.operators.group_plan import group_partitions, group_plan
from unskew.core.operators.job_seconds import JobCosts, costs_of, verdict
from unskew.core.operators.spark_shuffle import HashedRows, Job, spark_tasks
from unskew.core.plan.plan import Plan
from unskew.core.planners import make_planner
from unskew.core.quality.measures import makespan

__all__ = [
    "FEW",
    "OPERATORS",
    "PIECE",
    "SPARK",
    "SQL",
    "UNSKEW",
    "Advice",
    "Job",
    "States",
    "advise",
    "judged",
    "states",
]

INPUT, SPARK, UNSKEW = "input", "spark", "unskew"
JOIN = "join"  # both sides decide: join_advice
SQL = "sql"  # any aggregate of Spark itself that combines: sum, count, max, approximate distinct counts ...

PIECE = 1 << 16  # rows that a task holds at the input before it makes states of them
FEW = 10_000  # rows: below it a histogram costs more than the skew, unless a row is known to be dear
WORTH = 1.1  # how much longer Spark's own way has to take
_HALF = 2.0  # times as many states the other way
_COMBINES = 1000  # rows per state from which moving rows costs more than any state


@dataclass(frozen=True)
class States:
    """Partial states of an aggregate, in number: shuffled in all, and held by one task, by a plan and at the input."""

    rows: int
    plan_shipped: int
    input_shipped: int
    plan_held: int
    input_held: int

    @property
    def plan_pays(self) -> bool:
        if _COMBINES * self.input_shipped <= self.rows:
            return False
        shipped = _HALF * self.plan_shipped <= self.input_shipped
        return shipped or _HALF * self.plan_held <= self.input_held


@dataclass(frozen=True)
class Advice:
    """``choice``: "unskew" (use the operator), "spark" (leave it to Spark), or "input" (partial states at the input).
    ``by_spark`` and ``by_plan`` are how even the work is, as multiples of the least possible time: 1.0 is perfect.
    ``setting``: what to set first, as ``name=value``, where that is all that Spark's own way needs; ``by_setting`` is
    how even it is then. ``spark_seconds``, ``setting_seconds`` (of ``best_setting``, the one that helps most) and
    ``unskew_seconds`` are the predicted times of the three ways, ``costs`` what they are predicted by."""

    operator: str
    choice: str
    reason: str
    by_spark: float | None = None
    by_plan: float | None = None
    states: States | None = None
    setting: str | None = None
    by_setting: float | None = None
    spark_seconds: float | None = None
    setting_seconds: float | None = None
    unskew_seconds: float | None = None
    best_setting: str | None = None
    costs: str = ""

    def __str__(self) -> str:
        action = {
            UNSKEW: f"use sk.{self.operator}",
            SPARK: "leave it to Spark" if self.setting is None else f"leave it to Spark, with {self.setting}",
            INPUT: f'use sk.{self.operator}(..., at="input", form="arrow")',
        }
        return f"{action[self.choice]}: {self.reason}"

    def explain(self) -> str:
        """The advice, the predicted seconds of each way, and where the cost of a row comes from."""
        ways = {
            "Spark as it is set": self.spark_seconds,
            f"Spark with {self.best_setting}": self.setting_seconds,
            f"sk.{self.operator}": self.unskew_seconds,
        }
        lines = [f"  {name}: {seconds:.2f} s" for name, seconds in ways.items() if seconds is not None]
        return "\n".join([str(self), *lines, *([f"  {self.costs}"] if self.costs else [])])


def advise(operator: str, histogram: Histogram, job: Job, costs: JobCosts | None = None) -> Advice:
    """The advice for rows distributed like these. No row is read. ``costs``: what a row, a group and a task cost, by
    default what is usual for the operator (``costs_of``)."""
    if operator not in OPERATORS:
        raise ConfigError("operator", operator, OPERATORS)
    if operator == JOIN:
        raise ConfigError("operator", operator, "advise_join, which looks at both sides")
    if operator == SQL:
        raise ConfigError("operator", operator, "advise_sql, which knows whether Spark combines rows")
    costs = costs or costs_of(operator)
    if histogram.total < FEW and not costs.given:
        return Advice(operator, SPARK, f"{histogram.total:,} rows are too few to be worth counting")
    return _JUDGES[operator](operator, histogram, job, costs)


def _groups(operator: str, histogram: Histogram, job: Job, costs: JobCosts) -> Advice:
    """Groups are never split, so a task takes at least as long as its largest group."""
    plan = group_plan(histogram, group_partitions(job.partitions, job.slots))
    heaviest = int(histogram.counts.max(initial=0))
    even = _EVEN
    if heaviest > histogram.total / job.slots:
        even = f"one group has {heaviest / histogram.total:.0%} of the rows and {_ONE}"
    return _compared(operator, histogram, job, costs, plan, heaviest * costs.row + costs.key, even)


def _split(operator: str, histogram: Histogram, job: Job, costs: JobCosts) -> Advice:
    """Heavy keys may be split, so the limit is the work shared out evenly. Spark's own way is ``repartition(n, key)``,
    whose partitions it does not merge and no setting changes."""
    plan = make_planner("balanced", job.partitions).plan(histogram)
    fixed = replace(job, shuffle_partitions=job.partitions, coalescing=None, unused=None)
    return _compared(operator, histogram, fixed, costs, plan)


def _aggregate(operator: str, histogram: Histogram, job: Job, costs: JobCosts) -> Advice:
    plan = make_planner("balanced", job.partitions).plan(histogram)
    advice = _compared(operator, histogram, job, costs, plan)
    if advice.choice == SPARK:
        return advice
    count = states(histogram, plan, max(job.inputs, -(-histogram.total // PIECE)))
    by_input = -(-job.inputs // job.slots) * job.slots / job.inputs  # times the least possible: splits are even
    if count.plan_pays or by_input >= WORTH * (advice.by_plan or 1.0):
        return replace(advice, reason=f"{advice.reason}; {_shipped(count)}", states=count)
    few = f"partial states of the {job.inputs} input splits are as even, move no rows, and are few"
    return replace(advice, choice=INPUT, reason=f"{few}: {_shipped(count)}", states=count)


def _compared(
    operator: str,
    histogram: Histogram,
    job: Job,
    costs: JobCosts,
    plan: Plan,
    least: float = 0.0,
    even: str = "",
) -> Advice:
    """``least``: seconds that no placement ends before."""

    def hashed(n: int) -> HashedRows:
        by_hash = make_planner("hash", n).plan(histogram)
        rows = job.heavy.loads(by_hash, histogram)
        return HashedRows(rows * costs.row + by_hash.cardinalities(histogram) * costs.key, rows)

    work = _work(plan, histogram, costs)
    limit = max(least, float(work.sum()) / job.slots)
    return judged(operator, spark_tasks(job, hashed), work, costs, job, histogram.total, limit, even or _EVEN)


def _work(plan: Plan, histogram: Histogram, costs: JobCosts) -> F64:
    """Seconds by partition."""
    return plan.loads(histogram) * costs.row + plan.cardinalities(histogram) * costs.key


def judged(
    operator: str,
    spark: Mapping[str, F64],
    plan: F64,
    costs: JobCosts,
    job: Job,
    rows: int,
    limit: float,
    even: str,
) -> Advice:
    """The fastest of Spark as it is set, Spark with one setting changed, and a plan. What asks for more has to save a
    tenth, and a part of a second. ``even``: why nothing needs to be done."""
    found = verdict(spark, plan, costs, job, rows)
    limit = limit or 1.0
    by_spark, by_plan = makespan(spark[""], job.slots) / limit, makespan(plan, job.slots) / limit
    by_setting = None if found.setting is None else makespan(spark[found.setting], job.slots) / limit
    if found.plan_pays:
        reason = f"{_faster(by_spark, by_plan)}: {found.seconds}"
    elif found.setting is not None:
        reason = f"{found.seconds}; {_setting(by_spark, by_setting or 1.0, len(spark['']), len(spark[found.setting]))}"
    elif by_spark < WORTH * by_plan:
        reason = f"{even}: {found.seconds}"
    else:
        reason = f"{_faster(by_spark, by_plan)}, but there is too little work: {found.seconds}"
    if not found.plan_pays and found.row is not None:
        row = "a row that comes out" if costs.out else "a row"
        reason += f". unskew is worth it where {row} costs {found.row * 1e6:.2g} us or more"
    return Advice(
        operator, UNSKEW if found.plan_pays else SPARK, reason, by_spark, by_plan, None,
        None if found.plan_pays else found.setting, None if found.plan_pays else by_setting,
        found.spark, found.changed, found.unskew, found.best, costs.words(operator),
    )  # fmt: skip


def _setting(by_spark: float, by_setting: float, before: int, after: int) -> str:
    if by_spark > WORTH * by_setting:
        return f"as it is set it takes {by_spark:.1f} times the least possible time, so {by_setting:.1f} times"
    return f"as it is set it makes {before:,} tasks, so {after:,}"


def _faster(by_spark: float, by_plan: float) -> str:
    return f"by hash it takes {by_spark:.1f} times the least possible time, by unskew {by_plan:.1f} times"


def _shipped(count: States) -> str:
    return (
        f"a plan shuffles {count.plan_shipped:,} partial states and holds {count.plan_held:,} in a task, at the input "
        f"it is {count.input_shipped:,} and {count.input_held:,}"
    )


def states(histogram: Histogram, plan: Plan, inputs: int) -> States:
    """How many partial states either way has, if rows of a key are spread over the input splits by chance."""
    place = plan.place(histogram.hashes)
    split = np.flatnonzero(place < 0)
    key, _, _ = plan.fragments(histogram.hashes[split], histogram.counts[split])
    listed = _splits_met(histogram.counts.astype(np.float64), inputs).sum()
    tail = 0.0
    if histogram.tail is not None:
        keys = histogram.tail.keys.astype(np.float64)
        each = np.divide(histogram.tail.rows, keys, out=np.zeros(len(keys)), where=keys > 0)
        tail = float((keys * _splits_met(each, inputs)).sum())
    shipped = round(listed + tail)
    held = int(plan.cardinalities(histogram).max(initial=0))
    return States(histogram.total, len(key), shipped, held, -(-shipped // inputs))


def _splits_met(rows: F64, inputs: int) -> F64:
    """In how many of the splits a key with so many rows has at least one, on average."""
    return inputs * -np.expm1(rows * np.log1p(-1.0 / inputs)) if inputs > 1 else np.minimum(rows, 1.0)


_EVEN = "the rows are even enough as Spark's own hash puts them"
_ONE = "nothing that keeps groups whole can end before it; Spark's own way ends with it too"
_JUDGES: dict[str, Callable[[str, Histogram, Job, JobCosts], Advice]] = {
    "group_apply": _groups,
    "aggregate": _aggregate,
    "repartition": _split,
}
OPERATORS = (*_JUDGES, JOIN, SQL)
