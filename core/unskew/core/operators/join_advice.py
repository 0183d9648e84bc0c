"""Whether a join should be placed by a plan, decided from both of its sides before anything runs, and why.

What a task of a join costs is its rows of both sides and the rows that it yields; a key that is rare on one side may be
most of the output. All ways are judged by these costs: Spark's own hash as the session is set, the same with one
setting changed, and the plan that ``join_plan`` makes for this join's type.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from unskew.core.histogram.histogram import Histogram
from unskew.core.operators.advice import FEW, SPARK, UNSKEW, Advice, Job, judged
from unskew.core.operators.join_plan import LEFT, RIGHT, Bounds, JoinRows, cost_histogram, join_plan, side_of
from unskew.core.operators.spark_shuffle import spark_times
from unskew.core.planners import make_planner
from unskew.core.quality.measures import makespan

__all__ = ["SideBytes", "advise_join"]

SideBytes = tuple[int, int]  # of a side in all, and of a partition of it from which AQE splits it
_SKEWED = 5.0  # times the median from which AQE takes a partition for skewed


def advise_join(
    rows: JoinRows, job: Job, bounds: Bounds | None = None, aqe: Mapping[str, SideBytes] | None = None
) -> Advice:
    """The advice for this join. ``aqe``: the sides whose large partitions Spark splits by itself, with their bytes."""
    limits = bounds or Bounds()
    total = rows.left.total + rows.right.total
    costs = cost_histogram(rows, limits.work)
    if costs.total < FEW:
        return Advice(
            "join", SPARK, f"{total:,} rows in and {costs.total - total:,} out are too few to be worth counting"
        )
    made = join_plan(rows, side_of(rows, limits.work, job.partitions), job.partitions, limits)
    limit = costs.total / job.slots
    by_plan = makespan(made.plan.loads(costs), job.slots) / limit
    spark = spark_times(costs, job, rows.left.merge(rows.right))
    by_spark = spark.as_set / limit
    times = f"it takes {by_spark:.1f} times the least possible time by hash, by a plan {by_plan:.1f} times"
    figures = f"with {made.output:,} rows out {times}"
    even = f"rows in and out are even enough as Spark's hash puts them: {figures}"
    advice = judged("join", spark, by_plan, limit, even)
    if advice.choice == SPARK:
        return advice
    large = _split_by_aqe(rows, costs, job, aqe or {})
    if large is not None:
        side, size = large
        reason = (
            f"its heaviest partition has about {size >> 20:,} MB of the {side} side, so Spark splits it by itself "
            "(AQE, spark.sql.adaptive.skewJoin) without a count before it. Take sk.join where a row that comes out is "
            "much dearer than one that goes in"
        )
        return Advice("join", SPARK, reason, by_spark, by_plan)
    return Advice("join", UNSKEW, figures, by_spark, by_plan)


def _split_by_aqe(rows: JoinRows, costs: Histogram, job: Job, aqe: Mapping[str, SideBytes]) -> tuple[str, int] | None:
    """The side, and the bytes, of the dearest partition, if it is large enough there for AQE to split it."""
    plan = make_planner("hash", job.shuffle_partitions).plan(costs)
    dearest = int(plan.loads(costs).argmax())
    for side, histogram in ((LEFT, rows.left), (RIGHT, rows.right)):
        if side in aqe and histogram.total:
            size, split = aqe[side]
            sizes = plan.loads(histogram) * (size / histogram.total)
            if sizes[dearest] > max(split, _SKEWED * float(np.median(sizes))):
                return side, int(sizes[dearest])
    return None
