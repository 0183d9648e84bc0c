"""Who is told of news: one listener for the store's wake-ups, and one task for all watchers of a stream.

News is only a reason to look: it may be lost, so each task looks by itself too, now and then. A watcher that is slow
misses what was replaced meanwhile and gets the newest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from unskew.core.plan.plan import Version
from unskew.service.api.verbs import Fetched
from unskew.service.concurrency import Waiters, detached_task, finish
from unskew.service.engine.base import Base
from unskew.service.engine.plan_cache import PlanCache
from unskew.service.errors import NotFoundError, ServiceError, UnavailableError
from unskew.service.events.events import Skipped, WatchersSeen
from unskew.service.stores.ports import News, PlanRecord

__all__ = ["NewsListener", "Watching"]


class NewsListener:
    """Hands the store's wake-ups on; ``heard(None)``: some may have been missed."""

    def __init__(self, base: Base, heard: Callable[[News | None], None]) -> None:
        self._base, self._heard = base, heard
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._listen())

    async def close(self) -> None:
        if self._task is not None:
            await finish(self._task)

    async def _listen(self) -> None:
        pause = self._base.tuning.retry
        while True:
            try:
                async for news in self._base.store.news():
                    pause = self._base.tuning.retry
                    self._heard(news)
            except UnavailableError as why:
                self._base.observer(Skipped("", "news", why.message))
            self._heard(None)
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._base.tuning.poll)


class _Channel:
    """One watched stream: its newest plan, or why there is none to come."""

    def __init__(self, base: Base, shelf: PlanCache, stream: str) -> None:
        self._base, self._shelf, self.stream = base, shelf, stream
        self.record: PlanRecord | None = None
        self.ended: ServiceError | None = None
        self.read = False
        self.watchers = 0
        self.bell, self.poke = Waiters(), asyncio.Event()
        self.task = detached_task(self._run())

    async def _run(self) -> None:
        while self.ended is None:
            self.poke.clear()
            await self._look()
            self.bell.wake()
            try:
                await asyncio.wait_for(self.poke.wait(), self._base.tuning.poll)
            except asyncio.TimeoutError:
                continue

    async def _look(self) -> None:
        try:
            record, stale = await self._shelf.latest(self.stream, fresh=True)
        except NotFoundError as why:
            self.ended = why
        except UnavailableError as why:
            if not self.read:  # nothing is known: the watchers are to ask again
                self.ended = why
        else:
            if not self.read:
                self.read = True
                self.tell()
            had = self.record
            if had is None or (record is not None and not stale and record.version > had.version):
                self.record = record

    def tell(self) -> None:
        """Of a stream that is there only: anybody may name another, and each name that is told leaves something."""
        if self.read and (self.ended is None or not self.watchers):
            self._base.observer(WatchersSeen(self.stream, self.watchers))


class Watching:
    def __init__(self, base: Base, shelf: PlanCache) -> None:
        self._base, self._shelf = base, shelf
        self._channels: dict[str, _Channel] = {}

    def heard(self, stream: str) -> None:
        channel = self._channels.get(stream)
        if channel is not None:
            channel.poke.set()

    def heard_all(self) -> None:
        for stream in list(self._channels):
            self.heard(stream)

    async def watch(self, stream: str, if_none_match: str) -> AsyncGenerator[Fetched, None]:
        """The newest plan, then each newer one that routes otherwise."""
        channel = self._join(stream)
        sent: Version | None = None
        digest = if_none_match
        try:
            while not self._base.closing:
                record = channel.record
                if record is not None and (sent is None or record.version > sent):
                    sent = record.version
                    if record.digest != digest:
                        digest = record.digest
                        yield Fetched(record.data, digest)
                        continue  # there may be a newer one by now
                if channel.ended is not None:
                    raise channel.ended
                await channel.bell.wait()
        finally:
            await self._leave(channel)

    def _join(self, stream: str) -> _Channel:
        channel = self._channels.get(stream)
        if channel is None or channel.ended is not None:
            channel = self._channels[stream] = _Channel(self._base, self._shelf, stream)
        channel.watchers += 1
        channel.tell()
        return channel

    async def _leave(self, channel: _Channel) -> None:
        channel.watchers -= 1
        channel.tell()
        if channel.watchers == 0:
            if self._channels.get(channel.stream) is channel:
                del self._channels[channel.stream]
            await finish(channel.task)

    async def close(self) -> None:
        """Ends all watches; ``closing`` is set already."""
        channels = list(self._channels.values())
        for channel in channels:
            channel.bell.wake()
        await finish(*(channel.task for channel in channels))
        for channel in channels:
            channel.bell.wake()
