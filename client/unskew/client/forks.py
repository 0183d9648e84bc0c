"""How threads, locks and gRPC calls survive a fork.

In the child each registered object replaces its threads, locks and channels, while the child has one thread.

In the parent a fork waits until none of our threads is inside gRPC, because otherwise gRPC skips its own preparation
("other threads are currently calling into gRPC, skipping fork() handlers"): of 180 children forked so, 15 crashed.
Calls that wait long (a watch, a round) are cancelled for the fork and made again by their callers; short calls are
waited for. This takes milliseconds; after ``LONGEST`` seconds the fork happens anyway.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakSet

__all__ = ["ForkAware", "Interruptible", "in_grpc", "never_free", "register_after_fork"]

LONGEST = 2.0


class ForkAware(Protocol):
    def after_fork(self) -> None:
        """Called in the child. Only plain values of the parent may be used."""


class Interruptible(Protocol):
    def interrupt(self) -> None:
        """Cancel the call, so that its thread leaves gRPC."""


class _Gate:
    """Counts the threads inside gRPC, and lets none in while a fork is coming."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.Lock())
        self.inside = self.forking = 0
        self.long: set[Interruptible] = set()

    def enter(self, call: Interruptible | None) -> None:
        with self.changed:
            while self.forking:
                self.changed.wait(LONGEST)
            self.inside += 1
            if call is not None:
                self.long.add(call)

    def leave(self, call: Interruptible | None) -> None:
        with self.changed:
            self.inside -= 1
            if call is not None:
                self.long.discard(call)
            if self.forking:
                self.changed.notify_all()

    def before_fork(self) -> None:
        limit = time.monotonic() + LONGEST
        with self.changed:
            self.forking += 1
            calls = list(self.long)
        for call in calls:
            call.interrupt()
        with self.changed:
            while self.inside and (left := limit - time.monotonic()) > 0.0:
                self.changed.wait(left)

    def after_in_parent(self) -> None:
        with self.changed:
            self.forking -= 1
            self.changed.notify_all()


_GATE = _Gate()
_LISTENERS: WeakSet[ForkAware] = WeakSet()


@contextmanager
def in_grpc(call: Interruptible | None = None) -> Iterator[None]:
    """Around everything that calls into gRPC and may wait there; with the call, if it may wait long."""
    gate = _GATE  # a child has another one
    gate.enter(call)
    try:
        yield
    finally:
        gate.leave(call)


def register_after_fork(listener: ForkAware) -> None:
    """Call ``listener.after_fork()`` in every forked child from now on, while the listener exists."""
    _LISTENERS.add(listener)


def never_free(thing: object) -> None:
    """Keep an object of the parent until the process is gone. A channel is closed when it is freed and a call is
    cancelled: over the connection that the parent still uses."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _after_in_child() -> None:
    global _GATE  # noqa: PLW0603 - its lock may be held by a thread that is not here
    _GATE = _Gate()
    for listener in list(_LISTENERS):
        listener.after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(
        before=lambda: _GATE.before_fork(),  # noqa: PLW0108 - of this process: a child has another gate
        after_in_parent=lambda: _GATE.after_in_parent(),  # noqa: PLW0108
        after_in_child=_after_in_child,
    )
