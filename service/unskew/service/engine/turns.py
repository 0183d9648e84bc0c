"""Threads for computation, handed out fairly by identity (``core.fairness.fair_queue``).

A thread is given back when it has ended its work, not when the caller has left: work that has begun cannot be
stopped, and a caller who leaves and comes again must not get a thread each time.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeVar

from unskew.service.places import Places

__all__ = ["SMALL_KEYS", "Turns"]

V = TypeVar("V")
P = ParamSpec("P")

SMALL_KEYS = 50_000  # up to which a computation is small: a few hundredths of a second


class Turns:
    """``slots`` for large computations, one more for small ones, and one thread for what need not wait (``run``)."""

    def __init__(self, slots: int) -> None:
        self._executor = ThreadPoolExecutor(slots + 2, thread_name_prefix="unskew-numbers")
        self._places = Places(slots, SMALL_KEYS)

    async def run(self, work: Callable[P, V], *args: P.args, **named: P.kwargs) -> V:
        """Off the loop, at once."""
        return await asyncio.wrap_future(self._submit(work, *args, **named))

    async def take(self, keys: int, work: Callable[P, V], *args: P.args, **named: P.kwargs) -> V:
        """Off the loop, when it is the caller's turn. ``keys``: how many are computed on, as a measure of its time."""
        place = await self._places.take(float(keys))
        working = self._submit(work, *args, **named)
        loop = asyncio.get_running_loop()
        working.add_done_callback(lambda _: _call_on(loop, self._places.give_back, place))
        return await asyncio.wrap_future(working)

    def shut(self) -> None:
        self._executor.shutdown(wait=False)

    def _submit(self, work: Callable[P, V], *args: P.args, **named: P.kwargs) -> Future[V]:
        context = contextvars.copy_context()
        return self._executor.submit(lambda: context.run(work, *args, **named))


def _call_on(
    loop: asyncio.AbstractEventLoop, call: Callable[[asyncio.Future[None]], None], turn: asyncio.Future[None]
) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(call, turn)
