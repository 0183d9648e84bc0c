"""News and watches: one listener for the store's wake-ups, and one task for all watchers of a stream.

News are only a reason to look: they may be lost, so each task also looks every few seconds. A slow watcher misses plans
that were replaced meanwhile and gets the newest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from unskew.core.plan.plan import Version
from unskew.service.api.verbs import Fetched
from unskew.service.concurrency import Signal, Waiters, detached_task, finish
from unskew.service.engine.base import Base
from unskew.service.engine.plan_cache import PlanCache
from unskew.service.errors import NotFoundError, ServiceError, UnavailableError
from unskew.service.events.events import Skipped, WatchersSeen
from unskew.service.stores.records import MISSED, News, PlanRecord

__all__ = ["NewsListener", "Watching"]


class NewsListener:
    """Passes on the store's wake-ups; ``take(None)``: some may have been missed. Whatever ends it, it begins again;
    ``trouble`` says why it waits."""

    def __init__(self, base: Base, take: Callable[[News | None], None]) -> None:
        self._base, self._take = base, take
        self._task: asyncio.Task[None] | None = None
        self.trouble = ""

    def start(self) -> None:
        self._task = asyncio.create_task(self._listen())

    async def close(self) -> None:
        if self._task is not None:
            await finish(self._task)

    async def _listen(self) -> None:
        pause = self._base.tuning.retry
        while True:
            self.trouble = ""
            try:
                async for news in self._base.store.news():
                    pause = self._base.tuning.retry
                    self._hand_on(None if news == MISSED else news)
                self.trouble = "they ended"
            except UnavailableError as why:
                self.trouble = why.message
            except Exception as why:  # noqa: BLE001 - whatever it was, the next news must come
                self.trouble = f"an error of the service itself, {type(why).__name__}: {why}"
            self._base.observer(Skipped("", "news", self.trouble))
            self._hand_on(None)
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._base.tuning.poll)

    def _hand_on(self, news: News | None) -> None:
        try:
            self._take(news)
        except Exception as why:  # noqa: BLE001 - one that cannot be taken must not end those after it
            self._base.observer(Skipped("", "news", f"an error of the service itself, {type(why).__name__}: {why}"))


class _Channel:
    """One watched stream: its newest plan, or why no other will come."""

    def __init__(self, base: Base, plan_cache: PlanCache, stream: str) -> None:
        self._base, self._plan_cache, self.stream = base, plan_cache, stream
        self.record: PlanRecord | None = None
        self.ended: ServiceError | None = None
        self.read = False
        self.watchers = 0
        self.waiters, self.news = Waiters(), Signal()
        self.task = detached_task(self._run())

    async def _run(self) -> None:
        while self.ended is None:
            self.news.clear()
            await self._look()
            self.waiters.wake()
            await self.news.wait(self._base.tuning.poll)

    async def _look(self) -> None:
        try:
            record, stale = await self._plan_cache.latest(self.stream, fresh=True)
        except NotFoundError as why:
            self.ended = why
        except UnavailableError as why:
            if not self.read:  # nothing is cached: the watchers have to call again
                self.ended = why
        else:
            if not self.read:
                self.read = True
                self.report_watchers()
            last = self.record
            if last is None or (record is not None and not stale and record.version > last.version):
                self.record = record

    def report_watchers(self) -> None:
        """Only for a stream that exists: callers may name any other, and each reported name takes up memory."""
        if self.read and (self.ended is None or not self.watchers):
            self._base.observer(WatchersSeen(self.stream, self.watchers))


class Watching:
    def __init__(self, base: Base, plan_cache: PlanCache) -> None:
        self._base, self._plan_cache = base, plan_cache
        self._channels: dict[str, _Channel] = {}

    def wake(self, stream: str) -> None:
        channel = self._channels.get(stream)
        if channel is not None:
            channel.news.set()

    def wake_all(self) -> None:
        for stream in list(self._channels):
            self.wake(stream)

    async def watch(self, stream: str, if_none_match: str) -> AsyncGenerator[Fetched, None]:
        """The newest plan, then each newer one with other routes."""
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
                await channel.waiters.wait()
        finally:
            await self._leave(channel)

    def _join(self, stream: str) -> _Channel:
        channel = self._channels.get(stream)
        if channel is None or channel.ended is not None:
            channel = self._channels[stream] = _Channel(self._base, self._plan_cache, stream)
        channel.watchers += 1
        channel.report_watchers()
        return channel

    async def _leave(self, channel: _Channel) -> None:
        channel.watchers -= 1
        channel.report_watchers()
        if channel.watchers == 0:
            if self._channels.get(channel.stream) is channel:
                del self._channels[channel.stream]
            await finish(channel.task)

    async def close(self) -> None:
        """Ends all watches; ``closing`` is set already."""
        channels = list(self._channels.values())
        for channel in channels:
            channel.waiters.wake()
        await finish(*(channel.task for channel in channels))
        for channel in channels:
            channel.waiters.wake()
