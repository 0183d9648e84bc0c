"""The state of Dalton's learner, and what happens between tuples.

``dalton.row_loop`` has the loop. Here rows and tables grow, an interval ends when a SYNC says so, the Q-table is read
out, and a global one is adopted (section 4.1).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unskew.core.arrays.types import F64, I32, I64, U64, Index
from unskew.core.dalton import frequency_store as hot
from unskew.core.dalton import row_loop as kernels
from unskew.core.dalton.qtable import UNTRIED, QTable
from unskew.core.dalton.settings import FIRST_ROOM, LearningSettings, UpdateRule
from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import host_of
from unskew.core.kernels.key_table import copy_cells
from unskew.core.limits import host_bits
from unskew.core.parameters import check_range
from unskew.core.planners.base import common as plan_settings
from unskew.core.planners.hashed import hash_tail
from unskew.core.routers.base import Loads, RouterSettings, longer_log
from unskew.core.sketches.frequent import FrequentItems

__all__ = ["Learner"]


_FIRST_PLACES = 4096
_NEVER = 1 << 62
_WORDS = 1 << 12  # of the bitmap that counts distinct keys beside the sketch: 262,144 bits


@dataclass(eq=False)
class Learner:
    """The state of one partitioner. A ``cooperating`` one stores its rewards since the last report, and its intervals
    end only when ``end_interval`` is called."""

    common: RouterSettings
    learning: LearningSettings
    sketch_above: int
    frequencies: str
    number: int = 0
    cooperating: bool = False
    rule: UpdateRule = field(init=False)
    loads: Loads = field(init=False)
    now: hot.Frequencies = field(init=False)
    rows: kernels.DaltonRows = field(init=False)

    def __post_init__(self) -> None:
        n, windowed = self.common.workers, self.common.window is not None
        if self.cooperating and self.frequencies != "map":
            raise ConfigError("frequencies", self.frequencies, "map for one of several: its reports need exact counts")
        rule = self.learning.rule(n, self.common.salt(self.number), windowed=windowed)
        self.rule = rule._replace(records=_NEVER) if self.cooperating else rule
        self._tail = hash_tail(plan_settings(n))
        self.loads = Loads.of(self.common)
        self.now = _frequencies(n, self.frequencies, self.sketch_above)
        self.rows = _rows(n, min(FIRST_ROOM, self.rule.room), windowed=windowed, cooperating=self.cooperating)
        self.rows.books[kernels.CAP] = self.learning.first_cap(n)

    def homes(self, keys: U64) -> I32:
        """Where plain hashing sends these keys."""
        return self._tail.take(host_of(keys, host_bits(self.common.workers)))

    def step(self, keys: U64, slides: I64, out: I32) -> None:
        """Route all tuples; arrays that are full grow on the way."""
        homes, routed, at = self.homes(keys), 0, self.loads
        while True:
            routed = kernels.route_learned(
                keys, homes, slides, out, routed, self.rule, at.clock, at.ring, at.load, self.now, self.rows
            )
            if routed == len(keys):
                return
            self._grow()

    def table(self) -> QTable:
        """All rows, with the tuples of their keys in the interval so far.

        Rows without a value are keys that are no longer hot but still split in the window. ``held`` has only this
        learner's own fragments: other agents' fragments, sent back to them, would never expire.
        """
        slots = self._slots()
        of, row_keys = self.rows, self.rows.row_keys[slots]
        often = np.zeros(len(row_keys), np.int64)
        with np.errstate(over="ignore"):
            hot.counts_of(row_keys, self.now, often)
        return QTable.of(row_keys, of.values[slots], often, of.used[slots] != kernels.NEVER)

    def hot_keys(self) -> U64:
        """The keys in the Q-table now, ascending."""
        slots = self._slots()
        return np.sort(self.rows.row_keys[slots][self.rows.entry[slots, kernels.UNTIL] != kernels.NEVER])

    def frequent(self, capacity: int) -> FrequentItems:
        """The keys of this interval: exact counts, reduced to ``capacity`` of them with the error stated."""
        size = int(self.now.tally[hot.DISTINCT])
        keys, counts = np.empty(size, np.uint64), np.empty(size, np.int64)
        hot.all_counts(self.now.table, int(self.now.tally[hot.INTERVAL]), keys, counts)
        return FrequentItems(capacity).update(keys, counts)

    def end_interval(self) -> None:
        """End STATS_WIN (Dalton, section 4.1: it is DSYNC)."""
        with np.errstate(over="ignore"):
            kernels.end_interval(self.rows, self.now, self.rule)

    def forget_pending(self) -> None:
        """Clear the pending rewards, because a report now contains them."""
        self.rows.pending[kernels.DECAY] = 1.0
        self.rows.pending[kernels.GAIN] = 0.0
        self.rows.pending[kernels.FRESH] = UNTRIED

    @property
    def span(self) -> int:
        """L: the load that decides which keys are hot."""
        return int(self.now.tally[hot.SPAN])

    def set_span(self, span: int) -> None:
        """Set L, where it is not the load of the interval before."""
        self.now.tally[hot.SPAN] = span

    def adopt(self, table: QTable, unsure: frozenset[int], span: int, others: I64, echo: int) -> None:
        """Take over a global state: its Q-table, with the rewards since the last report merged in (Eq. 5), and its load
        L.

        ``others`` are the other agents' loads, of which ``echo`` tuples come with each tuple of this agent.
        """
        hot_before = self.hot_keys()
        with np.errstate(over="ignore"):
            for key in hot_before[~np.isin(hot_before, table.hashes)]:
                if int(key) not in unsure:
                    kernels.turn_cold(kernels.row_of(key, self.rows), self.rows)
            self._adopt_rows(table, span, others)
        self.rows.books[kernels.ECHO] = echo

    def _adopt_rows(self, table: QTable, span: int, others: I64) -> None:
        self.set_span(span)
        self.rows.loads[:] = others
        self.rows.books[kernels.OTHERS] = int(others.sum())
        self.rows.away[:] = 0
        self._recount()
        homes = self.homes(table.hashes)
        for j, key in enumerate(table.hashes):
            self._adopt_row(key, int(homes[j]), table.values[j], int(table.rows[j]), table.held[j])

    def _adopt_row(self, key: np.uint64, home: int, values: F64, often: int, held: Any) -> None:
        of, row = self.rows, int(kernels.row_of(key, self.rows))
        if row < 0:
            self._make_room()
            row = int(kernels.add_row(key, home, self.rows))
            of = self.rows
        if row < 0:
            return
        of.values[row] = self._merged(row, values)
        entry = of.entry[row]
        entry[kernels.UNTIL], entry[kernels.WEIGHT] = int(self.now.tally[hot.INTERVAL]) + 1, often
        of.away[row] = held & (of.used[row] == kernels.NEVER)
        entry[kernels.HELD] = int(((of.used[row] != kernels.NEVER) | (of.away[row] != 0)).sum())
        entry[kernels.TRIED] = int((of.values[row] != UNTRIED).sum())
        kernels.drop_worst(row, self._most(row), of)

    def _most(self, row: int) -> int:
        """How many workers the key of this row may be on."""
        books, entry, n = self.rows.books, self.rows.entry, self.common.workers
        return int(kernels.worker_limit(row, 0, self.span, self.rule, entry, books, n))

    def _merged(self, row: int, values: F64) -> F64:
        """Global values moved by the pending rewards; of an untried cell the pending rewards alone."""
        decay, gain, fresh = self.rows.pending[:, row]
        merged: F64 = np.where(values == UNTRIED, fresh, decay * values + gain)
        return merged

    def _recount(self) -> None:
        """Count only this agent's fragments in all rows; rows that only other agents' fragments held are freed."""
        of = self.rows
        for row in self._slots():
            of.entry[row, kernels.HELD] = int((of.used[row] != kernels.NEVER).sum())
            if of.entry[row, kernels.UNTIL] == kernels.NEVER:
                kernels.turn_cold(row, of)

    def _slots(self) -> Index:
        """The rows in use."""
        return np.sort(self.rows.table[self.rows.table > 0] - 1).astype(np.intp)

    def _make_room(self) -> None:
        books = self.rows.books
        if not books[kernels.FREE] and books[kernels.USED] == len(self.rows.row_keys) < self.rule.room:
            self.rows = _widened(self.rows, min(2 * len(self.rows.row_keys), self.rule.room))

    def _grow(self) -> None:
        """Double whatever is full."""
        of = self.rows
        self._make_room()
        log_tail, log_head = int(of.books[kernels.TAIL]), int(of.books[kernels.HEAD])
        if 0 < len(of.log) < log_head - log_tail + 2:
            self.rows = self.rows._replace(log=longer_log(self.rows.log, log_tail, log_head))
        tally = self.now.tally
        if tally[hot.MODE] == hot.MAP and 2 * tally[hot.DISTINCT] >= len(self.now.table):
            wider = np.zeros((2 * len(self.now.table), 2), np.uint64)
            hot.copy_counts(self.now.table, int(tally[hot.INTERVAL]), wider)
            self.now = self.now._replace(table=wider)


def _frequencies(workers: int, kind: str, above: int) -> hot.Frequencies:
    """An empty store. The sketch has 16 n cells a row or more, depth 4: noise far under L / n (FIDELITY)."""
    if kind not in ("hybrid", "map", "sketch"):
        raise ConfigError("frequencies", kind, "hybrid, map or sketch")
    check_range("sketch_above", above, 1, 1 << 24, f"1 to {1 << 24} distinct keys in an interval")
    bits = _WORDS << 6
    low = bits * (1.0 - np.exp(-above / 2 / bits))  # bits set by half as many keys
    tally = np.zeros(7, np.int64)
    tally[hot.INTERVAL] = 1
    tally[hot.MODE] = hot.SKETCH if kind == "sketch" else hot.MAP
    tally[hot.HIGH] = above if kind == "hybrid" else _NEVER
    tally[hot.LOW] = low if kind == "hybrid" else -1
    cells = np.zeros((4, 1 << (16 * workers - 1).bit_length()), np.uint64)
    return hot.Frequencies(np.zeros((_FIRST_PLACES, 2), np.uint64), cells, np.zeros(_WORDS, np.uint64), tally)


def _rows(workers: int, room: int, *, windowed: bool, cooperating: bool) -> kernels.DaltonRows:
    entry = np.zeros((room, kernels.HOME + 1), np.int64)
    entry[:, kernels.UNTIL] = kernels.NEVER
    return kernels.DaltonRows(
        row_keys=np.zeros(room, np.uint64),
        values=np.full((room, workers), UNTRIED),
        used=np.full((room, workers), kernels.NEVER),
        away=np.zeros((room, workers), np.uint8),
        entry=entry,
        bound=np.full(room, UNTRIED),
        pending=np.ones((3, room, workers if cooperating else 0)),
        table=np.zeros(4 << (room - 1).bit_length(), np.int64),
        log=np.zeros((4 * _FIRST_PLACES if windowed else 0, 2), np.int64),
        loads=np.zeros(workers, np.int64),
        books=np.zeros(9, np.int64),
    )


def _widened(of: kernels.DaltonRows, room: int) -> kernels.DaltonRows:
    """The same rows with room for more."""
    n, rows = of.values.shape[1], len(of.row_keys)
    wider = _rows(n, room, windowed=False, cooperating=of.pending.shape[2] > 0)
    for name in ("row_keys", "values", "used", "away", "entry", "bound"):
        getattr(wider, name)[:rows] = getattr(of, name)
    wider.pending[:, :rows] = of.pending
    copy_cells(wider.row_keys, of.table, wider.table)
    return wider._replace(log=of.log, loads=of.loads, books=of.books)
