"""How threads, locks and gRPC live through a fork.

A child is told so right after it is born, while it has one thread: whatever is made of threads, locks or channels of
the parent is made anew. And a fork waits until none of our threads is inside gRPC, because there gRPC gives up its own
preparation ("other threads are currently calling into gRPC, skipping fork() handlers"): of 180 children forked so, 15
crashed. Calls that wait long by nature (a watch, a round) are ended for it, and begun anew by who made them; short
ones are waited for. All this is over in milliseconds, and after ``LONGEST`` seconds the fork happens anyway.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakSet

__all__ = ["ForkAware", "Interruptible", "in_grpc", "never_free", "tell_after_fork"]

LONGEST = 2.0


class ForkAware(Protocol):
    def after_fork(self) -> None:
        """Called in the child. Take over nothing of the parent's but plain values."""


class Interruptible(Protocol):
    def interrupt(self) -> None:
        """End the call; its thread then leaves gRPC."""


class _Gate:
    """Who is inside gRPC, and whether somebody wants to fork."""

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
_LISTENING: WeakSet[ForkAware] = WeakSet()


@contextmanager
def in_grpc(call: Interruptible | None = None) -> Iterator[None]:
    """Around everything that calls into gRPC and may wait there; with the call, where it may wait long."""
    gate = _GATE
    gate.enter(call)
    try:
        yield
    finally:
        gate.leave(call)


def tell_after_fork(listener: ForkAware) -> None:
    """Call ``listener.after_fork()`` in every child from now on, as long as the listener lives."""
    _LISTENING.add(listener)


def never_free(thing: object) -> None:
    """Keep what came over a fork for good, beyond the end of the interpreter. A channel that is freed is closed and a
    call that is freed is cancelled: over the parent's own connection."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _before() -> None:
    _GATE.before_fork()


def _after_in_parent() -> None:
    _GATE.after_in_parent()


def _after_in_child() -> None:
    global _GATE  # noqa: PLW0603 - its lock may be held by a thread that is not here
    _GATE = _Gate()
    for listener in list(_LISTENING):
        listener.after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(
        before=_before,
        after_in_parent=_after_in_parent,
        after_in_child=_after_in_child,
    )
