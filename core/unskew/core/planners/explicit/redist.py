"""Redist: all explicit items placed anew, heaviest first, each on the least loaded partition.

A baseline of KIP/DR's evaluation (section 5), reconstructed from its mention there and our note on Gedik (VLDBJ
2014): consistent hashing for the tail plus an explicit table for the frequent items. Here it looks at nothing but
balance, so the balance bound (theta = 0.2 in the evaluation) never binds and is no parameter, and it moves most of
what it places. KIP/DR reports Redist's figures as very similar to Scan's, so theirs must weigh migration too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.core.arrays.types import I32
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Plan
from unskew.core.planners.base import Feedback, Place, PlannerSettings
from unskew.core.planners.explicit.items import Items, check_explicit, limit_of

__all__ = ["Redist"]


@dataclass(frozen=True, eq=False)
class Redist:
    """Greedy from nothing. ``factor`` is lambda, the items a partition."""

    common: PlannerSettings
    factor: float = 2.0

    def __post_init__(self) -> None:
        check_explicit(self.common, self.factor)

    def place(self, histogram: Histogram, previous: Plan | None, feedback: Feedback | None) -> Place:
        items = Items.of(histogram, previous, feedback, self.common, limit_of(self.common, self.factor))
        at = _anew(items)
        return Place(items.placement(at), f"placed anew: {items.summary(at)}")


def _anew(items: Items) -> I32:
    load, at = items.base.copy(), np.empty(len(items), np.int32)
    for i, rows in enumerate(items.load.tolist()):
        at[i] = target = int(np.argmin((load + rows) / items.relative))
        load[target] += rows
    return at
