"""Dalton's loop for micro-batches (section 3.4), by the rules of ``kernels``: key by key, each decision a quantum."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.core.kernels import inner, kernel, mixed, scaled_down
from unskew.core.kernels_dalton import BEST, GROWTH, HOME, STEP, Float, Int, crown, moved, uneven
from unskew.core.learning import Rule
from unskew.core.qtable import UNTRIED

__all__ = ["learn_batch"]

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
F64 = NDArray[np.float64]

_ONE, _S11 = np.uint64(1), np.uint64(11)


@inner
def best_placed(values: F64, placed: I64) -> Int:
    """The best of the workers that have the key in this batch already, the lowest on ties."""
    best = -1
    for worker in range(placed.shape[0]):
        if placed[worker] > 0 and (best < 0 or values[worker] > values[best]):
            best = worker
    return best


@inner
def roomiest(seed: np.uint64, look: int, load: I64, relative: F64) -> Int:
    """The least loaded of ``look`` random workers."""
    state = mixed(seed, _ONE)
    best, least = -1, 0.0
    for _ in range(look):
        state = state * STEP + GROWTH
        worker = scaled_down(state, load.shape[0])
        score: Float = np.float64(load[worker]) / relative[worker]
        if best < 0 or score < least:
            best, least = worker, score
    return best


@inner
def value_after(reward: Float, old: Float, rule: Rule) -> Float:
    """Dalton, Eq. 5; the first reward may take the place of -2."""
    return reward if rule.replace and old == UNTRIED else old + rule.step * (reward - old)


@kernel
def learn_batch(
    counts: I64,
    homes: I32,
    most: I64,
    relative: F64,
    rule: Rule,
    seed: np.uint64,
    values: F64,
    load: I64,
    placed: I64,
) -> None:
    """``counts[j]`` tuples of the j-th hot key go to ``most[j]`` workers or fewer, as ``placed[j]`` says in the end,
    and its values move with every decision. ``load`` holds the tail and grows; ``relative`` are capacities with a mean
    of 1. All is of this batch, and its final mean is known beforehand.
    """
    workers = load.shape[0]
    n = np.float64(workers)
    mean = np.float64(max(load.sum() + counts.sum(), 1)) / n
    entry, bound = np.zeros((1, HOME + 1), np.int64), np.zeros(1, np.float64)
    draw = np.uint64(0)
    for j in range(counts.shape[0]):
        entry[0, HOME] = homes[j]
        row, mine = values[j : j + 1], placed[j]
        crown(0, row, entry, bound)
        held, left = np.int64(0), counts[j]
        while left > 0:
            many = min(left, np.int64(rule.quantum))
            worker: Int = entry[0, BEST]
            drawn = mixed(draw, seed)
            draw += _ONE
            if (drawn >> _S11) < rule.explore:
                worker = roomiest(drawn, rule.look, load, relative)
            if held >= most[j] and mine[worker] == 0:
                worker = best_placed(row[0], mine)
            held += 1 if mine[worker] == 0 else 0
            mine[worker] += many
            load[worker] += many
            left -= many
            unevenness = uneven(np.float64(load[worker]) / relative[worker], mean)
            reward = -(rule.imbalance * unevenness + rule.fragments * np.float64(held) / n)
            moved(0, worker, value_after(reward, row[0, worker], rule), row, entry, bound)
