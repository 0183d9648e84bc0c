"""Group affinity with imbalance minimization (AM and cAM; Holistic, Algorithms 3 and 4, which differ in one word).

A key stays in its window with the choice that has it; a new one goes to the choice with fewest keys (AM) or fewest rows
(cAM). Never splits a key inside a window, with exact sets. Counts start anew with each window.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unskew.core import kernels
from unskew.core.errors import ConfigError
from unskew.core.routers.base import Common, check_choices
from unskew.core.routers.sets import KeySets

__all__ = ["Affinity"]

_RULES = {"keys": kernels.BY_KEYS, "rows": kernels.BY_ROWS}


@dataclass(eq=False)
class Affinity:
    """``choices`` workers a key: 2 or 5 in the paper. ``by`` is what a new key looks at: "keys" or "rows"."""

    common: Common
    choices: int = 2
    by: str = "keys"
    _sets: KeySets = field(init=False)

    def __post_init__(self) -> None:
        check_choices(self.choices)
        if self.by not in _RULES:
            raise ConfigError("by", self.by, _RULES)
        self._sets = KeySets(self.common, self.choices)

    def step(self, keys: NDArray[np.uint64], slides: NDArray[np.int64], out: NDArray[np.int32]) -> None:
        self._sets.route(keys, slides, out, _RULES[self.by], affinity=True)
