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
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol
from weakref import WeakSet

__all__ = ["ForkAware", "in_grpc", "never_free", "register_after_fork"]

LONGEST = 2.0


class ForkAware(Protocol):
    def after_fork(self) -> None:
        """Called in the child. Only plain values of the parent may be used."""


class _Gate:
    """Counts the threads inside gRPC, and lets none in while a fork is coming."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.Lock())
        self.inside = self.forking = 0
        self.interrupts: set[Callable[[], None]] = set()  # of the calls that may wait long

    @contextmanager
    def passage(self, interrupt: Callable[[], None] | None) -> Iterator[None]:
        with self.changed:
            while self.forking:
                self.changed.wait(LONGEST)
            self.inside += 1
            if interrupt is not None:
                self.interrupts.add(interrupt)
        try:
            yield
        finally:
            with self.changed:
                self.inside -= 1
                if interrupt is not None:
                    self.interrupts.discard(interrupt)
                self.changed.notify_all()

    def before_fork(self) -> None:
        limit = time.monotonic() + LONGEST
        with self.changed:
            self.forking += 1
            interrupts = list(self.interrupts)
        for interrupt in interrupts:
            interrupt()
        with self.changed:
            while self.inside and (left := limit - time.monotonic()) > 0.0:
                self.changed.wait(left)

    def after_in_parent(self) -> None:
        with self.changed:
            self.forking -= 1
            self.changed.notify_all()


_GATE = _Gate()
_LISTENERS: WeakSet[ForkAware] = WeakSet()


def in_grpc(interrupt: Callable[[], None] | None = None) -> AbstractContextManager[None]:
    """Around everything that calls into gRPC and may wait there; with what cancels the call, if it may wait long."""
    return _GATE.passage(interrupt)


def register_after_fork(listener: ForkAware) -> None:
    """Call ``listener.after_fork()`` in every forked child from now on, while the listener exists."""
    _LISTENERS.add(listener)


def never_free(thing: object) -> None:
    """Keep an object of the parent: freeing a channel or a call ends it, over the connection that the parent uses."""
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
        after_in_parent=lambda: _GATE.after_in_parent(),  # noqa: PLW0108 - as before
        after_in_child=_after_in_child,
    )
