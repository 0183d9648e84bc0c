"""Hash partitioning (KG, FLD): every key to the worker of its host, the place that a plan's tail gives it too."""

from __future__ import annotations

from dataclasses import dataclass, field

from unskew.core.arrays.types import I32, I64, U64
from unskew.core.histogram.histogram import host_of
from unskew.core.limits import host_bits
from unskew.core.planners.base import common as plan_settings
from unskew.core.planners.hashed import hash_tail
from unskew.core.routers.base import RouterSettings

__all__ = ["HashRouter"]


@dataclass(eq=False)
class HashRouter:
    """Stateless; the seed changes nothing, so that a key's worker is the same everywhere."""

    common: RouterSettings
    _tail: I32 = field(init=False)

    def __post_init__(self) -> None:
        self._tail = hash_tail(plan_settings(self.common.workers))

    def step(self, keys: U64, slides: I64, out: I32) -> None:  # noqa: ARG002 - no window
        out[:] = self._tail.take(host_of(keys, host_bits(self.common.workers)))
