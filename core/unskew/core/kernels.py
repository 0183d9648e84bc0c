"""The per-tuple loops, written once: compiled by numba where it is installed, plain Python where it is not.

Both give the same bits (``tests/unit/test_kernels.py`` compares them). What that asks of the code here:
- a constant that meets a ``uint64`` is a ``uint64``: mixed with an int, numba and numpy would go to floats;
- products wrap around on purpose, so plain Python runs under ``np.errstate(over="ignore")`` (``routers/base.py``);
- nothing is divided by what may be 0, and randomness is a counter that is hashed, never a generator's state.

State lives in arrays that the routers own and pass in. A window is a ring of slides (Dalton, section 3.3):
``ring[j, w]`` counts the rows of slide j on worker w, ``load[w]`` is the sum over the ring, and ``clock`` holds the
place of the slide in use, its number, and the rows in the window. A row costs O(1); a slide costs its workers once,
when it is evicted.

numba keeps compiled code beside the source and looks at the age of that one file: after an edit of a helper here that
``kernels_frequency`` or ``kernels_greedy`` inlines, run ``make clean-kernels``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

njit: Any
try:
    from numba import njit
except ImportError:
    njit = None

__all__ = [
    "BY_HYBRID",
    "BY_KEYS",
    "BY_ROWS",
    "COMPILED",
    "PLACE",
    "ROWS",
    "SLIDE",
    "advance",
    "clockwise",
    "count",
    "route_bounded_ring",
    "route_cardinality",
    "route_choices",
    "route_random_choices",
    "route_random_pairs",
    "route_ring",
    "route_turns",
]

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
Int = Any  # an int in plain Python, an int64 where compiled
Loop = TypeVar("Loop", bound=Callable[..., Any])

COMPILED = njit is not None
PLACE, SLIDE, ROWS = 0, 1, 2  # what ``clock`` holds

BY_KEYS, BY_ROWS, BY_HYBRID = 0, 1, 2  # what ``route_cardinality`` keeps even
LEAST, AT_LEAST, MOST = 0, 1, 2  # what an ``extent`` holds

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
_ONE = np.uint64(1)


def kernel(loop: Loop) -> Loop:
    """Compile a loop; the machine code is kept beside the source for the next process, where that can be written
    (in a container with a read-only root it cannot, and numba raises as soon as a cache is asked for)."""
    if njit is None:
        return loop
    try:
        compiled: Loop = njit(cache=True, nogil=True)(loop)
    except RuntimeError:
        compiled = njit(nogil=True)(loop)
    return compiled


def inner(loop: Loop) -> Loop:
    """Compile a small function into the loops that call it. It must not allocate: reference counting is off, which
    else costs more than what it does (a call counts every array that it is given, twice)."""
    if njit is None:
        return loop
    compiled: Loop = njit(nogil=True, forceinline=True, _nrt=False)(loop)
    return compiled


@inner
def mixed(key: np.uint64, salt: np.uint64) -> np.uint64:
    """``hashing.mix`` of one key hash."""
    z = key + (salt + _ONE) * _GAMMA
    z = (z ^ (z >> _S30)) * _M1
    z = (z ^ (z >> _S27)) * _M2
    return z ^ (z >> _S31)


@inner
def scaled_down(hashed: np.uint64, among: int) -> Int:
    """The top half of a hash, scaled to 0 .. among - 1."""
    return np.int64(((hashed >> _S32) * np.uint64(among)) >> _S32)


@inner
def chosen(key: np.uint64, salt: np.uint64, among: int) -> Int:
    """One of ``among`` workers, evenly: the top half of a salted hash, scaled."""
    return scaled_down(mixed(key, salt), among)


@inner
def another(key: np.uint64, salt: np.uint64, workers: int, picked: I64, before: int) -> Int:
    """A worker unlike the ``before`` ones in ``picked``: drawn among those that are left, so that choices never
    coincide (FIDELITY). ``picked`` is kept in ascending order, the new one included."""
    worker = chosen(key, salt, workers - before)
    at = 0
    while at < before and picked[at] <= worker:
        worker += 1
        at += 1
    for later in range(before, at, -1):
        picked[later] = picked[later - 1]
    picked[at] = worker
    return worker


@kernel
def advance(clock: I64, ring: NDArray[np.int64], load: I64, slide: int) -> None:
    """Open this slide: those that fall out of the window are subtracted and their place is used again."""
    steps = min(slide - clock[SLIDE], ring.shape[0])
    for _ in range(steps):
        place = clock[PLACE] + 1
        if place == ring.shape[0]:
            place = 0
        for worker in range(load.shape[0]):
            load[worker] -= ring[place, worker]
            clock[ROWS] -= ring[place, worker]
            ring[place, worker] = 0
        clock[PLACE] = place
    clock[SLIDE] = slide


@inner
def count(clock: I64, ring: NDArray[np.int64], load: I64, worker: int) -> None:
    """One more row for this worker in the slide in use."""
    ring[clock[PLACE], worker] += 1
    load[worker] += 1
    clock[ROWS] += 1


@inner
def capacity(rows: int, workers: int, over: float) -> Int:
    """ceil((1 + epsilon) x mean load), the row in hand included."""
    return np.int64(np.ceil((1.0 + over) * np.float64(rows + 1) / np.float64(workers)))


@kernel
def route_turns(out: I32, turn: I64, workers: int) -> None:
    """Shuffle: workers in turn."""
    at = turn[0]
    for i in range(out.shape[0]):
        out[i] = at
        at += 1
        if at == workers:
            at = 0
    turn[0] = at


@kernel
def route_choices(
    keys: U64, slides: I64, out: I32, salts: U64, picked: I64, clock: I64, ring: NDArray[np.int64], load: I64
) -> None:
    """PKG: the least loaded of d different workers that the key hashes to; ties go to the first choice."""
    workers = load.shape[0]
    for i in range(keys.shape[0]):
        if slides[i] != clock[SLIDE]:
            advance(clock, ring, load, slides[i])
        best = -1
        for j in range(salts.shape[0]):
            worker = another(keys[i], salts[j], workers, picked, j)
            if best < 0 or load[worker] < load[best]:
                best = worker
        out[i] = best
        count(clock, ring, load, best)


@kernel
def route_random_pairs(
    slides: I64, out: I32, drawn: U64, seed: np.uint64, clock: I64, ring: NDArray[np.int64], load: I64
) -> None:
    """PoTC: the less loaded of two random workers per message, whatever its key."""
    workers = load.shape[0]
    for i in range(out.shape[0]):
        if slides[i] != clock[SLIDE]:
            advance(clock, ring, load, slides[i])
        first = chosen(drawn[0], seed, workers)
        second = chosen(drawn[0] + _ONE, seed, workers)
        drawn[0] += _ONE + _ONE
        best = second if load[second] < load[first] else first
        out[i] = best
        count(clock, ring, load, best)


@kernel
def route_random_choices(
    keys: U64, slides: I64, out: I32, seed: np.uint64, over: float, clock: I64, ring: NDArray[np.int64], load: I64
) -> None:
    """PoRC: salted hashes of the key until one names a worker with room under (1 + epsilon) of the mean.

    The salts only add up: the j-th hash is ``a + j b`` with two hashes of the key, b odd (double hashing), since most
    of the work for a heavy key is in vain tries. After 8 n of them the first worker with room from the last choice on:
    somebody is always below the mean.
    """
    workers = load.shape[0]
    for i in range(keys.shape[0]):
        if slides[i] != clock[SLIDE]:
            advance(clock, ring, load, slides[i])
        room = capacity(clock[ROWS], workers, over)
        hashed = mixed(keys[i], seed)
        worker = scaled_down(hashed, workers)
        stride = (hashed * _GAMMA) | _ONE
        tries = 0
        while load[worker] >= room:
            tries += 1
            if tries < 8 * workers:
                hashed += stride
                worker = scaled_down(hashed, workers)
            else:
                worker = worker + 1 if worker + 1 < workers else 0
        out[i] = worker
        count(clock, ring, load, worker)


@inner
def clockwise(position: np.uint64, cells: I64, shift: np.uint64, points: U64) -> int:
    """The first point of the circle at or after a position: look up its cell, then walk."""
    at = cells[np.int64(position >> shift)]
    while at < points.shape[0] and points[at] < position:
        at += 1
    return at if at < points.shape[0] else 0


@kernel
def route_ring(keys: U64, out: I32, cells: I64, shift: np.uint64, points: U64, owner: I32) -> None:
    """Consistent hashing: the owner of the first point clockwise."""
    for i in range(keys.shape[0]):
        out[i] = owner[clockwise(keys[i], cells, shift, points)]


@kernel
def route_bounded_ring(
    keys: U64,
    slides: I64,
    out: I32,
    cells: I64,
    shift: np.uint64,
    points: U64,
    owner: I32,
    over: float,
    clock: I64,
    ring: NDArray[np.int64],
    load: I64,
) -> None:
    """Consistent hashing with bounded loads: clockwise until an owner has room under (1 + epsilon) of the mean."""
    for i in range(keys.shape[0]):
        if slides[i] != clock[SLIDE]:
            advance(clock, ring, load, slides[i])
        room = capacity(clock[ROWS], load.shape[0], over)
        at = clockwise(keys[i], cells, shift, points)
        while load[owner[at]] >= room:
            at = at + 1 if at + 1 < points.shape[0] else 0
        out[i] = owner[at]
        count(clock, ring, load, owner[at])


@inner
def raised(values: I64, extent: I64, worker: int) -> None:
    """One more for this worker; ``extent`` (least value, how many have it, most) is kept up to date. The least is
    looked for again only when the last worker leaves it, so that a row costs O(1) on average."""
    values[worker] += 1
    extent[MOST] = max(extent[MOST], values[worker])
    if values[worker] - 1 != extent[LEAST]:
        return
    extent[AT_LEAST] -= 1
    if extent[AT_LEAST] == 0:
        extent[LEAST] = values[worker]
        for other in range(values.shape[0]):
            extent[LEAST] = min(extent[LEAST], values[other])
        for other in range(values.shape[0]):
            extent[AT_LEAST] += 1 if values[other] == extent[LEAST] else 0


@inner
def scaled(value: Int, extent: I64) -> Int:
    """Holistic, Eq. 7 and 8: min-max scaled, 0 where all are equal."""
    span = extent[MOST] - extent[LEAST]
    return np.float64(value - extent[LEAST]) / np.float64(span) if span > 0 else 0.0


@inner
def place_of(key: np.uint64, window: int, known: U64, stamp: I64) -> Int:
    """Where a key is in an open table, or where it would go; entries of other windows count as empty."""
    mask = known.shape[0] - 1
    at = np.int64(mixed(key, _ONE) >> _S32) & mask
    while stamp[at] == window and known[at] != key:
        at = (at + 1) & mask
    return at


@kernel
def restart(window: int, clock: I64, load: I64, cardinality: I64, extents: NDArray[np.int64]) -> None:
    """Holistic, Algorithm 1, lines 3-5: a new window starts from nothing."""
    clock[SLIDE] = window
    clock[ROWS] = 0
    load[:] = 0
    cardinality[:] = 0
    extents[:, LEAST] = 0
    extents[:, AT_LEAST] = load.shape[0]
    extents[:, MOST] = 0


@kernel
def route_cardinality(
    keys: U64,
    windows: I64,
    out: I32,
    start: int,
    rule: int,
    affinity: int,
    bias: float,
    published: int,
    salts: U64,
    picked: I64,
    clock: I64,
    load: I64,
    cardinality: I64,
    extents: NDArray[np.int64],
    known: U64,
    stamp: I64,
    held: NDArray[np.uint64],
) -> Int:
    """Holistic's CM, AM, cAM and LM with exact sets (Algorithms 2-5), from tuple ``start`` on.

    ``held[place]`` is the set of workers that have a key in this window, as bits. With ``affinity`` the first choice
    that holds the key gets it; else the least by the rule, ties to the first choice. Returns the tuple at which the
    table must grow, or the number of tuples. ``clock[ROWS]`` counts the keys in the table.
    """
    workers = load.shape[0]
    for i in range(start, keys.shape[0]):
        if windows[i] != clock[SLIDE]:
            restart(windows[i], clock, load, cardinality, extents)
        if 2 * clock[ROWS] >= known.shape[0]:
            return i
        at = place_of(keys[i], windows[i], known, stamp)
        if stamp[at] != windows[i]:
            stamp[at], known[at] = windows[i], keys[i]
            held[at, :] = np.uint64(0)
            clock[ROWS] += 1
        best, least = -1, np.float64(0.0)
        for j in range(salts.shape[0]):
            worker = another(keys[i], salts[j], workers, picked, j)
            has = (held[at, worker >> 6] >> np.uint64(worker & 63)) & _ONE
            if affinity and has:
                best = worker
                break
            if rule == BY_KEYS:
                score = np.float64(cardinality[worker])
            elif rule == BY_ROWS:
                score = np.float64(load[worker])
            elif published:
                score = bias * np.float64(load[worker]) + (1.0 - bias) * np.float64(cardinality[worker])
            else:
                score = bias * scaled(load[worker], extents[0]) + (1.0 - bias) * scaled(cardinality[worker], extents[1])
            if best < 0 or score < least:
                best, least = worker, score
        out[i] = best
        raised(load, extents[0], best)
        bit = _ONE << np.uint64(best & 63)
        if not held[at, best >> 6] & bit:
            held[at, best >> 6] |= bit
            raised(cardinality, extents[1], best)
    return keys.shape[0]


@kernel
def rehash(
    window: int, known: U64, stamp: I64, held: NDArray[np.uint64], wider: U64, fresh: I64, bits: NDArray[np.uint64]
) -> None:
    """Move this window's keys to a wider table."""
    for at in range(known.shape[0]):
        if stamp[at] == window:
            place = place_of(known[at], window, wider, fresh)
            wider[place], fresh[place] = known[at], window
            bits[place, :] = held[at, :]
