"""How many rows each cell has, and for a heavy cell in which map tasks' output they are, estimated from a sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.core.arrays.frozen import derived
from unskew.core.arrays.ranking import new_values
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
    that ``tasks`` map tasks have written. A weight is in rows, or in what a row weighs.

    >>> loads = CellLoads(np.array([2, 2, 0]), np.array([0, 1, 1]), np.array([10.0, 10.0, 5.0]), count=4, tasks=2)
    >>> loads.by_cell.tolist(), loads.by_map(2).tolist()
    ([5.0, 0.0, 20.0, 0.0], [10.0, 10.0])
    """

    cells: I64
    maps: I64
    weights: F64
    count: int
    tasks: int

    def __post_init__(self) -> None:
        if not len(self.cells) == len(self.maps) == len(self.weights):
            raise ConfigError("weights", len(self.weights), f"one for each of the {len(self.cells)} sampled rows")

    @derived
    def by_cell(self) -> F64:
        """The load of each cell."""
        return np.bincount(self.cells, self.weights, self.count).astype(np.float64)

    @derived
    def _of_map(self) -> tuple[I64, F64, I64]:
        """What map tasks have written of cells, by cell and map task: the task, how much, where each cell begins."""
        order = np.lexsort((self.maps, self.cells))
        pairs = (self.cells * max(self.tasks, 1) + self.maps)[order]
        at = np.flatnonzero(new_values(pairs))
        sums = np.add.reduceat(self.weights[order], at) if len(at) else np.zeros(0)
        begins = np.searchsorted(self.cells[order][at], np.arange(self.count + 1))
        return self.maps[order][at], sums.astype(np.float64), begins

    def edges(self, cell: int) -> tuple[I64, F64]:
        """The numbers of map tasks where a cell can be cut, from 0 to all of them, and what the map tasks before each
        have of it: in between lie only those that have nothing of it in the sample.

        >>> loads = CellLoads(np.array([2, 2, 0]), np.array([1, 6, 1]), np.array([10.0, 30.0, 5.0]), count=4, tasks=8)
        >>> [edge.tolist() for edge in loads.edges(2)]
        [[0, 2, 8], [0.0, 10.0, 40.0]]
        """
        maps, sums, begins = self._of_map
        mine = slice(begins[cell], begins[cell + 1])
        return np.concatenate([[0], maps[mine][:-1] + 1, [self.tasks]]), np.concatenate([[0.0], np.cumsum(sums[mine])])

    def by_map(self, cell: int) -> F64:
        """What each map task's output has of a cell."""
        maps, sums, begins = self._of_map
        found, mine = np.zeros(self.tasks), slice(begins[cell], begins[cell + 1])
        found[maps[mine]] = sums[mine]
        return found
