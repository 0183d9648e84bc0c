"""What is counted of a stateful batch, and the plan that follows from it.

Everything here is a function of what the batches before have committed, so a batch that runs again gets the same plan,
in whatever process. Tasks count the rows of their own keys: the heaviest one by one, the rest by host. No job is run to
count anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from unskew.core.histogram.histogram import Histogram, Tail, host_of
from unskew.core.histogram.history import History
from unskew.core.plan.plan import Plan
from unskew.core.planners import Decision, Feedback, Origin, Planner

__all__ = [
    "HOSTS",
    "HOST_BITS",
    "KIP",
    "LISTED",
    "brief",
    "first_plan",
    "grown",
    "lengthened",
    "next_plan",
    "record_of",
]

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]

HOST_BITS = 12
HOSTS = 1 << HOST_BITS
LISTED = 64  # keys that one task tells one by one
# To move a key is to read and write a few dozen bytes, and a row is its share of a call of the user's function.
KIP = {"slack": 0.05, "migration_cost": 0.1}
_DEPTH = 2  # batches that a plan is made from: with more, keys that are hot no longer are still planned for
_EVIDENCE = 10  # rows a partition, below which a batch is not planned from where there is another
_PER_PARTITION = 8  # keys that are kept one by one, of all tasks: what a planner lists, and as many again


def brief(rows: Histogram, limit: int) -> Histogram:
    """The heaviest keys one by one, the rest by host."""
    return rows.shortened(limit, HOST_BITS)


def grown(before: U64, after: U64) -> I64:
    """How many more keys each host has."""
    count: I64 = _by_host(after) - _by_host(before)
    return count


def _by_host(hashes: U64) -> I64:
    return np.bincount(host_of(hashes, HOST_BITS), minlength=HOSTS).astype(np.int64)


def record_of(batches: Iterable[Histogram] = ()) -> History:
    """The last batches, the newest last."""
    return History(_DEPTH, batches=tuple(batches))


def lengthened(history: History, parts: Iterable[Histogram], partitions: int) -> History:
    """The record with one more batch, of which each task has counted a part. One of a few rows says nothing, and does
    not take the place of one that does."""
    told = [part for part in parts if part.total]
    least = _EVIDENCE * partitions if history.batches else 1
    if sum(part.total for part in told) < least:
        return history
    return history.add(brief(told[0].merge(*told[1:]), _PER_PARTITION * partitions))


def first_plan(planner: Planner, origin: Origin) -> Plan:
    """For the first batch, of which nothing is known."""
    return planner.plan(Histogram.empty(), origin=origin)


def next_plan(planner: Planner, placed: Plan, history: History, keys: Sequence[int] | I64, origin: Origin) -> Decision:
    """The plan for the next batch and why: ``placed`` itself unless another one is worth the keys that it moves.
    ``keys`` of state are counted by host."""
    rows = history.merged()
    if not rows.total and placed.partitions == planner.partitions:
        return Decision(placed, changed=False, reason="no rows to plan from")
    there = np.asarray(keys, np.int64)
    state = Histogram(np.zeros(0, np.uint64), np.zeros(0, np.int64), Tail(there, there))
    return planner.decide(rows, placed, Feedback(state=state), origin)
