"""Calls that wait for something, and all stop waiting when an event comes; without a task for each of them.

A task and its switches would cost a Sync more than taking its report apart. So a call waits in the task that it is in
anyway, and one task for all of them waits for the event, and then cancels what they wait for: the way of
``asyncio.timeout``. A cancellation by somebody else stays what it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

__all__ = ["Waits"]

T = TypeVar("T")


class Waits:
    """Those of one loop, for one event."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Task[object], bool] = {}  # and whether it was told to stop
        self._look: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def until(self, event: asyncio.Event, work: Coroutine[object, object, T]) -> T | None:
        """What the work gives, or None where the event came first: the work is then cancelled."""
        if event.is_set():
            work.close()
            return None
        task = self._enter(event)
        before = task.cancelling()
        try:
            return await work
        except asyncio.CancelledError:
            if not self._waiting[task] or task.uncancel() > before:
                raise
            return None
        finally:
            self._leave(task)

    def _enter(self, event: asyncio.Event) -> asyncio.Task[object]:
        if self._look is None or self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._look = self._loop.create_task(self._stop_all(event))
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._waiting[task] = False
        return task

    def _leave(self, task: asyncio.Task[object]) -> None:
        del self._waiting[task]
        if not self._waiting and self._look is not None:
            self._look.cancel()
            self._look = None

    async def _stop_all(self, event: asyncio.Event) -> None:
        await event.wait()
        for task in self._waiting:
            self._waiting[task] = True
            task.cancel()
