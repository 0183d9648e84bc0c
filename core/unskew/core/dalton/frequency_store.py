"""How often each key came in this interval: Dalton's hybrid frequency store (section 3.3), compiled.

An interval is STATS_WIN. One of two stores is in use: an exact open table, or a count-min sketch with conservative
update, whose cost does not grow with the number of keys. The interval before decides which: the sketch after more than
HIGH distinct keys, the table again after fewer than LOW (counted by the bits that they set in a bitmap). Nothing but
that bitmap is cleared between intervals: a count carries the number of its interval.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unskew.core.arrays.types import I64, U64
from unskew.core.kernels.base import Int, inner, kernel
from unskew.core.kernels.choices import mixed

__all__ = ["Frequencies", "all_counts", "close_interval", "copy_counts", "count_tuple", "counts_of", "frequency"]


KEY, STAMPED = 0, 1  # a place of the table: a key, and (interval, count) in one word
INTERVAL, RECORDS, SPAN, DISTINCT, MODE, HIGH, LOW = 0, 1, 2, 3, 4, 5, 6  # Frequencies.tally
MAP, SKETCH = 0, 1

_DEPTH = 4
_ONE, _S6, _S32 = np.uint64(1), np.uint64(6), np.uint64(32)
_COUNT, _WORD = np.uint64(0xFFFFFFFF), np.uint64(63)
_GAMMA = np.uint64(0x9E3779B97F4A7C15)


class Frequencies(NamedTuple):
    """The store; ``routers.learner`` makes and grows it. SPAN is the load of the interval before: Dalton's L."""

    table: U64
    cells: U64
    bits: U64
    tally: I64


@inner
def cell_of(hashed: np.uint64, key: np.uint64, stamp: np.uint64, table: U64) -> Int:
    """The cell of a key, or where it would go; cells of other intervals count as empty."""
    mask = table.shape[0] - 1
    at = np.int64(hashed >> _S32) & mask
    while (table[at, STAMPED] >> _S32) == stamp and table[at, KEY] != key:
        at = (at + 1) & mask
    return at


@inner
def sketch_count(hashed: np.uint64, stamp: np.uint64, cells: U64) -> np.uint64:
    """The sketch's count of a key: the least of its cells."""
    mask = np.uint64(cells.shape[1] - 1)
    at, stride = hashed >> _S32, (hashed & _COUNT) | _ONE
    lowest = _COUNT
    for row in range(_DEPTH):
        cell = cells[row, np.int64(at & mask)]
        lowest = min(lowest, cell & _COUNT if (cell >> _S32) == stamp else np.uint64(0))
        at += stride
    return lowest


@inner
def count_tuple(key: np.uint64, table: U64, cells: U64, bits: U64, tally: I64) -> Int:
    """Count a tuple of this key; return its tuples in this interval, an upper bound where the sketch is in use."""
    hashed, stamp = mixed(key, _ONE), np.uint64(tally[INTERVAL])
    tally[RECORDS] += 1
    if tally[MODE] == MAP:
        at = cell_of(hashed, key, stamp, table)
        if (table[at, STAMPED] >> _S32) != stamp:
            table[at, KEY], table[at, STAMPED] = key, stamp << _S32
            tally[DISTINCT] += 1
        if (table[at, STAMPED] & _COUNT) != _COUNT:  # a count of 2^32 would change the interval in the same word
            table[at, STAMPED] += _ONE
        return np.int64(table[at, STAMPED] & _COUNT)
    bit = ((hashed * _GAMMA) >> _S32) & np.uint64((bits.shape[0] << 6) - 1)
    if not (bits[np.int64(bit >> _S6)] >> (bit & _WORD)) & _ONE:
        bits[np.int64(bit >> _S6)] |= _ONE << (bit & _WORD)
        tally[DISTINCT] += 1
    mask = np.uint64(cells.shape[1] - 1)
    count = min(sketch_count(hashed, stamp, cells) + _ONE, _COUNT)
    at, stride, full = hashed >> _S32, (hashed & _COUNT) | _ONE, (stamp << _S32) | count
    for row in range(_DEPTH):
        place = np.int64(at & mask)
        cells[row, place] = max(cells[row, place], full)
        at += stride
    return np.int64(count)


@inner
def frequency(key: np.uint64, table: U64, cells: U64, tally: I64) -> Int:
    """The tuples of this key in this interval, without counting one."""
    hashed, stamp = mixed(key, _ONE), np.uint64(tally[INTERVAL])
    if tally[MODE] == SKETCH:
        return np.int64(sketch_count(hashed, stamp, cells))
    at = cell_of(hashed, key, stamp, table)
    return np.int64(table[at, STAMPED] & _COUNT) if (table[at, STAMPED] >> _S32) == stamp else np.int64(0)


@kernel
def counts_of(keys: U64, now: Frequencies, out: I64) -> None:
    """The tuples of each of these keys in this interval."""
    for i in range(keys.shape[0]):
        out[i] = frequency(keys[i], now.table, now.cells, now.tally)


@inner
def close_interval(bits: U64, tally: I64) -> None:
    """End the interval: its load becomes L, and its distinct keys decide which store the next one uses."""
    if tally[MODE] == MAP:
        if tally[DISTINCT] > tally[HIGH]:
            tally[MODE] = SKETCH
    else:
        if tally[DISTINCT] < tally[LOW]:
            tally[MODE] = MAP
        bits[:] = np.uint64(0)
    tally[SPAN] = tally[RECORDS]
    tally[INTERVAL] += 1
    tally[RECORDS] = 0
    tally[DISTINCT] = 0


@kernel
def all_counts(table: U64, interval: int, keys: U64, counts: I64) -> Int:
    """Copy all keys of this interval and their counts from the exact table; return how many there are."""
    size = 0
    for at in range(table.shape[0]):
        if np.int64(table[at, STAMPED] >> _S32) == interval:
            keys[size], counts[size] = table[at, KEY], np.int64(table[at, STAMPED] & _COUNT)
            size += 1
    return size


@kernel
def copy_counts(table: U64, interval: int, wider: U64) -> None:
    """Copy this interval's counts to a wider table."""
    stamp = np.uint64(interval)
    for at in range(table.shape[0]):
        if (table[at, STAMPED] >> _S32) == stamp:
            place = cell_of(mixed(table[at, KEY], _ONE), table[at, KEY], stamp, wider)
            wider[place, KEY], wider[place, STAMPED] = table[at, KEY], table[at, STAMPED]
