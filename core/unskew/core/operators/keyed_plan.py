"""The counts of a stateful batch, and the plan for the next batch that follows from them.

Everything here is a function of what earlier batches committed, so a batch that runs again gets the same plan in any
process. Tasks count the rows of their own keys, the heaviest one by one and the rest by host; no extra job counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from unskew.core.arrays.types import I64, U64
from unskew.core.histogram.histogram import Histogram, Tail, host_of
from unskew.core.histogram.history import History
from unskew.core.plan.plan import Plan
from unskew.core.planners import Decision, Feedback, Origin, Planner

__all__ = [
    "HOSTS",
    "HOST_BITS",
    "KIP",
    "LISTED",
    "first_plan",
    "history_of",
    "keys_added",
    "next_plan",
    "shortened",
    "with_batch",
]


HOST_BITS = 12
HOSTS = 1 << HOST_BITS
LISTED = 64  # keys that one task counts one by one
# Moving a key reads and writes a few dozen bytes; a row costs its share of a call of the user's function.
KIP = {"slack": 0.05, "migration_cost": 0.1}
_DEPTH = 2  # batches that a plan is made from: with more, keys that are no longer hot are still planned for
_EVIDENCE = 10  # rows a partition, below which a batch is ignored where there is another
_PER_PARTITION = 8  # keys listed one by one over all tasks: twice what a planner lists


def shortened(rows: Histogram, limit: int) -> Histogram:
    """The heaviest keys one by one, the rest by host."""
    return rows.shortened(limit, HOST_BITS)


def keys_added(before: U64, after: U64) -> I64:
    """How many more keys each host has."""
    return _by_host(after) - _by_host(before)


def _by_host(hashes: U64) -> I64:
    return np.bincount(host_of(hashes, HOST_BITS), minlength=HOSTS).astype(np.int64)


def history_of(batches: Iterable[Histogram] = ()) -> History:
    """A record of the last batches, the newest last."""
    return History(_DEPTH, batches=tuple(batches))


def with_batch(history: History, parts: Iterable[Histogram], partitions: int) -> History:
    """The record with one more batch, of which each task has counted a part.

    A batch of few rows is ignored, so that it does not displace a larger one.
    """
    counted = [part for part in parts if part.total]
    least = _EVIDENCE * partitions if history.batches else 1
    if sum(part.total for part in counted) < least:
        return history
    return history.add(shortened(counted[0].merge(*counted[1:]), _PER_PARTITION * partitions))


def first_plan(planner: Planner, origin: Origin) -> Plan:
    """The plan for the first batch, before anything is counted."""
    return planner.plan(Histogram.empty(), origin=origin)


def next_plan(planner: Planner, placed: Plan, history: History, keys: Sequence[int] | I64, origin: Origin) -> Decision:
    """The plan for the next batch and why: ``placed`` itself unless another plan is worth the keys that it moves.

    ``keys`` are the keys of state by host.
    """
    rows = history.merged()
    if not rows.total and placed.partitions == planner.partitions:
        return Decision(placed, changed=False, reason="no rows to plan from")
    return planner.decide(rows, placed, Feedback(state=_state(rows.hashes, np.asarray(keys, np.int64))), origin)


def _state(listed: U64, keys: I64) -> Histogram:
    """The keys of state, a unit each: those that a plan may place one by one by name, as they move without their
    hosts, and the others by host."""
    here = listed[keys[host_of(listed, HOST_BITS)] > 0]
    others = np.maximum(keys - _by_host(here), 0)
    return Histogram(here, np.ones(len(here), np.int64), Tail(others, others))
