"""Dalton's loop for micro-batches (section 3.4), by the rules of ``kernels``: key by key, each decision a quantum."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.core.dalton.qtable import UNTRIED
from unskew.core.dalton.row_loop import GROWTH, STEP, Float, Int, uneven
from unskew.core.dalton.settings import UpdateRule
from unskew.core.kernels.base import inner, kernel, mixed, scaled_down

__all__ = ["learn_batch"]

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
F64 = NDArray[np.float64]

_ONE, _S11 = np.uint64(1), np.uint64(11)


@inner
def best_tried(values: F64, tried: I64, many: Int, home: Int) -> Int:
    """The best worker, ties to the hash worker, then to the lowest. Only ``many`` are tried, and those are looked at:
    all n at each turn would make large n slow."""
    best = home
    for at in range(many):
        worker = tried[at]
        tie = values[worker] == values[best] and best != home
        if values[worker] > values[best] or (tie and worker < best):
            best = worker
    return best


@inner
def next_best(values: F64, tried: I64, many: Int, best: Int) -> Float:
    """What no other worker is above."""
    most: Float = UNTRIED
    for at in range(many):
        if tried[at] != best:
            most = max(most, values[tried[at]])
    return most


@inner
def best_placed(values: F64, tried: I64, many: Int, placed: I64) -> Int:
    """The best of the workers that have the key in this batch already, the lowest on ties."""
    best = -1
    for at in range(many):
        worker = tried[at]
        if placed[worker] == 0:
            continue
        if best < 0 or values[worker] > values[best] or (values[worker] == values[best] and worker < best):
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
def value_after(reward: Float, old: Float, rule: UpdateRule) -> Float:
    """Dalton, Eq. 5; the first reward may take the place of -2."""
    return reward if rule.replace and old == UNTRIED else old + rule.step * (reward - old)


@kernel
def learn_batch(
    counts: I64,
    homes: I32,
    most: I64,
    relative: F64,
    rule: UpdateRule,
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
    tried = np.zeros(workers, np.int64)
    draw = np.uint64(0)
    for j in range(counts.shape[0]):
        home: Int = np.int64(homes[j])
        row, mine = values[j], placed[j]
        known: Int = np.int64(0)
        for worker in range(workers):
            if row[worker] != UNTRIED:
                tried[known] = worker
                known += 1
        best: Int = best_tried(row, tried, known, home)
        bound: Float = next_best(row, tried, known, best)
        held, left = np.int64(0), counts[j]
        while left > 0:
            many = min(left, np.int64(rule.quantum))
            worker = best
            drawn = mixed(draw, seed)
            draw += _ONE
            if (drawn >> _S11) < rule.explore:
                worker = roomiest(drawn, rule.look, load, relative)
            if held >= most[j] and mine[worker] == 0:
                worker = best_placed(row, tried, known, mine)
            held += 1 if mine[worker] == 0 else 0
            mine[worker] += many
            load[worker] += many
            left -= many
            unevenness = uneven(np.float64(load[worker]) / relative[worker], mean)
            reward = -(rule.imbalance * unevenness + rule.fragments * np.float64(held) / n)
            if row[worker] == UNTRIED:
                tried[known] = worker
                known += 1
            row[worker] = value_after(reward, row[worker], rule)
            if (worker == best and row[worker] <= bound) or (worker != best and row[worker] >= row[best]):
                best = best_tried(row, tried, known, home)
                bound = next_best(row, tried, known, best)
            elif worker != best:
                bound = max(bound, row[worker])
