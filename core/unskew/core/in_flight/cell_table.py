"""Which task each row of a micro-batch goes to that was placed in flight: what its pin keeps.

A row's cell is a function of its content alone: the host of its key, and a piece of that by its spread hash. So the
table of cells is all that a batch needs which runs again, in one shuffle that nobody counts for: whatever map tasks
there are then, each row is in the task in which it was.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.core.arrays.frozen import by_fields, derived, hashes_of
from unskew.core.arrays.types import F64, I32, I64, U64
from unskew.core.errors import PlanError
from unskew.core.histogram.histogram import Histogram, fold_hosts, host_of
from unskew.core.in_flight.assign import TaskRanges
from unskew.core.in_flight.layout import MOST_CELLS, ContentLayout

__all__ = ["CellTable"]


@dataclass(frozen=True, eq=False)
class CellTable:
    """The cells of ``layout``, and the first cell of each task's range in the order in which tasks start: a range ends
    where the next one begins. ``key_types`` are those of the keys that were hashed.

    Raises
    ------
    PlanError : Cells are no power of two, too many, or no ranges of theirs are given.

    Examples
    --------
    >>> table = CellTable(ContentLayout(hosts=4, pieces=2), (4, 0, 5))
    >>> table.task_of_cell.tolist(), table.splits
    ([1, 1, 1, 1, 0, 2, 2, 2], True)
    """

    layout: ContentLayout
    firsts: tuple[int, ...]
    key_types: tuple[str, ...] = ()

    __reduce__ = by_fields

    def __post_init__(self) -> None:
        for name, value in (("hosts", self.layout.hosts), ("pieces", self.layout.pieces)):
            if value < 1 or value & (value - 1):
                raise PlanError(f"{value} {name} of cells: a power of two is needed, as bits of a hash say which")
        cells = self.layout.cells
        if cells > MOST_CELLS:
            raise PlanError(f"{cells} cells: there may be {MOST_CELLS} at most")
        ordered = sorted(set(self.firsts))
        if len(ordered) != len(self.firsts) or ordered[:1] != [0] or ordered[-1] >= cells:
            raise PlanError(f"ranges that begin at {ordered[:5]} ...: each of {cells} cells must be in one of them")

    @classmethod
    def of(cls, ranges: TaskRanges, layout: ContentLayout, key_types: tuple[str, ...] = ()) -> CellTable:
        """Of ranges that were decided on, none of which is cut by map tasks."""
        if ranges.cuts:
            raise PlanError("a cell is cut by map tasks, which are others when a batch runs again")
        return cls(layout, tuple(one.first for one in ranges.ranges), key_types)

    @property
    def partitions(self) -> int:
        """The tasks."""
        return len(self.firsts)

    @property
    def splits(self) -> bool:
        """Whether rows of one host are in several tasks, so that each row needs a spread hash."""
        return any(first % self.layout.pieces for first in self.firsts)

    @derived
    def task_of_cell(self) -> I32:
        """The task that reads each cell."""
        firsts = np.array(self.firsts, np.int64)
        order = np.argsort(firsts)
        return np.repeat(order, np.diff(firsts[order], append=self.layout.cells)).astype(np.int32)

    def route(self, hashes: U64, spread: U64 | None = None) -> I32:
        """The task of each row, by the hash of its key and, where keys are cut, its spread hash."""
        if self.splits and spread is None:
            raise PlanError("keys are cut, so each row needs a spread hash")
        layout = self.layout
        cells = host_of(hashes_of(hashes, "hashes"), _bits(layout.hosts)) * layout.pieces
        if spread is not None:
            cells = cells + host_of(hashes_of(spread, "spread"), _bits(layout.pieces))
        out: I32 = self.task_of_cell[cells]
        return out

    # -- what a histogram says of the tasks -------------------------------------------------------------------

    @derived
    def _shares(self) -> tuple[I64, I64, F64]:
        """The hosts of the tasks, as pairs of host and task, and the share of the host's pieces that is there."""
        cells = np.arange(self.layout.cells) // self.layout.pieces * self.partitions + self.task_of_cell
        pairs, pieces = np.unique(cells, return_counts=True)
        return pairs // self.partitions, pairs % self.partitions, pieces / self.layout.pieces

    def loads(self, histogram: Histogram) -> I64:
        """The rows that each task is expected to get of those in ``histogram``, the pieces of a host taken as even."""
        bits = _bits(self.layout.hosts)
        rows = np.bincount(host_of(histogram.hashes, bits), histogram.counts, self.layout.hosts)
        if histogram.tail is not None:
            rows = rows + fold_hosts(histogram.tail.rows, bits)
        host, task, share = self._shares
        sums = np.cumsum(np.bincount(task, rows[host] * share, self.partitions))
        return np.diff(np.rint(sums), prepend=0.0).astype(np.int64)  # whole, with the same sum

    def cardinalities(self, histogram: Histogram) -> I64:
        """The distinct keys of which each task is expected to get a row."""
        bits = _bits(self.layout.hosts)
        host, task, share = self._shares
        begins = np.searchsorted(host, np.arange(self.layout.hosts + 1))
        of_key = host_of(histogram.hashes, bits)
        times = np.diff(begins)[of_key]
        at = np.repeat(begins[of_key] - np.cumsum(times) + times, times) + np.arange(int(times.sum()))
        seen = np.minimum(np.repeat(histogram.counts, times) * share[at], 1.0)
        keys = np.bincount(task[at], seen, self.partitions)
        if histogram.tail is not None:
            tail = histogram.tail.fold(bits)
            each = np.maximum(tail.rows / np.maximum(tail.keys, 1), 1.0)
            keys = keys + np.bincount(task, tail.keys[host] * np.minimum(each[host] * share, 1.0), self.partitions)
        return np.rint(keys).astype(np.int64)


def _bits(number: int) -> int:
    return number.bit_length() - 1
