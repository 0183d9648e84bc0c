"""A stream as callers see it: as it stands, as a line of a list, and with its history."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from unskew.service.api.verbs import NameFilter, Overview, StreamInfo, Summary
from unskew.service.concurrency import monotonic
from unskew.service.engine.base import Base
from unskew.service.engine.plan_cache import PlanCache
from unskew.service.engine.rounds.rounds import Rounds
from unskew.service.engine.streams import CachedStream, Streams
from unskew.service.errors import DamagedError, NotFoundError
from unskew.service.events.history import BatchNote, Expected, Observed, PlanNote, RoundNote
from unskew.service.events.history_writer import HistoryWriter
from unskew.service.lru_cache import LruCache
from unskew.service.stores.records import StreamRecord

__all__ = ["StreamViews"]

T = TypeVar("T")
_AT_ONCE = 16
_PAGE = 200  # streams that are looked at where only some may be listed
_SUMMARIES = 2000


class StreamViews:
    def __init__(
        self, base: Base, streams: Streams, plan_cache: PlanCache, rounds: Rounds, history: HistoryWriter
    ) -> None:
        self._base, self._streams, self._plan_cache = base, streams, plan_cache
        self._rounds, self._history = rounds, history
        self._summaries: LruCache[StreamRecord, tuple[float, Summary]] = LruCache(_SUMMARIES)

    async def info(self, stream: CachedStream) -> StreamInfo:
        name = stream.record.name
        record, _ = await self._plan_cache.latest(name)
        epoch, agents, dsync = await self._rounds.standing(stream)
        version, digest = (None, "") if record is None else (record.version, record.digest)
        return StreamInfo(name, stream.spec, stream.record.created, version, digest, epoch, agents, dsync)

    async def listed(self, after: str, limit: int, allowed: NameFilter | None) -> Sequence[StreamInfo]:
        return await self._of_page(self._line, after, limit, allowed)

    async def summaries(self, after: str, limit: int, allowed: NameFilter | None) -> Sequence[Summary]:
        return await self._of_page(self._summary, after, limit, allowed)

    async def overview(self, name: str) -> Overview:
        info = await self.info(await self._streams.get(name, fresh=True))
        record, _ = await self._plan_cache.latest(name)
        plan = None if record is None else await self._plan_cache.plan(name, record)
        expected, observed, plans, batches, rounds = await asyncio.gather(
            self._history.of(name, Expected),
            self._history.of(name, Observed),
            self._history.of(name, PlanNote),
            self._history.of(name, BatchNote),
            self._history.of(name, RoundNote),
        )
        of_plan = next((entry for entry in expected if plan is not None and entry.digest == plan.digest), None)
        return Overview(info, plan, of_plan, next(iter(observed), None), plans, batches, rounds)

    async def _of_page(
        self, view: Callable[[CachedStream], Awaitable[T]], after: str, limit: int, allowed: NameFilter | None
    ) -> list[T]:
        page = await self._page(after, limit, allowed)
        views: list[T] = []
        for at in range(0, len(page), _AT_ONCE):
            views.extend(await asyncio.gather(*(view(stream) for stream in page[at : at + _AT_ONCE])))
        return views

    async def _page(self, after: str, limit: int, allowed: NameFilter | None) -> Sequence[CachedStream]:
        """The first so many that are allowed. Of the others nothing but their names is looked at."""
        streams: list[CachedStream] = []
        size = limit if allowed is None else max(limit, _PAGE)
        while True:
            page, after = await self._streams.page(after, size)
            streams.extend(stream for stream in page if allowed is None or allowed(stream.record.name))
            if not after or len(streams) >= limit:
                return streams[:limit]

    async def _line(self, stream: CachedStream) -> StreamInfo:
        """A stream that is deleted while the list is made stays on it as it was read: a list is of one moment, and the
        next page is asked for by the last name of this one."""
        try:
            return await self.info(stream)
        except (NotFoundError, DamagedError):
            record = stream.record
            return StreamInfo(record.name, stream.spec, record.created, None, "", 0, 0, stream.spec.dsync)

    async def _summary(self, stream: CachedStream) -> Summary:
        """Read once for all callers: it takes five look-ups a stream, and pages ask every few seconds."""
        cached = self._summaries.find(stream.record)
        if cached is not None and monotonic() - cached[0] < self._base.tuning.summary_age:
            return cached[1]
        name = stream.record.name
        info = await self._line(stream)
        plans, batches = await asyncio.gather(self._history.of(name, PlanNote, 1), self._history.of(name, BatchNote, 1))
        summary = Summary(info, next(iter(plans), None), next(iter(batches), None))
        return self._summaries.put(stream.record, (monotonic(), summary))[1]
