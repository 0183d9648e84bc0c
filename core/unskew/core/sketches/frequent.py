"""Which keys are heavy: a mergeable frequent-items summary that states its error.

Misra-Gries with at most ``capacity`` counters, in the mergeable form of Agarwal, Cormode, Huang, Phillips,
Wei and Yi, "Mergeable Summaries" (PODS 2012): add the counters of both sides, subtract the (k+1)-th largest
from all, drop what is not positive. Agents report it to a round (FIDELITY, Dalton, "no heavy hitter is missed").

What always holds, f(h) being the true count of a key:

* ``lower(h) <= f(h) <= upper(h)``, and ``upper(h) - lower(h) = error``; for a key that is not listed
  ``lower`` is 0 and ``upper`` is ``error``, so every key with f(h) > error is listed;
* ``error <= bound = total // (capacity + 1) + rounding``; ``rounding`` is 0 in all that this release makes;
* while no more than ``capacity`` distinct keys were seen, all counts are exact (error 0).

Order: one batch gives the same state in any row order; ``merge(a, b)`` equals ``merge(b, a)`` to the bit,
and ``merge_all`` gives the same state for any order of its arguments. Nested merges and another cut into
batches keep the guarantees, but are equal to the bit only while error is 0: subtracting earlier or later
keeps different light keys.

Deviations from the paper: a batch is one merge with the batch's exact counts (any number of keys) instead of
single insertions; ``error`` is what was really subtracted instead of what the totals allow; summaries of
different capacity merge to the smaller one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from unskew.core.arrays.frozen import frozen
from unskew.core.arrays.ranking import ascending, look_up
from unskew.core.errors import ConfigError, HistogramError
from unskew.core.sketches.tally import I64, MAX_TOTAL, U64, add_totals, check_counts, check_hashes, exact_sum, tally

__all__ = ["FrequentItems", "HeavyVerdict"]


class HeavyVerdict(IntEnum):
    """What a summary can say about a key and a threshold."""

    COLD = 0  # the true count is certainly below it
    UNKNOWN = 1  # the error of the summary is too large to tell
    HOT = 2  # the true count certainly reaches it


@dataclass(frozen=True, eq=False)
class FrequentItems:
    """An immutable summary; ``FrequentItems(capacity)`` is the empty one.

    >>> s = FrequentItems(2).update(np.array([7, 7, 7, 8, 8, 9], np.uint64))
    >>> s.hashes.tolist(), s.counts.tolist(), s.error, s.total
    ([7, 8], [2, 1], 1, 6)
    """

    capacity: int
    hashes: U64 = field(default_factory=lambda: np.empty(0, np.uint64))
    counts: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    error: int = 0
    total: int = 0
    rounding: int = 0

    def __post_init__(self) -> None:
        """Freeze the arrays, and refuse a state for which the guarantees above cannot hold."""
        if self.capacity < 1:
            raise ConfigError("capacity", self.capacity, "a whole number of counters, at least 1")
        hashes = check_hashes(self.hashes)
        object.__setattr__(self, "hashes", frozen(hashes, np.uint64))
        object.__setattr__(self, "counts", frozen(check_counts(self.counts, len(hashes)), np.int64))
        self._check_state()

    def __eq__(self, other: object) -> bool:
        """Equal to the bit: same counters, error, total, rounding and capacity."""
        if not isinstance(other, FrequentItems):
            return NotImplemented
        return all(np.array_equal(value, getattr(other, name)) for name, value in vars(self).items())

    __hash__ = None  # type: ignore[assignment]  # equality compares arrays: not for dictionaries

    @property
    def bound(self) -> int:
        """The largest ``error`` that a summary of this size can have."""
        return self.total // (self.capacity + 1) + self.rounding

    def update(self, hashes: U64, counts: NDArray[np.integer] | None = None) -> FrequentItems:
        """The summary after one more batch of rows (``counts``: how many rows each hash stands for)."""
        batch = tally(hashes, counts)
        total = add_totals(self.total, batch.total)
        both = tally(np.concatenate([self.hashes, batch.hashes]), np.concatenate([self.counts, batch.counts]))
        listed, rest, cut = _reduce(both.hashes, both.counts, self.capacity)
        return FrequentItems(self.capacity, listed, rest, self.error + cut, total, self.rounding)

    def merge(self, other: FrequentItems) -> FrequentItems:
        """The summary of both streams; the same from either side."""
        return FrequentItems.merge_all([self, other])

    @staticmethod
    def merge_all(summaries: Iterable[FrequentItems]) -> FrequentItems:
        """The summary of all streams at once: subtracts once, and does not depend on the order."""
        parts = list(summaries)
        if not parts:
            raise HistogramError("summaries: nothing to merge; give at least one FrequentItems")
        capacity = min(part.capacity for part in parts)
        total = add_totals(*(part.total for part in parts))
        both = tally(np.concatenate([part.hashes for part in parts]), np.concatenate([part.counts for part in parts]))
        listed, rest, cut = _reduce(both.hashes, both.counts, capacity)
        error = sum(part.error for part in parts) + cut
        return FrequentItems(capacity, listed, rest, error, total, sum(part.rounding for part in parts))

    def lower(self, hashes: U64) -> I64:
        """The least that each key's true count can be."""
        return look_up(self.hashes, self.counts, check_hashes(hashes))

    def upper(self, hashes: U64) -> I64:
        """The most that each key's true count can be."""
        return self.lower(hashes) + np.int64(self.error)

    def verdicts(self, hashes: U64, threshold: float) -> NDArray[np.int8]:
        """A ``HeavyVerdict`` for each key: does its true count reach ``threshold``?"""
        lower = self.lower(hashes)
        if not 0 <= threshold < math.inf:
            raise ConfigError("threshold", threshold, "a finite number of rows, at least 0")
        # Counts are whole, so f >= threshold is f >= ceil(threshold): exact where float64 is not.
        least = math.ceil(threshold)
        if least > MAX_TOTAL:
            return np.full(len(lower), HeavyVerdict.COLD, np.int8)
        hot, maybe = lower >= least, lower >= least - self.error
        return np.where(hot, HeavyVerdict.HOT, np.where(maybe, HeavyVerdict.UNKNOWN, HeavyVerdict.COLD)).astype(np.int8)

    def _check_state(self) -> None:
        if len(self.hashes) > self.capacity:
            raise HistogramError(f"hashes: {len(self.hashes)} counters, but the capacity is {self.capacity}")
        if not ascending(self.hashes):
            raise HistogramError("hashes: not in rising order without repeats; build summaries with update")
        if len(self.counts) and self.counts.min() < 1:
            raise HistogramError("counts: a listed key has no rows; list keys with a count of at least 1")
        if not 0 <= self.total <= MAX_TOTAL:
            raise HistogramError(f"total: {self.total} is not allowed; use 0 to 2**63 - 1")
        unlisted = self.total - exact_sum(self.counts)
        if not 0 <= self.rounding <= self.error <= unlisted:
            raise HistogramError(
                f"error: {self.error} with rounding {self.rounding} is not allowed; "
                f"use 0 <= rounding <= error <= {unlisted}, the rows that the counters leave out"
            )
        if (self.error - self.rounding) * (self.capacity + 1) > unlisted:
            raise HistogramError(
                f"error: {self.error} passes what {unlisted} uncounted rows allow with {self.capacity} "
                f"counters: {unlisted // (self.capacity + 1)} + rounding {self.rounding}"
            )


def _reduce(hashes: U64, counts: I64, capacity: int) -> tuple[U64, I64, int]:
    """Subtract the (capacity + 1)-th largest count from all, and drop what is not positive."""
    if len(counts) <= capacity:
        return hashes, counts, 0
    place = len(counts) - capacity - 1
    cut = np.partition(counts, place)[place]
    keep = counts > cut
    return hashes[keep], counts[keep] - cut, int(cut)
