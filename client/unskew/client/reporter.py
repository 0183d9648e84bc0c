"""``Reporter``: what a worker says of its own load, from a thread, so that its work never waits for the service.

A worker tells after each batch or time slot what it had, what that took and what still waits (``Work``). The service
makes CG's busy and idle signals of it, and partitioners get them as their next plan (``PlanAgent``).

What cannot be sent is kept and sent later, the newest few only: an old signal is of no use. A forked child begins anew
and says nothing of what the parent had not sent yet.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

from unskew.client.channel import seconds
from unskew.client.client import Client, check_access
from unskew.client.errors import ClientClosedError, NoAnswerError
from unskew.client.forks import tell_after_fork
from unskew.core.breaker import Breaker
from unskew.core.errors import ConfigError, UnskewError
from unskew.core.stream_spec import BatchWork, Part, check_name

__all__ = ["Reporter", "SendCounts"]

_log = logging.getLogger("unskew.client")


@dataclass(frozen=True)
class SendCounts:
    """How a reporter gets on. ``dropped``: reports that were too old before they could be sent, or were refused."""

    sent: int
    dropped: int
    waiting: int
    error: str


class Reporter:
    """``with Reporter("clicks", "grpc://host:8081", source="app", part=3, parts=8) as one: one.tell(17, work)``

    ``source`` names the application, ``part`` of ``parts`` is this worker among its workers. At most ``keep`` reports
    wait. ``service`` and ``access`` are as for ``Agent``. Thread-safe.
    """

    def __init__(
        self,
        stream: str,
        service: Client | str = "grpc://127.0.0.1:8081",
        *,
        source: str,
        part: int = 0,
        parts: int = 1,
        keep: int = 8,
        timeout: float = 5.0,
        breaker: Breaker | None = None,
        **access: Any,
    ) -> None:
        self.stream = check_name("stream", stream)
        self._part = Part(source, 0, 0, part, parts)
        check_access(service, access)
        if not 1 <= keep <= 1_000:
            raise ConfigError("keep", keep, "1 to 1000 reports")
        self._keep, self._timeout = keep, seconds("timeout", timeout)
        self._fresh, self._closed = breaker or Breaker(), False
        self._owns = not isinstance(service, Client)
        self._client = service if isinstance(service, Client) else Client(service, timeout=timeout, **access)
        self._begin_life()
        tell_after_fork(self)

    def _begin_life(self) -> None:
        self._lock, self._wake, self._stopped = threading.Lock(), threading.Event(), threading.Event()
        self._waiting: deque[tuple[Part, BatchWork]] = deque()
        self._sent = self._dropped = 0
        self._error = ""
        self._breaker = replace(self._fresh)
        self._thread: threading.Thread | None = None

    def after_fork(self) -> None:
        self._begin_life()

    def tell(self, batch: int, work: BatchWork) -> None:
        """Say what this batch or time slot was like. Never waits; the first that was said of a batch counts."""
        part = replace(self._part, batch=batch)
        with self._lock:
            if self._closed:
                raise ClientClosedError(f"the reporter of stream {self.stream!r} is closed; make a new one")
            self._waiting.append((part, work))
            while len(self._waiting) > self._keep:
                self._waiting.popleft()
                self._dropped += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"unskew reporter {self.stream}", daemon=True)
                self._thread.start()
        self._wake.set()

    @property
    def status(self) -> SendCounts:
        return SendCounts(self._sent, self._dropped, len(self._waiting), self._error)

    def close(self, timeout: float = 2.0) -> bool:
        """End within ``timeout`` seconds; whether all was sent that was said."""
        with self._lock:
            self._closed = True
            thread = self._thread
        self._wake.set()
        if thread is not None:
            thread.join(max(timeout, 0.0))
        self._stopped.set()
        if self._owns:
            self._client.close()
        return not self._waiting

    def __enter__(self) -> Reporter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._stopped.is_set():
            if not self._waiting:
                if self._closed:
                    return
                self._wake.wait()
                self._wake.clear()
            elif not self._breaker.allow(time.monotonic()):
                self._stopped.wait(min(max(self._breaker.wait(time.monotonic()), 0.01), 1.0))
            else:
                self._send(*self._waiting[0])

    def _send(self, part: Part, work: BatchWork) -> None:
        """The oldest that waits. What is refused would be refused again."""
        try:
            self._client.report_batch(self.stream, part, work, timeout=self._timeout)
        except NoAnswerError as why:
            self._breaker.failure(time.monotonic())
            self._fail(why)
            return
        except UnskewError as why:
            self._fail(why)
            done = "dropped"
        else:
            self._breaker.success()
            self._error, done = "", "sent"
        with self._lock:
            if self._waiting and self._waiting[0] == (part, work):
                self._waiting.popleft()
            self._sent += done == "sent"
            self._dropped += done == "dropped"

    def _fail(self, why: UnskewError) -> None:
        _log.log(
            logging.DEBUG if self._error else logging.WARNING,
            "stream %s: a report of work did not get through. %s",
            self.stream,
            why,
        )
        self._error = f"{type(why).__name__}: {why}"
