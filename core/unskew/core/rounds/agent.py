"""A partitioner among others (Dalton, Algorithm 2), as a passive machine: ``handle(event, now) -> actions``.

PREPARE: it learns by itself. Every DSYNC it sends a report (SYNC) and is in AWAIT until an answer names that report.
It routes and learns on meanwhile, and the rewards met since the report are merged with the global Q-table by Eq. 5
when that comes. ``now`` is in the unit of DSYNC: seconds, or tuples where a driver counts them.

Deviations from Algorithm 2:
- while it waits its own values go on moving (the paper freezes them, and all tuples of a key herd on one worker);
- the kept rewards are one affine map a cell, not a list: the same result in bounded memory;
- a report is sent again, unchanged, each DSYNC until it is answered; with the first repeat the agent notes that the
  *next* report asks for a longer DSYNC (4.1);
- an answer without its report (it came late for that round) is taken as well: its own rewards are in the report;
- an answer that is not newer but names the report it waits for (the reducer went on from an older state) ends AWAIT;
- an interval (STATS_WIN) ends with each DSYNC, also while it waits, so a reducer that is gone costs neither memory nor
  what the agent can learn: after an interval without an answer it measures hot by its own load, as Algorithm 1;
- loads and fragments of the others count in rewards (``lonely=True``: only its own, as published).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from unskew.core.arrays.types import F64, I32, U64
from unskew.core.dalton import row_loop as kernels
from unskew.core.dalton.qtable import QTable
from unskew.core.errors import ConfigError, PlanError
from unskew.core.parameters import check_range, checked
from unskew.core.rounds.messages import Answer, Report
from unskew.core.rounds.round_digests import NOTHING_SEEN, SeenRound
from unskew.core.routers.base import Router, common
from unskew.core.routers.dalton import DaltonRouter
from unskew.core.routers.learner import Learner
from unskew.core.sketches.frequent import FrequentItems

__all__ = ["Agent", "AgentSettings", "AgentTick", "Answered", "Event", "Routed", "SendReport", "Tuples"]


@dataclass(frozen=True)
class AgentSettings:
    """Who an agent is, and how it works. ``parameters`` are those of the router ``dalton``; ``number`` sets its random
    numbers apart from those of other agents; ``capacity`` bounds the keys in a report."""

    name: str
    workers: int
    dsync: float
    number: int = 0
    session: int = 1
    seed: int = 7
    window: float | None = None
    slide: float | None = None
    capacity: int = 4096
    lonely: bool = False
    parameters: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < self.dsync < float("inf"):
            raise ConfigError("dsync", self.dsync, "a number above 0")
        check_range("capacity", self.capacity, 1, 1 << 20, f"1 to {1 << 20} keys in a report")
        if not 0 <= self.number < 1 << 31:
            raise ConfigError("number", self.number, f"0 to {(1 << 31) - 1}")
        if self.session < 1:
            raise ConfigError("session", self.session, "1 or more, and more than that of an earlier life of this agent")
        if self.parameters.get("frequencies", "map") != "map":
            raise ConfigError("frequencies", self.parameters["frequencies"], "'map': reports need the exact counts")
        if isinstance(weight := self.parameters.get("slide_weight", 0), (int, float)) and weight > 1:
            raise ConfigError("slide_weight", weight, "0 to 1 for an agent: a reward must not be below -2, never tried")


@dataclass(frozen=True, eq=False)
class Tuples:
    """Tuples to route, in stream order."""

    hashes: U64
    times: F64 | None = None


@dataclass(frozen=True, eq=False)
class Answered:
    """An answer of the reducer has come; late, twice and out of order are all right. ``age``: how long ago its round
    was complete; the next report is due one DSYNC after that, so that agents fall in step."""

    answer: Answer
    age: float | None = None


@dataclass(frozen=True)
class AgentTick:
    """Time has passed."""


Event = Tuples | Answered | AgentTick


@dataclass(frozen=True, eq=False)
class Routed:
    """The workers of the tuples."""

    workers: I32


@dataclass(frozen=True, eq=False)
class SendReport:
    """Send this report to the reducer. Nothing waits for it."""

    report: Report


Action = Routed | SendReport


@dataclass(eq=False)
class Agent:
    """The machine. Not thread-safe: its driver hands it one event after another."""

    settings: AgentSettings
    learner: Learner = field(init=False)
    router: Router = field(init=False)
    dsync: float = field(init=False)
    seen: SeenRound = field(default=NOTHING_SEEN, init=False)
    seq: int = field(default=0, init=False)
    waiting: Report | None = field(default=None, init=False)
    _due: float | None = field(default=None, init=False)
    _ask_longer: bool = field(default=False, init=False)
    _interval_tuples: int = field(default=0, init=False)
    _interval_began: float = field(default=0.0, init=False)
    _answered: bool = field(default=False, init=False)
    _unreported: FrequentItems | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        settings = self.settings
        parameters = checked("dalton", DaltonRouter, {"frequencies": "map", **settings.parameters})
        shared = common(settings.workers, settings.seed, settings.window, settings.slide)
        router = DaltonRouter(shared, **parameters)  # type: ignore[arg-type]  # checked above
        self.learner = router.partner(settings.number + 1)
        self.router = Router("dalton", self.learner)
        self.dsync = float(settings.dsync)

    @property
    def version(self) -> tuple[int, int]:
        """Of the newest answer."""
        return self.seen[:2]

    @property
    def awaiting(self) -> bool:
        return self.waiting is not None

    def handle(self, event: Event, now: float) -> tuple[Action, ...]:
        """What to do about an event. Tuples are routed first; then a report may be due."""
        if isinstance(event, Answered):
            self._take(event, now)
            return ()
        routed: tuple[Action, ...] = ()
        if self._due is None:
            self._interval_began, self._due = now, now + self.dsync
        if isinstance(event, Tuples):
            routed = (Routed(self.router.route(event.hashes, event.times)),)
        return (*routed, *self._report(now))

    def _report(self, now: float) -> tuple[Action, ...]:
        if self._due is None or now < self._due:
            return ()
        self._due = max(self._due + self.dsync * ((now - self._due) // self.dsync + 1), now)
        if self.waiting is not None:
            self._ask_longer, self._unreported = True, self._frequent()
            self._end_interval(now)
            self._age_others()
            return (SendReport(self.waiting),)
        self.seq += 1
        frequent = self._frequent()
        self.waiting = Report(
            agent=self.settings.name,
            session=self.settings.session,
            seq=self.seq,
            table=self._table(),
            records=frequent.total,
            frequent=frequent,
            loads=self.learner.loads.load.copy(),
            dsync=self.dsync,
            longer=self._ask_longer,
        )
        self._ask_longer, self._unreported = False, None
        self._end_interval(now)
        self.learner.forget_pending()
        return (SendReport(self.waiting),)

    def _frequent(self) -> FrequentItems:
        """What came since the last report: the intervals that ended without an answer, and this one."""
        interval = self.learner.frequent(self.settings.capacity)
        return interval if self._unreported is None else self._unreported.merge(interval)

    def _table(self) -> QTable:
        """The rows, with their tuples since the last report."""
        table = self.learner.table()
        before = 0 if self._unreported is None else self._unreported.lower(table.hashes)
        return QTable(table.hashes, table.values, table.rows + before, table.held)

    def _end_interval(self, now: float) -> None:
        """STATS_WIN ends. L of the next one is GL, or what came here in this one if no answer came in it."""
        self.learner.end_interval()
        if self._answered:
            self.learner.set_span(self._interval_tuples)
        self._interval_began, self._answered = now, False

    def _age_others(self) -> None:
        """No answer came. The loads of the other agents shrink to what they are assumed to route in a window."""
        books, loads = self.learner.rows.books, self.learner.rows.loads
        total = int(books[kernels.OTHERS])
        most = int(books[kernels.ECHO]) * int(self.learner.loads.load.sum())
        if self.settings.window is not None and total > most:
            loads[:] = np.floor(loads * (most / total)).astype(np.int64)
            books[kernels.OTHERS] = loads.sum()

    def _take(self, event: Answered, now: float) -> None:
        answer = event.answer
        if answer.version <= self.version:
            if self.waiting is not None and self.waiting.name in answer.merged:
                self.waiting = None
            return
        if answer.table.workers != self.settings.workers:
            raise PlanError(
                f"answer {answer.epoch} is for {answer.table.workers} workers, agent {self.settings.name} has "
                f"{self.settings.workers}; give every agent of a stream the same number"
            )
        mine = self.waiting if self.waiting is not None and self.waiting.name in answer.merged else None
        others = answer.loads - (mine.loads if mine is not None else 0)
        table = answer.table
        if self.settings.lonely:
            others = np.zeros_like(others)
            table = type(table)(table.hashes, table.values, table.rows, np.zeros_like(table.held))
        asked = mine.dsync if mine is not None else self.dsync
        self.dsync = float(answer.dsync)
        if mine is not None:
            self.waiting = None
            self._due = now - (event.age or 0.0) + self.dsync
        self._answered, self._interval_tuples = True, max(round(answer.records * self.dsync / asked), 1)
        self.learner.adopt(table, answer.unsure, self._interval(), np.maximum(others, 0), self._echo(answer, mine))
        self.seen = answer.seen

    def _interval(self) -> int:
        """L for the interval that an answer came into: it is as much longer than a DSYNC as the answer was late."""
        due = self._interval_began + self.dsync if self._due is None else self._due
        return max(round(self._interval_tuples * (due - self._interval_began) / self.dsync), self._interval_tuples)

    def _echo(self, answer: Answer, mine: Report | None) -> int:
        """How many tuples the other agents route for each of ours. Until the next answer the agent assumes that those
        go to the same workers as its own. Else all agents would fill the same gap, each the whole of it."""
        if self.settings.lonely or mine is None or not mine.records:
            return 0
        return round(answer.records / mine.records) - 1
