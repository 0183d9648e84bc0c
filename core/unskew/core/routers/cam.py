"""Group affinity with imbalance minimization (cAM; Holistic, Algorithm 4).

A key stays in its window with the choice that has it; a new one goes to the choice with fewest rows. Never splits a
key inside a window, with exact sets. Counts start anew with each window.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unskew.core import kernels
from unskew.core.routers.base import Common, check_choices
from unskew.core.routers.sets import KeySets

__all__ = ["RowAffinity"]


@dataclass(eq=False)
class RowAffinity:
    """``choices`` workers a key: 2 or 5 in the paper."""

    common: Common
    choices: int = 2
    _sets: KeySets = field(init=False)

    def __post_init__(self) -> None:
        check_choices(self.choices)
        self._sets = KeySets(self.common, self.choices)

    def step(self, keys: NDArray[np.uint64], slides: NDArray[np.int64], out: NDArray[np.int32]) -> None:
        self._sets.route(keys, slides, out, kernels.BY_ROWS, affinity=True)
