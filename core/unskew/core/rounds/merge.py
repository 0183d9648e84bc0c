"""What the reports of one round say together: the Q-table reducer's arithmetic (Dalton, section 4.1).

A pure function of the reports: they are taken in the order of their names, so it gives the same bits in whatever
order they came and whoever does it again.

Hot are the keys with a worker's mean share of the round, f(k) >= GL / n, by the merged summary of all agents: both
sides are over the tuples since each agent's report before, however long that is. At most n keys can be (Theorem 3.4);
with those that stay hot down to half of that (decision 11), 2 n.

Deviations from the paper:

- Hot and cold are said only outside the summary's error, not by the sum of bare top-n lists, which misses keys. A
  key between them stays only if it was in the global table before (the n heaviest of those), and is named in
  ``unsure``.
- The mean is the one that its text describes, sum f_j Q_j / sum f_j over the agents that hold a row; its formula
  divides by GL and P instead. A worker that an agent never tried for a key is no reward and not in the mean
  (``untried="included"`` has it as the -2 that it is written as). Where no weight is above 0 all are equal.
- A round without a tuple says nothing about any key: the global table's keys stay.
- "Stay hot" is meant for counts that vary. A round of half as many tuples again as the one before has agents in it that
  were not there: what was hot without them has to be hot with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from unskew.core.arrays.ranking import descending, find
from unskew.core.arrays.types import F64, I64, U64, Index
from unskew.core.dalton.qtable import UNTRIED, QTable
from unskew.core.errors import ConfigError, HistogramError
from unskew.core.parameters import check_range
from unskew.core.rounds.messages import Answer, Report
from unskew.core.sketches.frequent import FrequentItems, HeavyVerdict

__all__ = ["Pool", "merge"]


Untried = Literal["left out", "included"]
_GREW = 1.5
_BEST = 2.0  # what a QTable takes at most: rounding must not lift a mean above it


class Pool(NamedTuple):
    """The global state of a round, before the reducer has named and timed it."""

    table: QTable
    records: int  # GL
    unsure: frozenset[int]
    loads: I64
    split: U64  # every key that some agent has a row for


def merge(
    reports: Iterable[Report], previous: Answer | None = None, *, untried: Untried = "left out", renew: float = 0.5
) -> Pool:
    """The reports of one round, and the answer to the round before, as one state. A key that was hot stays so while it
    has ``renew`` of GL / n (1: as published)."""
    check_range("renew", renew, 0, 1)
    if untried not in ("left out", "included"):
        raise ConfigError("untried", untried, ("left out", "included"))
    ordered = sorted(reports, key=lambda report: report.name)
    workers = _workers(ordered, previous)
    frequent = FrequentItems.merge_all(report.frequent for report in ordered)
    before = np.zeros(0, np.uint64) if previous is None else previous.table.hashes
    if previous is not None and previous.records and frequent.total >= _GREW * previous.records:
        renew = 1.0
    hot, unsure = _verdicts(ordered, frequent, before, workers, renew)
    was_hot = unsure[find(before, unsure)[1]]
    stay = was_hot[descending(frequent.lower(was_hot))[:workers]]  # not more: the table must not grow over many rounds
    hot_keys = np.union1d(hot, stay)
    table = _mean([report.table for report in ordered], hot_keys, frequent, workers, left_out=untried == "left out")
    loads = np.asarray(sum(report.loads for report in ordered), np.int64)
    return Pool(table, frequent.total, frozenset(unsure.tolist()), loads, _keys(ordered))


def _workers(ordered: list[Report], previous: Answer | None) -> int:
    """The number of workers that all of them speak of."""
    if not ordered:
        raise HistogramError("reports: a round without a report has nothing to merge; give at least one")
    for one, other in pairwise(ordered):
        if one.name == other.name:
            raise HistogramError(f"reports: {one.name} is there twice; give each report of a round once")
    worker_counts = {report.table.workers for report in ordered} | (
        set() if previous is None else {previous.table.workers}
    )
    if len(worker_counts) > 1:
        raise ConfigError(
            "workers", sorted(worker_counts), "the same number in all reports of a round and in the one before"
        )
    return worker_counts.pop()


def _verdicts(
    ordered: list[Report], frequent: FrequentItems, before: U64, workers: int, renew: float
) -> tuple[U64, U64]:
    """The hot keys, and those of which the summary cannot say: of all that anybody has a count or a row for."""
    named = _distinct([frequent.hashes, before, _keys(ordered)])
    if not frequent.total:
        return named[:0], named
    # Counts are whole: f >= GL / n exactly where f >= ceil(GL / n).
    verdicts = frequent.verdicts(named, -(-frequent.total // workers))
    _, was_hot = find(before, named)
    verdicts[was_hot] = frequent.verdicts(named[was_hot], max(renew * frequent.total / workers, 1.0))
    return named[verdicts == HeavyVerdict.HOT], named[verdicts == HeavyVerdict.UNKNOWN]


def _keys(ordered: list[Report]) -> U64:
    """Every key that some agent has a row for."""
    return _distinct([report.table.hashes for report in ordered])


def _distinct(sets: list[U64]) -> U64:
    """What is in any of these. Most agents of a stream have rows for the same keys: equal sets are taken once."""
    different = {hashes.tobytes(): hashes for hashes in sets}
    return np.unique(np.concatenate(list(different.values())))


class _Sums:
    """The sums that the mean of each cell is made of: of one table after another, in room for a few."""

    def __init__(self, hot_keys: U64, workers: int, *, left_out: bool) -> None:
        cells = len(hot_keys), workers
        self._hot_keys, self._left_out = hot_keys, left_out
        self.weighted, self.weight, self._share = np.zeros(cells), np.zeros(cells), np.empty(cells)
        self.plain, self.voices = np.zeros(cells), np.zeros(cells)
        self.held, self.rows = np.zeros(cells, np.bool_), np.zeros(len(hot_keys), np.int64)

    def add(self, table: QTable) -> None:
        if np.array_equal(table.hashes, self._hot_keys):  # as it is where a table is what agents learned together
            self._add_all(table)
            return
        at, mine = find(self._hot_keys, table.hashes)
        at, values, counts = at[mine], table.values[mine], table.rows[mine]
        share = self._share_of(values, counts)
        self.weight[at] += share
        share *= values
        self.weighted[at] += share
        self.held[at] |= table.held[mine]
        self.rows[at] += counts
        self._add_idle(at, values, counts)

    def _add_all(self, table: QTable) -> None:
        """The same without picking rows."""
        share = self._share_of(table.values, table.rows)
        self.weight += share
        share *= table.values
        self.weighted += share
        self.held |= table.held
        self.rows += table.rows
        if np.count_nonzero(table.rows) < len(table.rows):
            self._add_idle(np.arange(len(self._hot_keys)), table.values, table.rows)

    def _share_of(self, values: F64, counts: I64) -> F64:
        """The tuples that speak for each cell."""
        share = self._share[: len(counts)]
        share[:] = counts[:, None]
        if self._left_out:
            share *= values != UNTRIED
        return share

    def _add_idle(self, at: Index, values: F64, counts: I64) -> None:
        """Rows without tuples: they matter only where no agent has any, so others need not be in these sums."""
        idle = counts == 0
        if idle.any():
            tried = (values[idle] != UNTRIED) if self._left_out else np.ones((idle.sum(), values.shape[1]), np.bool_)
            self.plain[at[idle]] += np.where(tried, values[idle], 0.0)
            self.voices[at[idle]] += tried


def _mean(tables: list[QTable], hot_keys: U64, frequent: FrequentItems, workers: int, *, left_out: bool) -> QTable:
    """The weighted mean of each cell, table by table in the order given: one bit pattern, whoever merges."""
    sums = _Sums(hot_keys, workers, left_out=left_out)
    for table in tables:
        sums.add(table)
    out = np.full((len(hot_keys), workers), UNTRIED)
    np.divide(sums.plain, sums.voices, out=out, where=sums.voices > 0)
    np.divide(sums.weighted, sums.weight, out=out, where=sums.weight > 0)
    # Agents without a row saw the key too: the merged summary may know of more tuples than the rows do.
    return QTable(hot_keys, np.clip(out, UNTRIED, _BEST), np.maximum(sums.rows, frequent.lower(hot_keys)), sums.held)
