"""Sends an ``Agent``'s reports to the service, and brings the answers back, in a background thread.

It holds one report, the newest: an agent sends the same one until that is answered, so an unreachable service costs the
memory of one report, however long that lasts. After a failure it waits for the back-off and the breaker.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from unskew.client.background import Background, Backoff, Outbox
from unskew.client.client import Client, PendingSync
from unskew.core.breaker import Breaker
from unskew.core.rounds.messages import Report

if TYPE_CHECKING:
    from unskew.client.agent import Agent

__all__ = ["ACCEPTED", "ANSWERED", "FAILED", "ReportSender"]

FAILED, ACCEPTED, ANSWERED = "failed", "accepted", "answered"  # accepted: the service has it, its round is still open

_POLL = 1.0  # seconds, at most, between two looks at whether a report is due; ``route`` looks too
_WAIT = 10.0  # seconds, at most, that the service is asked to wait for the round


class ReportSender:
    """It starts with the first ``start`` and ends with ``stop``."""

    def __init__(self, stream: str, client: Client, agent: Agent, breaker: Breaker, timeout: float) -> None:
        self.sent = self.answered = 0
        self.background = Background(
            f"unskew agent {stream}", breaker, trips=Exception, backoff=Backoff(first=0.2, longest=15.0)
        )
        self._stream, self._client, self._agent, self._timeout = stream, client, agent, timeout
        self._outbox: Outbox[Report] = Outbox(keep=1)
        self._not_before = 0.0
        self._pending: PendingSync | None = None

    def start(self) -> None:
        self.background.start(self._run)

    def post(self, report: Report) -> None:
        """Send this report, instead of one that was not sent yet. Never waits."""
        self._outbox.put(report)
        self.background.wake()

    def stop(self, timeout: float) -> bool:
        """End the thread and the call that it is in; whether it ended in time."""
        self.background.stop()
        pending = self._pending
        if pending is not None:
            pending.cancel()
        return self.background.join(timeout)

    def send_last(self, report: Report, deadline: float) -> str:
        """Send this report after ``stop``, before ``time.monotonic()`` reaches the deadline."""
        left = deadline - time.monotonic()
        if left <= 0.0 or not self.background.allowed():
            return FAILED
        return self._send(report, 0.0, left)

    def _run(self) -> None:
        while True:
            self.background.pause(self._until_next_look(time.monotonic()))
            if self.background.stopped:
                return
            self._agent.tick()
            report = self._outbox.first()
            if report is not None and time.monotonic() >= self._not_before and self.background.allowed():
                self._deliver(report)

    def _until_next_look(self, now: float) -> float:
        poll = min(self._agent.interval / 8, _POLL)
        if not self._outbox:
            return poll
        return min(poll, max(self._not_before - now, self.background.breaker.wait(now)))

    def _deliver(self, report: Report) -> None:
        """Send it; again at once if the service waited for the round, else after a pause, until it is answered."""
        began, wait = time.monotonic(), min(self._agent.interval, _WAIT)
        outcome = self._send(report, wait, self._timeout)
        if outcome == ANSWERED:
            self._outbox.remove(report)
        elif outcome == ACCEPTED and time.monotonic() - began < wait / 2:
            self._not_before = time.monotonic() + min(self._agent.interval / 4, _POLL)

    def _send(self, report: Report, wait: float, timeout: float) -> str:
        self.sent += 1
        problem = f"stream {self._stream}: a report did not get through and will be sent again; routing goes on"
        error = self.background.attempt(lambda: self._call(report, wait, timeout), problem, after_stop=wait == 0.0)
        if error is not None:
            pause = min(self.background.backoff.next(), max(self._agent.interval, 0.05))
            self._not_before = time.monotonic() + max(pause, getattr(error, "retry_after", 0.0))
            return FAILED
        waiting = self._agent.waiting
        if waiting is not None and waiting.name == report.name:
            return ACCEPTED
        self.answered += 1
        return ANSWERED

    def _call(self, report: Report, wait: float, timeout: float) -> None:
        self._pending = self._client.begin_sync(
            self._stream, report, wait=wait, known=self._agent.seen, timeout=timeout
        )
        try:
            if self.background.stopped and wait > 0.0:  # ``stop`` came before the call was in ``_pending``
                self._pending.cancel()
            synced = self._pending.result()
        finally:
            self._pending = None
        if synced.answer is not None:
            self._agent.take(synced)
