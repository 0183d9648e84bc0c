"""A thread and its queue around the machine that plans ahead (``unskew.core.freshness.plan_ahead``).

Handlers and Spark's listener put finished batches and their times into the queue. The thread reads the facts, gives
them to the machine, asks the service for the plan that the machine wants, and publishes what the next batch is bound
to. A batch takes what is there when it begins, and waits for nothing. Only this thread touches the machine.
"""

from __future__ import annotations

import concurrent.futures
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from unskew.core.errors import UnskewError
from unskew.core.freshness.plan_ahead import BatchFacts, NextBatch, Partitions, PlanAhead, PlanRequest
from unskew.spark.streaming.batch_reports import BatchReports
from unskew.spark.streaming.batch_times import follow

if TYPE_CHECKING:
    from unskew.core.quality.cost_fit import CostFit
    from unskew.core.scaling.elastic import Elastic
    from unskew.spark.planning import Plans

__all__ = ["FinishedBatch", "PlanAheadThread"]

_log = logging.getLogger("unskew.spark")


class FinishedBatch(Protocol):
    """A batch that has run."""

    def facts(self) -> BatchFacts | None:
        """What is known of it; None where no job has read its rows. Called in the thread: Spark may be late."""


class PlanAheadThread:
    """Of one query: ``source`` names it in reports, ``types`` are those of its key. With ``elastic`` the query claims
    the number of partitions until it ends."""

    def __init__(
        self, plans: Plans, source: str, types: tuple[str, ...], machine: PlanAhead, elastic: Elastic | None = None
    ) -> None:
        self._plans, self._types, self._machine, self._elastic = plans, types, machine, elastic
        self._reports = BatchReports(plans, source, types)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="unskew plans")
        self._lock = threading.Lock()  # for what follows
        self._next, self._closed = machine.next, False
        self._waiting: FinishedBatch | None = None
        self._newest: Future[None] | None = None
        if elastic is not None:
            plans.stream.claim(self)

    @property
    def next(self) -> NextBatch:
        """What the next batch is bound to."""
        with self._lock:
            return self._next

    # -- the queue --------------------------------------------------------------------------------------------

    def finished(self, batch: FinishedBatch) -> None:
        """A batch has run. One that still waits for its turn is passed over: by a service that is slower than the
        batches plans would be ever older."""
        with self._lock:
            alone, self._waiting = self._waiting is None, batch
        if alone:
            self._submit(self._take_newest)

    def took(self, batch: int, seconds: float) -> None:
        """How long a batch took, from its trigger to its commit."""
        self._submit(lambda: self._took(batch, seconds))

    def settle(self, timeout: float) -> bool:
        """Wait until the queue is worked off, or given up by ``close``; no longer than this. Whether it is. A fault of
        unskew in the thread is raised here."""
        with self._lock:
            newest = self._newest
        try:
            if newest is not None:
                newest.result(timeout)
        except concurrent.futures.TimeoutError:  # another class than Python's own before 3.11
            return False
        except concurrent.futures.CancelledError:
            return True
        return True

    def end(self, *, give_up: bool = False) -> None:
        """There will be no more batches. The queue is worked off, or given up."""
        self._plans.stream.release(self)
        with self._lock:
            self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=give_up)

    def _submit(self, work: Callable[[], None]) -> None:
        with self._lock:
            if self._closed:  # the query may outlive its handler
                return
            try:
                self._newest = self._pool.submit(self._safely, work)
            except RuntimeError:  # the interpreter is ending, and its threads before the query
                self._closed = True

    # -- in the thread ----------------------------------------------------------------------------------------

    def _safely(self, work: Callable[[], None]) -> None:
        try:
            work()
        except UnskewError as error:
            _log.warning("stream %s keeps its plan: %s", self._plans.stream.name, error)
        except BaseException:
            _log.exception("stream %s keeps its plan: what follows is a fault of unskew", self._plans.stream.name)
            raise

    def _take_newest(self) -> None:
        with self._lock:
            batch, self._waiting = self._waiting, None
        facts = None if batch is None else batch.facts()
        if facts is None:
            return
        step = self._machine.after(facts, self._session())
        self._publish_cost(self._machine.fit)
        self._resize()
        if isinstance(step, PlanRequest):
            before, step = self._machine.next, self._machine.answered(self._reports.plan(step))
            if step.way != before.way:
                _log.info("stream %s, after batch %d: %s", self._plans.stream.name, facts.number, step.reason)
        else:
            self._reports.report(facts)
        self._publish(step)

    def _publish_cost(self, fit: CostFit) -> None:
        """What rows and keys cost, for the whole session."""
        before = self._plans.stream.cost
        if fit.tasks:
            self._plans.stream.cost = fit
            if before is None or before.tells_keys != fit.tells_keys:
                _log.info("stream %s: %s", self._plans.stream.name, fit.text)

    def _took(self, batch: int, seconds: float) -> None:
        step = self._machine.add_seconds(batch, seconds, self._session())
        self._resize()
        self._publish(step)

    def _publish(self, step: NextBatch) -> None:
        with self._lock:
            self._next = step

    def _session(self) -> Partitions:
        return Partitions(self._plans.spec_for(self._types), self._plans.stream.owner is self)

    def _resize(self) -> None:
        """What the machine has decided about the number of partitions, for the whole session."""
        stream = self._plans.stream
        if self._elastic is None or stream.owner is not self:
            return
        stream.resize(self._machine.planner.spec.partitions)
        if self._machine.decision is not None:
            follow(stream.spark, self._elastic, self._machine.decision)
