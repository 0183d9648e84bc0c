"""What a planner sees of a histogram: the heavy keys one by one, all others by host.

How many keys are listed decides how exact and how large a plan can be; each planner says how many it needs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.core.arrays.ranking import heaviest, marked
from unskew.core.arrays.types import I64, U64, Index, Mask
from unskew.core.histogram.histogram import Histogram
from unskew.core.limits import host_bits, listed_budget

__all__ = ["SPREAD_PER_FRAGMENT", "PlannerView"]

# A fragment with fewer distinct spread values than this may be far from its planned share, or empty: identical
# rows have one spread hash and always land together.
SPREAD_PER_FRAGMENT = 16


@dataclass(frozen=True, eq=False)
class PlannerView:
    """Heavy keys in descending order (ties by hash), and rows and distinct keys per host for the rest."""

    partitions: int
    hashes: U64
    rows: I64
    splittable: Mask
    host_rows: I64
    host_keys: I64
    total: int

    @classmethod
    def of(cls, histogram: Histogram, partitions: int, limit: int, smallest: float = 1.0) -> PlannerView:
        """List the ``limit`` heaviest keys, as far as a plan can; hosts as a plan for so many partitions has them.
        ``smallest`` is the least room that a key may be cut to, in mean loads: it bounds a key's fragments."""
        top = heaviest(histogram.hashes, histogram.counts, min(limit, listed_budget(partitions)))
        tail = histogram.fold(marked(top, len(histogram.hashes)), host_bits(partitions))
        rows = histogram.counts[top]
        return cls(
            partitions, histogram.hashes[top], rows, _splittable(histogram, top, rows, partitions, smallest), tail.rows,
            tail.keys, histogram.total,
        )  # fmt: skip

    @property
    def mean(self) -> float:
        """Rows of an average partition."""
        return self.total / self.partitions


def _splittable(histogram: Histogram, top: Index, rows: I64, partitions: int, smallest: float) -> Mask:
    if histogram.spread is None:
        return np.ones(len(top), bool)
    room = max(histogram.total / partitions * smallest, 1.0)
    fragments = np.minimum(np.ceil(rows / room) + 2, partitions)
    enough: Mask = histogram.spread[top] >= SPREAD_PER_FRAGMENT * fragments
    return enough
