"""Dalton's learner on counts (section 3.4): how many tuples of each hot key go to which worker of a micro-batch.

Used by ``planners.dalton`` on a histogram; ``batch_loop`` has the loop. Tasks, which see a part of the batch each, go
by ``task_fill``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.core.arrays.ranking import find
from unskew.core.arrays.types import F64, I32, I64, U64
from unskew.core.dalton.qtable import UNTRIED, QTable
from unskew.core.dalton.settings import LearningSettings, UpdateRule
from unskew.core.limits import slot_budget

__all__ = [
    "BatchRouting",
    "learning",
    "place_hot_keys",
    "table_after",
    "within_budget",
    "workers_allowed",
    "workers_within_budget",
]

_ALL = (1 << 64) - 1


def learning(
    gamma: float = 0.1,
    epsilon: float = 0.1,
    p1: float = 0.5,
    look: int = 8,
    split_cap: int | str | None = "share",
    share: float = 4.0,
    *,
    keep_untried: bool = False,
    quantum: int = 1,
) -> LearningSettings:
    """The checked settings of ``routers.dalton``, without those that a batch has no use for."""
    return LearningSettings(gamma, epsilon, p1, 0.0, look, split_cap, share, keep_untried, quantum, 0, 1.0)


@dataclass(frozen=True, eq=False)
class BatchRouting:
    """How many tuples of each hot key go to each worker (``placed``), and the Q-table afterwards."""

    placed: I64
    table: QTable


def workers_allowed(learning: LearningSettings, counts: I64, total: int, workers: int) -> I64:
    """How many workers each hot key may be on."""
    if learning.split_cap != "share":
        return np.full(len(counts), learning.first_cap(workers), np.int64)
    needed = np.ceil(learning.share * counts * workers / max(total, 1)).astype(np.int64)
    return np.minimum(1 + needed, workers)


def workers_within_budget(learning: LearningSettings, counts: I64, total: int, workers: int) -> I64:
    """The same, as far as a plan may be large."""
    return within_budget(workers_allowed(learning, counts, total, workers), workers)


def within_budget(most: I64, workers: int) -> I64:
    """As many workers for each key; fewer for all of them where the plan would be too large."""
    over = most.sum() / max(slot_budget(workers, len(most)) // 2, 1)
    return most if over <= 1 else np.maximum((most / over).astype(np.int64), 1)


def place_hot_keys(
    hashes: U64,
    counts: I64,
    homes: I32,
    most: I64,
    tail: I64,
    relative: F64,
    table: QTable,
    rule: UpdateRule,
    seed: int,
) -> BatchRouting:
    """Place the hot keys, in the order given, on top of the ``tail``'s loads; ``most`` bounds the workers of a key."""
    from unskew.core.dalton.batch_loop import learn_batch  # here, so that importing this loads no compiler

    values, placed = np.full((len(hashes), len(tail)), UNTRIED), np.zeros((len(hashes), len(tail)), np.int64)
    at, learned = find(table.hashes, hashes)
    values[learned] = table.values[at[learned]]
    with np.errstate(over="ignore"):
        learn_batch(counts, homes, most, relative, rule, np.uint64(seed & _ALL), values, tail.copy(), placed)
    return BatchRouting(placed, table_after(table, hashes, values, counts, placed))


def table_after(table: QTable, hashes: U64, values: F64, counts: I64, placed: I64) -> QTable:
    """The table afterwards: keys that are hot now, and for one more batch those of the batch before (``rows`` > 0)."""
    stays = (table.rows > 0) & ~np.isin(table.hashes, hashes)
    return QTable.of(
        np.concatenate([hashes, table.hashes[stays]]),
        np.concatenate([values, table.values[stays]]),
        np.concatenate([counts, np.zeros(int(stays.sum()), np.int64)]),
        np.concatenate([placed > 0, np.zeros((int(stays.sum()), placed.shape[1]), np.bool_)]),
    )
