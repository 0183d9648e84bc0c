"""Which workers a key may go to: salted hashes of the key, and the least loaded of its choices.

The routers' kernels inline these functions. The choices of a key are always different workers (FIDELITY).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unskew.core.arrays.types import I64, U64
from unskew.core.kernels.base import Int, inner

__all__ = ["another", "chosen", "lightest", "mixed", "scaled_down"]


_GAMMA, _ONE = np.uint64(0x9E3779B97F4A7C15), np.uint64(1)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)


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
