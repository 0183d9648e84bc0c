"""How many rows each cell has, and for a heavy cell in which map tasks' output they are, estimated from a sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.core.arrays.frozen import derived
from unskew.core.arrays.types import F64, I64, U64
from unskew.core.errors import ConfigError

__all__ = ["LEVEL_SHIFT", "MAP_SHIFT", "CellLoads", "packed_cell", "unpacked_cells"]

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
class CellLoads:
    """The sampled rows: ``cells`` and ``maps`` of each, and the ``weights`` that they stand for; out of ``count`` cells
    that ``tasks`` map tasks have written. A weight is in rows, or in what a row weighs. ``shared``: what a cell costs
    beside that, each of its parts anew (in a join the rows of the other side).

    >>> loads = CellLoads(np.array([2, 2, 0]), np.array([0, 1, 1]), np.array([10.0, 10.0, 5.0]), count=4, tasks=2)
    >>> loads.by_cell.tolist(), loads.by_map(2).tolist()
    ([5.0, 0.0, 20.0, 0.0], [10.0, 10.0])
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

    @derived
    def _order(self) -> tuple[I64, I64]:
        order = np.argsort(self.cells, kind="stable")
        return order, self.cells[order]

    def shared_by(self, cell: int) -> float:
        """What each part of a cell costs anew."""
        return 0.0 if self.shared is None else float(self.shared[cell])

    def by_map(self, cell: int) -> F64:
        """What each map task's output has of a cell, without what its parts share."""
        order, cells = self._order
        rows = order[np.searchsorted(cells, cell) : np.searchsorted(cells, cell, side="right")]
        return np.bincount(self.maps[rows], self.weights[rows], self.tasks).astype(np.float64)
