"""The driver's part in the rounds in which the batches of a query learn (Dalton, section 4.1).

Tasks report what they learned while their batch runs; the driver, a partitioner without rows, reports when the batch is
done. Rounds wait for drivers, each of which holds a lease for its tasks: nobody knows how many tasks the next batch
has. All calls are made in a thread, one at a time, so that no batch waits: a batch takes the answer that is there when
it begins. While an answer is awaited no batch is due, so reports cannot pile up where the service is slow or away.

DSYNC is in seconds and is the service's; here it becomes batches: the one that begins nearest to when a report falls
due is the one whose tasks report. The stream's least DSYNC is what the slowest of its queries needs. A lease, three of
them, outlives two batches. A round, which is open for one and a half, is to have all tasks of all queries in it: the
last query may begin a DSYNC after the first, so its batch must not take more than half of one.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from unskew.core.rounds.round_digests import NOTHING_SEEN, SeenRound
from unskew.core.rounds.sync_schedule import SyncSchedule
from unskew.core.stream_spec import StreamSpec
from unskew.spark.place.pin_maker import drivers_report

if TYPE_CHECKING:
    from unskew.client import Client
    from unskew.core.rounds.messages import Answer, Report
    from unskew.spark.service_link import Call, Left, ServiceLink

__all__ = ["RoundParticipant"]

_log = logging.getLogger("unskew.spark")
_WAIT = 10.0  # seconds, at most, that the service is asked to wait for the round
_PAUSE = 0.2  # seconds to the next call where it does not wait for so long
_LACKS = 1.5  # times fewer rows than in the round before: a partitioner was missing
_HELD = 20  # DSYNCs, at most, that a round is held for a batch


class RoundParticipant:
    """One run of a query's driver among the partitioners of its stream. ``owns``: whether its session sets the stream's
    number of partitions, and still to that of ``spec``; asked at each put, for a query may have changed it since."""

    def __init__(
        self,
        link: ServiceLink,
        stream: str,
        spec: StreamSpec,
        source: str,
        interval: float,
        owns: Callable[[], bool] = lambda: False,
    ) -> None:
        self._link, self._stream, self._spec, self._source, self._owns = link, stream, spec, source, owns
        self.session = time.time_ns() // 1000  # later runs have greater ones
        self._lock = threading.Lock()  # for the next three, which the thread sets
        self._answer: Answer | None = None
        self._dsync, self._seen = interval, NOTHING_SEEN
        self._schedule = SyncSchedule.of(interval)
        self._last = -math.inf  # when the last due batch began
        self._longer = self._fewer = False
        self._met = threading.Event()  # the stream is there, and has a lease for this driver
        self._report = self._next(0)
        self._closed, self._ended = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    # -- what a batch asks; nothing here waits ----------------------------------------------------------------

    @property
    def answer(self) -> Answer | None:
        """The newest complete answer; a much smaller round is ignored once, then accepted. (A round that lacks some of
        its rows calls keys hot that are so to the others only.)"""
        with self._lock:
            return self._answer

    @property
    def partitions(self) -> int:
        """Which rounds it takes part in: those of so many."""
        return self._spec.partitions

    @property
    def dsync(self) -> float:
        with self._lock:
            return self._dsync

    @property
    def awaiting(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def follow(self, version: tuple[int, int]) -> None:
        """The query is bound to this version: only later ones are news."""
        with self._lock:
            if version > self._seen[:2]:
                self._seen = SeenRound(*version)

    def meet(self, seconds: float) -> None:
        """Begin; come back when the service has answered, or after so many seconds."""
        if self._link.may_ask():
            self._begin(self._hello)
        if self._thread is not None:
            self._thread.join(seconds)

    def due(self) -> bool:
        """Whether the tasks of a batch that begins now report."""
        now = time.monotonic()
        self._ended.set()  # the batch before may have been cut off in its handler
        if self.awaiting or self._closed.is_set():
            return False
        if not self._met.is_set():
            if self._link.may_ask():
                self._begin(self._hello)
            return False
        if not self._schedule.due(now, self._last, self.dsync) or not self._link.may_ask():
            return False
        self._last = now
        self._ended.clear()
        self._begin(self._take_part)
        return True

    def ended(self, seconds: float) -> None:
        """A batch is done, its tasks have reported: close the round."""
        before, self._schedule = self._schedule, self._schedule.after(seconds)
        if self._schedule.needs != before.needs:
            self._met.clear()  # the stream may have to be put again
        self._ended.set()

    def failed(self) -> None:
        """A batch will not be done: the round is not held for it."""
        self._ended.set()

    def settle(self, timeout: float) -> bool:
        """Wait until the last report is answered, no longer than this. Whether it is."""
        if self._thread is not None:
            self._thread.join(timeout)
        return not self.awaiting

    def close(self) -> None:
        self._closed.set()
        self._ended.set()

    # -- in the thread ----------------------------------------------------------------------------------------

    def _begin(self, calls: Call[bool]) -> None:
        if not self.awaiting and not self._closed.is_set():
            self._thread = threading.Thread(target=self._ask, args=(calls,), name="unskew rounds", daemon=True)
            self._thread.start()

    def _ask(self, calls: Call[bool]) -> None:
        """A service that does not answer, or says no, costs what would have been learned. It is asked again later."""
        alone = f"stream {self._stream}: batches go by what was learned before"
        done = None
        try:
            done = self._link.ask_in_background(calls, alone, allowed=True)
        except BaseException:
            _log.exception("stream %s learns nothing from now on: what follows is a fault of unskew", self._stream)
            raise
        finally:
            if not done:
                self._met.clear()

    def _hello(self, client: Client, left: Left) -> bool:
        """See that the stream is there, have a lease before the first task reports, and ask for what is learned."""
        self._put(client, left)
        self._report = self._next(self._report.seq)
        self._sync(client, wait=0.0)
        self._met.set()
        return True

    def _put(self, client: Client, left: Left) -> None:
        """The stream's DSYNC must not be below what this query needs."""
        if not self._closed.is_set():
            needs = self._schedule.needs
            self._link.put_stream(
                client, self._stream, self._spec, left, owner=self._owns(), least_dsync=needs, again=True
            )

    def _take_part(self, client: Client, left: Left) -> bool:
        """Hold the round while the batch runs, then report, and wait for the answer."""
        until = time.monotonic() + _HELD * self.dsync
        self._sync(client, wait=0.0)  # the report before once more: a sign of life
        while not self._ended.wait(self.dsync) and time.monotonic() < until:
            self._sync(client, wait=0.0)
        if not self._met.is_set():
            self._put(client, left)
            self._met.set()
        self._report, began = self._next(self._report.seq), time.monotonic()
        while not self._sync(client, min(self._report.dsync, _WAIT)) and not self._closed.wait(_PAUSE):
            pass
        self._longer = time.monotonic() - began >= self._report.dsync
        return True

    def _next(self, seq: int) -> Report:
        n = self._spec.partitions
        return drivers_report(self._source, self.session, seq + 1, n, self.dsync, longer=self._longer)

    def _sync(self, client: Client, wait: float) -> bool:
        """Send the last report, and take what is news; whether the round of that report is done."""
        with self._lock:
            seen = self._seen
        synced = client.sync(self._stream, self._report, wait=wait, known=seen)
        if synced.answer is not None and synced.answer.table.workers == self._spec.partitions:
            with self._lock:
                self._take(synced.answer)
        return synced.merged

    def _take(self, answer: Answer) -> None:
        self._dsync = answer.dsync
        if answer.version <= self._seen[:2]:
            return
        self._seen = answer.seen
        if not answer.records:  # a round of drivers alone says nothing of any key
            return
        before = self._answer
        self._fewer = before is not None and answer.records * _LACKS < before.records and not self._fewer
        if not self._fewer:
            self._answer = answer
