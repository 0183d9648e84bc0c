"""Dalton for micro-batches (section 3.4): a batch is known whole before its first tuple is routed.

So its statistics are exact and of itself: hot is a key with L / n of its tuples, the tail is placed first, the mean is
the final one, and fragmentation is per batch. What is learned of a key outlives one batch in which it is not hot.
Hot keys are taken heaviest first (ties by hash), not as they arrived, so a batch's routing is a function of the
Q-table, the seed and the *multiset* of its tuples: a re-run in another order decides the same.

Deviations: as in ``routers.dalton`` but for the slide term (the batch is the slide); all workers that a key may be on
are bounded, not only explored ones; by the paper nothing would outlive a batch in which the key is not hot (in batches
of 1,000 at n = 64 that is 4 % of imbalance).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.core.arrays.frozen import hashes_of
from unskew.core.arrays.mixing import mix
from unskew.core.dalton.batch_learner import learning, place_hot_keys, workers_allowed
from unskew.core.dalton.qtable import QTable
from unskew.core.dalton.settings import LearningSettings
from unskew.core.errors import HistogramError
from unskew.core.histogram.histogram import host_of
from unskew.core.limits import host_bits
from unskew.core.planners.base import common as plan_settings
from unskew.core.planners.hashed import hash_tail

__all__ = ["BatchRouter", "route_batch"]

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]


def route_batch(
    hashes: ArrayLike, table: QTable, settings: LearningSettings, seed: int, spread: ArrayLike | None = None
) -> tuple[I32, QTable]:
    """The worker of each tuple, and the Q-table for the next batch.

    Tuples of one key are dealt in order of their ``spread`` hash where there is one, else as they come: then which of
    them goes where depends on their order, how many go where does not.
    """
    keys, spreads = hashes_of(hashes, "hashes"), None if spread is None else hashes_of(spread, "spread")
    if spreads is not None and len(spreads) != len(keys):
        raise HistogramError(f"spread: {len(spreads)} hashes for {len(keys)} tuples; give one for each tuple")
    workers = table.workers
    out = _homes(keys, workers)
    hot, counts = _hot(keys, workers)
    homes = _homes(hot, workers)
    tail = np.bincount(out, minlength=workers) - np.bincount(homes, counts, workers).astype(np.int64)
    rule = settings.rule(workers, np.uint64(0), windowed=True)
    most = workers_allowed(settings, counts, len(keys), workers)
    routing = place_hot_keys(hot, counts, homes, most, tail, np.ones(workers), table, rule, seed)
    at, which = _rows_of(hot, keys)
    order = np.argsort(which, kind="stable") if spreads is None else np.lexsort((spreads[at], which))
    everyone = np.arange(workers, dtype=np.int32)
    workers_of_key = [np.repeat(everyone, placed) for placed in routing.placed]
    out[at[order]] = np.concatenate([out[:0], *workers_of_key])
    return out, routing.table


def _homes(keys: U64, workers: int) -> I32:
    """Where plain hashing sends these keys."""
    return hash_tail(plan_settings(workers)).take(host_of(keys, host_bits(workers)))


def _hot(keys: U64, workers: int) -> tuple[U64, I64]:
    """The keys with L / n of these tuples, heaviest first, and how many they have. Values are sorted, not places: that
    costs a tenth."""
    ordered = np.sort(keys)
    starts = np.flatnonzero(np.diff(ordered, prepend=~ordered[:1]))
    counts = np.diff(starts, append=len(keys))
    hot = np.flatnonzero(counts * workers >= len(keys))
    hot = hot[np.argsort(-counts[hot], kind="stable")]
    return ordered[starts[hot]], counts[hot]


def _rows_of(hot: U64, keys: U64) -> tuple[NDArray[np.intp], NDArray[np.uint16]]:
    """Which tuples are of hot keys, and of which."""
    if not len(hot):
        return np.zeros(0, np.intp), np.zeros(0, np.uint16)
    order = np.argsort(hot)
    near = np.minimum(np.searchsorted(hot[order], keys), len(hot) - 1)
    at = np.flatnonzero(hot[order][near] == keys)
    return at, order[near[at]].astype(np.uint16)  # no more than 8,192: a radix sort


@dataclass(eq=False)
class BatchRouter:
    """A partitioner for a stream of micro-batches: it keeps the Q-table and numbers the batches."""

    workers: int
    seed: int = 7
    settings: LearningSettings = field(default_factory=learning)
    table: QTable = field(init=False)
    batch: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.table = QTable.empty(plan_settings(self.workers).partitions)

    def route(self, hashes: ArrayLike, spread: ArrayLike | None = None) -> I32:
        """The worker of each tuple of the next batch."""
        seed = int(mix(np.array([self.batch], np.uint64), self.seed)[0])
        out, self.table = route_batch(hashes, self.table, self.settings, seed, spread)
        self.batch += 1
        return out
