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
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.core.errors import ConfigError, HistogramError
from unskew.core.qtable import UNTRIED, QTable
from unskew.core.sketches.frequent import FrequentItems, Verdict
from unskew.core.sync import Answer, Report

__all__ = ["Pool", "merge"]

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

Untried = Literal["left out", "included"]
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
    if not 0.0 <= renew <= 1.0:
        raise ConfigError("renew", renew, "0 to 1")
    if untried not in ("left out", "included"):
        raise ConfigError("untried", untried, ("left out", "included"))
    ordered = sorted(reports, key=lambda report: report.name)
    workers = _workers(ordered, previous)
    seen = FrequentItems.merge_all(report.frequent for report in ordered)
    before = np.zeros(0, np.uint64) if previous is None else previous.table.hashes
    hot, unsure = _verdicts(ordered, seen, before, workers, renew)
    kept = np.union1d(hot, _heaviest(seen, np.intersect1d(unsure, before), workers))
    table = _mean([report.table for report in ordered], kept, seen, workers, left_out=untried == "left out")
    loads = np.asarray(sum(report.loads for report in ordered), np.int64)
    split = np.unique(np.concatenate([report.table.hashes for report in ordered]))
    return Pool(table, seen.total, frozenset(unsure.tolist()), loads, split)


def _workers(ordered: list[Report], previous: Answer | None) -> int:
    """The number of workers that all of them speak of."""
    if not ordered:
        raise HistogramError("reports: a round without a report has nothing to merge; give at least one")
    for one, other in pairwise(ordered):
        if one.name == other.name:
            raise HistogramError(f"reports: {one.name} is there twice; give each report of a round once")
    found = {report.table.workers for report in ordered} | (set() if previous is None else {previous.table.workers})
    if len(found) > 1:
        raise ConfigError("workers", sorted(found), "the same number in all reports of a round and in the one before")
    return found.pop()


def _verdicts(ordered: list[Report], seen: FrequentItems, before: U64, workers: int, renew: float) -> tuple[U64, U64]:
    """The hot keys, and those of which the summary cannot say: of all that anybody has a count or a row for."""
    named = np.unique(np.concatenate([seen.hashes, before, *(report.table.hashes for report in ordered)]))
    if not seen.total:
        return named[:0], named
    # Counts are whole: f >= GL / n exactly where f >= ceil(GL / n).
    verdicts = seen.verdicts(named, -(-seen.total // workers))
    was_hot = np.isin(named, before)
    verdicts[was_hot] = seen.verdicts(named[was_hot], max(renew * seen.total / workers, 1.0))
    return named[verdicts == Verdict.HOT], named[verdicts == Verdict.UNKNOWN]


def _heaviest(seen: FrequentItems, hashes: U64, most: int) -> U64:
    """At most so many of these keys, the heaviest, ties by hash: a table that cannot grow over many rounds."""
    return hashes[np.argsort(-seen.lower(hashes), kind="stable")[:most]]


def _mean(tables: list[QTable], kept: U64, seen: FrequentItems, workers: int, *, left_out: bool) -> QTable:
    """The weighted mean of each cell, table by table in the order given: one bit pattern, and room for one table."""
    cells = len(kept), workers
    weighted, weight, plain, voices = (np.zeros(cells) for _ in range(4))
    held, rows = np.zeros(cells, np.bool_), np.zeros(len(kept), np.int64)
    for table in tables:
        mine = np.isin(table.hashes, kept)
        at, values, counts = np.searchsorted(kept, table.hashes[mine]), table.values[mine], table.rows[mine]
        heard = (values != UNTRIED) if left_out else np.ones(values.shape, np.bool_)
        share = heard * counts[:, None].astype(np.float64)
        weighted[at] += share * values
        weight[at] += share
        plain[at] += np.where(heard, values, 0.0)
        voices[at] += heard
        held[at] |= table.held[mine]
        rows[at] += counts
    out = np.full(cells, UNTRIED)
    np.divide(plain, voices, out=out, where=voices > 0)
    np.divide(weighted, weight, out=out, where=weight > 0)
    # Agents without a row saw the key too: the merged summary may know of more tuples than the rows do.
    return QTable(kept, np.clip(out, UNTRIED, _BEST), np.maximum(rows, seen.lower(kept)), held)
