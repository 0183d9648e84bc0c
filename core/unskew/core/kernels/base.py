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
    "COMPILED",
    "PLACE",
    "ROWS",
    "SLIDE",
    "advance",
    "clockwise",
    "count",
    "lightest",
    "route_bounded_ring",
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


@inner
def lightest(key: np.uint64, salts: U64, picked: I64, score: Any) -> Int:
    """Of a key's choices the one with the lowest score, ties to the first. Two choices need no list of those picked."""
    workers = score.shape[0]
    best = chosen(key, salts[0], workers)
    if salts.shape[0] == 2:
        second = chosen(key, salts[1], workers - 1)
        if second >= best:
            second += 1
        return second if score[second] < score[best] else best
    picked[0] = best
    for j in range(1, salts.shape[0]):
        worker = another(key, salts[j], workers, picked, j)
        if score[worker] < score[best]:
            best = worker
    return best


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
    for i in range(keys.shape[0]):
        if slides[i] != clock[SLIDE]:
            advance(clock, ring, load, slides[i])
        best = lightest(keys[i], salts, picked, load)
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
