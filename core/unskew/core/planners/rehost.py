"""Which hosts of the tail move, and where: lines 11-15 of KIP's Algorithm 1, as published and as we do it.

``first_fit`` is the paper's listing. ``relieve`` is ours; docs/decisions/0006-kip-figures.md has the figures of both:
- hosts without state cost nothing to move, so they are dealt anew on every update: the new keys that arrive there next
  go where there is space;
- from a partition over its limit those hosts leave that relieve most load per row of state;
- they go to the least loaded partition, not to the first with space, which would fill it to its limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heapreplace

import numpy as np

from unskew.core.arrays.apportion import turns
from unskew.core.arrays.ranking import descending
from unskew.core.arrays.types import F64, I32, Mask

__all__ = ["TailHosts", "first_fit", "relieve"]


@dataclass(frozen=True, eq=False)
class TailHosts:
    """The tail before hosts move.

    Per host: its measured ``rows`` (less counting noise), its expected ``weight``, the ``state`` that its move would
    move, and whether it is ``pinned`` (a listed key hashes there, so it stays even if it is empty). Per partition: the
    load of its listed ``keys``, its load ``limit``, whether it is ``closed`` to hosts, and its ``relative`` weight."""

    tail: I32
    rows: F64
    weight: F64
    state: F64
    pinned: Mask
    keys: F64
    limit: F64
    closed: Mask
    relative: F64


def relieve(hosts: TailHosts) -> I32:
    """The tail after the moves."""
    free = (hosts.state == 0) & (hosts.weight > 0) & ~hosts.pinned
    leaving = hosts.closed[hosts.tail] | free
    load = hosts.keys + _per_partition(hosts, hosts.rows, ~leaving)
    index = np.flatnonzero(~leaving)
    cost = hosts.state[index] / np.maximum(hosts.rows[index], 1e-300)
    index = index[np.lexsort((cost, hosts.tail[index]))]
    at, weight = hosts.tail[index], hosts.rows[index]
    before = np.cumsum(weight) - weight
    first = np.searchsorted(at, np.arange(len(load)))
    start = before[np.minimum(first, len(before) - 1)] if len(before) else np.zeros(len(load))
    leaving[index[(before - start[at] < (load - hosts.limit)[at]) & (weight > 0)]] = True
    return _dealt(hosts, leaving)


def _dealt(hosts: TailHosts, leaving: Mask) -> I32:
    """Deal the leaving hosts, heaviest first, each to the least loaded open partition; those without rows in turn."""
    measured, expected = (_per_partition(hosts, each, ~leaving) for each in (hosts.rows, hosts.weight))
    tail, load = hosts.tail.copy(), hosts.keys + np.maximum(measured, expected)
    open_ = np.flatnonzero(~hosts.closed)
    empty = np.flatnonzero(leaving & (hosts.weight <= 0))
    tail[empty] = open_[turns(len(empty), hosts.relative[open_])]
    heap = [(float(load[p] / hosts.relative[p]), p) for p in open_.tolist()]
    heapify(heap)
    order = np.flatnonzero(leaving & (hosts.weight > 0))
    order = order[descending(hosts.weight[order])]
    share = (1.0 / hosts.relative).tolist()
    least = max(float(hosts.weight.sum()), 1.0) * 1e-9  # added, so that hosts of hardly any weight take turns too
    for host, weight in zip(order.tolist(), (hosts.weight[order] + least).tolist(), strict=True):
        scaled, partition = heap[0]
        tail[host] = partition
        heapreplace(heap, (scaled + weight * share[partition], partition))
    return tail


def first_fit(hosts: TailHosts) -> I32:
    """Line 14 and 15: hosts leave each partition over its limit, for the first that has space."""
    tail, load = hosts.tail.copy(), hosts.keys + _per_partition(hosts, hosts.weight, np.ones(len(hosts.tail), bool))
    targets = iter(np.flatnonzero(load < hosts.limit).tolist())
    target = next(targets, None)
    for partition in np.flatnonzero(load > hosts.limit).tolist():
        for host in np.flatnonzero(tail == partition).tolist():
            weight = hosts.weight[host]
            while target is not None and load[target] + weight > hosts.limit[target]:
                target = next(targets, None)
            if target is None or load[partition] <= hosts.limit[partition]:
                break
            tail[host] = target
            load[partition] -= weight
            load[target] += weight
    return tail


def _per_partition(hosts: TailHosts, rows: F64, which: Mask) -> F64:
    sums = np.bincount(hosts.tail[which], weights=rows[which], minlength=len(hosts.limit))
    return sums.astype(np.float64)  # bincount of no hosts gives integers
