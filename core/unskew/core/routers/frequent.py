"""The state of D-choices and W-choices: which keys are frequent, by SpaceSaving, and the loads.

A summary has 20 n slots, so that its error is at most a quarter of the threshold 1 / (5 n). Without a window it is one
of the whole stream, as in the paper. With a window there are two, of this window and of the one before, and a key is
hot by the sum of both: a key that is no longer frequent is forgotten after two windows. A summary is also used for at
least as many rows as it has slots, however short the window: fewer rows say nothing about the threshold.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unskew.core.arrays.types import I32, I64, U64
from unskew.core.kernels import frequency as kernels
from unskew.core.kernels import space_saving, tournament
from unskew.core.routers.base import Loads, RouterSettings

__all__ = ["SLOTS", "FrequentKeys", "empty_summary", "tournament_tree"]

SLOTS = 20
_NEVER = 1 << 62


def empty_summary(slots: int, window: int = 0) -> space_saving.Summary:
    """An empty SpaceSaving summary: all slots in one group, of count 0."""
    slot = np.zeros((slots, 3), np.int64)
    slot[:, space_saving.ORDER] = slot[:, space_saving.RANK] = np.arange(slots)
    group = np.zeros((slots + 1, 3), np.int64)
    group[:, space_saving.LAST] = np.arange(1, slots + 2)
    group[0] = 0, slots - 1, slots
    table = np.zeros(1 << (2 * slots).bit_length(), np.int64)
    return space_saving.Summary(np.zeros(slots, np.uint64), slot, group, table, np.array([0, window, 1], np.int64))


def tournament_tree(workers: int) -> I64:
    """The tree of ``tournament.build_tree`` for workers without load."""
    leaves = 1 << (workers - 1).bit_length()
    tree = np.full(2 * leaves, -1, np.int64)
    tree[leaves : leaves + workers] = np.arange(workers)
    tournament.build_tree(np.zeros(workers, np.int64), tree)
    return tree


@dataclass(eq=False)
class FrequentKeys:
    """The arrays of ``kernels.route_frequent``. Without ``epsilon`` hot keys may go to any worker."""

    common: RouterSettings
    epsilon: float | None
    _now: space_saving.Summary = field(init=False)
    _before: space_saving.Summary = field(init=False)

    def __post_init__(self) -> None:
        n = self.common.workers
        self._now, self._before = empty_summary(SLOTS * n), empty_summary(SLOTS * n)
        self._head = np.zeros(2 * SLOTS * n, np.int64)
        self._plan = np.array([n, _NEVER if self.epsilon is None else 0], np.int64)
        self._order, self._drawn = np.arange(n), np.zeros(n, np.int64)
        self._loads = Loads.of(self.common)
        self._tree = tournament_tree(n)

    def route(self, keys: U64, slides: I64, out: I32) -> None:
        """Route all tuples; where a window ends, the present summary becomes the one before."""
        routed, at, span = 0, self._loads, self.common.slides
        while True:
            routed = kernels.route_frequent(
                keys, slides, out, routed, span, float(self.epsilon or 0.0),
                self.common.salt(0), self._order, self._drawn,
                at.clock, at.ring, at.load, self._tree, self._now, self._before, self._head, self._plan,
            )  # fmt: skip
            if routed == len(keys):
                return
            self._before, self._now = self._now, empty_summary(SLOTS * self.common.workers, int(slides[routed]) // span)
            if self.epsilon is not None:
                self._plan[kernels.DUE] = 0
