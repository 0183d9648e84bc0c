"""How many rows each key has: one by one for all keys, or one by one for heavy keys and by host for the rest.

A histogram is a value: its arrays are sorted by key hash, so equal contents are equal bytes, whatever the order in
which they were counted or merged. ``tail`` holds the keys that are not listed one by one: rows and distinct keys
per *host*, the equal ranges of the hash space that a plan's tail routes by (DESIGN section 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
from numpy.typing import ArrayLike

from unskew.core.arrays.frozen import by_fields, derived, freeze, hashes_of, sealed
from unskew.core.arrays.ranking import ascending, heaviest, look_up, marked, run_starts
from unskew.core.arrays.types import I64, U64, Mask
from unskew.core.errors import HistogramError
from unskew.core.sketches.tally import exact_sum

__all__ = ["MAX_ROWS", "Histogram", "Tail", "fold_hosts", "host_of"]


MAX_ROWS = 2**63 - 1


def host_of(hashes: U64, bits: int) -> I64:
    """The host of each key hash among ``2**bits``: its top bits."""
    if bits == 0:
        return np.zeros(len(hashes), np.int64)
    return (hashes >> np.uint64(64 - bits)).view(np.int64)


def fold_hosts(per_host: I64, bits: int) -> I64:
    """The counts over ``2**bits`` hosts: summed where that is coarser, shared out evenly where finer."""
    have = len(per_host).bit_length() - 1
    if bits <= have:
        coarse: I64 = per_host.reshape(1 << bits, -1).sum(axis=1)
        return coarse
    parts = 1 << (bits - have)
    share, rest = np.divmod(per_host, parts)
    spread = np.repeat(share, parts).reshape(-1, parts)
    spread += np.arange(parts) < rest[:, None]
    return spread.reshape(-1)


@dataclass(frozen=True, eq=False)
class Tail:
    """Rows and distinct keys of the unlisted keys, per host."""

    rows: I64
    keys: I64

    def __post_init__(self) -> None:
        freeze(self, rows=np.int64, keys=np.int64)
        hosts = len(self.rows)
        if hosts == 0 or hosts & (hosts - 1) or len(self.keys) != hosts:
            raise HistogramError(
                f"tail: {hosts} row counts and {len(self.keys)} key counts; give one of each per host, and a power "
                "of two of hosts"
            )
        if (self.keys < 0).any() or (self.keys > self.rows).any():
            raise HistogramError("tail: every host has zero or more keys, and at least a row for each of them")
        if exact_sum(self.rows) > MAX_ROWS:
            raise HistogramError(f"tail: {exact_sum(self.rows)} rows in all; a histogram holds at most 2^63 - 1")

    __reduce__ = by_fields

    @property
    def bits(self) -> int:
        return len(self.rows).bit_length() - 1

    def fold(self, bits: int) -> Tail:
        return Tail(fold_hosts(self.rows, bits), fold_hosts(self.keys, bits))

    def plus(self, other: Tail) -> Tail:
        bits = min(self.bits, other.bits)
        a, b = self.fold(bits), other.fold(bits)
        return Tail(a.rows + b.rows, a.keys + b.keys)


@dataclass(frozen=True, eq=False)
class Histogram:
    """Rows per key hash: the input of every planner. Build it with ``from_hashes`` or ``from_counts``.

    Parameters
    ----------
    hashes
        The listed keys' hashes, ascending.
    counts
        The rows of each listed key, 1 or more.
    tail
        Rows and distinct keys of all other keys, by host.
    spread
        How many distinct spread values each listed key has, where that was counted. A key cannot be split among more
        partitions than that (DESIGN section 4).

    Raises
    ------
    HistogramError
        If lengths differ, hashes are not ascending, a count is below 1, or there are more than 2^63 - 1 rows.

    Examples
    --------
    >>> from unskew.core import Histogram, hash_keys
    >>> rows = Histogram.from_hashes(hash_keys(["a", "b", "a"]))
    >>> rows.total, rows.keys, rows.count(hash_keys(["a", "c"])).tolist()
    (3, 2, [2, 0])
    """

    hashes: U64
    counts: I64
    tail: Tail | None = None
    spread: I64 | None = None
    _checked: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        freeze(self, hashes=np.uint64, counts=np.int64, spread=np.int64)
        if not self._checked:
            self._check()
        if self.total > MAX_ROWS:
            raise HistogramError(
                f"{self.total} rows in all; a histogram holds at most 2^63 - 1: decay or split it first"
            )

    __reduce__ = by_fields

    def _check(self) -> None:
        lengths = {len(self.hashes), len(self.counts), len(self.hashes if self.spread is None else self.spread)}
        if len(lengths) > 1:
            raise HistogramError(f"{len(self.hashes)} hashes but {len(self.counts)} counts: give one of each a key")
        if not ascending(self.hashes):
            raise HistogramError("hashes must be sorted and distinct: build with Histogram.from_counts")
        if (self.counts <= 0).any():
            raise HistogramError("counts must be 1 or more: leave out the keys that have no row")

    @classmethod
    def empty(cls) -> Histogram:
        """The histogram of no rows."""
        return cls(np.zeros(0, np.uint64), np.zeros(0, np.int64))

    @classmethod
    def from_hashes(cls, hashes: U64) -> Histogram:
        """Count the rows of each key hash. Give hashes as ``hash_keys`` returns them, not the keys themselves."""
        ordered = np.sort(hashes_of(hashes, "hashes"))
        first = run_starts(ordered)
        return cls(sealed(ordered[first]), sealed(np.diff(first, append=len(ordered))), _checked=True)

    @classmethod
    def from_counts(cls, hashes: U64, counts: ArrayLike, tail: Tail | None = None) -> Histogram:
        """Make a histogram from counts in any order; counts of equal hashes are added up, zeros left out."""
        rows = _as_counts(counts)
        keys = hashes_of(hashes, "hashes")
        if len(rows) != len(keys):
            raise HistogramError(f"{len(keys)} hashes but {len(rows)} counts: give one count a hash")
        if exact_sum(rows) > MAX_ROWS:
            raise HistogramError(f"{exact_sum(rows)} rows in all; a histogram holds at most 2^63 - 1")
        keys, rows = keys[rows > 0], rows[rows > 0]
        order = np.argsort(keys, kind="stable")
        keys, rows = keys[order], rows[order]
        first = run_starts(keys)
        summed = np.add.reduceat(rows, first) if len(first) else rows
        return cls(sealed(keys[first]), sealed(summed), tail, _checked=True)

    @derived
    def listed(self) -> int:
        """How many rows the listed keys have."""
        return exact_sum(self.counts)

    @derived
    def total(self) -> int:
        """How many rows all keys have."""
        return self.listed + (exact_sum(self.tail.rows) if self.tail else 0)

    @derived
    def keys(self) -> int:
        """How many distinct keys there are, including those of the tail."""
        return len(self.hashes) + (exact_sum(self.tail.keys) if self.tail else 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Histogram) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def _parts(self) -> tuple[bytes | None, ...]:
        tail = (self.tail.rows, self.tail.keys) if self.tail else (None, None)
        arrays = (self.hashes, self.counts, self.spread, *tail)
        return tuple(None if array is None else array.tobytes() for array in arrays)

    def merge(self, *others: Histogram) -> Histogram:
        """The histogram of all rows of this one and ``others``; order and grouping of merges make no difference."""
        parts = (self, *others)
        tails = [part.tail for part in parts if part.tail is not None]
        merged = Histogram.from_counts(
            np.concatenate([part.hashes for part in parts]),
            np.concatenate([part.counts for part in parts]),
            reduce(Tail.plus, tails) if tails else None,
        )
        return merged._with_spread(parts)

    def _with_spread(self, parts: Sequence[Histogram]) -> Histogram:
        """Take the largest spread of any part: the union has at least as many values. 0 where no part counted them."""
        with_spread = [part for part in parts if part.spread is not None]
        if not with_spread:
            return self
        spread = np.zeros(len(self.hashes), np.int64)
        for part in with_spread:
            at = np.searchsorted(self.hashes, part.hashes)
            spread[at] = np.maximum(spread[at], part.spread if part.spread is not None else 0)
        return Histogram(self.hashes, self.counts, self.tail, spread, _checked=True)

    def top(self, limit: int) -> tuple[U64, I64]:
        """The ``limit`` heaviest listed keys and their rows, heaviest first, ties by hash."""
        index = heaviest(self.hashes, self.counts, limit)
        return self.hashes[index], self.counts[index]

    def count(self, hashes: U64) -> I64:
        """Rows of each of these keys; 0 where a key is not listed."""
        return look_up(self.hashes, self.counts, hashes_of(hashes, "hashes"))

    def decay(self, factor: float) -> Histogram:
        """Every count times ``factor``; keys that fall below one row are dropped.

        What rounding takes from one key goes to a later one, so that the sum is right to a row: of a thousand keys with
        a row each, half as many stay at 0.5. Rounding all down would make the heavy keys' share too large.
        """
        if not 0.0 <= factor <= 1.0:
            raise HistogramError(f"decay factor {factor!r} is not allowed; use 0.0 to 1.0")
        if factor == 1.0:
            return self
        counts = _scaled(self.counts, factor)
        alive = counts > 0
        spread = self.spread[alive] if self.spread is not None else None
        tail = None
        if self.tail is not None:
            rows = _scaled(self.tail.rows, factor)
            tail = Tail(rows, np.minimum(self.tail.keys, rows))
        return Histogram(self.hashes[alive], counts[alive], tail, spread, _checked=True)

    def shortened(self, limit: int, bits: int) -> Histogram:
        """The ``limit`` heaviest keys one by one, all others by host (2^``bits`` of them)."""
        listed = marked(heaviest(self.hashes, self.counts, limit), len(self.hashes))
        spread = None if self.spread is None else self.spread[listed]
        return Histogram(self.hashes[listed], self.counts[listed], self.fold(listed, bits), spread)

    def fold(self, listed: Mask, bits: int) -> Tail:
        """All keys but the ``listed`` ones, by host (2^``bits`` of them)."""
        hosts = host_of(self.hashes, bits)
        size = 1 << bits
        unlisted = np.where(listed, 0, self.counts)
        rows = _binned(hosts, unlisted, size)
        keys = np.bincount(hosts, minlength=size) - np.bincount(hosts[listed], minlength=size)
        tail = Tail(rows, keys)
        return tail if self.tail is None else tail.plus(self.tail.fold(bits))


def _scaled(counts: I64, factor: float) -> I64:
    exact = np.minimum(counts * factor, float(MAX_ROWS - 1023))
    whole = np.floor(exact)
    carried = np.floor(np.cumsum(exact - whole) + 0.5)
    scaled: I64 = (whole + np.diff(carried, prepend=0.0)).astype(np.int64)
    return scaled


def _binned(hosts: I64, counts: I64, size: int) -> I64:
    """Integer sums per host. ``bincount`` adds in doubles, exact below 2^53; above that add in integers."""
    if len(counts) == 0 or exact_sum(counts) < 2**53:
        return np.bincount(hosts, weights=counts, minlength=size).astype(np.int64)
    sums = np.zeros(size, np.int64)
    np.add.at(sums, hosts, counts)
    return sums


def _as_counts(counts: ArrayLike) -> I64:
    raw = np.asarray(counts)
    if raw.size == 0:
        return np.zeros(0, np.int64)
    if raw.dtype.kind not in "iu" or (raw.dtype == np.uint64 and raw.max() > np.uint64(MAX_ROWS)):
        raise HistogramError(f"counts of type {raw.dtype}: give whole numbers of rows, 0 to 2^63 - 1")
    if (raw < 0).any():
        raise HistogramError(f"counts: {raw.min()} is negative; a key has zero or more rows")
    return raw.astype(np.int64)
