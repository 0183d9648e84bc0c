"""W-choices (Nasir et al., "When two choices are not enough"): a hot key goes to the least loaded of all workers.

Hot is a key with 1 / (5 n) of the rows or more, by SpaceSaving; the rest have two choices. Ties among all workers go to
the lowest. A reconstruction from FIDELITY's line. Deviation: with a window, frequencies are of this window and the one
before (``frequent``), not of the whole stream.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from unskew.core.arrays.types import I32, I64, U64
from unskew.core.routers.base import RouterSettings
from unskew.core.routers.frequent import FrequentKeys

__all__ = ["AllChoices"]


@dataclass(eq=False)
class AllChoices:
    """No parameters of its own."""

    common: RouterSettings
    _frequent: FrequentKeys = field(init=False)

    def __post_init__(self) -> None:
        self._frequent = FrequentKeys(self.common, None)

    def step(self, keys: U64, slides: I64, out: I32) -> None:
        self._frequent.route(keys, slides, out)
