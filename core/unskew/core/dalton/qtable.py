"""A Q-table as a value: what agents send to a round and get back, keep in a checkpoint, and make plans from.

A row for each hot key (Dalton, section 3.2): the expected reward of sending it to each worker. ``UNTRIED`` is Dalton's
initial -2, "the minimal reward"; with p1 + p2 = 1 no reward is below -1.5 (-1 without a slide term), so no reward is
ever -2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from unskew.core.arrays.frozen import by_fields, freeze, hashes_of
from unskew.core.arrays.ranking import ascending
from unskew.core.arrays.types import F64, I64, U64, Mask
from unskew.core.errors import HistogramError

__all__ = ["UNTRIED", "QTable"]


UNTRIED = -2.0


@dataclass(frozen=True, eq=False)
class QTable:
    """Rows in ascending order of key hash, one a key; n columns, one a worker.

    ``rows`` are the tuples of the key in the span that the table covers (an agent's records since its last sync, or a
    round's sum); ``held`` says which workers have tuples of it in the window: the fragments.
    """

    hashes: U64
    values: F64
    rows: I64
    held: Mask

    __reduce__ = by_fields

    def __post_init__(self) -> None:
        object.__setattr__(self, "hashes", hashes_of(self.hashes, "Q-table"))
        freeze(self, hashes=np.uint64, values=np.float64, rows=np.int64, held=np.bool_)
        keys = len(self.hashes)
        shaped = self.values.ndim == 2 and self.values.shape[0] == keys and self.values.shape == self.held.shape
        if not shaped or self.rows.shape != (keys,):
            raise HistogramError(
                f"Q-table: {keys} keys, values {self.values.shape}, rows {self.rows.shape}, held {self.held.shape}; "
                "give one row of values and held, and one number of tuples, for each key"
            )
        if not ascending(self.hashes):
            raise HistogramError("Q-table: keys are not in ascending order without repeats; sort them by hash")
        # A NaN makes both ends NaN, which is within no bound.
        if self.values.size and not (self.values.min() >= UNTRIED and self.values.max() <= 2.0):
            raise HistogramError(f"Q-table: a value is not a number from {UNTRIED} (never tried) to 2")
        if keys and self.rows.min() < 0:
            raise HistogramError("Q-table: a key has fewer than 0 tuples")

    def __eq__(self, other: object) -> bool:
        """Equal to the bit."""
        if not isinstance(other, QTable):
            return NotImplemented
        return all(np.array_equal(array, getattr(other, name)) for name, array in vars(self).items())

    __hash__ = None  # type: ignore[assignment]  # equality compares arrays: not for dictionaries

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def workers(self) -> int:
        return int(self.values.shape[1])

    @classmethod
    def empty(cls, workers: int) -> QTable:
        none = np.zeros((0, workers))
        return cls(np.zeros(0, np.uint64), none, np.zeros(0, np.int64), none.astype(np.bool_))

    @classmethod
    def of(cls, hashes: ArrayLike, values: ArrayLike, rows: ArrayLike, held: ArrayLike) -> QTable:
        """A table from rows in any order."""
        keys = hashes_of(hashes, "Q-table")
        order = np.argsort(keys)
        parts = (np.asarray(part)[order] for part in (values, rows, held))
        return cls(keys[order], *parts)

    def take(self, hashes: U64) -> QTable:
        """Only the rows of these keys, as far as there are any."""
        some = np.isin(self.hashes, hashes)
        return QTable(self.hashes[some], self.values[some], self.rows[some], self.held[some])

    def resized(self, workers: int) -> QTable:
        """The table for another number of workers: new ones untried, the last ones dropped (FIDELITY, Algorithm 4)."""
        values = np.full((len(self), workers), UNTRIED)
        held = np.zeros((len(self), workers), np.bool_)
        both = min(workers, self.workers)
        values[:, :both], held[:, :both] = self.values[:, :both], self.held[:, :both]
        return QTable(self.hashes, values, self.rows, held)
