"""Cardinality imbalance minimization (CM; Holistic, Algorithm 2): of a key's choices the worker with fewest keys.

Evens distinct keys, and is blind to rows and to what it splits: a key may go to all of its choices. Counts start anew
with each window.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unskew.core import kernels
from unskew.core.routers.base import Common, check_choices
from unskew.core.routers.sets import KeySets

__all__ = ["Cardinality"]


@dataclass(eq=False)
class Cardinality:
    """``choices`` workers a key: 2 or 5 in the paper."""

    common: Common
    choices: int = 2
    _sets: KeySets = field(init=False)

    def __post_init__(self) -> None:
        check_choices(self.choices)
        self._sets = KeySets(self.common, self.choices)

    def step(self, keys: NDArray[np.uint64], slides: NDArray[np.int64], out: NDArray[np.int32]) -> None:
        self._sets.route(keys, slides, out, kernels.BY_KEYS, affinity=False)
