"""What the parts of the engine share: the store, the clock, threads for computation, and how long to wait for what."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from unskew.service.concurrency import monotonic
from unskew.service.engine.store_silence import StoreSilence
from unskew.service.engine.turns import Turns
from unskew.service.errors import DamagedError, UnavailableError
from unskew.service.events.events import Observer
from unskew.service.places import Places
from unskew.service.stores.ports import Store

__all__ = ["Base", "Tuning"]

V = TypeVar("V")
P = ParamSpec("P")
_SMALL, _LARGE = 1 << 18, 8 << 20  # bytes of reports
_MEDIUM_AT_ONCE = 8


@dataclass(frozen=True)
class Tuning:
    """Seconds, unless said otherwise."""

    patience: float = 1.5  # DSYNCs that a round is open for at most (core.rounds.rules)
    lease: float = 3.0  # DSYNCs that a round waits for a silent agent
    fresh: float = 0.1  # age up to which a cached plan is served without asking the store, if no news came
    poll: float = 5.0  # between two looks at the store where no news came
    summary_age: float = 3.0  # age up to which a line of a list of streams is served from the cache
    cached_wait: float = 0.04  # for the store, where a cached value can be served instead
    build_wait: float = 0.075  # for the store, where the last plan can be the answer to BuildPlan
    retry: float = 0.25  # pause after the store could not be asked; doubles up to ``poll``
    takeover: float = 0.25  # before a round is merged that another replica sealed
    most_wait: float = 60.0  # that a sync may wait for its round
    drain: float = 20.0  # that ``close`` waits for calls under way
    plan_bytes: int = 128 << 20  # bytes of histograms that one plan is made from
    tries: int = 16  # times that a plan is made again because another was stored in between


class Base:
    """``clock``: seconds since 1970. Plans and histograms wait for their turn; nothing else does, so that no round is
    merged late by them."""

    def __init__(self, store: Store, clock: Callable[[], float], observer: Observer, tuning: Tuning) -> None:
        self.store, self.clock, self.observer, self.tuning = store, clock, observer, tuning
        self.closing = False
        self.draining = False  # no call waits for a round any longer
        self.silence = StoreSilence()
        self._turns = Turns(max(1, min(4, os.cpu_count() or 1) - 1))
        self.burst = False  # whether large work was done: its memory should go back to the system
        self._room = Places(1, _LARGE - 1, _MEDIUM_AT_ONCE)

    async def run(self, work: Callable[P, V], *args: P.args, **named: P.kwargs) -> V:
        """Off the loop."""
        return await self._turns.run(work, *args, **named)

    async def heavy(self, keys: int, work: Callable[P, V], *args: P.args, **named: P.kwargs) -> V:
        """Off the loop, in the caller's turn, for work on so many keys."""
        return await self._turns.take(keys, work, *args, **named)

    @asynccontextmanager
    async def room(self, size: int) -> AsyncGenerator[None, None]:
        """Around work on reports of so many bytes, from before they are read: what is large goes one at a time, so that
        the memory of all together has a bound; whose is next, the fair queue says."""
        if size < _SMALL:
            yield
            return
        place = await self._room.take(float(size))
        try:
            yield
        finally:
            self._room.give_back(place)
            self.burst = self.burst or size >= _LARGE

    async def soon(self, reading: asyncio.Task[V], patience: float | None) -> V:
        """What is being read; an ``UnavailableError`` where the store has been silent for so long (None: as long as the
        reading takes). The reading goes on without its caller, and its answer ends the silence."""
        reading.add_done_callback(self._read)
        if patience is None:
            return await asyncio.shield(reading)
        self.silence.asked(monotonic())
        await asyncio.wait((reading,), timeout=self.silence.left(patience, monotonic()))
        if not reading.done():
            raise UnavailableError("store: it does not answer at once; try again in some seconds")
        return reading.result()

    def _read(self, reading: asyncio.Task[V]) -> None:
        if reading.cancelled():
            return
        why = reading.exception()
        if not isinstance(why, UnavailableError) or isinstance(why, DamagedError):
            self.silence.answered()

    def shut(self) -> None:
        self._turns.shut()
