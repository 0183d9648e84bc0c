"""What asyncio lacks for this service: many waiters on one wake-up, one call for equal questions, detached tasks."""

from __future__ import annotations

import asyncio
import contextvars
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

__all__ = ["Signal", "SingleFlight", "Waiters", "detached_task", "finish", "in_thread", "monotonic"]

V = TypeVar("V")
monotonic = time.monotonic
"""The loop's clock, without asking which loop runs: that is a system call in this release of Python."""


def detached_task(work: Coroutine[Any, Any, V]) -> asyncio.Task[V]:
    """A task outside of the call that starts it: its logs and traces do not name that call."""
    return contextvars.Context().run(asyncio.create_task, work)


async def in_thread(work: Callable[[], V], size: int, large: int) -> V:
    """Work on less than so many bytes is done at once: it is not worth a thread."""
    return work() if size < large else await asyncio.to_thread(work)


async def finish(*tasks: asyncio.Task[Any]) -> None:
    """Cancel these tasks and wait for their end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Waiters:
    """Wakes all that wait, however many; each then looks for itself what has changed."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[bool], float] = {}  # and when each gives up
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def wake(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            if not future.done():
                future.set_result(True)

    async def wait(self, seconds: float | None = None) -> bool:
        """Whether ``wake`` was called within this time."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        end = math.inf if seconds is None else monotonic() + max(seconds, 0.0)
        self._waiting[future] = end
        if self._timer is None or end < self._timer.when():
            self._set_timer(loop, end)
        try:
            return await future
        finally:
            self._waiting.pop(future, None)

    def _set_timer(self, loop: asyncio.AbstractEventLoop, end: float) -> None:
        """One timer for all: most leave long before their end, and a timer for each would cost each of them more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if end == math.inf else loop.call_at(end, self._end_waits, loop)

    def _end_waits(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, now = None, monotonic()
        for future, end in self._waiting.items():
            if end <= now and not future.done():
                future.set_result(False)
        self._set_timer(loop, min((end for end in self._waiting.values() if end > now), default=math.inf))


class Signal:
    """Set by any, waited for by one. Before Python 3.12 ``asyncio.wait_for`` over an event may lose a cancellation."""

    def __init__(self) -> None:
        self._waiters, self._set = Waiters(), False

    def set(self) -> None:
        self._set = True
        self._waiters.wake()

    def clear(self) -> None:
        self._set = False

    async def wait(self, seconds: float) -> bool:
        """Whether it is set, by the end of this time at the latest."""
        return self._set or await self._waiters.wait(seconds)


class SingleFlight(Generic[V]):
    """One call for a question that many ask at once. A caller that gives up does not end it for the others."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[V]] = {}

    async def once(self, key: Hashable, ask: Callable[[], Awaitable[V]]) -> V:
        return await asyncio.shield(self.begin(key, ask))

    def begin(self, key: Hashable, ask: Callable[[], Awaitable[V]]) -> asyncio.Task[V]:
        """The call that is under way, or a new one. One that has ended may not be removed yet: whoever asks over and
        over until it is content would get the same answer for ever, and nothing else would run any more."""
        task = self._tasks.get(key)
        if task is None or task.done():
            task = self._tasks[key] = asyncio.ensure_future(ask())
            task.add_done_callback(lambda done: self._remove(key, done))
        return task

    def _remove(self, key: Hashable, task: asyncio.Task[V]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled():
            task.exception()  # marked as retrieved, in case that every caller has left

    def forget(self, key: Hashable) -> None:
        """From now on a call begins anew, whatever is under way: its answer may be out of date."""
        self._tasks.pop(key, None)

    async def close(self) -> None:
        await finish(*self._tasks.values())
