"""Hybrid imbalance minimization (LM; Holistic, Algorithm 5 and Eq. 7-9): rows and keys, weighed.

``H = p L' + (1 - p) C'`` with both loads min-max scaled over all workers, 0 where all are equal. The listing of
Algorithm 5 adds raw loads instead, so that rows, being more, decide alone: that is ``as_published=True``. Counts
start anew with each window.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unskew.core import kernels
from unskew.core.errors import ConfigError
from unskew.core.routers.base import Common, check_choices
from unskew.core.routers.sets import KeySets

__all__ = ["Hybrid"]


@dataclass(eq=False)
class Hybrid:
    """``bias`` is the paper's p: 1 looks at rows only, 0 at keys only."""

    common: Common
    choices: int = 2
    bias: float = 0.5
    as_published: bool = False
    _sets: KeySets = field(init=False)

    def __post_init__(self) -> None:
        check_choices(self.choices)
        if not 0.0 <= self.bias <= 1.0:
            raise ConfigError("bias", self.bias, "0 to 1")
        self._sets = KeySets(self.common, self.choices)

    def step(self, keys: NDArray[np.uint64], slides: NDArray[np.int64], out: NDArray[np.int32]) -> None:
        self._sets.route(
            keys,
            slides,
            out,
            kernels.BY_HYBRID,
            affinity=False,
            bias=float(self.bias),
            published=self.as_published,
        )
