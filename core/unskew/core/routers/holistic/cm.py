"""Cardinality imbalance minimization (CM; Holistic, Algorithm 2): of a key's choices the worker with fewest keys.

Evens distinct keys, and is blind to rows and to what it splits: a key may go to all of its choices. Counts start anew
with each window.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from unskew.core.arrays.types import I32, I64, U64
from unskew.core.kernels.holistic import BY_KEYS
from unskew.core.routers.base import RouterSettings
from unskew.core.routers.holistic.sets import HolisticRule, Memory, memory

__all__ = ["Cardinality"]


@dataclass(eq=False)
class Cardinality:
    """``choices`` workers a key: 2 or 5 in the paper. ``cardinality`` is "exact" or "hll", with 2**register_bits
    registers a worker."""

    common: RouterSettings
    choices: int = 2
    cardinality: str = "exact"
    register_bits: int = 12
    _memory: Memory = field(init=False)

    def __post_init__(self) -> None:
        self._memory = memory(self.common, self.choices, HolisticRule(BY_KEYS), self.cardinality, self.register_bits)

    def step(self, keys: U64, slides: I64, out: I32) -> None:
        self._memory.route(keys, slides, out)
