"""The thread behind an ``Agent``: carries its reports to the service and the answers back.

It holds one report, the newest that the machine sent: a machine sends the same one until it is answered, so a service
that is away costs one report of memory, however long. Failures are waited out by backoff and breaker; they are kept for
``Agent.status`` and logged once, not each time.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

from unskew.client.backoff import Backoff
from unskew.client.client import Client, PendingSync
from unskew.client.results import Synced
from unskew.core.breaker import Breaker
from unskew.core.rounds.messages import Report

__all__ = ["ANSWERED", "FAILED", "KEPT", "ReportSender", "Sender"]

FAILED, KEPT, ANSWERED = "failed", "kept", "answered"  # what a call came to; kept: the service has it, no answer yet

_log = logging.getLogger("unskew.client")
_POLL = 1.0  # seconds, at most, between two looks at whether a report is due; routing looks by itself
_WAIT = 10.0  # seconds, at most, that the service is asked to wait for the round


class Sender(Protocol):
    """What the courier asks of an agent; each takes the agent's lock for a moment."""

    def tick(self) -> None:
        """Time has passed: post what is due."""

    def take(self, synced: Synced) -> None:
        """An answer has come."""

    @property
    def interval(self) -> float:
        """DSYNC now."""

    @property
    def version(self) -> tuple[int, int]:
        """(incarnation, epoch) that the agent has."""

    @property
    def waiting(self) -> Report | None:
        """The report that waits for its answer."""


class ReportSender:
    """One life: it starts with the first report or tick and ends with ``stop``."""

    def __init__(self, stream: str, client: Client, sender: Sender, breaker: Breaker, timeout: float) -> None:
        self.stream, self.breaker = stream, breaker
        self.sent = self.answered = self.failed = 0
        self.error = ""
        self._client, self._sender, self._timeout = client, sender, timeout
        self._backoff = Backoff(0.2, 15.0)
        self._report: Report | None = None
        self._not_before = 0.0
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._pending: PendingSync | None = None
        self._thread = threading.Thread(target=self._run, name=f"unskew agent {stream}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def post(self, report: Report) -> None:
        """Send this one, in place of one that has not gone yet. Never waits."""
        self._report = report
        self._wake.set()

    def stop(self, timeout: float) -> bool:
        """End the thread and the call that it is in; whether it ended in time."""
        self._stopped.set()
        self._wake.set()
        pending = self._pending
        if pending is not None:
            pending.cancel()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def carry_last(self, report: Report, deadline: float) -> str:
        """Send this one at the end, after ``stop``, by ``time.monotonic() = deadline``."""
        left = deadline - time.monotonic()
        if left <= 0.0 or not self.breaker.allow(time.monotonic()):
            return FAILED
        return self._carry(report, 0.0, left)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.wait(self._pause(time.monotonic()))
            self._wake.clear()
            if self._stopped.is_set():
                return
            self._sender.tick()
            now = time.monotonic()
            if self._report is not None and now >= self._not_before and self.breaker.allow(now):
                self._deliver(self._report)

    def _pause(self, now: float) -> float:
        poll = min(self._sender.interval / 8, _POLL)
        if self._report is None:
            return poll
        return min(poll, max(self._not_before - now, self.breaker.wait(now)))

    def _deliver(self, report: Report) -> None:
        """Ask until it is answered: at once where the service waited for the round, else not too often."""
        began, wait = time.monotonic(), min(self._sender.interval, _WAIT)
        outcome = self._carry(report, wait, self._timeout)
        if outcome == ANSWERED and self._report is report:
            self._report = None
        elif outcome == KEPT and time.monotonic() - began < wait / 2:
            self._not_before = time.monotonic() + min(self._sender.interval / 4, _POLL)

    def _carry(self, report: Report, wait: float, timeout: float) -> str:
        self.sent += 1
        try:
            synced = self._call(report, wait, timeout)
            if synced.answer is not None:
                self._sender.take(synced)
        except Exception as why:  # noqa: BLE001 - whatever it is, routing goes on and the next report tries again
            if not self._stopped.is_set() or wait == 0.0:
                self._fail(why)
            return FAILED
        self.breaker.success()
        self._backoff.reset()
        if self.error:
            _log.info("stream %s: the service answers again", self.stream)
        self.error = ""
        waiting = self._sender.waiting
        if waiting is not None and waiting.name == report.name:
            return KEPT
        self.answered += 1
        return ANSWERED

    def _call(self, report: Report, wait: float, timeout: float) -> Synced:
        self._pending = self._client.begin_sync(
            self.stream, report, wait=wait, known=self._sender.version, timeout=timeout
        )
        try:
            if self._stopped.is_set() and wait > 0.0:  # stopped meanwhile: it could not see this call
                self._pending.cancel()
            return self._pending.result()
        finally:
            self._pending = None

    def _fail(self, why: Exception) -> None:
        now = time.monotonic()
        self.failed += 1
        self.breaker.failure(now)
        self._not_before = now + min(self._backoff.next(), max(self._sender.interval, 0.05))
        said = f"{type(why).__name__}: {why}"
        _log.log(
            logging.DEBUG if self.error else logging.WARNING,
            "stream %s: a report did not get through and will be sent again; routing goes on. %s",
            self.stream,
            said,
        )
        self.error = said
