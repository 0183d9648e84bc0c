"""The power of random choices (PoRC; CG, section 5.1): a key's salted hashes, until one names a worker with room.

A worker has room while it holds less than ``ceil((1 + epsilon) x mean load)``. A key stays with its first choice as
long as that has room, so light keys hardly spread and heavy ones spread as far as they must; no worker is ever more
than 1 + epsilon over the mean. All hashes of a key are combined from two (``kernels.load_aware``). The paper runs it
over virtual workers, which ``cg`` adds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from unskew.core.arrays.types import I32, I64, U64
from unskew.core.kernels import load_aware as kernels
from unskew.core.parameters import check_range
from unskew.core.routers.base import Loads, RouterSettings

__all__ = ["RandomChoices"]


@dataclass(eq=False)
class RandomChoices:
    """``epsilon`` is 0.01 in the paper's figures, 0.3 in its Table 1."""

    common: RouterSettings
    epsilon: float = 0.01
    _loads: Loads = field(init=False)

    def __post_init__(self) -> None:
        check_range("epsilon", self.epsilon, 0, 100)
        self._loads = Loads.of(self.common)

    def step(self, keys: U64, slides: I64, out: I32) -> None:
        at = self._loads
        kernels.route_random_choices(
            keys, slides, out, self.common.salt(0), float(self.epsilon), at.clock, at.ring, at.load
        )
