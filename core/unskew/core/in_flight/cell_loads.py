"""How many rows each cell has, and for a heavy cell in which map tasks' output they are, estimated from a sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.core.arrays.frozen import derived
from unskew.core.arrays.types import F64, I64, U64
from unskew.core.errors import ConfigError

__all__ = ["LEVEL_SHIFT", "MAP_SHIFT", "CellLoads", "CellParts", "packed_cell", "unpacked_cells"]

MAP_SHIFT, LEVEL_SHIFT = 17, 41  # of a sampled row's word: the cell has the lowest bits


def packed_cell(cell: int, map_task: int, level: int) -> int:
    """A sampled row in one number: its cell, the map task that wrote it, and how rarely rows like it are sampled.

    >>> unpacked_cells(np.array([packed_cell(7, 3, 1)], np.uint64), every=4, fewer=8)[2].tolist()
    [32.0]
    """
    return (level << LEVEL_SHIFT) | (map_task << MAP_SHIFT) | cell


def unpacked_cells(words: U64, every: int, fewer: int) -> tuple[I64, I64, F64]:
    """Of each sampled row its cell, its map task, and how many rows it stands for: one in ``every`` was sampled, and
    at each level one in ``fewer`` of those."""
    low, middle = np.uint64((1 << MAP_SHIFT) - 1), np.uint64((1 << (LEVEL_SHIFT - MAP_SHIFT)) - 1)
    cells = (words & low).astype(np.int64)
    maps = ((words >> np.uint64(MAP_SHIFT)) & middle).astype(np.int64)
    levels = (words >> np.uint64(LEVEL_SHIFT)).astype(np.float64)
    return cells, maps, every * np.power(float(fewer), levels)


@dataclass(frozen=True, eq=False)
class CellParts:
    """What each map task has written of each cell, as far as it was sampled, ordered by cell and map task: the parts of
    cell c are those from ``starts[c]`` to before ``starts[c + 1]``."""

    maps: I64
    loads: F64
    starts: I64


@dataclass(frozen=True, eq=False)
class CellLoads:
    """The sampled rows: ``cells`` and ``maps`` of each, and the ``weights`` that they stand for; out of ``count`` cells
    that ``tasks`` map tasks have written. A weight is in rows, or in what a row weighs. ``shared``: what a cell costs
    beside that, each of its parts anew (in a join the rows of the other side).

    >>> loads = CellLoads(np.array([2, 2, 0]), np.array([0, 1, 1]), np.array([10.0, 10.0, 5.0]), count=4, tasks=2)
    >>> loads.by_cell.tolist(), loads.parts.loads.tolist()
    ([5.0, 0.0, 20.0, 0.0], [5.0, 10.0, 10.0])
    """

    cells: I64
    maps: I64
    weights: F64
    count: int
    tasks: int
    shared: F64 | None = None

    def __post_init__(self) -> None:
        if self.shared is not None and len(self.shared) != self.count:
            raise ConfigError("shared", len(self.shared), f"one for each of the {self.count} cells")
        if not len(self.cells) == len(self.maps) == len(self.weights):
            raise ConfigError("weights", len(self.weights), f"one for each of the {len(self.cells)} sampled rows")

    @derived
    def by_cell(self) -> F64:
        """The load of each cell."""
        own = np.bincount(self.cells, self.weights, self.count).astype(np.float64)
        return own if self.shared is None else own + self.shared

    def shared_of(self, cells: I64) -> F64:
        """What each part of these cells costs anew."""
        return np.zeros(len(cells)) if self.shared is None else self.shared[cells]

    @derived
    def parts(self) -> CellParts:
        """The load of each map task's part of a cell, without what its parts share."""
        numbers, which = np.unique(self.cells * max(self.tasks, 1) + self.maps, return_inverse=True)
        cells, maps = np.divmod(numbers, max(self.tasks, 1))
        starts = np.searchsorted(cells, np.arange(self.count + 1))
        return CellParts(maps, np.bincount(which, self.weights, len(numbers)).astype(np.float64), starts)
