"""``Reporter``: reports a worker's load to the service in a background thread, so that its work never waits.

After each batch or time slot a worker says how many rows it had, what they took and what still waits (``BatchWork``).
From that the service makes CG's busy and idle signals, which reach partitioners in their next plan (``PlanAgent``).

Reports that cannot be sent are kept, the newest few only: an old signal is of no use. A forked child starts with an
empty outbox.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import Any

from unskew.client.background import Background, Outbox
from unskew.client.channel import seconds
from unskew.client.client import Client, open_client
from unskew.client.errors import ClientClosedError, LimitReachedError, NoAnswerError
from unskew.client.forks import register_after_fork
from unskew.core.breaker import Breaker
from unskew.core.errors import ConfigError
from unskew.core.stream_spec import BatchWork, Part, check_name

__all__ = ["Reporter", "SendCounts"]


@dataclass(frozen=True)
class SendCounts:
    """What became of a reporter's reports (``Told`` in earlier releases).

    Parameters
    ----------
    sent, dropped, waiting : reports that the service took, that were refused or pushed out, that are to be sent
    error : why the last call failed; empty if it did not

    Examples
    --------
    >>> SendCounts(sent=3, dropped=0, waiting=1, error="").waiting
    1
    """

    sent: int
    dropped: int
    waiting: int
    error: str


class Reporter:
    """Reports the load of one worker. Thread-safe.

    Parameters
    ----------
    stream : the stream that the worker's rows belong to
    service, access : as for ``Agent``
    source : the name of the application
    part, parts : which of how many workers of that application this is
    keep : how many reports wait at most; the oldest is dropped first
    timeout : seconds for each call
    breaker : when to leave a failing service alone; a ``Breaker`` of its own if not given

    Raises
    ------
    ConfigError : an argument is out of its range; the message names it

    Examples
    --------
    >>> from unskew.client import testing
    >>> from unskew.core.stream_spec import BatchWork, Work
    >>> with testing.embedded() as service, service.client() as client:
    ...     info = client.put_stream("clicks", partitions=4, policy="cg")
    ...     with Reporter("clicks", client, source="app", part=3, parts=8) as reporter:
    ...         reporter.tell(17, BatchWork((Work(3, rows=500, seconds=0.5, queue=7),)))
    ...     reporter.status
    SendCounts(sent=1, dropped=0, waiting=0, error='')
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
        if not 1 <= keep <= 1_000:
            raise ConfigError("keep", keep, "1 to 1000 reports")
        self._keep, self._timeout, self._breaker = keep, seconds("timeout", timeout), breaker
        self._closed = False
        self._client, self._owns_client = open_client(service, timeout, access)
        self.after_fork()
        register_after_fork(self)

    def after_fork(self) -> None:
        """Start without reports and without a thread, as a new reporter and a forked child do."""
        self._lock = threading.Lock()
        self._sent = self._refused = 0
        self._outbox: Outbox[tuple[Part, BatchWork]] = Outbox(self._keep)
        self._background = Background(f"unskew reporter {self.stream}", self._breaker)

    def tell(self, batch: int, work: BatchWork) -> None:
        """Report the ``work`` of this ``batch`` or time slot; never waits. Of several reports of one batch the first
        counts.

        Raises
        ------
        ClientClosedError : the reporter is closed
        """
        part = replace(self._part, batch=batch)
        with self._lock:
            if self._closed:
                raise ClientClosedError(f"the reporter of stream {self.stream!r} is closed; make a new one")
            self._outbox.put((part, work))
            self._background.start(self._run)
        self._background.wake()

    @property
    def status(self) -> SendCounts:
        """What was sent, what was dropped, what waits, and why the last call failed."""
        dropped = self._refused + self._outbox.dropped
        return SendCounts(self._sent, dropped, len(self._outbox), self._background.error)

    def close(self, timeout: float = 2.0) -> bool:
        """End within ``timeout`` seconds; whether every report was sent."""
        with self._lock:
            self._closed = True
        self._background.wake()
        self._background.join(timeout)
        self._background.stop()
        if self._owns_client:
            self._client.close()
        return not self._outbox

    def __enter__(self) -> Reporter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._background.stopped:
            item = self._outbox.first()
            if item is None:
                if self._closed:
                    return
                self._background.pause()
            elif self._background.allowed():
                self._send(item)
            else:
                self._background.pause(min(max(self._background.breaker.wait(time.monotonic()), 0.01), 1.0))

    def _send(self, item: tuple[Part, BatchWork]) -> None:
        """Send the oldest. What the service refuses is dropped: it would be refused again, unless it says when not."""
        part, work = item
        error = self._background.attempt(
            lambda: self._client.report_batch(self.stream, part, work, timeout=self._timeout),
            f"stream {self.stream}: a report of work did not get through",
            after_stop=True,
        )
        if isinstance(error, NoAnswerError):
            return
        if isinstance(error, LimitReachedError) and error.retry_after:
            self._background.pause(error.retry_after)
            return
        self._outbox.remove(item)
        self._sent += error is None
        self._refused += error is not None
