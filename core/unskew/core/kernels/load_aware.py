"""The loops of the routers that need no table of keys: shuffle, PKG, PoTC and PoRC."""

from __future__ import annotations

import numpy as np

from unskew.core.arrays.types import I32, I64, U64
from unskew.core.kernels.base import kernel
from unskew.core.kernels.choices import chosen, lightest, mixed, scaled_down
from unskew.core.kernels.window import ROWS, SLIDE, advance, capacity, count

__all__ = ["route_choices", "route_random_choices", "route_random_pairs", "route_turns"]


_GAMMA, _ONE = np.uint64(0x9E3779B97F4A7C15), np.uint64(1)


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
def route_choices(keys: U64, slides: I64, out: I32, salts: U64, picked: I64, clock: I64, ring: I64, load: I64) -> None:
    """PKG: the least loaded of d different workers that the key hashes to; ties go to the first choice."""
    for i in range(keys.shape[0]):
        if slides[i] != clock[SLIDE]:
            advance(clock, ring, load, slides[i])
        best = lightest(keys[i], salts, picked, load)
        out[i] = best
        count(clock, ring, load, best)


@kernel
def route_random_pairs(slides: I64, out: I32, drawn: U64, seed: np.uint64, clock: I64, ring: I64, load: I64) -> None:
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
    keys: U64, slides: I64, out: I32, seed: np.uint64, over: float, clock: I64, ring: I64, load: I64
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
