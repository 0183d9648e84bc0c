"""Consistent hashing (CH; CG, section 4.2): the first point clockwise owns the key; few keys move when n changes."""

from __future__ import annotations

from dataclasses import dataclass, field

from unskew.core.arrays.types import I32, I64, U64
from unskew.core.kernels import ring as kernels
from unskew.core.routers.base import RouterSettings
from unskew.core.routers.consistent.circle import Circle

__all__ = ["ConsistentHash"]


@dataclass(eq=False)
class ConsistentHash:
    """``copies`` points a worker: more of them, more even arcs."""

    common: RouterSettings
    copies: int = 100
    _circle: Circle = field(init=False)

    def __post_init__(self) -> None:
        self._circle = Circle.of(self.common, self.copies)

    def step(self, keys: U64, slides: I64, out: I32) -> None:  # noqa: ARG002 - no window
        on = self._circle
        kernels.route_ring(keys, out, on.cells, on.shift, on.points, on.owner)
