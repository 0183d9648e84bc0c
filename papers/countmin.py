"""How often a key came, for every key: a count-min sketch with conservative update.

Cormode and Muthukrishnan, "An improved data stream summary" (2005), with the conservative update of Estan
and Varghese (2002): a row raises only those of its cells that are below its new estimate. Dalton's frequency
store when the keys are too many for a map; sized as FIDELITY says: width >= 16 n, depth 4.

What always holds: ``estimate(h) >= f(h)``. And for a key chosen without looking at the sketch's hashes,
``estimate(h) <= f(h) + bound`` with probability at least ``confidence`` = 1 - exp(-depth), where ``bound`` =
e * total / width. Conservative update only lowers estimates, so what is proved of the plain sketch holds for
it too; what is measured is far better (docs/decisions/0003).

A batch is folded to distinct keys first, then every key reads its old estimate and raises its cells to the
largest of (old estimate + its count) over the keys that meet there. Two keys of one batch in one cell do not
add up: the cell still covers each of them, which is all that the guarantee needs. So the state after a batch
does not depend on the order of its rows, and no cell is above what updating row by row gives; it does depend
on how the stream is cut into batches.

Deviations: batches, as said; cells are found by multiply-shift of ``mix`` hashes, 32 bits a row, because the
top bits of the key hash are the same for all keys of one worker.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unskew.core.arrays.mixing import mix
from unskew.core.errors import ConfigError, HistogramError
from unskew.core.sketches.tally import I64, MAX_TOTAL, U64, add_totals, check_hashes, tally

__all__ = ["CountMin"]

_MAX_WIDTH = 1 << 24
_MAX_DEPTH = 16
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@dataclass(eq=False)
class CountMin:
    """A mutable sketch; ``table`` is int64[depth, width]. ``salt`` picks the hash functions."""

    width: int
    depth: int = 4
    salt: int = 0x434D
    total: int = 0
    table: I64 = field(default_factory=lambda: np.empty((0, 0), np.int64))

    def __post_init__(self) -> None:
        if not 1 <= self.width <= _MAX_WIDTH:
            raise ConfigError("width", self.width, f"1 to {_MAX_WIDTH} (16 for each worker, or more)")
        if not 1 <= self.depth <= _MAX_DEPTH:
            raise ConfigError("depth", self.depth, f"1 to {_MAX_DEPTH}")
        if not self.table.size:
            self.table = np.zeros((self.depth, self.width), np.int64)
        self._check_state()

    @classmethod
    def for_workers(cls, workers: int, *, salt: int = 0x434D) -> CountMin:
        """The size whose noise is well under L/n for ``workers`` = n: e/16 of it in a row, and four rows."""
        if workers < 1:
            raise ConfigError("workers", workers, "at least 1")
        return cls(16 * workers, 4, salt)

    @property
    def bound(self) -> float:
        """How much an estimate is too high at most, with probability ``confidence``."""
        return math.e * self.total / self.width

    @property
    def confidence(self) -> float:
        """How sure ``bound`` is, for one key."""
        return 1.0 - math.exp(-self.depth)

    def cells(self, hashes: U64) -> NDArray[np.intp]:
        """Each key's column in each row, intp[depth, keys]: for loops that update key by key."""
        keys = check_hashes(hashes)
        columns = np.empty((self.depth, len(keys)), np.intp)
        for row in range(0, self.depth, 2):
            mixed = mix(keys, self.salt + row // 2)
            columns[row] = (mixed >> _HALF) * np.uint64(self.width) >> _HALF
            if row + 1 < self.depth:
                columns[row + 1] = (mixed & _LOW) * np.uint64(self.width) >> _HALF
        return columns

    def update(self, hashes: U64, counts: NDArray[np.integer] | None = None) -> None:
        """Count one batch of rows (``counts``: how many rows each hash stands for)."""
        batch = tally(hashes, counts)
        total = add_totals(self.total, batch.total)
        columns = self.cells(batch.hashes)
        raised = self._least(columns) + batch.counts
        for row, column in zip(self.table, columns, strict=True):
            np.maximum.at(row, column, raised)
        self.total = total

    def estimate(self, hashes: U64) -> I64:
        """Each key's count, never too low."""
        return self._least(self.cells(hashes))

    def merge(self, other: CountMin) -> CountMin:
        """A sketch of both streams, by adding cells: all that is said above holds for it."""
        settings, other_settings = ((s.width, s.depth, s.salt) for s in (self, other))
        if settings != other_settings:
            raise ConfigError("other", other_settings, f"a sketch of the same width, depth and salt {settings}")
        total = add_totals(self.total, other.total)
        return CountMin(self.width, self.depth, self.salt, total, self.table + other.table)

    def copy(self) -> CountMin:
        """The same state, apart from this one."""
        return CountMin(self.width, self.depth, self.salt, self.total, self.table.copy())

    def clear(self) -> None:
        """Forget all rows: a new statistics interval."""
        self.table[:] = 0
        self.total = 0

    def _least(self, columns: NDArray[np.intp]) -> I64:
        least: I64 = self.table[0].take(columns[0])
        for row, column in zip(self.table[1:], columns[1:], strict=True):
            np.minimum(least, row.take(column), out=least)
        return least

    def _check_state(self) -> None:
        if self.table.dtype != np.int64 or self.table.shape != (self.depth, self.width):
            raise HistogramError(
                f"table: {self.table.dtype}{list(self.table.shape)} is not int64[{self.depth}, {self.width}]"
            )
        if not 0 <= self.total <= MAX_TOTAL:
            raise HistogramError(f"total: {self.total} is not allowed; use 0 to 2**63 - 1")
        low, high = int(self.table.min()), int(self.table.max())
        if low < 0 or high > self.total:
            wrong = low if low < 0 else high
            raise HistogramError(f"table: a cell holds {wrong}; use 0 to the total of {self.total}")
