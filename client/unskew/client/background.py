"""What runs beside a job, in one thread that talks to the service: for agents, ``Reporter`` and ``Watch``.

A ``Background`` belongs to one process. Threads, locks and events do not survive a fork, so its owner makes a new one
in a forked child (``forks.register_after_fork``), and an agent also takes a new name (``child_name``).
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from unskew.client.errors import NoAnswerError
from unskew.core.breaker import Breaker

__all__ = ["Background", "Backoff", "Outbox", "child_name", "default_name"]

T = TypeVar("T")

_log = logging.getLogger("unskew.client")
_LONGEST_NAME = 200


@dataclass
class Backoff:
    """How long to wait before the next attempt: doubling, and random, so that many clients do not return at once.

    ``next()`` is between half of the present pause and all of it; ``reset()`` after a success.
    """

    first: float = 0.2
    longest: float = 5.0
    rng: random.Random = field(default_factory=random.Random, repr=False)
    _attempts: int = field(default=0, init=False)

    def next(self) -> float:
        pause = min(self.first * 2.0 ** min(self._attempts, 30), self.longest)
        self._attempts += 1
        return pause * self.rng.uniform(0.5, 1.0)

    def reset(self) -> None:
        self._attempts = 0


class Outbox(Generic[T]):
    """What waits to be sent: at most ``keep`` items; a new one pushes out the oldest. Thread-safe."""

    def __init__(self, keep: int) -> None:
        self.dropped = 0
        self._keep, self._lock, self._items = int(keep), threading.Lock(), deque[T](maxlen=int(keep))

    def put(self, item: T) -> None:
        with self._lock:
            self.dropped += len(self._items) == self._keep
            self._items.append(item)

    def first(self) -> T | None:
        with self._lock:
            return self._items[0] if self._items else None

    def remove(self, item: T) -> None:
        """After it was sent. Nothing happens if a newer item has pushed it out."""
        with self._lock:
            if self._items and self._items[0] is item:
                self._items.popleft()

    def __len__(self) -> int:
        return len(self._items)


class Background:
    """One daemon thread, the breaker and the back-off of its calls, and what its last call failed with.

    ``breaker`` is copied; errors of the types ``trips`` count for it. The first failure in a row is logged as a
    warning, the others for debugging.
    """

    def __init__(
        self,
        name: str,
        breaker: Breaker | None = None,
        *,
        trips: type[Exception] = NoAnswerError,
        backoff: Backoff | None = None,
    ) -> None:
        self.breaker, self.backoff = replace(breaker or Breaker()), backoff or Backoff()
        self.failed, self.error = 0, ""
        self.stopped = False
        self._name, self._trips = name, trips
        self._starting, self._wake = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, run: Callable[[], None]) -> None:
        """Run this in the thread, unless that was started before."""
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    thread = threading.Thread(target=run, name=self._name, daemon=True)
                    thread.start()
                    self._thread = thread

    @property
    def started(self) -> bool:
        return self._thread is not None

    def pause(self, seconds: float | None = None) -> None:
        """Wait so long, or until ``wake`` or ``stop``."""
        if not self.stopped:
            self._wake.wait(seconds)
            self._wake.clear()

    def wake(self) -> None:
        self._wake.set()

    def stop(self) -> None:
        """Ask the thread to end. A call that it is in has to be cancelled by the owner."""
        self.stopped = True
        self._wake.set()

    def join(self, timeout: float) -> bool:
        """Wait for the thread's end; whether it has ended in time."""
        if self._thread is None:
            return True
        self._thread.join(max(timeout, 0.0))
        return not self._thread.is_alive()

    def allowed(self) -> bool:
        """Whether the breaker lets a call through now. ``attempt`` tells it the result."""
        return self.breaker.allow(time.monotonic())

    def attempt(self, call: Callable[[], object], problem: str, *, after_stop: bool = False) -> Exception | None:
        """Make a call to the service; the error if it failed. ``problem`` says in the log what that means. After
        ``stop`` an error is what cancelled the call, and only counts with ``after_stop``."""
        try:
            call()
        except Exception as why:  # noqa: BLE001 - whatever it is, the job goes on and the next attempt may succeed
            if after_stop or not self.stopped:
                self._count(why, problem)
            return why
        self.breaker.success()
        self.backoff.reset()
        if self.error:
            _log.info("%s: the service answers again", self._name)
        self.error = ""
        return None

    def _count(self, why: Exception, problem: str) -> None:
        if isinstance(why, self._trips):
            self.breaker.failure(time.monotonic())
        text = f"{type(why).__name__}: {why}"
        _log.log(logging.DEBUG if self.error else logging.WARNING, "%s. %s", problem, text)
        self.failed, self.error = self.failed + 1, text


def default_name() -> str:
    """A name for an agent that was given none. Host names and pids are not unique among containers, this is."""
    host = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in socket.gethostname())
    return f"{host[:100] or 'host'}-{os.getpid()}-{secrets.token_hex(4)}"


def child_name(name: str) -> str:
    """The name of a forked child of this agent, unique among its children."""
    tail = f".{os.getpid()}-{secrets.token_hex(3)}"
    return name[: _LONGEST_NAME - len(tail)] + tail
