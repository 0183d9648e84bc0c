"""Consistent hashing with bounded loads (CH-BL; CG, section 4.2): clockwise until an owner has room.

A worker has room while it holds less than ``ceil((1 + epsilon) x mean load)`` of the window's rows, so none is ever
more than 1 + epsilon over the mean. Reconstructed from CG's description of Mirrokni et al.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from unskew.core.arrays.types import I32, I64, U64
from unskew.core.kernels import ring as kernels
from unskew.core.parameters import check_range
from unskew.core.routers.base import Loads, RouterSettings
from unskew.core.routers.consistent.circle import Circle

__all__ = ["BoundedConsistentHash"]


@dataclass(eq=False)
class BoundedConsistentHash:
    """``copies`` points a worker; ``epsilon`` as in CG's figures."""

    common: RouterSettings
    copies: int = 100
    epsilon: float = 0.01
    _circle: Circle = field(init=False)
    _loads: Loads = field(init=False)

    def __post_init__(self) -> None:
        check_range("epsilon", self.epsilon, 0, 100)
        self._circle = Circle.of(self.common, self.copies)
        self._loads = Loads.of(self.common)

    def step(self, keys: U64, slides: I64, out: I32) -> None:
        on, at = self._circle, self._loads
        kernels.route_bounded_ring(
            keys, slides, out, on.cells, on.shift, on.points, on.owner, float(self.epsilon), at.clock, at.ring, at.load,
        )  # fmt: skip
