"""What one task decides for its partition of a batch (DESIGN section 7).

A batch goes by a plan, by an online router (``task_router``), or by the Q-table that all partitioners have learned
together. By a plan rows go where it says. By a Q-table this is Dalton for micro-batches (section 3.4): the partition is
seen whole, and its hot keys are placed on top of the loads that the others make (``dalton/task_fill``). What was
learned on the way is this partitioner's report to the next round.

Hot are the keys of the global table, and those with a quarter of an even share of this partition's rows: a key that no
round has seen is split in the batch that it comes with. Where other applications learn on the same stream, a key that
the table lacks must be hot in the rows of all, though they have none of it: a key that is hot to one is split by none.

Everything is a function of what the batch goes by and the partition's rows *as a multiset*: keys are counted, so their
order is gone, and a row goes by its spread hash. Where equal hashes mean equal rows, a row that is there again goes by
the hash of (row, n-th occurrence): which of two equal rows is the first cannot be told from outside. Where they do not,
rows with equal hashes stay together, or a re-run in another order would swap them.

Deviations: those of ``task_fill``; a key's rows are shared out by their spread hash and not counted off, so that no
row has to be sorted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from unskew.core.arrays.frozen import by_fields, hashes_of
from unskew.core.arrays.mixing import mix
from unskew.core.arrays.ranking import find, heaviest, marked, new_values
from unskew.core.arrays.types import F64, I32, I64, U64, Index
from unskew.core.dalton.batch_learner import learning
from unskew.core.dalton.qtable import QTable
from unskew.core.dalton.settings import MOST_CELLS
from unskew.core.dalton.task_fill import fill_hot_keys, workers_needed
from unskew.core.errors import ConfigError, PlanError
from unskew.core.histogram.histogram import Histogram, host_of
from unskew.core.in_flight.cell_table import CellTable
from unskew.core.limits import host_bits, listed_budget
from unskew.core.plan.plan import Plan, PlanInfo
from unskew.core.rounds.task_router import check_router, route_rows

if TYPE_CHECKING:
    from unskew.core.rounds.messages import Answer, Report

__all__ = ["REPORTED", "PartitionRouting", "RoutingChoice", "bounded", "decide", "distinct_hashes", "report_of"]


_GRAIN = 4096
_HOT = 0.25  # of an even share: what has less goes by its hash and makes no partition full
_CHANCE = 16  # rows: that few may be chance
_ALONE = 0.75  # of the stream's rows: who has so many is taken to have all, as shares change from batch to batch
REPORTED = 4096  # keys of a report: summaries merge to the capacity of the smallest
_MOST_SENT = 1 << 19  # cells of the Q-table in it: 4 MB
_ODD = np.uint64(0x9E3779B97F4A7C15)
_REASONS = ("hot: these partitions had room for it, the first of its sequence",)


@dataclass(frozen=True, eq=False)
class RoutingChoice:
    """What a batch goes by: all that decides where its rows go, except the rows.

    ``plan``, or the name of a ``router``, or ``table`` with ``records`` (GL) and the ``version`` of its round; or
    ``cells``, where the batch was placed in flight. ``alike``: rows with the same spread hash are the same rows.
    """

    partitions: int
    plan: Plan | None = None
    table: QTable | None = None
    records: int = 0
    version: tuple[int, int] = (0, 0)
    batch: int = 0
    seed: int = 7
    alike: bool = False
    router: str | None = None
    cells: CellTable | None = None

    __reduce__ = by_fields

    def __post_init__(self) -> None:
        if self.plan is not None and self.plan.partitions != self.partitions:
            raise PlanError(f"the plan is for {self.plan.partitions} partitions, the batch for {self.partitions}")
        if self.cells is not None and self.cells.partitions != self.partitions:
            raise PlanError(f"the cells are of {self.cells.partitions} tasks, the batch has {self.partitions}")
        if self.table is not None and self.table.workers != self.partitions:
            raise ConfigError("table", f"{self.table.workers} workers", f"a Q-table for {self.partitions}")
        if self.records < 0:
            raise ConfigError("records", self.records, "0 or more")
        if self.router is not None:
            check_router(self.router)

    def after(self, answer: Answer) -> RoutingChoice:
        """The same by what a round has learned; a table of another number of workers is cut or padded."""
        table = answer.table if answer.table.workers == self.partitions else answer.table.resized(self.partitions)
        return replace(self, table=table, records=answer.records, version=answer.version)

    @property
    def streams(self) -> bool:
        """Whether a row can be routed before the rest of its partition is there."""
        return self.plan is not None and not (self.plan.splits and self.alike)


@dataclass(frozen=True, eq=False)
class PartitionRouting:
    """Where the rows go, what there was, and what was learned (``table``, if anything was)."""

    partitions: I32
    histogram: Histogram
    table: QTable | None = None


def decide(choice: RoutingChoice, hashes: U64, spread: U64 | None = None) -> PartitionRouting:
    """The partition of each row of this task's partition, given key hashes and spread hashes in any order. Without
    spread hashes every key stays whole."""
    keys = hashes_of(hashes, "hashes")
    spread_hashes = None if spread is None else hashes_of(spread, "spread")
    histogram = Histogram.from_hashes(keys)
    placed_by = choice.plan or choice.cells
    if spread_hashes is not None and choice.alike and (placed_by is None or placed_by.splits):
        spread_hashes = distinct_hashes(spread_hashes)
    if placed_by is not None:
        return PartitionRouting(placed_by.route(keys, spread_hashes), histogram)
    if choice.router is not None:
        out = route_rows(choice.router, choice.partitions, choice.seed, keys, spread_hashes)
        return PartitionRouting(out, histogram)
    plan, table = _learned(choice, histogram, keys, spread_hashes)
    return PartitionRouting(plan.route(keys, spread_hashes if plan.splits else None), histogram, table)


def distinct_hashes(spread: U64) -> U64:
    """The same hashes, and for each that is there again a hash of its own: that of (hash, n-th occurrence)."""
    ordered = np.sort(spread)
    again = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(again):
        return spread
    place, there = find(again, spread)
    at = np.flatnonzero(there)
    order = np.argsort(place[at], kind="stable")
    group = place[at][order]
    first = np.flatnonzero(np.diff(group, prepend=-1))
    nth = np.arange(len(group)) - np.repeat(first, np.diff(first, append=len(group)))
    rows, nth = at[order][nth > 0], nth[nth > 0].astype(np.uint64)
    out = spread.copy()
    out[rows] = mix(spread[rows] + nth * _ODD, 1)
    return out


# -- learning ------------------------------------------------------------------------------------------------


def _learned(choice: RoutingChoice, histogram: Histogram, keys: U64, spread: U64 | None) -> tuple[Plan, QTable]:
    """The plan of this partition alone, and the Q-table after it."""
    from unskew.core.plan.build import Placement, build_plan  # here: who goes by a plan loads no planner
    from unskew.core.planners.base import common
    from unskew.core.planners.hashed import hash_tail

    n, settings = choice.partitions, common(choice.partitions)
    table = QTable.empty(n) if choice.table is None else choice.table
    hot, weights = _hot(choice, table, histogram)
    hashes, counts = histogram.hashes[hot], histogram.counts[hot]
    tail = hash_tail(settings)
    homes = tail.take(host_of(hashes, host_bits(n)))
    unlisted = histogram.fold(marked(hot, len(histogram.hashes)), host_bits(n))
    load = np.bincount(tail, unlisted.rows, n).astype(np.int64)
    grain = max(histogram.total // n // _GRAIN, 1)
    rule = learning().rule(n, np.uint64(0), windowed=True)._replace(quantum=grain)
    most = _allowed(n, weights, histogram.total, _values(choice, hashes, keys, spread))
    done = fill_hot_keys(hashes, counts, homes, most, load, table, rule, choice.seed)
    key, at = np.nonzero(done.placed)
    reason = np.zeros(len(hashes), np.uint8)
    placement = Placement(tail, hashes, key, at.astype(np.int32), done.placed[key, at], _REASONS, reason)
    return build_plan(placement, n, PlanInfo()), done.table


def _hot(choice: RoutingChoice, table: QTable, histogram: Histogram) -> tuple[Index, I64]:
    """Which keys of this partition are hot, heaviest first, and by how many rows each may be split: those that it has
    here, or would have if the partition were like the whole stream, whichever is more. Where others have none of its
    keys the partition is not like the stream: what the table knows counts then."""
    n = choice.partitions
    hashes, counts = histogram.hashes, histogram.counts
    least, weights = max(_HOT * histogram.total / n, _CHANCE), counts.copy()
    place, known = find(table.hashes, hashes)
    if choice.records:
        expected = table.rows[place[known]] / choice.records * histogram.total
        ours = _ours(counts[known], expected, least)
        if ours <= _ALONE:
            least = max(least, histogram.total / (ours * n))
        weights[known] = np.maximum(expected, weights[known] if ours > _ALONE else 1).astype(np.int64)
    index = np.flatnonzero(known | (counts >= least))
    room = min(max(MOST_CELLS // n, 1), listed_budget(n), 2 * n)
    index = index[heaviest(hashes[index], counts[index], min(len(index), room))]
    return index, weights[index]


def _ours(counts: I64, expected: F64, least: float) -> float:
    """What part of the stream's rows seems to be this application's: a key that only it has is the rarer in the table
    the more rows the others have. 1 where no key of the table is heavy here."""
    heavy = (counts >= least) & (expected > 0)  # of a key that the round is unsure of it may know no row
    return min(float(expected[heavy].sum() / counts[heavy].sum()), 1.0) if heavy.any() else 1.0


def _allowed(n: int, weights: I64, total: int, values: I64 | None) -> I64:
    """How many partitions each hot key may be on: by its share, and by how many values tell its rows apart (None:
    every row is told from the others)."""
    from unskew.core.planners.planner_view import SPREAD_PER_FRAGMENT  # tasks that go by a plan load no planners

    most = workers_needed(weights, total, n)
    return most if values is None else np.clip(values // SPREAD_PER_FRAGMENT, 1, most)


def _values(choice: RoutingChoice, hot: U64, keys: U64, spread: U64 | None) -> I64 | None:
    """Distinct spread hashes of each hot key."""
    if spread is None:
        return np.ones(len(hot), np.int64)
    if choice.alike or not len(hot):
        return None
    order = np.argsort(hot)
    place, there = find(hot[order], keys)
    at = np.flatnonzero(there)
    which, values = order[place[at]], spread[at]
    ordered = np.lexsort((values, which))
    which, values = which[ordered], values[ordered]
    return np.bincount(which[new_values(which) | new_values(values)], minlength=len(hot)).astype(np.int64)


# -- what goes to the service -----------------------------------------------------------------------------------


def bounded(histogram: Histogram, partitions: int, listed: int = REPORTED) -> Histogram:
    """The same with at most so many keys by name, the rest by host: what a report carries."""
    return histogram if len(histogram.hashes) <= listed else histogram.shortened(listed, host_bits(partitions))


def report_of(
    choice: RoutingChoice,
    decided: PartitionRouting,
    *,
    agent: str,
    session: int,
    seq: int,
    dsync: float,
    guest: bool = False,
    capacity: int = REPORTED,
) -> Report:
    """The report of what was learned (SYNC). The same partition of the same batch makes the same report."""
    from unskew.core.rounds.messages import Report
    from unskew.core.sketches.frequent import FrequentItems

    n = choice.partitions
    table = QTable.empty(n) if decided.table is None else decided.table
    room = max(_MOST_SENT // n, 1)
    if len(table) > room:
        table = table.take(table.hashes[heaviest(table.hashes, table.rows, room)])
    histogram = decided.histogram
    return Report(
        agent=agent,
        session=session,
        seq=seq,
        table=table,
        records=histogram.total,
        frequent=FrequentItems(capacity).update(histogram.hashes, histogram.counts),
        loads=np.bincount(decided.partitions, minlength=n).astype(np.int64),
        dsync=dsync,
        longer=False,
        guest=guest,
    )
