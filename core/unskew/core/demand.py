"""What a planner sees of a histogram: the heavy keys one by one, everything else by host.

Which keys are listed decides how fine a plan can be and how large it gets; the planners say how many they want.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from unskew.core.histogram import Histogram, exact_sum, top_rows
from unskew.core.plan import MAX_BYTES, host_bits

__all__ = ["MAX_LISTED", "SPREAD_PER_FRAGMENT", "Demand", "listed_budget"]

# A fragment with fewer distinct spread values than this may be far from its planned share, or empty: identical
# rows have one spread hash and always land together.
SPREAD_PER_FRAGMENT = 16

MAX_LISTED = 16_384
_BYTES_PER_HOST = 2
_BYTES_PER_LISTED = 48  # a listed key at its largest: hash, home, rows, reason, displacement and two slots


def listed_budget(partitions: int) -> int:
    """How many keys a plan for this many partitions can list and stay under its bound of 1 MB."""
    return min(MAX_LISTED, (MAX_BYTES - (_BYTES_PER_HOST << host_bits(partitions))) // _BYTES_PER_LISTED)


@dataclass(frozen=True, eq=False)
class Demand:
    """Heavy keys in descending order (ties by hash), and rows and distinct keys per host for the rest."""

    partitions: int
    hashes: NDArray[np.uint64]
    rows: NDArray[np.int64]
    splittable: NDArray[np.bool_]
    host_rows: NDArray[np.int64]
    host_keys: NDArray[np.int64]
    total: int
    keys: int

    @classmethod
    def of(cls, histogram: Histogram, partitions: int, limit: int, bits: int | None = None) -> Demand:
        """List the ``limit`` heaviest keys, as far as a plan can; hosts as a plan for so many partitions has them."""
        top = top_rows(histogram.hashes, histogram.counts, min(limit, listed_budget(partitions)))
        listed = np.zeros(len(histogram.hashes), bool)
        listed[top] = True
        tail = histogram.fold(listed, host_bits(partitions) if bits is None else bits)
        rows = histogram.counts[top]
        return cls(
            partitions,
            histogram.hashes[top],
            rows,
            _splittable(histogram, top, rows, partitions),
            tail.rows,
            tail.keys,
            histogram.total,
            histogram.keys,
        )

    @cached_property
    def tail_rows(self) -> int:
        return exact_sum(self.host_rows)

    @property
    def mean(self) -> float:
        """Rows of an average partition."""
        return self.total / self.partitions

    @property
    def bits(self) -> int:
        return len(self.host_rows).bit_length() - 1


def _splittable(
    histogram: Histogram, top: NDArray[np.intp], rows: NDArray[np.int64], partitions: int
) -> NDArray[np.bool_]:
    if histogram.spread is None:
        return np.ones(len(top), bool)
    mean = max(histogram.total / partitions, 1.0)
    fragments = np.minimum(np.ceil(rows / mean) + 1, partitions)
    enough: NDArray[np.bool_] = histogram.spread[top] >= SPREAD_PER_FRAGMENT * fragments
    return enough
