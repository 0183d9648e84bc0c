"""What the parts of the engine share: the store, time, threads for numbers, and how long to wait for what."""

from __future__ import annotations

import asyncio
import contextvars
import math
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

from unskew.service.events.events import Observer, ignore
from unskew.service.stores.ports import Store

__all__ = ["Base", "LruCache", "SingleFlight", "Tuning", "Waiters", "apart", "finish", "monotonic"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
P = ParamSpec("P")


@dataclass(frozen=True)
class Tuning:
    """Seconds, unless said otherwise."""

    patience: float = 1.5  # DSYNCs that a round is open for at most (core.round_rules)
    lease: float = 3.0  # DSYNCs that an agent is waited for
    fresh: float = 0.1  # what was read so long ago is taken for present, if no news came
    poll: float = 5.0  # between two looks where no news came
    glance: float = 3.0  # how old a line of a list may be
    impatience: float = 0.1  # that the store is waited for where something is known already
    retry: float = 0.25  # after the store could not be asked; doubles up to ``poll``
    takeover: float = 0.25  # before a round is merged that another replica sealed
    most_wait: float = 60.0  # that a sync may wait for its round
    drain: float = 20.0  # that ``close`` waits for what is under way
    tries: int = 16  # plans made anew because another came between


class Base:
    """``clock``: seconds since 1970. Numbers are for threads: at most all but one of them make plans, so that a round
    is never merged late because of a plan."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float],
        executor: Executor | None = None,
        observer: Observer = ignore,
        tuning: Tuning | None = None,
    ) -> None:
        self.store, self.clock, self.observer = store, clock, observer
        self.tuning = tuning or Tuning()
        self.closing = False
        self.draining = False  # nobody waits for a round any longer
        threads = max(2, min(4, os.cpu_count() or 1))
        self._own = None if executor is not None else ThreadPoolExecutor(threads, thread_name_prefix="unskew-numbers")
        self._executor = executor or self._own
        self._heavy = asyncio.Semaphore(threads - 1)

    async def run(self, work: Callable[P, V], *args: P.args, **named: P.kwargs) -> V:
        """Off the loop."""
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(
            self._executor, lambda: context.run(work, *args, **named)
        )

    async def heavy(self, work: Callable[P, V], *args: P.args, **named: P.kwargs) -> V:
        """Off the loop, and may take long."""
        async with self._heavy:
            return await self.run(work, *args, **named)

    def shut(self) -> None:
        if self._own is not None:
            self._own.shutdown(wait=False)


def monotonic() -> float:
    """The loop's clock, without asking which loop runs: that is a system call in this release of Python."""
    return time.monotonic()


class Waiters:
    """Wakes all that wait, however many; each looks for itself what is new."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[bool], float] = {}  # and when each gives up
        self._alarm: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def ring(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            if not future.done():
                future.set_result(True)

    async def wait(self, seconds: float | None = None) -> bool:
        """Whether it rang in this time."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        end = math.inf if seconds is None else monotonic() + max(seconds, 0.0)
        self._waiting[future] = end
        if self._alarm is None or end < self._alarm.when():
            self._wake_at(loop, end)
        try:
            return await future
        finally:
            self._waiting.pop(future, None)

    def _wake_at(self, loop: asyncio.AbstractEventLoop, end: float) -> None:
        """One timer for all who wait: most leave long before it, and one of its own for each would cost each more."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = None if end == math.inf else loop.call_at(end, self._give_up, loop)

    def _give_up(self, loop: asyncio.AbstractEventLoop) -> None:
        self._alarm, now = None, monotonic()
        for future, end in self._waiting.items():
            if end <= now and not future.done():
                future.set_result(False)
        self._wake_at(loop, min((end for end in self._waiting.values() if end > now), default=math.inf))


class LruCache(OrderedDict[K, V]):
    """The last ``most`` that were put or found."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def put(self, key: K, value: V) -> V:
        self[key] = value
        self.move_to_end(key)
        while len(self) > self._most:
            self.popitem(last=False)
        return value

    def find(self, key: K) -> V | None:
        found = self.get(key)
        if found is not None:
            self.move_to_end(key)
        return found


class SingleFlight(Generic[V]):
    """The same question asked by many at once is asked once. Who gives up does not end it for the others."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, asyncio.Task[V]] = {}

    async def once(self, key: Hashable, ask: Callable[[], Awaitable[V]]) -> V:
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.ensure_future(_awaited(ask))
            task.add_done_callback(lambda done: self._landed(key, done))
        return await asyncio.shield(task)

    def _landed(self, key: Hashable, task: asyncio.Task[V]) -> None:
        if self._under_way.get(key) is task:
            del self._under_way[key]
        if not task.cancelled():
            task.exception()  # looked at, even where everybody has gone

    def forget(self, key: Hashable) -> None:
        """Whoever asks from now on is not content with an answer that is under way."""
        self._under_way.pop(key, None)


async def _awaited(ask: Callable[[], Awaitable[V]]) -> V:
    return await ask()


def apart(work: Coroutine[Any, Any, V]) -> asyncio.Task[V]:
    """A task that belongs to no call, whoever happened to begin it: its logs and traces are not of that one."""
    return contextvars.Context().run(asyncio.create_task, work)


async def finish(*tasks: asyncio.Task[Any]) -> None:
    """Cancel these tasks and wait for their end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
