"""D-choices and W-choices (Nasir et al., "When two choices are not enough"): hot keys get more choices than two.

Hot is a key with 1 / (5 n) of the rows or more, by SpaceSaving; the rest have two choices. Both are reconstructions,
from FIDELITY's line and that paper's bound as known. Deviation: with a window, frequencies are of this window and the
one before, not of the whole stream.

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
from unskew.core.parameters import check_range
from unskew.core.routers.base import Loads, RouterSettings

__all__ = ["SLOTS", "AllChoices", "FewestChoices", "empty_summary", "tournament_tree"]

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


@dataclass(eq=False)
class FewestChoices:
    """D-choices: a hot key gets the least d for which every prefix h of the hot keys, heaviest first, satisfies

        p_1 + .. + p_h  +  (b/n)^d (p_h+1 + .. + p_H)  +  (b/n)^2 (the cold rows)   <=   b (1/n + epsilon)

    where ``b = n - n (1 - d/n)^h`` workers are expected to be a choice of one of the first h: all rows of those keys,
    and what falls on the same workers by having all choices among them. No d < n will do: all workers, as W-choices.
    ``epsilon`` is a share of all rows that a worker may have over the mean: 0.0001 in the paper. Deviations: a key's
    choices are different workers, hence 1 - d/n where the paper has ((n - 1)/n)^d; d is worked out every 100 n rows,
    not whenever the hot set changes.
    """

    common: RouterSettings
    epsilon: float = 0.0001
    _frequent: FrequentKeys = field(init=False)

    def __post_init__(self) -> None:
        check_range("epsilon", self.epsilon, 0, 100)
        self._frequent = FrequentKeys(self.common, float(self.epsilon))

    def step(self, keys: U64, slides: I64, out: I32) -> None:
        self._frequent.route(keys, slides, out)


@dataclass(eq=False)
class AllChoices:
    """W-choices: a hot key goes to the least loaded of all workers, on ties to the lowest."""

    common: RouterSettings
    _frequent: FrequentKeys = field(init=False)

    def __post_init__(self) -> None:
        self._frequent = FrequentKeys(self.common, None)

    def step(self, keys: U64, slides: I64, out: I32) -> None:
        self._frequent.route(keys, slides, out)
