"""What a batch costs under a plan, by the linear cost of tasks: the one figure by which plans and ways are compared.

``cost = max over partitions of (per_row rows + per_key keys) / capacity  +  per_fragment (fragments - keys) / n``

The first term is when the last task ends (of the last wave, where there are fewer slots than partitions), the second
the cost of merging the cuts, shared by n mergers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.core.histogram.histogram import Histogram, Tail
from unskew.core.plan.plan import Plan
from unskew.core.planners.base import PlannerSettings
from unskew.core.quality.measures import LinearCost, makespan

__all__ = ["PlanCost", "chance_excess", "weighed"]

_EXACT = 2**53  # in doubles


def chance_excess(rows: int, partitions: int) -> float:
    """By what share of the mean the fullest partition is above it where each row falls on any partition alike.

    The expected maximum of ``partitions`` normal deviates is at most sqrt(2 ln n) of their deviations.

    >>> round(chance_excess(10_000, 64), 2)
    0.23
    """
    if rows == 0 or partitions == 1:
        return 0.0
    return math.sqrt(2.0 * math.log(partitions) * partitions / rows)


def weighed(histogram: Histogram, model: LinearCost) -> Histogram:
    """The histogram with what each key costs in place of its rows, in rows of the mean cost: what a planner makes even
    of it is even in cost.

    >>> from unskew.core import Histogram
    >>> weighed(Histogram.from_hashes(np.array([1, 1, 1, 2], np.uint64)), LinearCost(per_key=9.0)).counts.tolist()
    [2, 2]
    """
    tail, whole = histogram.tail, float(model.tasks(histogram.total, histogram.keys))
    if not whole:
        return histogram
    scale = min(histogram.total, _EXACT) / whole
    counts = np.rint(model.tasks(histogram.counts, np.ones(len(histogram.counts))) * scale).astype(np.int64)
    if tail is not None:
        tail = Tail(
            np.maximum(np.rint(model.tasks(tail.rows, tail.keys) * scale).astype(np.int64), tail.keys), tail.keys
        )
    return Histogram(histogram.hashes, np.maximum(counts, 1), tail, histogram.spread)


@dataclass(frozen=True, eq=False)
class PlanCost:
    """Costs in the unit of ``model``; ``relative`` is the capacity of each partition, 1 in the mean. ``slots``: how
    many tasks run at once; None: all."""

    model: LinearCost
    relative: NDArray[np.float64]
    slots: int | None = None

    @classmethod
    def of(cls, settings: PlannerSettings, model: LinearCost | None = None, *, slots: int | None = None) -> PlanCost:
        """For the partitions of a planner; by rows and keys alike without a ``model``."""
        return cls(model or LinearCost(), settings.relative, slots)

    def batch(self, plan: Plan, histogram: Histogram) -> float:
        """The cost of a batch with these keys under ``plan``."""
        keys = plan.cardinalities(histogram)
        tasks = self.model.tasks(plan.loads(histogram), keys) / self.relative
        cuts = max(int(keys.sum()) - histogram.keys, 0)
        return makespan(tasks, self.slots) + self.model.per_fragment * cuts / len(self.relative)

    def even(self, histogram: Histogram) -> float:
        """The cost of the batch where every slot has an even share of rows and keys; 1 where there are none."""
        n = min(len(self.relative), self.slots or len(self.relative))
        return float(self.model.tasks(histogram.total / n, histogram.keys / n)) or 1.0

    def share(self, plan: Plan, histogram: Histogram) -> float:
        """The cost of the batch in even shares: 1 is the best that there can be."""
        return self.batch(plan, histogram) / self.even(histogram)
