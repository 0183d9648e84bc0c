"""The compiled loop of Dalton for micro-batches (section 3.4): key by key, a decision for a quantum of tuples."""

from __future__ import annotations

import numpy as np

from unskew.core.arrays.types import F64, I32, I64
from unskew.core.dalton.qtable import UNTRIED
from unskew.core.dalton.row_loop import GROWTH, STEP, Float, unevenness
from unskew.core.dalton.settings import UpdateRule
from unskew.core.kernels.base import Int, inner, kernel
from unskew.core.kernels.choices import mixed, scaled_down

__all__ = ["learn_batch"]


_ONE, _S11 = np.uint64(1), np.uint64(11)


@inner
def best_tried(values: F64, tried: I64, many: Int, home: Int) -> Int:
    """The best worker, ties to the hash worker, then to the lowest.

    Only the ``many`` tried workers are looked at: all n for each decision would be slow for large n.
    """
    best = home
    for at in range(many):
        worker = tried[at]
        tie = values[worker] == values[best] and best != home
        if values[worker] > values[best] or (tie and worker < best):
            best = worker
    return best


@inner
def next_best(values: F64, tried: I64, many: Int, best: Int) -> Float:
    """The best value of all workers but the best one."""
    most: Float = UNTRIED
    for at in range(many):
        if tried[at] != best:
            most = max(most, values[tried[at]])
    return most


@inner
def best_placed(values: F64, tried: I64, many: Int, placed: I64) -> Int:
    """The best of the workers that already have tuples of the key in this batch, the lowest on ties."""
    best = -1
    for at in range(many):
        worker = tried[at]
        if placed[worker] == 0:
            continue
        if best < 0 or values[worker] > values[best] or (values[worker] == values[best] and worker < best):
            best = worker
    return best


@inner
def least_loaded_sample(seed: np.uint64, look: int, load: I64, relative: F64) -> Int:
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
def updated_value(reward: Float, old: Float, rule: UpdateRule) -> Float:
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
    """Place ``counts[j]`` tuples of the j-th hot key on at most ``most[j]`` workers, and move its values on the way.

    ``placed[j]`` receives the tuples per worker. ``load`` starts as the load of the tail and grows; ``relative`` are
    capacities with a mean of 1. The batch is known whole, so the mean load is the final one from the start.
    """
    workers = load.shape[0]
    n = np.float64(workers)
    mean = np.float64(max(load.sum() + counts.sum(), 1)) / n
    tried = np.zeros(workers, np.int64)
    draw = np.uint64(0)
    for j in range(counts.shape[0]):
        home: Int = np.int64(homes[j])
        row, placed_row = values[j], placed[j]
        many: Int = np.int64(0)
        for worker in range(workers):
            if row[worker] != UNTRIED:
                tried[many] = worker
                many += 1
        best: Int = best_tried(row, tried, many, home)
        bound: Float = next_best(row, tried, many, best)
        fragments, remaining = np.int64(0), counts[j]
        while remaining > 0:
            quantum = min(remaining, np.int64(rule.quantum))
            worker = best
            random = mixed(draw, seed)
            draw += _ONE
            if (random >> _S11) < rule.explore:
                worker = least_loaded_sample(random, rule.look, load, relative)
            if fragments >= most[j] and placed_row[worker] == 0:
                worker = best_placed(row, tried, many, placed_row)
            fragments += 1 if placed_row[worker] == 0 else 0
            placed_row[worker] += quantum
            load[worker] += quantum
            remaining -= quantum
            excess = unevenness(np.float64(load[worker]) / relative[worker], mean)
            reward = -(rule.imbalance * excess + rule.fragments * np.float64(fragments) / n)
            if row[worker] == UNTRIED:
                tried[many] = worker
                many += 1
            row[worker] = updated_value(reward, row[worker], rule)
            if (worker == best and row[worker] <= bound) or (worker != best and row[worker] >= row[best]):
                best = best_tried(row, tried, many, home)
                bound = next_best(row, tried, many, best)
            elif worker != best:
                bound = max(bound, row[worker])
