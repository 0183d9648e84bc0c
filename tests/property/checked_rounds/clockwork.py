"""An event loop whose time stands still until it is moved: what runs on it does so the same way each time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import selectors
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any
from unittest import mock

__all__ = ["StillLoop", "standing_still"]

CLOCKS = (
    "unskew.service.concurrency.monotonic",
    "unskew.service.engine.base.monotonic",
    "unskew.service.engine.streams.monotonic",
    "unskew.service.engine.rounds.rounds.monotonic",
    "unskew.service.engine.rounds.round_driver.monotonic",
    "unskew.service.stores.recovering.monotonic",
)


class _NoFiles(selectors.BaseSelector):
    """There is no input but what the checker hands in."""

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, 0, None)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {}


class StillLoop(asyncio.SelectorEventLoop):
    """``now`` is its time. ``settle`` runs all that can run at this time."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_NoFiles())
        self._clock_resolution = 1e-9
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self.set_task_factory(self._kept_task)  # type: ignore[arg-type]

    def _kept_task(self, _: Any, work: Coroutine[Any, Any, Any], **named: Any) -> asyncio.Task[Any]:
        """In an order that is the same each time, and held: those of a replica that died are waited for by nobody."""
        task = asyncio.Task(work, loop=self, **named)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def time(self) -> float:
        return self.now

    def settle(self) -> None:
        self._run_once()  # type: ignore[attr-defined]  # timers that are due
        while self._ready:  # type: ignore[attr-defined]
            self._run_once()  # type: ignore[attr-defined]

    def end(self) -> None:
        while self._tasks:
            for task in list(self._tasks):
                task.cancel()
            self.settle()

    def next_timer(self) -> float | None:
        """When the next timer is due."""
        times = [timer.when() for timer in self._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        return min(times, default=None)


@contextlib.contextmanager
def standing_still() -> Iterator[StillLoop]:
    """The loop runs, and every clock of the service is its time."""
    loop = StillLoop()
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(logging.getLogger("unskew.service"), "disabled", new=True))
        for clock in CLOCKS:
            stack.enter_context(mock.patch(clock, loop.time))
        asyncio.events._set_running_loop(loop)
        try:
            yield loop
        finally:
            loop.end()
            asyncio.events._set_running_loop(None)
            loop.close()
