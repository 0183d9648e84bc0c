"""What D-choices and W-choices remember: which keys are frequent, by SpaceSaving, and the loads.

A summary has 20 n slots, so that its error is at most a quarter of the threshold 1 / (5 n). Without a window it is one
of the whole stream, as in the paper. With a window there are two, of this window and of the one before, and a key is
hot by the sum of both: what is no longer frequent is forgotten after two windows. A generation also lasts as many rows
as it has slots, however short the window: fewer tell nothing about the threshold.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unskew.core.kernels import frequency as kernels
from unskew.core.routers.base import Loads, RouterSettings

__all__ = ["SLOTS", "FrequentKeys", "knock_out", "summary"]

SLOTS = 20
_NEVER = 1 << 62


def summary(slots: int, window: int = 0) -> kernels.Summary:
    """An empty SpaceSaving summary: all slots in one group, of count 0."""
    slot = np.zeros((slots, 3), np.int64)
    slot[:, kernels.ORDER] = slot[:, kernels.RANK] = np.arange(slots)
    group = np.zeros((slots + 1, 3), np.int64)
    group[:, kernels.LAST] = np.arange(1, slots + 2)
    group[0] = 0, slots - 1, slots
    table = np.zeros(1 << (2 * slots).bit_length(), np.int64)
    return kernels.Summary(np.zeros(slots, np.uint64), slot, group, table, np.array([0, window, 1], np.int64))


def knock_out(workers: int) -> NDArray[np.int64]:
    """The tree of ``kernels.plant`` for workers without load."""
    leaves = 1 << (workers - 1).bit_length()
    tree = np.full(2 * leaves, -1, np.int64)
    tree[leaves : leaves + workers] = np.arange(workers)
    kernels.plant(np.zeros(workers, np.int64), tree)
    return tree


@dataclass(eq=False)
class FrequentKeys:
    """The arrays that ``kernels.route_frequent`` keeps. Without ``epsilon`` hot keys may go anywhere."""

    common: RouterSettings
    epsilon: float | None
    _now: kernels.Summary = field(init=False)
    _before: kernels.Summary = field(init=False)

    def __post_init__(self) -> None:
        n = self.common.workers
        self._now, self._before = summary(SLOTS * n), summary(SLOTS * n)
        self._head = np.zeros(2 * SLOTS * n, np.int64)
        self._plan = np.array([n, _NEVER if self.epsilon is None else 0], np.int64)
        self._order, self._drawn = np.arange(n), np.zeros(n, np.int64)
        self._loads = Loads.of(self.common)
        self._tree = knock_out(n)

    def route(self, keys: NDArray[np.uint64], slides: NDArray[np.int64], out: NDArray[np.int32]) -> None:
        """Route all tuples; a generation follows the other where its window ends."""
        done, at, span = 0, self._loads, self.common.slides
        while True:
            done = kernels.route_frequent(
                keys, slides, out, done, span, float(self.epsilon or 0.0),
                self.common.salt(0), self._order, self._drawn,
                at.clock, at.ring, at.load, self._tree, self._now, self._before, self._head, self._plan,
            )  # fmt: skip
            if done == len(keys):
                return
            self._before, self._now = self._now, summary(SLOTS * self.common.workers, int(slides[done]) // span)
            if self.epsilon is not None:
                self._plan[kernels.DUE] = 0
