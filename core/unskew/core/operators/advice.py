"""Whether an operator should place rows by a plan at all, decided before anything runs, and why.

Spark's own way is often as good: where work is even already, where Spark combines rows before it shuffles them, where
one side of a join fits in every task. Then the advice is to leave it, after a change of one setting where that is what
it takes (``spark_shuffle``). Times are predicted in rows, by list scheduling of the tasks on the slots that there are,
so they do not cover work whose cost is not per row.

Aggregates have a third way: each task makes partial states of its own input, and only states are shuffled. That is
balanced whatever the keys are if there are splits enough, and expensive where there are many states: a key has up to
one in every input split. So it is advised unless a plan ships, or holds at a time, at most half as many states. And
where a state stands for a thousand rows or more it is advised in any case: a plan would move the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram
from unskew.core.operators.group_plan import group_partitions, group_plan
from unskew.core.operators.spark_shuffle import Job, SparkTimes, spark_times
from unskew.core.plan.plan import Plan
from unskew.core.planners import make_planner
from unskew.core.quality.measures import makespan

__all__ = ["OPERATORS", "PIECE", "Advice", "Job", "States", "advise", "judged", "states"]

INPUT, SPARK, UNSKEW = "input", "spark", "unskew"
JOIN = "join"  # both sides decide: join_advice
SQL = "sql"  # any aggregate of Spark itself that combines: sum, count, max, approximate distinct counts ...

F64 = NDArray[np.float64]

PIECE = 1 << 16  # rows that a task holds at the input before it makes states of them
FEW = 10_000  # rows: below it a histogram costs more than the skew
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
    ``by_spark`` and ``by_plan`` are predicted times as multiples of the least possible: 1.0 is perfect. ``setting``:
    what to set first, where that is all that Spark's own way needs; ``by_setting`` is its time then."""

    operator: str
    choice: str
    reason: str
    by_spark: float | None = None
    by_plan: float | None = None
    states: States | None = None
    setting: str | None = None
    by_setting: float | None = None

    def __str__(self) -> str:
        action = {
            UNSKEW: f"use sk.{self.operator}",
            SPARK: "leave it to Spark" if self.setting is None else f"leave it to Spark, with {self.setting}",
            INPUT: f'use sk.{self.operator}(..., at="input", form="arrow")',
        }
        return f"{action[self.choice]}: {self.reason}"


def advise(operator: str, histogram: Histogram, job: Job) -> Advice:
    """The advice for rows distributed like these. No row is read."""
    if operator not in OPERATORS:
        raise ConfigError("operator", operator, OPERATORS)
    if operator == JOIN:
        raise ConfigError("operator", operator, "advise_join, which looks at both sides")
    if operator == SQL:
        return Advice(SQL, SPARK, _COMBINED)
    if histogram.total < FEW:
        return Advice(operator, SPARK, f"{histogram.total:,} rows are too few to be worth counting")
    return _JUDGES[operator](operator, histogram, job)


def _groups(operator: str, histogram: Histogram, job: Job) -> Advice:
    """Groups are never split, so a task takes at least as long as its largest group."""
    plan = group_plan(histogram, group_partitions(job.partitions, job.slots))
    heaviest = int(histogram.counts.max(initial=0))
    limit = max(heaviest, histogram.total / job.slots)
    why = _EVEN
    if heaviest > histogram.total / job.slots:
        why = f"one group has {heaviest / histogram.total:.0%} of the rows and {_ONE}"
    by_plan = makespan(plan.loads(histogram), job.slots) / limit
    return judged(operator, spark_times(histogram, job), by_plan, limit, why)


def _split(operator: str, histogram: Histogram, job: Job) -> Advice:
    """Heavy keys may be split, so the limit is the work shared out evenly. Spark's own way is ``repartition(n, key)``,
    whose partitions it does not merge."""
    job = replace(job, shuffle_partitions=job.partitions, coalescing=None)
    return _compared(operator, histogram, job, make_planner("balanced", job.partitions).plan(histogram))


def _aggregate(operator: str, histogram: Histogram, job: Job) -> Advice:
    plan = make_planner("balanced", job.partitions).plan(histogram)
    advice = _compared(operator, histogram, job, plan)
    if advice.choice == SPARK:
        return advice
    count = states(histogram, plan, max(job.inputs, -(-histogram.total // PIECE)))
    by_input = -(-job.inputs // job.slots) * job.slots / job.inputs  # times the least possible: splits are even
    if count.plan_pays or by_input >= WORTH * (advice.by_plan or 1.0):
        return Advice(operator, UNSKEW, f"{advice.reason}; {_shipped(count)}", advice.by_spark, advice.by_plan, count)
    return Advice(
        operator,
        INPUT,
        f"partial states of the {job.inputs} input splits are as even, move no rows, and are few: {_shipped(count)}",
        advice.by_spark,
        advice.by_plan,
        count,
    )


def _compared(operator: str, histogram: Histogram, job: Job, plan: Plan) -> Advice:
    limit = histogram.total / job.slots
    by_plan = makespan(plan.loads(histogram), job.slots) / limit
    return judged(operator, spark_times(histogram, job), by_plan, limit, _EVEN)


def judged(operator: str, spark: SparkTimes, by_plan: float, limit: float, even: str) -> Advice:
    """The cheapest of Spark as it is set, Spark with one setting changed, and a plan: each has to be faster by a tenth
    than what asks for less. ``even``: why nothing needs to be done."""
    by_spark, by_setting = spark.as_set / limit, spark.changed / limit
    if by_spark < WORTH * min(by_plan, by_setting):
        return Advice(operator, SPARK, even, by_spark, by_plan)
    if by_setting < WORTH * by_plan:
        reason = f"as it is set it takes {by_spark:.1f} times the least possible time, so {by_setting:.1f} times"
        return Advice(operator, SPARK, reason, by_spark, by_plan, None, spark.setting, by_setting)
    return Advice(operator, UNSKEW, _faster(by_spark, by_plan), by_spark, by_plan)


def _faster(by_spark: float, by_plan: float) -> str:
    return f"by hash it takes {by_spark:.1f} times the least possible time, by a plan {by_plan:.1f} times"


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
_COMBINED = (
    "Spark combines the rows of a key in every task before it shuffles, so at most one row a key and task moves and a "
    "hot key costs no more than another"
)

_JUDGES: dict[str, Callable[[str, Histogram, Job], Advice]] = {
    "group_apply": _groups,
    "aggregate": _aggregate,
    "repartition": _split,
}
OPERATORS = (*_JUDGES, JOIN, SQL)
