"""Dalton for micro-batches (section 3.4): a batch is seen whole before its first tuple goes anywhere.

So its statistics are exact and of itself: hot is a key with L / n of its tuples, the tail is placed first, the mean is
the final one, and fragmentation is per batch. What is learned stays: a key's values for this and the next batch in
which it is hot. Hot keys are taken heaviest first (ties by hash), not as they arrived, so a batch's routing is a
function of the Q-table, the seed and the *multiset* of its tuples: a re-run in another order decides the same.

Deviations: as in ``routers.dalton`` but for the slide term (the batch is the slide); all workers that a key may be on
are bounded, not only explored ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.core.errors import HistogramError
from unskew.core.hashing import mix
from unskew.core.histogram import host_of
from unskew.core.learning import Learning
from unskew.core.limits import host_bits
from unskew.core.planners.base import common as plan_settings
from unskew.core.planners.hashed import hash_tail
from unskew.core.pouring import learning, pour, workers_allowed
from unskew.core.qtable import QTable
from unskew.core.values import hashes_of

__all__ = ["BatchRouter", "route_batch"]

I32 = NDArray[np.int32]


def route_batch(
    hashes: ArrayLike, table: QTable, settings: Learning, seed: int, spread: ArrayLike | None = None
) -> tuple[I32, QTable]:
    """The worker of each tuple, and the Q-table for the next batch.

    Tuples of one key are dealt in order of their ``spread`` hash where there is one, else as they come: then which of
    them goes where depends on their order, how many go where does not.
    """
    keys = hashes_of(hashes, "hashes")
    workers = table.workers
    order = np.argsort(keys, kind="stable")
    if spread is not None:
        spreads = hashes_of(spread, "spread")
        if len(spreads) != len(keys):
            raise HistogramError(f"spread: {len(spreads)} hashes for {len(keys)} tuples; give one for each tuple")
        order = np.lexsort((spreads, keys))
    starts = np.flatnonzero(np.diff(keys[order], prepend=~keys[order[:1]]))
    counts = np.diff(starts, append=len(keys))
    homes = hash_tail(plan_settings(workers)).take(host_of(keys, host_bits(workers)))
    hot = np.flatnonzero(counts * workers >= len(keys)) if len(keys) else np.zeros(0, np.int64)
    hot = hot[np.argsort(-counts[hot], kind="stable")]
    out = homes.copy()
    first = order[starts[hot]]
    tail = np.bincount(homes, minlength=workers) - np.bincount(homes[first], counts[hot], workers).astype(np.int64)
    rule = settings.rule(workers, np.uint64(0), windowed=True)
    most = workers_allowed(settings, counts[hot], len(keys), workers)
    done = pour(keys[first], counts[hot], homes[first], most, tail, np.ones(workers), table, rule, seed)
    everyone = np.arange(workers, dtype=np.int32)
    for j, at in enumerate(starts[hot].tolist()):
        out[order[at : at + counts[hot[j]]]] = np.repeat(everyone, done.placed[j])
    return out, done.table


@dataclass(eq=False)
class BatchRouter:
    """A partitioner for a stream of micro-batches: it keeps the Q-table and numbers the batches."""

    workers: int
    seed: int = 7
    settings: Learning = field(default_factory=learning)
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
