"""Scan: explicit items placed heaviest first, each where the utility of balance and migration is highest.

A baseline of KIP/DR's evaluation (section 5: linear resource functions, theta = 0.2, U = rho + gamma),
reconstructed from its mention there and our note on Gedik (VLDBJ 2014): as Redist, but each item scans all
partitions. Our reading of the two terms:
- rho, the balance: minus the load the partition would have, as a multiple of the bound (1 + theta) mean loads;
- gamma, the migration: minus the item's state, in mean states of a partition, where it would have to move.
So an item stays as long as no other partition is lighter by more than its own weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.core.arrays.types import I32
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Plan
from unskew.core.planners.base import Feedback, Place, PlannerSettings
from unskew.core.planners.explicit.items import Items, check_explicit, limit_of

__all__ = ["Scan"]


@dataclass(frozen=True, eq=False)
class Scan:
    """Greedy by utility. ``factor`` is lambda, ``theta`` the balance bound in mean loads above the mean."""

    common: PlannerSettings
    factor: float = 2.0
    theta: float = 0.2

    def __post_init__(self) -> None:
        check_explicit(self.common, self.factor, self.theta)

    def place(self, histogram: Histogram, previous: Plan | None, feedback: Feedback | None) -> Place:
        items = Items.of(histogram, previous, feedback, self.common, limit_of(self.common, self.factor))
        at = self._scan(items)
        return Place(items.placement(at), f"placed by utility: {items.summary(at)}")

    def _scan(self, items: Items) -> I32:
        load, at = items.base.copy(), np.empty(len(items), np.int32)
        columns = (items.load.tolist(), items.state.tolist(), items.was.tolist())
        for i, (rows, state, was) in enumerate(zip(*columns, strict=True)):
            utility = -(load + rows) / items.relative / (1 + self.theta)
            if was >= 0:
                utility[was] += state
            at[i] = target = int(np.argmax(utility))
            load[target] += rows
        return at
