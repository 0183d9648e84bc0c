"""Which hosts of the tail move, and where: lines 11-15 of KIP's Algorithm 1, as published and as we do it.

``first_fit`` is the listing. ``relieve`` is ours; ``docs/decisions/0006-kip-figures.md`` has the figures of both:
- hosts that hold no state move for nothing, so they are dealt anew on every update: what arrives there next, keys
  that nobody has seen yet, goes where room is;
- from a partition that is over its limit the hosts leave that relieve most load per row of state;
- they go to the least loaded partition, not to the first with room, which would fill it to the brim.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heapreplace

import numpy as np
from numpy.typing import NDArray

from unskew.core.arrays.apportion import turns
from unskew.core.arrays.ranking import descending

__all__ = ["Tenancy", "first_fit", "relieve"]

F64 = NDArray[np.float64]
I32 = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Tenancy:
    """The tail before hosts move. Per host: its rows as far as they are ``known``, the ``weight`` it is expected
    to have, the ``state`` its move would move, and whether it is ``pinned`` (a listed key hashes there: it stays
    even if it is empty). Per partition: the load of its listed keys, the load allowed, whether it is ``closed``
    to hosts, and its relative weight."""

    tail: I32
    known: F64
    weight: F64
    state: F64
    pinned: NDArray[np.bool_]
    keys: F64
    limit: F64
    closed: NDArray[np.bool_]
    relative: F64


def relieve(given: Tenancy) -> I32:
    """The tail after the moves."""
    free = (given.state == 0) & (given.weight > 0) & ~given.pinned
    leaving = given.closed[given.tail] | free
    load = given.keys + _per_partition(given, given.known, ~leaving)
    index = np.flatnonzero(~leaving)
    cheap = given.state[index] / np.maximum(given.known[index], 1e-300)
    index = index[np.lexsort((cheap, given.tail[index]))]
    at, weight = given.tail[index], given.known[index]
    before = np.cumsum(weight) - weight
    first = np.searchsorted(at, np.arange(len(load)))
    start = before[np.minimum(first, len(before) - 1)] if len(before) else np.zeros(len(load))
    leaving[index[(before - start[at] < (load - given.limit)[at]) & (weight > 0)]] = True
    return _dealt(given, leaving)


def _dealt(given: Tenancy, leaving: NDArray[np.bool_]) -> I32:
    """The leaving hosts, heaviest first, each to the least loaded open partition; those without rows, of which
    nothing is known, in turn."""
    known, expected = (_per_partition(given, rows, ~leaving) for rows in (given.known, given.weight))
    tail, load = given.tail.copy(), given.keys + np.maximum(known, expected)
    open_ = np.flatnonzero(~given.closed)
    empty = np.flatnonzero(leaving & (given.weight <= 0))
    tail[empty] = open_[turns(len(empty), given.relative[open_])]
    heap = [(float(load[p] / given.relative[p]), p) for p in open_.tolist()]
    heapify(heap)
    hosts = np.flatnonzero(leaving & (given.weight > 0))
    hosts = hosts[descending(given.weight[hosts])]
    share = (1.0 / given.relative).tolist()
    speck = max(float(given.weight.sum()), 1.0) * 1e-9  # hosts of hardly any weight take turns too
    for host, weight in zip(hosts.tolist(), (given.weight[hosts] + speck).tolist(), strict=True):
        scaled, partition = heap[0]
        tail[host] = partition
        heapreplace(heap, (scaled + weight * share[partition], partition))
    return tail


def first_fit(given: Tenancy) -> I32:
    """Line 14 and 15: hosts leave each partition over its limit, for the first that has room."""
    tail, load = given.tail.copy(), given.keys + _per_partition(given, given.weight, np.ones(len(given.tail), bool))
    targets = iter(np.flatnonzero(load < given.limit).tolist())
    target = next(targets, None)
    for partition in np.flatnonzero(load > given.limit).tolist():
        for host in np.flatnonzero(tail == partition).tolist():
            weight = given.weight[host]
            while target is not None and load[target] + weight > given.limit[target]:
                target = next(targets, None)
            if target is None or load[partition] <= given.limit[partition]:
                break
            tail[host] = target
            load[partition] -= weight
            load[target] += weight
    return tail


def _per_partition(given: Tenancy, rows: F64, which: NDArray[np.bool_]) -> F64:
    sums = np.bincount(given.tail[which], weights=rows[which], minlength=len(given.limit))
    return sums.astype(np.float64)  # of no hosts at all it is an array of integers
