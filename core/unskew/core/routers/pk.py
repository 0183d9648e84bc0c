"""Partial key grouping (PK-2, PK-5; PKG in CG, section 4.1): the least loaded of d workers that a key hashes to.

Load is what this partitioner has sent each worker in the window (local load estimation). The d choices of a key are
different workers (FIDELITY); ties go to the first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unskew.core.arrays.types import I32, I64, U64
from unskew.core.kernels import load_aware as kernels
from unskew.core.routers.base import Loads, RouterSettings, check_choices

__all__ = ["PartialKey"]


@dataclass(eq=False)
class PartialKey:
    """``choices`` workers a key; with fewer workers than that, all of them."""

    common: RouterSettings
    choices: int = 2
    _loads: Loads = field(init=False)

    def __post_init__(self) -> None:
        check_choices(self.choices)
        self._loads = Loads.of(self.common)
        d = min(self.choices, self.common.workers)
        self._salts = np.array([self.common.salt(j) for j in range(d)], np.uint64)
        self._picked = np.zeros(d, np.int64)

    def step(self, keys: U64, slides: I64, out: I32) -> None:
        at = self._loads
        kernels.route_choices(keys, slides, out, self._salts, self._picked, at.clock, at.ring, at.load)
