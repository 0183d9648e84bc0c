"""Mixed: a bounded routing table; keys leave overloaded partitions by the best load per migration cost.

Fang's, reconstructed (``items`` says from what). In KIP/DR's evaluation A_max is KIP's histogram bound, and theta_max
is found by an extra loop. One run for a given theta_max:
1. entries beyond A_max are dropped, smallest first: those keys go back to where they hash;
2. from each partition above (1 + theta_max) means keys leave, most load per row of state first, until it is not;
3. those keys go, heaviest first, to the least loaded partition while the table has room, else where they hash.
The outer loop tries a grid of theta_max from loose to tight and keeps the placement with the least largest load;
a tighter bound must gain to be taken, so that the fewest keys move. Fang's exchange step is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.core.arrays.ranking import descending
from unskew.core.arrays.types import F64, I32
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Plan
from unskew.core.planners.base import Feedback, Place, PlannerSettings
from unskew.core.planners.explicit.items import Items, check_explicit, limit_of

__all__ = ["Mixed"]

_GRID = (2.0, 1.0, 0.5, 0.35, 0.25, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01, 0.0)
_LEAST_GAIN = 1e-9


@dataclass(frozen=True, eq=False)
class Mixed:
    """``factor * n`` is A_max, the table's size; ``theta`` is the tightest theta_max that is tried."""

    common: PlannerSettings
    factor: float = 2.0
    theta: float = 0.0

    def __post_init__(self) -> None:
        check_explicit(self.common, self.factor, self.theta)

    def place(self, histogram: Histogram, previous: Plan | None, feedback: Feedback | None) -> Place:
        table = limit_of(self.common, self.factor)
        items = Items.of(histogram, previous, feedback, self.common, table, keep_table=True)
        start = items.start
        entries = np.flatnonzero(start != items.hashes_to)
        start[entries[table:]] = items.hashes_to[entries[table:]]  # those beyond A_max
        grid = [bound for bound in _GRID if bound >= self.theta] or [self.theta]
        theta, at = grid[0], _rebalanced(items, start, table, grid[0])
        for tighter in grid[1:]:
            tried = _rebalanced(items, start, table, tighter)
            if items.heaviest(tried) < items.heaviest(at) - _LEAST_GAIN:
                theta, at = tighter, tried
        return Place(items.placement(at), f"theta_max {theta:g}: {items.summary(at)}")


def _rebalanced(items: Items, start: I32, table: int, theta: float) -> I32:
    at, load = start.copy(), items.loads(start)
    limit = max(1 + theta, items.load[0] / items.relative.max() if len(items) else 0.0)
    leaving = _leaving(items, at, load, limit)
    room = table - int(np.delete(at != items.hashes_to, leaving).sum())
    for i in leaving:
        scaled = (load + items.load[i]) / items.relative
        target = int(np.argmin(scaled)) if room > 0 else int(items.hashes_to[i])
        room -= target != items.hashes_to[i]
        at[i] = target
        load[target] += items.load[i]
    return at


def _leaving(items: Items, at: I32, load: F64, limit: float) -> list[int]:
    """The items that leave overloaded partitions, heaviest first; ``load`` is lowered by them."""
    out: list[int] = []
    ratio = items.load / np.maximum(items.state, 1e-12)
    over = load > limit * items.relative
    candidates = np.flatnonzero(over[at])
    for i in candidates[descending(ratio[candidates])].tolist():
        if load[at[i]] > limit * items.relative[at[i]]:
            load[at[i]] -= items.load[i]
            out.append(i)
    return sorted(out)
