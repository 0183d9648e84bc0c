"""The service's verbs over a store: what ``verbs`` promises, put together from parts that each do one thing.

``streams`` (settings), ``batches`` (what jobs report), ``advice`` (how many tasks), ``planning`` (plans are made),
``shelf`` (and handed out), ``watching`` (and pushed), ``rounds`` (cooperative learning). Decisions are
core's, made off the loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import TypeVar

from unskew.core.errors import UnskewError
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Explanation, Version
from unskew.core.rounds.messages import Report
from unskew.core.stream_spec import BatchWork, Part, StreamSpec
from unskew.service.api.verbs import BuiltPlan, Fetched, Overview, ScaleAnswer, StreamInfo, Summary, Synced, Wanted
from unskew.service.concurrency import Waiters, finish, monotonic
from unskew.service.engine.base import Base, Tuning
from unskew.service.engine.batches import Batches
from unskew.service.engine.plan_cache import PlanCache
from unskew.service.engine.planning import Planning
from unskew.service.engine.rounds import Rounds
from unskew.service.engine.scaling_advice import Advice
from unskew.service.engine.streams import CachedStream, Streams
from unskew.service.engine.watching import NewsListener, Watching
from unskew.service.errors import NotFoundError, ServiceError, UnavailableError
from unskew.service.events.events import BatchSeen, ObservedStore, Observer, ignore, together
from unskew.service.events.history import BatchNote, Expected, Observed, PlanNote, RoundNote
from unskew.service.events.history_writer import HistoryWriter
from unskew.service.lru_cache import LruCache
from unskew.service.stores.ports import News, Store, StreamRecord
from unskew.service.stores.recovering import RecoveringStore

__all__ = ["Engine"]

T = TypeVar("T")
_AT_ONCE = 16
_PAGE = 200  # streams that are looked at for those that are wanted
_SUMMED = 2000


class Engine:
    """``Verbs``. The store is its owner's: it is not closed here."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float] = time.time,
        executor: Executor | None = None,
        observer: Observer = ignore,
        tuning: Tuning | None = None,
    ) -> None:
        seen = store if observer is ignore else ObservedStore(store, observer)
        mended = RecoveringStore(seen, observer)
        self._diary = HistoryWriter(mended, observer)
        self._base = Base(mended, clock, executor, together(observer, self._diary), tuning)
        self._streams = Streams(self._base)
        mended.floor = self._streams.floor
        self._shelf = PlanCache(self._base, self._streams)
        self._batches = Batches(self._base, self._streams)
        self._advice = Advice(self._base, self._streams, self._batches)
        self._summed: LruCache[StreamRecord, tuple[float, Summary]] = LruCache(_SUMMED)
        self._rounds = Rounds(self._base, self._streams)
        self._planning = Planning(self._base, self._streams, self._shelf, self._batches, self._rounds)
        self._watching = Watching(self._base, self._shelf)
        self._newsroom = NewsListener(self._base, self._heard)
        self._looks: set[asyncio.Task[None]] = set()
        self._under_way = 0
        self._quiet = Waiters()

    async def start(self) -> None:
        """Listen for news, keep advice current."""
        self._newsroom.start()
        self._diary.start()
        self._advice.start()

    async def ping(self) -> None:
        """Whether the store can be asked."""
        await self._base.store.ping()

    def drain(self) -> None:
        """End all waits: syncs are answered with what there is, from now on at once."""
        self._base.draining = True
        self._rounds.wake()

    async def close(self) -> None:
        """Take nothing new, finish what is under way (syncs are answered with what there is), end the watches."""
        self._base.closing = True
        self._rounds.wake()
        await self._newsroom.close()
        await finish(*self._looks)
        await self._watching.close()
        await self._advice.close()
        end = monotonic() + self._base.tuning.drain
        while self._under_way and (left := end - monotonic()) > 0:
            await self._quiet.wait(left)
        await self._rounds.close()
        await self._diary.close()
        self._base.shut()

    def _heard(self, news: News | None) -> None:
        if news is None:
            self._streams.forget_all()
            self._shelf.stale_all()
            self._watching.heard_all()
            self._rounds.heard_all()
        elif news.what == "round":
            self._rounds.heard(news.stream, news.rounds)
        else:
            if news.what == "stream":
                self._streams.forget(news.stream)
                self._look(news.stream)
                self._advice.wake(news.stream)
                self._rounds.heard(news.stream)
            self._shelf.stale(news.stream)
            self._watching.heard(news.stream)

    def _look(self, stream: str) -> None:
        """What another replica deleted is not shown here any longer."""
        if self._streams.knows(stream) and not self._base.closing:
            task = asyncio.create_task(self._looked(stream))
            self._looks.add(task)
            task.add_done_callback(self._looks.discard)

    async def _looked(self, stream: str) -> None:
        with suppress(ServiceError):
            await self._streams.get(stream, fresh=True)

    async def _do(self, work: Awaitable[T]) -> T:
        """One call: counted, so that ``close`` waits for it."""
        self._under_way += 1
        try:
            return await work
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._quiet.wake()

    def _open(self) -> None:
        if self._base.closing:
            raise UnavailableError("this replica is shutting down; send the same request again, to another")

    # -- streams

    async def put_stream(
        self, stream: str, spec: StreamSpec, owner: str = "", most: int | None = None
    ) -> tuple[StreamInfo, bool]:
        self._open()
        return await self._do(self._put_stream(stream, spec, owner, most))

    async def _put_stream(self, stream: str, spec: StreamSpec, owner: str, most: int | None) -> tuple[StreamInfo, bool]:
        known, created = await self._streams.put(stream, spec, owner, most)
        return await self._info(known), created

    async def get_stream(self, stream: str) -> StreamInfo:
        self._open()
        return await self._do(self._get_stream(stream))

    async def _get_stream(self, stream: str) -> StreamInfo:
        return await self._info(await self._streams.get(stream, fresh=True))

    async def list_streams(self, after: str, limit: int, wanted: Wanted | None = None) -> Sequence[StreamInfo]:
        self._open()
        return await self._do(self._list_streams(after, limit, wanted))

    async def _list_streams(self, after: str, limit: int, wanted: Wanted | None) -> Sequence[StreamInfo]:
        page = await self._page(after, limit, wanted)
        found: list[StreamInfo] = []
        for at in range(0, len(page), _AT_ONCE):
            found.extend(await asyncio.gather(*(self._listed(known) for known in page[at : at + _AT_ONCE])))
        return found

    async def _page(self, after: str, limit: int, wanted: Wanted | None) -> Sequence[CachedStream]:
        """The first so many of those wanted, or all. Of the others nothing but their names is looked at."""
        found: list[CachedStream] = []
        size = limit if wanted is None else max(limit, _PAGE)
        while True:
            page = await self._streams.page(after, size)
            found.extend(known for known in page if wanted is None or wanted(known.record.name))
            if len(page) < size or len(found) >= limit:
                return found[:limit]
            after = page[-1].record.name

    async def _listed(self, known: CachedStream) -> StreamInfo:
        """One that is deleted while the list is made is told as it was read: a list is of one moment, and who asks for
        the next page asks by the last name of this one."""
        try:
            return await self._info(known)
        except NotFoundError:
            record = known.record
            return StreamInfo(record.name, known.spec, record.created, None, "", 0, 0, known.spec.dsync)

    async def _info(self, known: CachedStream) -> StreamInfo:
        name = known.record.name
        record, _ = await self._shelf.latest(name)
        epoch, agents, dsync = await self._rounds.standing(known)
        version, digest = (None, "") if record is None else (record.version, record.digest)
        return StreamInfo(name, known.spec, known.record.created, version, digest, epoch, agents, dsync)

    async def delete_stream(self, stream: str) -> None:
        self._open()
        await self._do(self._streams.delete(stream))
        self._advice.forget(stream)
        self._shelf.forget(stream)
        self._watching.heard(stream)
        self._rounds.heard(stream)

    # -- what is shown

    async def overview(self, stream: str) -> Overview:
        self._open()
        return await self._do(self._overview(stream))

    async def _overview(self, stream: str) -> Overview:
        info = await self._get_stream(stream)
        record, _ = await self._shelf.latest(stream)
        plan = None if record is None else await self._shelf.plan(stream, record)
        expected, observed, plans, batches, rounds = await asyncio.gather(
            self._diary.of(stream, Expected),
            self._diary.of(stream, Observed),
            self._diary.of(stream, PlanNote),
            self._diary.of(stream, BatchNote),
            self._diary.of(stream, RoundNote),
        )
        fitting = next((one for one in expected if plan is not None and one.digest == plan.digest), None)
        return Overview(info, plan, fitting, next(iter(observed), None), plans, batches, rounds)

    async def summaries(self, after: str, limit: int, wanted: Wanted | None = None) -> Sequence[Summary]:
        self._open()
        return await self._do(self._summaries(after, limit, wanted))

    async def _summaries(self, after: str, limit: int, wanted: Wanted | None) -> Sequence[Summary]:
        page = await self._page(after, limit, wanted)
        found: list[Summary] = []
        for at in range(0, len(page), _AT_ONCE):
            found.extend(await asyncio.gather(*(self._summary(known) for known in page[at : at + _AT_ONCE])))
        return found

    async def _summary(self, known: CachedStream) -> Summary:
        """Read once for all who look at the list: it is five look-ups a stream, and pages ask every few seconds."""
        had = self._summed.find(known.record)
        if had is not None and monotonic() - had[0] < self._base.tuning.summary_age:
            return had[1]
        name = known.record.name
        info = await self._listed(known)
        plans, batches = await asyncio.gather(self._diary.of(name, PlanNote, 1), self._diary.of(name, BatchNote, 1))
        found = Summary(info, next(iter(plans), None), next(iter(batches), None))
        return self._summed.put(known.record, (monotonic(), found))[1]

    # -- reports

    async def report_histogram(self, stream: str, part: Part, histogram: Histogram) -> bool:
        self._open()
        return await self._do(self._batches.report_histogram(stream, part, histogram))

    async def report_batch(self, stream: str, part: Part, batch: BatchWork) -> bool:
        self._open()
        return await self._do(self._report_batch(stream, part, batch))

    async def _report_batch(self, stream: str, part: Part, batch: BatchWork) -> bool:
        repeated = await self._batches.report_work(stream, part, batch)
        if not repeated:
            self._advice.heard(stream)
            self._base.observer(await self._seen(stream, part, batch))
        return repeated

    async def _seen(self, stream: str, part: Part, batch: BatchWork) -> BatchSeen:
        """The batch beside the latest version and what its own plan says of itself: only to be shown, so whatever
        cannot be had now is left out."""
        seen = BatchSeen(stream, part, batch)
        try:
            seen = replace(seen, partitions=(await self._streams.get(stream)).spec.partitions)
            if batch.version is None:
                return seen
            latest, _ = await self._shelf.latest(stream)
            record = await self._shelf.at(stream, batch.version)
            plan = None if record is None else await self._shelf.plan(stream, record)
        except UnskewError:
            return seen
        seen = replace(seen, latest=latest.version if latest else None)
        return replace(seen, promised=plan.info, partitions=plan.partitions) if plan else seen

    async def get_scale(self, stream: str) -> ScaleAnswer:
        self._open()
        return await self._do(self._advice.scale(stream))

    async def watch_scale(self, stream: str) -> AsyncIterator[ScaleAnswer]:
        self._open()
        async with aclosing(self._advice.watch(stream)) as advice:
            async for scale in advice:
                yield scale

    # -- plans

    async def build_plan(
        self, stream: str, batch: int | None = None, *, fresh: bool = False, histogram: Histogram | None = None
    ) -> BuiltPlan:
        self._open()
        return await self._do(self._planning.build(stream, batch, histogram, fresh=fresh))

    async def get_plan(self, stream: str, version: Version | None = None, if_none_match: str = "") -> Fetched:
        self._open()
        return await self._do(self._shelf.get(stream, version, if_none_match))

    async def watch_plans(self, stream: str, if_none_match: str = "") -> AsyncIterator[Fetched]:
        self._open()
        async with aclosing(self._watching.watch(stream, if_none_match)) as plans:
            async for fetched in plans:
                yield fetched

    async def explain(self, stream: str, key: int, version: Version | None = None) -> Explanation:
        self._open()
        return await self._do(self._planning.explain(stream, key, version))

    # -- rounds

    async def sync(self, stream: str, report: Report, wait: float, known: tuple[int, int], data: bytes = b"") -> Synced:
        self._open()
        return await self._do(self._rounds.sync(stream, report, wait, known, data))
