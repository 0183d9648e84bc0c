"""The power of two choices (PoTC; CG, section 4.3): two random workers a message, the less loaded gets it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unskew.core.arrays.types import I32, I64, U64
from unskew.core.kernels import load_aware as kernels
from unskew.core.routers.base import Loads, RouterSettings

__all__ = ["TwoRandom"]


@dataclass(eq=False)
class TwoRandom:
    """The draws are a counter, hashed: the n-th message of a stream always draws the same two workers."""

    common: RouterSettings
    _loads: Loads = field(init=False)
    _drawn: U64 = field(init=False)

    def __post_init__(self) -> None:
        self._loads = Loads.of(self.common)
        self._drawn = np.zeros(1, np.uint64)

    def step(self, keys: U64, slides: I64, out: I32) -> None:  # noqa: ARG002 - keys do not matter
        at = self._loads
        kernels.route_random_pairs(slides, out, self._drawn, self.common.salt(0), at.clock, at.ring, at.load)
