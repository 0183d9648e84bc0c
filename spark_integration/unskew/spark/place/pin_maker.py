"""The pins of batches that are placed by tasks, and the rounds in which those tasks learn (DESIGN section 7).

A pin is made once a batch, in the driver, before its first task starts. It carries the plan, or the newest Q-table that
the service has; where that does not answer in time, the last one that it gave, and before the first the empty one. From
then on no answer of the service decides where a row goes.

How partitions learn together: each task is a partitioner of the stream (``<source>/<partition>``), and so is the
driver, which has no rows. Tasks report while they run, as guests of the driver, which reports when it makes the next
pin, as the last one. With that the round is complete, is merged at once, and its answer is the next pin's Q-table: one
round a batch, whatever the number of tasks. (In streams: ``streaming.round_participant``.)
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from unskew.client import Client, NotThereError, RefusedError, Synced
from unskew.core.dalton.qtable import QTable
from unskew.core.errors import ConfigError
from unskew.core.plan.plan import Plan
from unskew.core.rounds.messages import Answer, Report
from unskew.core.rounds.partition_agent import REPORTED, RoutingChoice
from unskew.core.rounds.round_digests import NOTHING_SEEN
from unskew.core.sketches.frequent import FrequentItems
from unskew.core.stream_spec import UNKNOWN_PARTS, Part
from unskew.spark.place.task_pin import TaskPin

if TYPE_CHECKING:
    from unskew.spark.planning import Plans
    from unskew.spark.service_link import Left

__all__ = ["PinMaker", "drivers_report"]

_log = logging.getLogger("unskew.spark")
_ALONE = "this batch goes by what was learned before"
_WAIT, _TIMEOUT = 0.5, 3.0  # seconds that the service waits for a round, and that all calls may take
_LONGEST_SOURCE = 200 - len(f"/{UNKNOWN_PARTS}")  # of what a name may have


@dataclass(eq=False)
class PinMaker:
    """Makes the pins of a session, and remembers the newest answer of a round."""

    plans: Plans
    _answer: Answer | None = field(default=None, init=False)
    _session: int = field(default_factory=lambda: time.time_ns() // 1000, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)  # two queries have two threads

    def pin(
        self,
        plan: Plan | None,
        *,
        learn: bool = False,
        router: str | None = None,
        sync: bool | None = None,
        batch: int | None = None,
        source: str | None = None,
        types: tuple[str, ...] = (),
    ) -> TaskPin:
        """The pin of a batch. Where it learns it waits for the service, a few seconds at most. ``types`` are those of
        the key, where that is known; else the last plan's."""
        if router is not None and (learn or plan is not None):
            raise ConfigError("router", router, "a router, or a plan, or learn=True, no two of them")
        plan = None if plan is None and (learn or router is not None) else self.plans.chosen(plan)
        stream, link, last = self.plans.stream, self.plans.link, self.plans.last
        batch = stream.next_batch() if batch is None else batch
        source = source or stream.source
        if router is None and learn == (plan is not None):
            raise ConfigError("learn", learn, "a plan to route by, or learn=True, not both")
        if sync and not (learn and link.client is not None):
            raise ConfigError("sync", sync, "True only with learn=True and a service")
        Part(source, batch)  # refuses what a report could not name
        if len(source) > _LONGEST_SOURCE:
            raise ConfigError("source", source, f"at most {_LONGEST_SOURCE} characters: tasks add their number")
        spec = stream.spec
        choice = RoutingChoice(spec.partitions, plan, batch=batch, seed=spec.seed, router=router)
        due = learn and link.client is not None if sync is None else sync
        if due:
            self._close_round(source, batch, types or (() if last is None else last.key_types))
        return TaskPin(
            stream.name,
            self._with_table(choice) if learn else choice,
            source,
            link.url,
            link.access,
            sync=due,
            session=self._session,
            dsync=self._dsync,
            run=time.time_ns() // 1000,
            began=stream.began,
        )

    @property
    def _dsync(self) -> float:
        answer = self._answer
        return self.plans.stream.spec.dsync if answer is None else answer.dsync

    def _with_table(self, choice: RoutingChoice) -> RoutingChoice:
        answer = self._answer
        return replace(choice, table=QTable.empty(choice.partitions)) if answer is None else choice.after(answer)

    def _close_round(self, source: str, batch: int, types: tuple[str, ...]) -> None:
        """Report for the batch before, as the last one, and take the round's answer."""
        patience = self.plans.patience
        if patience == 0.0:
            return
        spec = self.plans.spec_for(types)
        report = drivers_report(source, self._session, batch + 1, spec.partitions, self._dsync)

        def put_and_sync(client: Client, left: Left) -> Synced:
            try:
                self.plans.put_stream(client, types, left)
                return self._sync(client, report, left)
            except NotThereError:  # the service has lost it since
                self.plans.put_stream(client, types, left, again=True)
                return self._sync(client, report, left)

        within = min(_TIMEOUT, self.plans.link.timeout if patience is None else patience)
        try:
            synced = self.plans.link.ask(put_and_sync, _ALONE, within=within)
        except RefusedError as error:
            if not self.plans.stream.owned:
                raise
            # The number of partitions has changed since: the next pin has the new one.
            _log.info("stream %s: %s. %s", self.plans.stream.name, _ALONE, error)
            return
        if synced is not None and synced.answer is not None:
            self._take(synced.answer, spec.partitions)

    def _sync(self, client: Client, report: Report, left: Left) -> Synced:
        answer, seconds = self._answer, left()
        known = NOTHING_SEEN if answer is None else answer.seen
        wait = _WAIT if seconds is None else min(_WAIT, seconds)
        return client.sync(self.plans.stream.name, report, wait=wait, known=known, timeout=seconds)

    def _take(self, answer: Answer, partitions: int) -> None:
        with self._lock:
            newer = self._answer is None or answer.version > self._answer.version
            if newer and answer.version > (0, 0) and answer.table.workers == partitions:
                self._answer = answer


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
