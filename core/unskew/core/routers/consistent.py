"""Consistent hashing, plain (CH) and with bounded loads (CH-BL), over one circle of points (CG, section 4.2)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unskew.core.arrays.mixing import mix
from unskew.core.arrays.types import I32, I64, U64
from unskew.core.kernels import ring as kernels
from unskew.core.parameters import check_range
from unskew.core.routers.base import Loads, RouterSettings

__all__ = ["BoundedConsistentHash", "ConsistentHash"]


@dataclass(frozen=True, eq=False)
class Circle:
    """Points in ascending order and their owners. Cell c begins at ``c << shift``; ``cells[c]`` is the first point
    that does not lie before it, so that a look-up walks over a point or two."""

    points: U64
    owner: I32
    cells: I64
    shift: np.uint64

    @classmethod
    def of(cls, settings: RouterSettings, copies: int) -> Circle:
        check_range("copies", copies, 1, 1000, "1 to 1000 points a worker")
        owner = np.repeat(np.arange(settings.workers, dtype=np.int32), copies)
        points = mix(np.arange(len(owner), dtype=np.uint64), int(settings.salt(0)))
        order = np.argsort(points, kind="stable")
        points, owner = points[order], owner[order]
        bits = max(len(points).bit_length(), 1)
        shift = np.uint64(64 - bits)
        begins = np.arange(1 << bits, dtype=np.uint64) << shift
        return cls(points, owner, np.searchsorted(points, begins).astype(np.int64), shift)


@dataclass(eq=False)
class ConsistentHash:
    """The first point clockwise owns the key; few keys move when n changes. ``copies`` points a worker: more of them,
    more even arcs."""

    common: RouterSettings
    copies: int = 100
    _circle: Circle = field(init=False)

    def __post_init__(self) -> None:
        self._circle = Circle.of(self.common, self.copies)

    def step(self, keys: U64, slides: I64, out: I32) -> None:  # noqa: ARG002 - no window
        on = self._circle
        kernels.route_ring(keys, out, on.cells, on.shift, on.points, on.owner)


@dataclass(eq=False)
class BoundedConsistentHash:
    """Clockwise until an owner has room. ``copies`` points a worker; ``epsilon`` as in CG's figures.

    A worker has room while it holds less than ``ceil((1 + epsilon) x mean load)`` of the window's rows, so none is ever
    more than 1 + epsilon over the mean. Reconstructed from CG's description of Mirrokni et al.
    """

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
