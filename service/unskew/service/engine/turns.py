"""Threads for computation, handed out fairly by identity (``core.fairness.fair_queue``).

A slot is given back when its thread has ended its work, not when the caller has left: work that has begun cannot be
stopped, and a caller who leaves and comes again must not get a thread each time.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeVar

from unskew.core.fairness.fair_queue import FairQueue
from unskew.service.caller import caller
from unskew.service.errors import LimitError

__all__ = ["SMALL_KEYS", "Turns"]

V = TypeVar("V")
P = ParamSpec("P")

SMALL_KEYS = 50_000  # up to which a computation is small: a few hundredths of a second
_MOST_WAITING = 1000


class Turns:
    """``slots`` for large computations, one more for small ones, and one thread for what need not wait (``run``)."""

    def __init__(self, slots: int) -> None:
        self._executor = ThreadPoolExecutor(slots + 2, thread_name_prefix="unskew-numbers")
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(slots, SMALL_KEYS, _MOST_WAITING)

    async def run(self, work: Callable[P, V], *args: P.args, **named: P.kwargs) -> V:
        """Off the loop, at once."""
        return await asyncio.wrap_future(self._submit(work, *args, **named))

    async def take(self, keys: int, work: Callable[P, V], *args: P.args, **named: P.kwargs) -> V:
        """Off the loop, when it is the caller's turn. ``keys``: how many are computed on, as a measure of its time."""
        turn = asyncio.get_running_loop().create_future()
        if not self._queue.put(caller(), float(keys), turn):
            raise LimitError(
                f"{len(self._queue)} plans and histograms wait here for a thread, too many of them of "
                f"{caller() or 'this caller'}; try again in a second",
                reason="computations",
                retry=1.0,
            )
        self._begin()
        try:
            await turn
        except BaseException:
            self._end(turn)
            raise
        working = self._submit(work, *args, **named)
        loop = asyncio.get_running_loop()
        working.add_done_callback(lambda _: _call_on(loop, self._end, turn))
        return await asyncio.wrap_future(working)

    def shut(self) -> None:
        self._executor.shutdown(wait=False)

    def _submit(self, work: Callable[P, V], *args: P.args, **named: P.kwargs) -> Future[V]:
        context = contextvars.copy_context()
        return self._executor.submit(lambda: context.run(work, *args, **named))

    def _begin(self) -> None:
        while (turn := self._queue.begin()) is not None:
            if not turn.cancelled():  # else its caller, who is about to see that, gives the slot back
                turn.set_result(None)

    def _end(self, turn: asyncio.Future[None]) -> None:
        self._queue.end(turn)
        self._begin()


def _call_on(
    loop: asyncio.AbstractEventLoop, call: Callable[[asyncio.Future[None]], None], turn: asyncio.Future[None]
) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(call, turn)
