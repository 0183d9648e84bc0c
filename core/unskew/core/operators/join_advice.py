"""Whether a join should be placed by a plan, decided from both of its sides before anything runs, and why.

What a task of a join costs is its rows of both sides and the rows that it yields; a key that is rare on one side may be
most of the output. All ways are judged by these costs: Spark's own hash as the session is set, the same with one
setting changed, and the plan that ``join_plan`` makes for this join's type.

Two things Spark does by itself, where it is set to: AQE divides a partition with very many bytes, by the map tasks that
its rows come from; and from 4.3 on rows with a NULL key are spread, which otherwise are all in one partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from unskew.core.arrays.frozen import derived
from unskew.core.arrays.types import F64
from unskew.core.histogram.histogram import Histogram
from unskew.core.operators.advice import FEW, JOIN, SPARK, Advice, judged
from unskew.core.operators.job_seconds import JobCosts, costs_of
from unskew.core.operators.join_plan import LEFT, RIGHT, Bounds, JoinRows, cost_histogram, join_plan, side_of
from unskew.core.operators.spark_shuffle import HashedRows, Job, spark_tasks
from unskew.core.plan.plan import Plan
from unskew.core.planners import make_planner

__all__ = ["SKEW_JOIN", "SPREAD_NULLS", "NullKeys", "SkewJoin", "advise_join"]

SKEW_JOIN, SPREAD_NULLS = "spark.sql.adaptive.skewJoin", "spark.sql.shuffle.spreadNullJoinKeys.enabled"
_NULL_HASH = 42  # Spark's hash of a row whose key columns are all NULL


@dataclass(frozen=True)
class SkewJoin:
    """How AQE divides large partitions, if it is ``enabled``: of a side with so many bytes in all, those with more than
    ``threshold`` bytes and ``factor`` times the median, into pieces of about ``piece`` bytes."""

    sides: Mapping[str, int]
    enabled: bool = True
    threshold: int = 256 << 20
    piece: int = 64 << 20
    factor: float = 5.0

    def pieces(self, rows: Mapping[str, F64], inputs: int) -> F64:
        """Into how many tasks each partition is divided, for its rows by side: a piece is of some map tasks' rows."""
        count = np.ones(len(rows[LEFT]))
        for side, size in self.sides.items() if self.enabled else ():
            sizes = rows[side] * (size / max(float(rows[side].sum()), 1.0))
            large = sizes > max(self.threshold, self.factor * float(np.median(sizes)))
            count[large] *= np.clip(np.ceil(sizes[large] / self.piece), 1, inputs)
        return count


@dataclass(frozen=True)
class NullKeys:
    """Rows with a NULL key on the sides that keep them, and whether Spark spreads them (None: this Spark cannot)."""

    rows: Mapping[str, int] = field(default_factory=dict)
    spread: bool | None = None


def advise_join(
    rows: JoinRows,
    job: Job,
    bounds: Bounds | None = None,
    aqe: SkewJoin | None = None,
    nulls: NullKeys | None = None,
    costs: JobCosts | None = None,
) -> Advice:
    """The advice for this join."""
    limits, prices = bounds or Bounds(), costs or costs_of(JOIN)
    total = rows.left.total + rows.right.total
    output = cost_histogram(rows, 1.0).total - total
    if total + output < FEW and not prices.given:
        return Advice(JOIN, SPARK, f"{total:,} rows in and {output:,} out are too few to be worth counting")
    shuffle = _JoinShuffle(rows, prices, job, aqe or SkewJoin({}, enabled=False), nulls or NullKeys())
    made = join_plan(rows, side_of(rows, limits.work, job.partitions), job.partitions, limits)
    work = shuffle.work(made.plan)
    even = "rows in and out are even enough as Spark's hash puts them"
    advice = judged(JOIN, shuffle.ways(), work, prices, job, total, float(work.sum()) / job.slots, even)
    return replace(advice, reason=f"{made.output:,} rows come out; {advice.reason}")


@dataclass(frozen=True, eq=False)
class _JoinShuffle:
    """Both sides by Spark's hash, under some settings of the join."""

    rows: JoinRows
    costs: JobCosts
    job: Job
    aqe: SkewJoin
    nulls: NullKeys

    def ways(self) -> dict[str, F64]:
        """The work of each task: as Spark is set, and with each setting that may help."""
        ways = spark_tasks(self.job, self.hashed)
        ways |= {setting: spark_tasks(self.job, changed.hashed)[""] for setting, changed in self._changes().items()}
        return ways

    def _changes(self) -> dict[str, _JoinShuffle]:
        changes = {}
        if self.aqe.sides and not self.aqe.enabled:
            changes[f"{SKEW_JOIN}.enabled=true"] = replace(self, aqe=replace(self.aqe, enabled=True))
        elif self.aqe.sides and self.aqe.piece < self.aqe.threshold:
            lower = replace(self.aqe, threshold=self.aqe.piece)
            name = f"{SKEW_JOIN}.skewedPartitionThresholdInBytes={self.aqe.piece}b"
            changes[name] = replace(self, aqe=lower)
        if self.nulls.spread is False and any(self.nulls.rows.values()):
            changes[f"{SPREAD_NULLS}=true"] = replace(self, nulls=replace(self.nulls, spread=True))
        return changes

    def work(self, plan: Plan) -> F64:
        """Seconds by partition of a plan."""
        return np.asarray(plan.loads(self._costs) * self.costs.row, np.float64)

    @derived
    def _costs(self) -> Histogram:
        return cost_histogram(self.rows, self.costs.out / self.costs.row)

    def hashed(self, n: int) -> HashedRows:
        plan = make_planner("hash", n).plan(self.rows.left)
        nulls = 0 if self.nulls.spread else sum(self.nulls.rows.values())
        work = _gathered(
            self.job.heavy.loads(plan, self._costs) * self.costs.row, nulls * (self.costs.row + self.costs.out)
        )
        rows = {LEFT: self._side(plan, LEFT), RIGHT: self._side(plan, RIGHT)}
        pieces = self.aqe.pieces(rows, self.job.inputs)
        divided = np.flatnonzero(pieces > 1)
        each = np.repeat(work[divided] / pieces[divided], pieces[divided].astype(np.int64))
        whole = np.setdiff1d(np.arange(n), divided)
        return HashedRows(work[whole], (rows[LEFT] + rows[RIGHT])[whole], each)

    def _side(self, plan: Plan, side: str) -> F64:
        histogram: Histogram = self.rows.left if side == LEFT else self.rows.right
        nulls = 0 if self.nulls.spread else self.nulls.rows.get(side, 0)
        return _gathered(self.job.heavy.loads(plan, histogram), float(nulls))


def _gathered(loads: F64, nulls: float) -> F64:
    """Loads that were counted with NULL keys spread evenly, once these are all in one partition."""
    if not nulls or not loads.any():
        return loads
    loads = loads * max(1.0 - nulls / float(loads.sum()), 0.0)
    loads[_NULL_HASH % len(loads)] += nulls
    return loads
