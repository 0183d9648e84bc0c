"""The loops of Holistic's routers with exact sets: CM, AM, cAM and LM.

The keys of a window are in an open table, one row each: the key, then which workers hold it. The second word has the
number of the window in which it was written (``clock[TURN]``) above 16 spare bits. So a new window starts empty
(Algorithm 1) without clearing the table: rows of older windows count as empty. The cell of a key is a product
(Fibonacci hashing): a look-up reads one line of memory and takes one multiplication.

AM and cAM never split a key with exact sets, so a key has one worker, kept in the 16 spare bits: a key that is in the
table costs no hash of its choices. CM and LM keep a set of workers a key, as bits in the words that follow.
docs/decisions/0010 has what was tried and what each costs.
"""

from __future__ import annotations

import numpy as np

from unskew.core.arrays.types import I32, I64, U64
from unskew.core.kernels.base import Int, Numbers, inner, kernel
from unskew.core.kernels.choices import another, lightest

__all__ = [
    "BY_HYBRID",
    "BY_KEYS",
    "BY_ROWS",
    "hybrid",
    "rehash",
    "restart",
    "route_affine",
    "route_even",
    "update_extent",
]

BY_KEYS, BY_ROWS, BY_HYBRID = 0, 1, 2  # what a router keeps even
# ``clock``: slide and window in use, windows so far, keys in the table, and what prefetches have read
OPENED, WINDOW, TURN, KEYS, READ = 0, 1, 2, 3, 4
LEAST, AT_LEAST, MOST = 0, 1, 2  # what an ``extent`` holds

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_AHEAD = 4  # rows
_ONE, _SPARE, _WORKER = np.uint64(1), np.uint64(16), np.uint64(0xFFFF)


@inner
def update_extent(values: Numbers, extent: Numbers, worker: int, before: Numbers) -> None:
    """Update ``extent`` (least value, how many workers have it, most) after this worker's value has risen.

    The least is searched only when the last worker leaves it, so a row costs O(1) on average.
    """
    extent[MOST] = max(extent[MOST], values[worker])
    if before != extent[LEAST]:
        return
    extent[AT_LEAST] -= 1
    if extent[AT_LEAST] == 0:
        extent[LEAST] = values[worker]
        for other in range(values.shape[0]):
            extent[LEAST] = min(extent[LEAST], values[other])
        for other in range(values.shape[0]):
            extent[AT_LEAST] += 1 if values[other] == extent[LEAST] else 0


@inner
def scaled(value: Numbers, extent: Numbers) -> Numbers:
    """Holistic, Eq. 7 and 8: min-max scaled, 0 where all are equal."""
    span = extent[MOST] - extent[LEAST]
    return np.float64(value - extent[LEAST]) / np.float64(span) if span > 0 else 0.0


@inner
def hybrid(bias: float, published: int, rows: Numbers, keys: Numbers, of_rows: Numbers, of_keys: Numbers) -> Numbers:
    """Holistic, Eq. 9; the listing of Algorithm 5 adds the loads as they are."""
    if published:
        return bias * np.float64(rows) + (1.0 - bias) * np.float64(keys)
    return bias * scaled(rows, of_rows) + (1.0 - bias) * scaled(keys, of_keys)


@inner
def home(key: np.uint64, shift: np.uint64) -> Int:
    """The first cell of a key in a table of 2**(64 - shift) cells."""
    return np.int64((key * _GAMMA) >> shift)


@inner
def place_of(key: np.uint64, turn: np.uint64, shift: np.uint64, table: U64) -> Int:
    """The cell of a key, or the empty one where it would go."""
    mask = table.shape[0] - 1
    at = home(key, shift)
    while table[at, 1] >> _SPARE == turn and table[at, 0] != key:
        at = (at + 1) & mask
    return at


@kernel
def restart(load: I64, keys: Numbers, of_rows: I64, of_keys: Numbers) -> None:
    """Holistic, Algorithm 1, lines 3-5: a new window starts empty."""
    load[:] = 0
    keys[:] = 0
    for at in range(3):
        of_rows[at] = load.shape[0] if at == AT_LEAST else 0
        of_keys[at] = load.shape[0] if at == AT_LEAST else 0


@kernel
def route_affine(
    keys: U64,
    slides: I64,
    out: I32,
    start: int,
    span: int,
    rows_count: int,
    salts: U64,
    picked: I64,
    clock: I64,
    load: I64,
    shift: np.uint64,
    table: U64,
) -> Int:
    """AM and cAM (Algorithms 3 and 4) from tuple ``start`` on; a window is ``span`` slides.

    ``load`` is what a new key is placed by: a worker's keys, or with ``rows_count`` = 1 its rows. Two things make the
    loop fast. Its counters are local, since a store to an array makes the compiler read them again. And the line of the
    table for a later row is prefetched; the result is stored at the end, so that the compiler cannot drop the read.
    Returns the tuple at which the table must grow, or the number of tuples.
    """
    mask = table.shape[0] - 1
    ahead, last = np.uint64(0), keys.shape[0] - 1
    opened, turn, in_table, routed = clock[OPENED], np.uint64(clock[TURN]), clock[KEYS], keys.shape[0]
    for i in range(start, keys.shape[0]):
        if slides[i] != opened:
            opened = slides[i]
            if opened // span != clock[WINDOW]:
                clock[WINDOW] = opened // span
                turn += _ONE
                in_table = 0
                load[:] = 0
        if 2 * in_table >= table.shape[0]:
            routed = i
            break
        ahead |= table[home(keys[min(i + _AHEAD, last)], shift), 0]
        at = home(keys[i], shift)  # ``place_of`` written out: the call costs 5 % though it is inlined
        while table[at, 1] >> _SPARE == turn and table[at, 0] != keys[i]:
            at = (at + 1) & mask
        if table[at, 1] >> _SPARE == turn:
            best = np.int64(table[at, 1] & _WORKER)
            load[best] += rows_count
        else:
            best = lightest(keys[i], salts, picked, load)
            table[at, 0], table[at, 1] = keys[i], (turn << _SPARE) | np.uint64(best)
            in_table += 1
            load[best] += 1
        out[i] = best
    clock[OPENED], clock[TURN], clock[KEYS], clock[READ] = opened, np.int64(turn), in_table, np.int64(ahead & _ONE)
    return routed


@kernel
def route_even(
    keys: U64,
    slides: I64,
    out: I32,
    start: int,
    span: int,
    rule: int,
    bias: float,
    published: int,
    salts: U64,
    picked: I64,
    clock: I64,
    load: I64,
    cardinality: I64,
    of_rows: I64,
    of_keys: I64,
    shift: np.uint64,
    table: U64,
) -> Int:
    """CM and LM (Algorithms 2 and 5) from tuple ``start`` on: the least of a key's choices by the rule, ties to the
    first. Returns as ``route_affine`` does."""
    for i in range(start, keys.shape[0]):
        if slides[i] != clock[OPENED]:
            clock[OPENED] = slides[i]
            if slides[i] // span != clock[WINDOW]:
                clock[WINDOW] = slides[i] // span
                clock[TURN] += 1
                clock[KEYS] = 0
                restart(load, cardinality, of_rows, of_keys)
        if 2 * clock[KEYS] >= table.shape[0]:
            return i
        if rule == BY_KEYS:
            best = lightest(keys[i], salts, picked, cardinality)
        else:
            best, least = -1, np.float64(0.0)
            for j in range(salts.shape[0]):
                worker = another(keys[i], salts[j], load.shape[0], picked, j)
                score = hybrid(bias, published, load[worker], cardinality[worker], of_rows, of_keys)
                if best < 0 or score < least:
                    best, least = worker, score
        out[i] = best
        load[best] += 1
        if rule == BY_HYBRID:
            update_extent(load, of_rows, best, load[best] - 1)
        turn = np.uint64(clock[TURN])
        at = place_of(keys[i], turn, shift, table)
        if table[at, 1] >> _SPARE != turn:
            table[at, 0], table[at, 1] = keys[i], turn << _SPARE
            for word in range(2, table.shape[1]):
                table[at, word] = np.uint64(0)
            clock[KEYS] += 1
        word, bit = 2 + (best >> 6), _ONE << np.uint64(best & 63)
        if not table[at, word] & bit:
            table[at, word] |= bit
            cardinality[best] += 1
            if rule == BY_HYBRID:
                update_extent(cardinality, of_keys, best, cardinality[best] - 1)
    return keys.shape[0]


@kernel
def rehash(turn: np.uint64, table: U64, shift: np.uint64, wider: U64) -> None:
    """Copy this window's keys to a wider, empty table."""
    for at in range(table.shape[0]):
        if table[at, 1] >> _SPARE == turn:
            place = place_of(table[at, 0], turn, shift, wider)
            for word in range(table.shape[1]):
                wider[place, word] = table[at, word]
