"""The executor face, driver side: pins, and the rounds in which tasks learn (DESIGN section 7; ``placing``).

A pin is made once a batch, before its first task starts. It carries the plan, or the newest Q-table that the service
has; where that does not answer in time, the last one known, and before the first the empty one. From then on nothing
that is looked up decides anything.

How partitions learn together: each task is a partitioner of the stream (``<source>/<partition>``), and so is the
driver, which has no rows. Tasks report while they run, as guests of the driver, which reports when it makes the next
pin, as the last one. With that the round is complete, is merged at once, and its answer is the next pin's Q-table: one
round a batch, whatever the number of tasks. (In streams: ``streaming.syncs``.)
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from unskew.client import Breaker, Client, NotThereError, RefusedError, Synced
from unskew.client.errors import UNSERVED
from unskew.core.dalton.qtable import QTable
from unskew.core.errors import ConfigError
from unskew.core.plan.plan import Plan
from unskew.core.rounds.messages import Answer, Report
from unskew.core.rounds.partition_agent import REPORTED, RoutingChoice
from unskew.core.sketches.frequent import FrequentItems
from unskew.core.stream_spec import UNKNOWN_PARTS, Part
from unskew.spark.place.executor import TaskPin

if TYPE_CHECKING:
    from unskew.spark.planning import Plans

__all__ = ["Pins", "drivers_report"]

_log = logging.getLogger("unskew.spark")
_WAIT, _TIMEOUT = 0.5, 2.0
_LONGEST_SOURCE = 200 - len(f"/{UNKNOWN_PARTS}")  # of what a name may have


@dataclass(eq=False)
class Pins:
    """Makes the pins of one stream, in a driver. Remembers the newest global Q-table that it was told of."""

    plans: Plans
    answer: Answer | None = field(default=None, init=False)
    _session: int = field(default_factory=lambda: time.time_ns() // 1000, init=False)
    _breaker: Breaker = field(default_factory=lambda: Breaker(failures=1, cooldown=5.0), init=False)
    _lock: threading.Lock = field(
        default_factory=threading.Lock, init=False
    )  # handlers of two queries have two threads

    def pin(self, source: str, plan: Plan | None, batch: int, *, learn: bool, sync: bool | None = None) -> TaskPin:
        """The pin of a batch. Where it learns it waits for the service a second or two at most."""
        if learn == (plan is not None):
            raise ConfigError("learn", learn, "a plan to route by, or learn=True, not both")
        plans, client = self.plans, self.plans.client
        if sync and not (learn and client is not None):
            raise ConfigError("sync", sync, "True only with learn=True and a service")
        Part(source, batch)  # refuses what a report could not name
        if len(source) > _LONGEST_SOURCE:
            raise ConfigError("source", source, f"at most {_LONGEST_SOURCE} characters: tasks add their number")
        bound = RoutingChoice(plans.partitions, plan, batch=batch, seed=plans.spec.seed)
        due = learn and client is not None if sync is None else sync
        if learn:
            if due:
                self._hear(source, batch)
            bound = self._learned(bound)
        return TaskPin(
            plans.stream,
            bound,
            source,
            None if client is None else client.url,
            plans.access,
            sync=due,
            session=self._session,
            dsync=self._dsync,
            run=time.time_ns() // 1000,
            began=plans.began,
        )

    @property
    def _dsync(self) -> float:
        return self.plans.spec.dsync if self.answer is None else self.answer.dsync

    def _learned(self, bound: RoutingChoice) -> RoutingChoice:
        found = self.answer
        if found is None:
            return replace(bound, table=QTable.empty(bound.partitions))
        same = found.table.workers == bound.partitions
        table = found.table if same else found.table.resized(bound.partitions)
        return replace(bound, table=table, records=found.records, version=found.version)

    def _hear(self, source: str, batch: int) -> None:
        """Close the round of the batch before, and take its answer."""
        plans = self.plans
        with self._lock:
            if plans.client is None or not plans.patience or not self._breaker.allow(time.monotonic()):
                return
        known = (0, 0) if self.answer is None else self.answer.version
        try:
            news = self._synced(plans.client, self._report(source, batch), known).answer
        except UNSERVED as why:
            with self._lock:
                self._breaker.failure(time.monotonic())
            plans.alone(why, "this batch goes by what was learned before")
            return
        except RefusedError as why:
            if not plans.decides:
                raise
            # A number that was decided here a moment ago, and that the thread that plans will tell the service.
            _log.info("stream %s: a batch goes by what was learned before. %s", plans.stream, why)
            return
        with self._lock:
            self._breaker.success()
        if news is not None and news.version > known and news.table.workers == plans.partitions:
            self.answer = news

    def _synced(self, client: Client, report: Report, known: tuple[int, int]) -> Synced:
        """Where the stream is not there yet, it is made."""
        stream, given = self.plans.stream, min(_TIMEOUT, self.plans.patience / 3.0)  # of each call that there may be
        try:
            return client.sync(stream, report, wait=min(_WAIT, given), known=known, timeout=given)
        except NotThereError:
            client.put_stream(stream, self.plans.spec, timeout=given)
            return client.sync(stream, report, wait=min(_WAIT, given), known=known, timeout=given)

    def _report(self, source: str, batch: int) -> Report:
        return drivers_report(source, self._session, batch + 1, self.plans.partitions, self._dsync)


def drivers_report(source: str, session: int, seq: int, workers: int, dsync: float, *, longer: bool = False) -> Report:
    """The driver has no rows."""
    return Report(
        agent=f"{source}/driver",
        session=session,
        seq=seq,
        table=QTable.empty(workers),
        records=0,
        frequent=FrequentItems(REPORTED),
        loads=np.zeros(workers, np.int64),
        dsync=dsync,
        longer=longer,
    )
