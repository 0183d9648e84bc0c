"""Where tasks that cannot see each other put a batch's hot keys (Dalton, section 3.4, for partitions of one batch).

Each task sees some of the rows, so what it knows of a key differs a little from what the others know. If each looked
for the least loaded workers on its own, a key would end on all of them. So the workers of a key are one sequence for
all tasks: its hash worker first, then a walk over the workers that its hash decides; where the Q-table of the batch
knows the key, by their values first. Heaviest first, a key takes the workers of its sequence that have room, each up
to the mean load, and no more of them than its share needs.

Deviations from the paper: no random numbers, as room is known and need not be explored; a batch is one decision a key,
with as many steps of Eq. 5 as it has quanta of tuples.
"""

from __future__ import annotations

import numpy as np

from unskew.core.arrays.mixing import mix
from unskew.core.arrays.ranking import find
from unskew.core.arrays.types import F64, I32, I64, U64, Index
from unskew.core.dalton.batch_learner import BatchRouting, table_after, within_budget
from unskew.core.dalton.qtable import UNTRIED, QTable
from unskew.core.dalton.settings import UpdateRule

__all__ = ["fill_hot_keys", "workers_needed"]

_LEAST = 10  # a worker has room for a key while a tenth of the mean load is free
_SALT, _ALL = 11, (1 << 64) - 1


def workers_needed(counts: I64, total: int, workers: int) -> I64:
    """How many workers each hot key may be on: twice as many as its share of the rows fills, as workers have other
    rows, too; fewer for all keys where the plan would be too large."""
    most = np.clip(np.ceil(2.0 * counts * workers / max(total, 1)).astype(np.int64), 2, workers)
    return within_budget(most, workers)


def fill_hot_keys(
    hashes: U64, counts: I64, homes: I32, most: I64, tail: I64, table: QTable, rule: UpdateRule, seed: int
) -> BatchRouting:
    """Place the hot keys, in the order given, on top of the ``tail``'s loads. ``most`` bounds the workers of a
    key."""
    n, total = len(tail), int(tail.sum() + counts.sum())
    load, placed = tail.copy(), np.zeros((len(hashes), n), np.int64)
    values = np.full((len(hashes), n), UNTRIED)
    at, known = find(table.hashes, hashes)
    values[known] = table.values[at[known]]
    strides = _strides(n)
    steps = strides[mix(hashes ^ np.uint64(seed & _ALL), _SALT) % np.uint64(len(strides))]
    for key in range(len(hashes)):
        order = _sequence(int(homes[key]), int(steps[key]), values[key])
        workers, rows = _shares(int(counts[key]), int(most[key]), order, load, -(-total // n))
        placed[key, workers] = rows
        load[workers] += rows
    learned = _learned(values, placed, load, total / n, rule)
    return BatchRouting(placed, table_after(table, hashes, learned, counts, placed))


def _strides(n: int) -> Index:
    """Strides that come past every one of n workers."""
    strides: Index = np.arange(1, n + 1)
    return strides[np.flatnonzero(np.gcd(strides, n) == 1)]


def _sequence(home: int, step: int, values: F64) -> Index:
    """All workers in the order in which a key takes them."""
    n = len(values)
    walk = (home + np.arange(n) * step) % n
    return walk[np.argsort(-values[walk], kind="stable")]


def _shares(count: int, most: int, order: Index, load: I64, level: int) -> tuple[Index, I64]:
    """Workers for so many rows of a key, and how many each gets."""
    room = level - load[order]
    open_ = room >= max(level // _LEAST, 1)
    if not open_.any():
        return order[:most], _poured(load[order[:most]], count)
    workers, room = order[open_], room[open_]
    whole = np.flatnonzero(room >= count)
    if len(whole):
        return workers[whole[:1]], np.array([count])
    workers, room = workers[:most], room[:most]
    before = np.cumsum(room) - room
    rows = np.clip(count - before, 0, room)
    return workers, rows + _poured(load[workers] + rows, count - int(rows.sum()))


def _poured(load: I64, count: int) -> I64:
    """So many rows on top of these loads, so that the highest is as low as it can be."""
    order = np.argsort(load, kind="stable")
    heights = load[order]
    room = heights * np.arange(len(load)) - (np.cumsum(heights) - heights)  # rows that lift all lower ones to this one
    reached = int(np.searchsorted(room, count, side="right"))
    level, rest = divmod(count + int(heights[:reached].sum()), reached)
    out = np.zeros(len(load), np.int64)
    out[order[:reached]] = level - heights[:reached]
    out[order[:rest]] += 1
    return out


def _learned(values: F64, placed: I64, load: I64, mean: float, rule: UpdateRule) -> F64:
    """The values after the rewards of this batch (Eq. 3 to 5)."""
    here = placed > 0
    excess = (load - mean) / np.maximum(np.maximum(load, mean), 1.0)
    fragments = here.sum(axis=1, keepdims=True) / len(load)
    reward = -(rule.imbalance * excess[None] + rule.fragments * fragments)
    step = 1.0 - (1.0 - rule.step) ** np.ceil(placed / rule.quantum)
    if rule.replace:
        step[values == UNTRIED] = 1.0
    return np.where(here, values + step * (reward - values), values)
