"""D-choices (Nasir et al., "When two choices are not enough"): hot keys get d choices, the rest two.

Hot is a key with 1 / (5 n) of the rows or more, by SpaceSaving. d is the least for which every prefix h of the hot
keys, heaviest first, satisfies

    p_1 + .. + p_h  +  (b/n)^d (p_h+1 + .. + p_H)  +  (b/n)^2 (the cold rows)   <=   b (1/n + epsilon)

where ``b = n - n (1 - d/n)^h`` workers are expected to be a choice of one of the first h: all rows of those keys, and
what falls on the same workers by having all choices among them. No d < n will do: all workers, as W-choices.
A reconstruction, from FIDELITY's line and that paper's bound as known. Deviations: a key's choices are different
workers, hence 1 - d/n where the paper has ((n - 1)/n)^d; d is worked out every 100 n rows, not whenever the hot set
changes; with a window, frequencies are of this window and the one before (``frequent``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from unskew.core.arrays.types import I32, I64, U64
from unskew.core.parameters import check_range
from unskew.core.routers.base import RouterSettings
from unskew.core.routers.frequent import FrequentKeys

__all__ = ["FewestChoices"]


@dataclass(eq=False)
class FewestChoices:
    """``epsilon`` is a share of all rows that a worker may have over the mean: 0.0001 in the paper."""

    common: RouterSettings
    epsilon: float = 0.0001
    _frequent: FrequentKeys = field(init=False)

    def __post_init__(self) -> None:
        check_range("epsilon", self.epsilon, 0, 100)
        self._frequent = FrequentKeys(self.common, float(self.epsilon))

    def step(self, keys: U64, slides: I64, out: I32) -> None:
        self._frequent.route(keys, slides, out)
