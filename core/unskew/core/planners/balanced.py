"""Balanced: every partition within one row of its share, with as few cuts as wrap-around packing allows. Ours.

1. Keys that may not be split go whole to the partition with the most space, heaviest first.
2. Hosts are dealt so that rows *and* distinct keys of the tail are even (``packing.deal_hosts``).
3. The listed keys fill the space that is left: at most n - 1 fragments more than keys.

Only as many keys are listed as are needed to fill it exactly: heavy ones first, more where hosts alone miss the target
(a uniform stream has no heavy key, but needs some small keys to level the partitions).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.core.arrays.apportion import capacities
from unskew.core.arrays.types import I32, I64
from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram
from unskew.core.limits import listed_budget
from unskew.core.plan.build import Placement
from unskew.core.plan.plan import Plan
from unskew.core.planners.base import Feedback, Place, PlannerSettings
from unskew.core.planners.packing import FreeSpace, deal_hosts, even_out, wrap_around
from unskew.core.planners.planner_view import PlannerView

__all__ = ["Balanced", "place_whole"]

_GROW = 4
REASONS = (
    "small change: kept whole to even out the tail, or cut where a partition was full",
    "heavy: poured over the partitions that had room",
    "too few distinct spread values to split it: kept whole where most room was",
)
_CHANGE, _HEAVY, _WHOLE = range(3)


def place_whole(rows: I64, free: I64) -> I32:
    """Each key, heaviest first, to the partition with the most space left."""
    free_space = FreeSpace(free)
    out = np.empty(len(rows), np.int32)
    for i, count in enumerate(rows.tolist()):
        out[i] = partition = free_space.widest()
        free_space.take(partition, count)
    return out


@dataclass(frozen=True, eq=False)
class Balanced:
    """Wrap-around packing. A key is heavy from ``heavy`` times the mean load on."""

    common: PlannerSettings
    heavy: float = 0.125

    def __post_init__(self) -> None:
        if not 0.0 < self.heavy <= 1.0:
            raise ConfigError("heavy", self.heavy, "a share of the mean load above 0 and up to 1")

    def place(self, histogram: Histogram, previous: Plan | None, feedback: Feedback | None) -> Place:  # noqa: ARG002 - splits carry no state
        threshold = self.heavy * histogram.total / self.common.partitions
        most = min(len(histogram.hashes), listed_budget(self.common.partitions))
        limit = min(int((histogram.counts >= threshold).sum()), most)
        while True:
            view = PlannerView.of(histogram, self.common.partitions, limit, self.common.smallest)
            placement, exact = self._fill(view, threshold)
            if exact or limit >= most:
                break
            limit = min(max(limit * _GROW, self.common.partitions), most)
        how = "within one row of its share" if exact else "as near its share as whole hosts allow"
        return Place(placement, f"every partition {how}, {len(view.hashes)} keys listed")

    def _fill(self, view: PlannerView, threshold: float) -> tuple[Placement, bool]:
        target = capacities(view.total, self.common.weights)
        whole = np.flatnonzero(~view.splittable)
        at = place_whole(view.rows[whole], target)
        space = target.copy()
        np.subtract.at(space, at, view.rows[whole])
        full = np.bincount(at, minlength=len(space)).astype(bool) & (space <= 0)
        open_weights = np.where(full & ~full.all(), 0.0, self.common.weights)
        tail = deal_hosts(view.host_rows, view.host_keys, space, open_weights)
        np.subtract.at(space, tail, view.host_rows)
        even_out(tail, view.host_rows, space)
        free = np.flatnonzero(view.splittable)
        key, partition, rows = wrap_around(view.rows[free], space)
        reason = np.where(view.rows >= threshold, _HEAVY, _CHANGE)
        reason[whole] = _WHOLE
        placement = Placement(
            tail,
            view.hashes,
            np.concatenate([whole, free[key]]),
            np.concatenate([at, partition]),
            np.concatenate([view.rows[whole], rows]),
            REASONS,
            reason.astype(np.uint8),
        )
        return placement, bool((space >= 0).all())
