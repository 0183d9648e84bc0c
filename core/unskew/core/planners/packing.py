"""Packing steps that several planners share: dealing hosts, wrapping keys around, finding space. Exact integers
only."""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np

from unskew.core.arrays.apportion import apportion, turns
from unskew.core.arrays.ranking import descending
from unskew.core.arrays.types import F64, I32, I64

__all__ = ["FreeSpace", "deal_hosts", "even_out", "wrap_around"]


_SWAPS = 4  # a partition takes part in a few swaps at most before no swap helps any more


def deal_hosts(rows: I64, keys: I64, space: I64, weights: F64) -> I32:
    """Hosts to partitions, even in rows and in distinct keys, in proportion to ``space``.

    Hosts are dealt in rounds of similar key counts, one a partition (more where there is more space), so
    cardinality is even by construction; within a round the host with most rows goes where most space is left. Hosts
    without rows are dealt by weight (0: none), because the space that a small batch happens to leave says nothing about
    the keys to come.
    """
    ready = np.flatnonzero(weights > 0)
    open_ = np.flatnonzero(space > 0)
    if len(open_) == 0:
        open_, space = np.arange(len(space)), np.ones(len(space), np.int64)
    order = np.lexsort((-rows, -keys))
    with_rows = int((rows > 0).sum())
    owner = open_[turns(with_rows, space[open_].astype(np.float64))]
    tail = np.empty(len(rows), np.int32)
    tail[order[with_rows:]] = ready[turns(len(rows) - with_rows, weights[ready])]
    space = space.astype(np.int64).copy()
    for start in range(0, with_rows, len(open_)):
        hosts = order[start : min(start + len(open_), with_rows)]
        places = owner[start : start + len(open_)]
        hosts = hosts[descending(rows[hosts])]
        places = places[descending(space[places])]
        tail[hosts] = places
        np.subtract.at(space, places, rows[hosts])
    return tail


def even_out(tail: I32, rows: I64, space: I64) -> None:
    """Swap hosts between the fullest and the emptiest partition until none is over its space, or no swap helps.

    ``tail`` and ``space`` (below 0 where a partition is over) are changed in place. This is for streams of many equal
    small keys, which only hosts can level.
    """
    for _ in range(_SWAPS * len(space)):
        over, under = int(np.argmin(space)), int(np.argmax(space))
        if space[over] >= 0:
            return
        gap = (int(space[under]) - int(space[over])) // 2
        give, take = np.flatnonzero(tail == over), np.flatnonzero(tail == under)
        take = take[np.argsort(rows[take], kind="stable")]
        if len(give) == 0 or len(take) == 0:
            return
        near = np.clip(np.searchsorted(rows[take], rows[give] - gap), 0, len(take) - 1)
        gain = rows[give] - rows[take[near]]
        best = int(np.argmin(np.abs(gain - gap)))
        if not 0 < gain[best] < 2 * gap + 1:
            return
        tail[give[best]], tail[take[near[best]]] = under, over
        space[over] += gain[best]
        space[under] -= gain[best]


def wrap_around(rows: I64, space: I64) -> tuple[I64, I32, I64]:
    """Fill partition after partition with key after key (McNaughton's wrap-around rule).

    Returns (key, partition, rows) fragments. A key is cut only where a partition becomes full, so there are at most
    ``partitions - 1`` more fragments than keys. Space beyond the need is scaled down first.
    """
    total = sum(rows.tolist())
    space = np.maximum(space, 0)
    if total == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64)
    if sum(space.tolist()) != total:
        shares = space.tolist() if space.any() else [1] * len(space)
        space = np.array(apportion(total, shares), np.int64)
    key_ends, room_ends = np.cumsum(rows), np.cumsum(space)
    ends = np.unique(np.concatenate([key_ends, room_ends]))
    ends = ends[ends > 0]
    starts = np.concatenate([[0], ends[:-1]])
    key = np.searchsorted(key_ends, starts, side="right")
    partition = np.searchsorted(room_ends, starts, side="right")
    return key, partition.astype(np.int32), ends - starts


class FreeSpace:
    """The free rows of each partition, ordered, to find the tightest or the widest quickly."""

    def __init__(self, free: I64) -> None:
        self._free = np.maximum(free, 0).tolist()
        self._order = sorted((rows, partition) for partition, rows in enumerate(self._free))

    def free(self, partition: int) -> int:
        return int(self._free[partition])

    def take(self, partition: int, rows: int) -> None:
        """Use up ``rows`` of a partition's space, down to 0."""
        old = (self._free[partition], partition)
        del self._order[bisect_left(self._order, old)]
        self._free[partition] = max(old[0] - rows, 0)
        insort(self._order, (self._free[partition], partition))

    def tightest(self, rows: int) -> int | None:
        """The partition with the least space that holds ``rows``, or None (BestFit)."""
        at = bisect_left(self._order, (rows, -1))
        return self._order[at][1] if at < len(self._order) else None

    def widest(self) -> int:
        """The partition with the most space (WorstFit), the first of equals."""
        most = self._order[-1][0]
        return self._order[bisect_left(self._order, (most, -1))][1]
