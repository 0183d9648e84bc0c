"""Redist and Scan: explicit items placed anew, heaviest first, each on the partition that is best for it alone.

Both are Gedik's, reconstructed (``items`` says from what). Redist looks at nothing but balance, so the balance bound
(theta = 0.2 in KIP/DR's evaluation) never binds and is no parameter, and it moves most of what it places. KIP/DR
reports Redist's figures as very similar to Scan's, so theirs must weigh migration too. Scan weighs balance and
migration (linear resource functions, theta = 0.2, U = rho + gamma). Our reading of the two terms:
- rho, the balance: minus the load the partition would have, as a multiple of the bound (1 + theta) mean loads;
- gamma, the migration: minus the item's state, in mean states of a partition, where it would have to move.
So an item stays as long as no other partition is lighter by more than its own weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unskew.core.arrays.types import F64, I32
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Plan
from unskew.core.planners.base import Feedback, Place, PlannerSettings
from unskew.core.planners.explicit.items import Items, check_explicit, limit_of

__all__ = ["Redist", "Scan"]


@dataclass(frozen=True, eq=False)
class Redist:
    """Greedy from nothing. ``factor`` is lambda, the items a partition."""

    common: PlannerSettings
    factor: float = 2.0

    def __post_init__(self) -> None:
        check_explicit(self.common, self.factor)

    def place(self, histogram: Histogram, previous: Plan | None, feedback: Feedback | None) -> Place:
        items = Items.of(histogram, previous, feedback, self.common, limit_of(self.common, self.factor))
        at = _anew(items, lambda _, loads: int(np.argmin(loads)))
        return Place(items.placement(at), f"placed anew: {items.summary(at)}")


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
        was, state = items.was.tolist(), items.state.tolist()

        def most_useful(item: int, loads: F64) -> int:
            utility = -loads / (1 + self.theta)
            if was[item] >= 0:
                utility[was[item]] += state[item]
            return int(np.argmax(utility))

        at = _anew(items, most_useful)
        return Place(items.placement(at), f"placed by utility: {items.summary(at)}")


def _anew(items: Items, choose: Callable[[int, F64], int]) -> I32:
    """Each item on the partition that ``choose`` names, given the loads that the partitions would have with it."""
    load, at = items.base.copy(), np.empty(len(items), np.int32)
    for i, rows in enumerate(items.load.tolist()):
        at[i] = target = choose(i, (load + rows) / items.relative)
        load[target] += rows
    return at
