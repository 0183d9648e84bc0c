"""What Holistic's routers remember of a window: which workers hold which key, and how many keys and rows each has.

Exact sets (Holistic, section 3.2.1) in one open table of keys; a key's workers are bits. Everything starts anew with
each window (Algorithm 1): the table is not cleared, its entries carry the number of the window they belong to.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unskew.core import kernels
from unskew.core.routers.base import Common

__all__ = ["KeySets"]

_FIRST_PLACES = 1024
_NEVER = -1


@dataclass(eq=False)
class KeySets:
    """The arrays that ``kernels.route_cardinality`` keeps, and their growth."""

    common: Common
    choices: int
    _known: NDArray[np.uint64] = field(init=False)
    _stamp: NDArray[np.int64] = field(init=False)
    _held: NDArray[np.uint64] = field(init=False)

    def __post_init__(self) -> None:
        n = self.common.workers
        d = min(self.choices, n)
        self._salts = np.array([self.common.salt(j) for j in range(d)], np.uint64)
        self._picked = np.zeros(d, np.int64)
        self._clock = np.array([0, _NEVER, 0], np.int64)
        self._load = np.zeros(n, np.int64)
        self._cardinality = np.zeros(n, np.int64)
        self._extents = np.zeros((2, 3), np.int64)
        self._known, self._stamp, self._held = self._table(_FIRST_PLACES)

    def route(
        self,
        keys: NDArray[np.uint64],
        slides: NDArray[np.int64],
        out: NDArray[np.int32],
        rule: int,
        *,
        affinity: bool,
        bias: float = 0.0,
        published: bool = False,
    ) -> None:
        """Route all tuples; the table doubles whenever it is half full."""
        windows, done = slides // self.common.slides, 0
        while True:
            done = kernels.route_cardinality(
                keys, windows, out, done, rule, int(affinity), bias, int(published), self._salts, self._picked,
                self._clock, self._load, self._cardinality, self._extents, self._known, self._stamp, self._held,
            )  # fmt: skip
            if done == len(keys):
                return
            self._grow()

    def _table(self, places: int) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.uint64]]:
        words = -(-self.common.workers // 64)
        return np.zeros(places, np.uint64), np.full(places, _NEVER), np.zeros((places, words), np.uint64)

    def _grow(self) -> None:
        wider = self._table(2 * len(self._known))
        window = int(self._clock[kernels.SLIDE])
        kernels.rehash(window, self._known, self._stamp, self._held, *wider)
        self._known, self._stamp, self._held = wider
