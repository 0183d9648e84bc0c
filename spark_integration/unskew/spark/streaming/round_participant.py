"""The driver's part in the rounds in which the batches of a query learn (Dalton, section 4.1).

Tasks report what they learned while their batch runs; the driver, a partitioner without rows, reports when the batch is
done. Rounds wait for drivers, each of which holds a lease for its tasks: how many those are in the next batch nobody
knows. What is said here is said in a thread, one thing at a time, so that no batch waits: a batch takes what has come
by the time it begins. While an answer is awaited no batch is due, so reports cannot pile up where the service is slow
or away.

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
from dataclasses import replace
from typing import TYPE_CHECKING

from unskew.client import Breaker, Client, NotThereError
from unskew.core.errors import ConfigError, UnskewError
from unskew.core.rounds.sync_schedule import SyncSchedule
from unskew.core.stream_spec import StreamSpec
from unskew.spark.place.task_pins import drivers_report

if TYPE_CHECKING:
    from unskew.core.rounds.messages import Answer, Report

__all__ = ["RoundParticipant"]

_log = logging.getLogger("unskew.spark")
_COOLDOWN, _LONGEST = 2.0, 60.0
_WAIT = 10.0  # seconds, at most, that the service is asked to wait for the round
_PAUSE = 0.2  # where it does not wait for so long
_LACKS = 1.5  # times fewer rows than in the round before: somebody was not in this one
_HELD = 20  # DSYNCs, at most, that a round is held for a batch


class RoundParticipant:
    """One life of a query's driver among the partitioners of its stream."""

    def __init__(self, client: Client, stream: str, spec: StreamSpec, source: str, interval: float) -> None:
        self._client, self._stream, self._spec, self._source = client, stream, spec, source
        self.session = time.time_ns() // 1000  # later lives have greater ones
        self._cadence, self._dsync = SyncSchedule.of(interval), interval
        self._known = (0, 0)
        self._answer: Answer | None = None
        self._last = -math.inf  # when the last due batch began
        self._longer = self._met = self._fewer = False
        self._report = self._next(0)
        self._closed, self._ended = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._breaker = Breaker(failures=1, cooldown=_COOLDOWN, longest=_LONGEST)

    # -- what a batch asks; nothing here waits ----------------------------------------------------------------

    @property
    def answer(self) -> Answer | None:
        """The newest that says anything of the keys of all: a round that lacks some of its rows calls keys hot that are
        so to the others only. The second one in a row is how things are now."""
        return self._answer

    @property
    def partitions(self) -> int:
        """Which rounds it takes part in: those of so many."""
        return self._spec.partitions

    @property
    def dsync(self) -> float:
        return self._dsync

    @property
    def awaiting(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def follow(self, version: tuple[int, int]) -> None:
        """What the query is bound to: only newer is news."""
        self._known = max(self._known, version)

    def meet(self, seconds: float) -> None:
        """Begin; come back when the service has answered, or after so many seconds."""
        self._begin(self._hello)
        if self._thread is not None:
            self._thread.join(seconds)

    def due(self) -> bool:
        """Whether the tasks of a batch that begins now report."""
        now = time.monotonic()
        self._ended.set()  # as one that was cut off in its handler
        if self.awaiting or self._closed.is_set():
            return False
        if not self._met:
            if self._breaker.allow(now):
                self._begin(self._hello)
            return False
        if not self._cadence.due(now, self._last, self._dsync):
            return False
        self._last = now
        self._ended.clear()
        self._begin(self._take_part)
        return True

    def ended(self, seconds: float) -> None:
        """A batch is done, its tasks have reported: close the round."""
        before, self._cadence = self._cadence, self._cadence.after(seconds)
        if self._cadence.needs != before.needs:
            self._met = False  # the stream may have to be put anew
        self._ended.set()

    def failed(self) -> None:
        """A batch will not be done: the round is not held for it."""
        self._ended.set()

    def settle(self, timeout: float) -> bool:
        """Wait until what was said is answered, no longer than this. Whether it is."""
        if self._thread is not None:
            self._thread.join(timeout)
        return not self.awaiting

    def close(self) -> None:
        self._closed.set()
        self._ended.set()

    # -- in the thread ----------------------------------------------------------------------------------------

    def _begin(self, work: Callable[[], None]) -> None:
        if not self.awaiting and not self._closed.is_set():
            self._thread = threading.Thread(target=self._safely, args=(work,), name="unskew rounds", daemon=True)
            self._thread.start()

    def _safely(self, work: Callable[[], None]) -> None:
        """A service that does not answer, or says no, costs what would have been learned. It is asked again later."""
        try:
            work()
        except UnskewError as why:
            self._met = False
            self._breaker.failure(time.monotonic())
            if not self._closed.is_set():
                _log.warning("stream %s: batches go by what was learned before. %s", self._stream, why)
        except BaseException:
            self._met = False
            _log.exception("stream %s learns nothing from now on: what follows is a fault of unskew", self._stream)
            raise
        else:
            self._breaker.success()

    def _hello(self) -> None:
        """See that the stream is there, have a lease before the first task reports, and ask what is known."""
        self._ready()
        self._report = self._next(self._report.seq)
        self._sync(wait=0.0)
        self._met = True

    def _ready(self) -> None:
        """The stream is there, for this number of partitions, and its DSYNC is not below what this query needs."""
        needs, mine = self._cadence.needs, self._spec
        try:
            spec = self._client.get_stream(self._stream).spec
        except NotThereError:
            most = max(mine.dsync_max, needs)
            self._client.put_stream(self._stream, replace(mine, dsync=needs, dsync_min=needs, dsync_max=most))
            return
        if spec.partitions != mine.partitions:
            raise ConfigError("partitions", mine.partitions, f"{spec.partitions}, as stream {self._stream} has")
        if spec.key_types and mine.key_types and spec.key_types != mine.key_types:
            raise ConfigError(
                "key", ", ".join(mine.key_types), f"{', '.join(spec.key_types)}, as stream {self._stream} has"
            )
        if spec.dsync_min < needs:
            most = max(spec.dsync_max, needs)
            slower = replace(spec, dsync=max(spec.dsync, needs), dsync_min=needs, dsync_max=most)
            self._client.put_stream(self._stream, slower)

    def _take_part(self) -> None:
        """Hold the round while the batch runs, then report, and wait for the answer."""
        until = time.monotonic() + _HELD * self._dsync
        self._sync(wait=0.0)  # the report before once more: a sign of life
        while not self._ended.wait(self._dsync) and time.monotonic() < until:
            self._sync(wait=0.0)
        if not self._met:
            self._ready()
            self._met = True
        self._report, began = self._next(self._report.seq), time.monotonic()
        while not self._sync(min(self._report.dsync, _WAIT)) and not self._closed.wait(_PAUSE):
            pass
        self._longer = time.monotonic() - began >= self._report.dsync

    def _next(self, seq: int) -> Report:
        n = self._spec.partitions
        return drivers_report(self._source, self.session, seq + 1, n, self._dsync, longer=self._longer)

    def _sync(self, wait: float) -> bool:
        """Say the last report, and take what is news; whether the round of that report is done."""
        synced = self._client.sync(self._stream, self._report, wait=wait, known=self._known)
        if synced.answer is not None and synced.answer.table.workers == self._spec.partitions:
            self._take(synced.answer)
        return synced.merged

    def _take(self, answer: Answer) -> None:
        self._dsync = answer.dsync
        if answer.version <= self._known:
            return
        self._known = answer.version
        if not answer.records:  # a round of drivers alone says nothing of any key
            return
        had = self._answer
        self._fewer = had is not None and answer.records * _LACKS < had.records and not self._fewer
        if not self._fewer:
            self._answer = answer
