"""Shuffle partitioning (SG, SH): workers in turn, whatever the key. Perfectly even, and every key everywhere."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unskew.core.kernels import load_aware as kernels
from unskew.core.routers.base import RouterSettings

__all__ = ["Shuffle"]


@dataclass(eq=False)
class Shuffle:
    """Starts at a worker that the seed names, so that several partitioners do not move in step."""

    common: RouterSettings
    _turn: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self._turn = np.array([self.common.seed % self.common.workers], np.int64)

    def step(self, keys: NDArray[np.uint64], slides: NDArray[np.int64], out: NDArray[np.int32]) -> None:  # noqa: ARG002 - no key matters
        kernels.route_turns(out, self._turn, self.common.workers)
