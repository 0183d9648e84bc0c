"""How often a key came in this interval: Dalton's hybrid frequency store (section 3.3), by the rules of ``kernels``.

An interval is STATS_WIN. Two stores, one in use: an exact open table, or a count-min sketch with conservative update,
whose cost does not grow with the number of keys. Which, the interval before decides: the sketch after more than HIGH
distinct keys, the table again after fewer than LOW of them (as many bits as they set in a bitmap of linear counting).
Nothing is cleared between intervals but that bitmap: a count carries the number of the interval it belongs to.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.core.kernels.base import inner, kernel, mixed

__all__ = [
    "DISTINCT",
    "HIGH",
    "INTERVAL",
    "LOW",
    "MAP",
    "MODE",
    "RECORDS",
    "SKETCH",
    "SPAN",
    "Frequencies",
    "close",
    "counted",
    "frequency",
    "listed",
    "noted",
    "recount",
]

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
Int = Any  # an int in plain Python, an int64 where compiled

KEY, STAMPED = 0, 1  # a place of the table: a key, and (interval, count) in one word
INTERVAL, RECORDS, SPAN, DISTINCT, MODE, HIGH, LOW = 0, 1, 2, 3, 4, 5, 6  # Frequencies.tally
MAP, SKETCH = 0, 1

_DEPTH = 4
_ONE, _S6, _S32 = np.uint64(1), np.uint64(6), np.uint64(32)
_COUNT, _WORD = np.uint64(0xFFFFFFFF), np.uint64(63)
_GAMMA = np.uint64(0x9E3779B97F4A7C15)


class Frequencies(NamedTuple):
    """``routers.dalton`` makes it and lets the table grow. SPAN is the load of the interval before: Dalton's L."""

    table: U64
    cells: U64
    bits: U64
    tally: I64


@inner
def spot(hashed: np.uint64, key: np.uint64, stamp: np.uint64, table: U64) -> Int:
    """Where a key is in the table, or where it would go; places of other intervals count as empty."""
    mask = table.shape[0] - 1
    at = np.int64(hashed >> _S32) & mask
    while (table[at, STAMPED] >> _S32) == stamp and table[at, KEY] != key:
        at = (at + 1) & mask
    return at


@inner
def least(hashed: np.uint64, stamp: np.uint64, cells: U64) -> np.uint64:
    """The sketch's count of a key: no cell of it has less."""
    mask = np.uint64(cells.shape[1] - 1)
    at, stride = hashed >> _S32, (hashed & _COUNT) | _ONE
    lowest = _COUNT
    for row in range(_DEPTH):
        cell = cells[row, np.int64(at & mask)]
        lowest = min(lowest, cell & _COUNT if (cell >> _S32) == stamp else np.uint64(0))
        at += stride
    return lowest


@inner
def noted(key: np.uint64, table: U64, cells: U64, bits: U64, tally: I64) -> Int:
    """One more tuple of this key; how many it has had in this interval (at most, if by the sketch)."""
    hashed, stamp = mixed(key, _ONE), np.uint64(tally[INTERVAL])
    tally[RECORDS] += 1
    if tally[MODE] == MAP:
        at = spot(hashed, key, stamp, table)
        if (table[at, STAMPED] >> _S32) != stamp:
            table[at, KEY], table[at, STAMPED] = key, stamp << _S32
            tally[DISTINCT] += 1
        if (table[at, STAMPED] & _COUNT) != _COUNT:  # or a count of 2^32 would be of the next interval
            table[at, STAMPED] += _ONE
        return np.int64(table[at, STAMPED] & _COUNT)
    bit = ((hashed * _GAMMA) >> _S32) & np.uint64((bits.shape[0] << 6) - 1)
    if not (bits[np.int64(bit >> _S6)] >> (bit & _WORD)) & _ONE:
        bits[np.int64(bit >> _S6)] |= _ONE << (bit & _WORD)
        tally[DISTINCT] += 1
    mask = np.uint64(cells.shape[1] - 1)
    count = min(least(hashed, stamp, cells) + _ONE, _COUNT)
    at, stride, full = hashed >> _S32, (hashed & _COUNT) | _ONE, (stamp << _S32) | count
    for row in range(_DEPTH):
        place = np.int64(at & mask)
        cells[row, place] = max(cells[row, place], full)
        at += stride
    return np.int64(count)


@inner
def frequency(key: np.uint64, table: U64, cells: U64, tally: I64) -> Int:
    """How many tuples this key has had in this interval, without one more."""
    hashed, stamp = mixed(key, _ONE), np.uint64(tally[INTERVAL])
    if tally[MODE] == SKETCH:
        return np.int64(least(hashed, stamp, cells))
    at = spot(hashed, key, stamp, table)
    return np.int64(table[at, STAMPED] & _COUNT) if (table[at, STAMPED] >> _S32) == stamp else np.int64(0)


@kernel
def counted(keys: U64, now: Frequencies, out: I64) -> None:
    """How many tuples each of these keys has had in this interval."""
    for i in range(keys.shape[0]):
        out[i] = frequency(keys[i], now.table, now.cells, now.tally)


@inner
def close(bits: U64, tally: I64) -> None:
    """The interval is over: its load is L of the next one, its distinct keys choose the next one's store."""
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
def listed(table: U64, interval: int, keys: U64, counts: I64) -> Int:
    """All keys of this interval and their counts, from the exact table; how many there are."""
    found = 0
    for at in range(table.shape[0]):
        if np.int64(table[at, STAMPED] >> _S32) == interval:
            keys[found], counts[found] = table[at, KEY], np.int64(table[at, STAMPED] & _COUNT)
            found += 1
    return found


@kernel
def recount(table: U64, interval: int, wider: U64) -> None:
    """Move this interval's counts to a wider table."""
    stamp = np.uint64(interval)
    for at in range(table.shape[0]):
        if (table[at, STAMPED] >> _S32) == stamp:
            place = spot(mixed(table[at, KEY], _ONE), table[at, KEY], stamp, wider)
            wider[place, KEY], wider[place, STAMPED] = table[at, KEY], table[at, STAMPED]
