"""Shuffle partitioning (SG, SH): workers in turn, whatever the key. Perfectly even, and every key everywhere."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unskew.core.arrays.types import I32, I64, U64
from unskew.core.kernels import load_aware as kernels
from unskew.core.routers.base import RouterSettings

__all__ = ["Shuffle"]


@dataclass(eq=False)
class Shuffle:
    """Starts at a worker that the seed names, so that several partitioners do not move in step."""

    common: RouterSettings
    _turn: I64 = field(init=False)

    def __post_init__(self) -> None:
        self._turn = np.array([self.common.seed % self.common.workers], np.int64)

    def step(self, keys: U64, slides: I64, out: I32) -> None:  # noqa: ARG002 - no key matters
        kernels.route_turns(out, self._turn, self.common.workers)
