"""The loop of Holistic's routers with one HyperLogLog a worker (section 3.2.2).

Registers are those of ``papers.hyperloglog`` (same place and rank for a key), stored register by register with all
workers side by side: a key reads one place of each of its choices, and these share a line of memory.

A worker's number of keys is updated row by row, without logarithm or scan: ``chance[w]`` is the sum of 2**-register in
whole units, so ``chance / _WHOLE`` is the probability that a new key changes the sketch; each change counts for
1 / that probability (the martingale estimate of Cohen and of Ting: unbiased, 0.83 / sqrt(m) against HyperLogLog's
1.04 / sqrt(m)). A register so high that it leaves less than a unit is counted as one unit.

Whether a worker has a key: if its register is at least the key's rank an update would change nothing, and the worker is
assumed to have the key (the paper's optimistic test). A register at exactly that rank is the better evidence; where
rows are evened, only while the worker is not over the mean, so that a misplaced heavy key cannot fill a full worker.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.core.arrays.types import F64, I32, I64, U64
from unskew.core.kernels.base import Int, Numbers, inner, kernel
from unskew.core.kernels.choices import another, mixed
from unskew.core.kernels.holistic import BY_HYBRID, BY_KEYS, BY_ROWS, OPENED, WINDOW, hybrid, restart, update_extent

__all__ = ["BEST_MATCH", "FIRST_MATCH", "NO_TEST", "register_and_rank", "reset", "route_loglog"]


NO_TEST, FIRST_MATCH, BEST_MATCH = 0, 1, 2  # ``test``: none, the first choice that passes it, or the best evidence
ROWS = 3  # ``clock`` as in ``holistic``, but with the rows in the window in place of the keys in the table

_ONE, _LENGTH = np.uint64(1), np.uint64(64)
_UNITS = 62
_SLACK = 64  # over the mean: by more than this part of it
_WHOLE = np.float64(1 << _UNITS)


@inner
def register_and_rank(key: np.uint64, salt: np.uint64, bits: int) -> tuple[Int, Int]:
    """The register and the rank of a key (``HyperLogLog.places`` for one key)."""
    hashed = mixed(key, salt)
    rest = _LENGTH - np.uint64(bits)
    place = np.int64(hashed >> rest)
    hashed |= _ONE << rest
    rank = np.int64(1)
    while not hashed & _ONE:
        hashed >>= _ONE
        rank += 1
    return place, rank


@inner
def share(bits: int, height: Int) -> Int:
    """What a register of this height adds to ``chance``: 2**-height, in units of 2**-62."""
    return np.int64(1) << max(np.int64(_UNITS - bits) - height, np.int64(0))


@inner
def evidence(height: Int, rank: Int) -> Int:
    """Evidence that a worker has a key of this rank: 0 none, 1 its register is above the rank, 2 exactly the rank."""
    return 2 if height == rank else (1 if height > rank else 0)


@inner
def overloaded(load: Int, rows: Int, workers: int) -> Int:
    """Whether a worker has more than 1/64 over its share of the rows."""
    return load * workers * _SLACK > rows * (_SLACK + 1)


@kernel
def reset(registers: NDArray[np.uint8], chance: I64, load: I64, estimate: F64, of_rows: I64, of_keys: F64) -> None:
    """Start a new window empty."""
    registers[:, :] = 0
    chance[:] = np.int64(1) << _UNITS
    restart(load, estimate, of_rows, of_keys)


@kernel
def route_loglog(
    keys: U64,
    slides: I64,
    out: I32,
    span: int,
    rule: int,
    test: int,
    bias: float,
    published: int,
    salt: np.uint64,
    salts: U64,
    picked: I64,
    clock: I64,
    load: I64,
    estimate: F64,
    of_rows: I64,
    of_keys: F64,
    registers: NDArray[np.uint8],
    chance: I64,
    bits: int,
) -> None:
    """CM, AM, cAM and LM (Algorithms 2-5) in constant memory; a window is ``span`` slides.

    With a ``test`` (AM, cAM): among the choices that seem to have the key those with the best evidence, or as the paper
    has it the first; a key that none seems to have is new. Among them, and without a test among all, the least by the
    rule, ties to the first.
    """
    for i in range(keys.shape[0]):
        if slides[i] != clock[OPENED]:
            clock[OPENED] = slides[i]
            if slides[i] // span != clock[WINDOW]:
                clock[WINDOW] = slides[i] // span
                clock[ROWS] = 0
                reset(registers, chance, load, estimate, of_rows, of_keys)
        place, rank = register_and_rank(keys[i], salt, bits)
        best, least, most = -1, np.float64(0.0), 0
        for j in range(salts.shape[0]):
            worker = another(keys[i], salts[j], load.shape[0], picked, j)
            match = 0
            if test:
                match = evidence(np.int64(registers[place, worker]), rank)
                if test == FIRST_MATCH and match:
                    best = worker
                    break
                if match > 1 and rule == BY_ROWS and overloaded(load[worker], clock[ROWS], load.shape[0]):
                    match = 1
                if match < most:
                    continue
            if rule == BY_KEYS:
                score: Numbers = estimate[worker]
            elif rule == BY_HYBRID:
                score = hybrid(bias, published, load[worker], estimate[worker], of_rows, of_keys)
            else:
                score = np.float64(load[worker])
            if best < 0 or match > most or score < least:
                best, least, most = worker, score, match
        out[i] = best
        load[best] += 1
        clock[ROWS] += 1
        if rule == BY_HYBRID:
            update_extent(load, of_rows, best, load[best] - 1)
        height = np.int64(registers[place, best])
        if rank > height:
            before = estimate[best]
            estimate[best] += _WHOLE / np.float64(chance[best])
            chance[best] -= share(bits, height) - share(bits, rank)
            registers[place, best] = rank
            if rule == BY_HYBRID:
                update_extent(estimate, of_keys, best, before)
