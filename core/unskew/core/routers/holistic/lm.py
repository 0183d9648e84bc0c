"""Hybrid imbalance minimization (LM; Holistic, Algorithm 5 and Eq. 7-9): rows and keys, weighed.

``H = p L' + (1 - p) C'`` with both loads min-max scaled over all workers, 0 where all are equal. The listing of
Algorithm 5 adds raw loads instead, so that rows, being more, decide alone: that is ``as_published=True``. Counts
start anew with each window.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from unskew.core.arrays.types import I32, I64, U64
from unskew.core.kernels.holistic import BY_HYBRID
from unskew.core.parameters import check_range
from unskew.core.routers.base import RouterSettings
from unskew.core.routers.holistic.sets import HolisticRule, Memory, memory

__all__ = ["Hybrid"]


@dataclass(eq=False)
class Hybrid:
    """``bias`` is the paper's p: 1 looks at rows only, 0 at keys only. ``cardinality`` is "exact" or "hll", with
    2**register_bits registers a worker."""

    common: RouterSettings
    choices: int = 2
    bias: float = 0.5
    as_published: bool = False
    cardinality: str = "exact"
    register_bits: int = 12
    _memory: Memory = field(init=False)

    def __post_init__(self) -> None:
        check_range("bias", self.bias, 0, 1)
        rule = HolisticRule(BY_HYBRID, bias=float(self.bias), published=self.as_published)
        self._memory = memory(self.common, self.choices, rule, self.cardinality, self.register_bits)

    def step(self, keys: U64, slides: I64, out: I32) -> None:
        self._memory.route(keys, slides, out)
