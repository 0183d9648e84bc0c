"""The service's verbs over a store: what ``api.verbs`` promises, put together from parts that each do one thing.

``streams`` (settings), ``batches`` (what jobs report), ``scaling_advice`` (how many tasks), ``planning`` (plans are
made), ``plan_cache`` (and handed out), ``watching`` (and pushed), ``rounds`` (cooperative learning), ``stream_views``
(what is shown). Decisions are core's, made off the loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace

from unskew.core.errors import UnskewError
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Explanation, Version
from unskew.core.rounds.messages import Report
from unskew.core.rounds.round_digests import SeenRound
from unskew.core.stream_spec import BatchWork, Part, StreamSpec
from unskew.service.api.verbs import BuiltPlan, Fetched, NameFilter, Overview, ScaleAnswer, StreamInfo, Summary, Synced
from unskew.service.concurrency import Waiters, finish, monotonic
from unskew.service.engine.base import Base, Tuning
from unskew.service.engine.batches import Batches
from unskew.service.engine.plan_cache import PlanCache
from unskew.service.engine.planning import Planning
from unskew.service.engine.rounds.rounds import Rounds
from unskew.service.engine.scaling_advice import Advice
from unskew.service.engine.stream_views import StreamViews
from unskew.service.engine.streams import Incarnations, Streams
from unskew.service.engine.watching import NewsListener, Watching
from unskew.service.errors import ServiceError, UnavailableError, WritesRefusedError
from unskew.service.events.events import BatchSeen, Observer, StreamChanged, ignore, together
from unskew.service.events.history_writer import HistoryWriter
from unskew.service.stores.metered import metered
from unskew.service.stores.ports import Store
from unskew.service.stores.records import News, NewsState
from unskew.service.stores.recovering import recovering

__all__ = ["Engine"]


class Engine:
    """``Verbs``. The caller closes the store."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float] = time.time,
        observer: Observer = ignore,
        tuning: Tuning | None = None,
    ) -> None:
        incarnations = Incarnations(clock)
        store = store if observer is ignore else metered(store, observer)
        store = recovering(store, incarnations.floor, lambda stream: observer(StreamChanged(stream, "restored")))
        self._history = HistoryWriter(store, observer)
        self._base = base = Base(store, clock, together(observer, self._history), tuning or Tuning())
        self._streams = Streams(base, incarnations)
        self._plan_cache = PlanCache(base, self._streams)
        self._batches = Batches(base, self._streams)
        self._advice = Advice(base, self._streams, self._batches)
        self._rounds = Rounds(base, self._streams)
        self._planning = Planning(base, self._streams, self._plan_cache, self._batches, self._rounds)
        self._views = StreamViews(base, self._streams, self._plan_cache, self._rounds, self._history)
        self._watching = Watching(base, self._plan_cache)
        self._listener = NewsListener(base, self._on_news)
        self._rereading: set[asyncio.Task[None]] = set()
        self._calls = _OpenCalls(base)

    async def start(self) -> None:
        """Listen for news, keep advice current."""
        self._listener.start()
        self._history.start()
        self._advice.start()

    async def ping(self) -> None:
        """Raises where the store does not answer, or takes no write."""
        self._base.silence.asked(monotonic())
        try:
            await self._base.store.ping()
        except WritesRefusedError:
            self._base.silence.answered()
            raise
        self._base.silence.answered()

    def news_state(self) -> NewsState:
        """Whether news of the store come, so that a change of another replica is seen at once here."""
        state = self._base.store.news_state()
        return state if state.trouble else replace(state, trouble=self._listener.trouble)

    def store_bytes(self) -> tuple[int, int]:
        """Bytes of the store in use, and how many there may be; 0 where there is no bound."""
        return self._base.store.used_bytes()

    def forget_burst(self) -> bool:
        """Whether large work was done since this was asked, so that much memory is free."""
        burst, self._base.burst = self._base.burst, False
        return burst

    def drain(self) -> None:
        """End all waits: from now on syncs are answered at once, with what there is."""
        self._base.draining = True
        self._rounds.wake()

    async def close(self) -> None:
        """Refuse new calls, finish those under way (syncs are answered with what there is), end the watches."""
        self._base.closing = True
        self._rounds.wake()
        await self._listener.close()
        await finish(*self._rereading)
        await self._watching.close()
        await self._advice.close()
        await self._calls.wait(self._base.tuning.drain)
        await self._rounds.close()
        await self._history.close()
        self._base.shut()

    # -- news of the store

    def _on_news(self, news: News | None) -> None:
        """None: some may have been missed."""
        if news is None:
            self._streams.forget_all()
            self._plan_cache.expire_all()
            self._watching.wake_all()
            self._rounds.heard_all()
        elif news.what == "round":
            self._rounds.heard(news.stream, news.rounds)
        else:
            if news.what == "stream":
                self._streams.forget(news.stream)
                self._reread(news.stream)
                self._advice.wake(news.stream)
                self._rounds.heard(news.stream)
            self._plan_cache.expire(news.stream)
            self._watching.wake(news.stream)

    def _reread(self, stream: str) -> None:
        """Read the settings again: a stream that another replica deleted must not be shown here any longer."""
        if self._streams.knows(stream) and not self._base.closing:
            task = asyncio.create_task(self._read_settings(stream))
            self._rereading.add(task)
            task.add_done_callback(self._rereading.discard)

    async def _read_settings(self, stream: str) -> None:
        with suppress(ServiceError):
            await self._streams.get(stream, fresh=True)

    # -- streams

    async def put_stream(
        self, stream: str, spec: StreamSpec, owner: str = "", most: int | None = None
    ) -> tuple[StreamInfo, bool]:
        with self._calls:
            record, created = await self._streams.put(stream, spec, owner, most)
            return await self._views.info(record), created

    async def get_stream(self, stream: str) -> StreamInfo:
        with self._calls:
            return await self._views.info(await self._streams.get(stream, fresh=True))

    async def list_streams(self, after: str, limit: int, allowed: NameFilter | None = None) -> Sequence[StreamInfo]:
        with self._calls:
            return await self._views.listed(after, limit, allowed)

    async def delete_stream(self, stream: str) -> None:
        with self._calls:
            await self._streams.delete(stream)
            self._advice.forget(stream)
            self._plan_cache.forget(stream)
            self._watching.wake(stream)
            self._rounds.heard(stream)

    async def overview(self, stream: str) -> Overview:
        with self._calls:
            return await self._views.overview(stream)

    async def summaries(self, after: str, limit: int, allowed: NameFilter | None = None) -> Sequence[Summary]:
        with self._calls:
            return await self._views.summaries(after, limit, allowed)

    # -- reports of batches, and advice

    async def report_histogram(self, stream: str, part: Part, histogram: Histogram) -> bool:
        with self._calls:
            return await self._batches.report_histogram(stream, part, histogram)

    async def report_batch(self, stream: str, part: Part, batch: BatchWork) -> bool:
        with self._calls:
            repeated = await self._batches.report_work(stream, part, batch)
            if not repeated:
                self._advice.reported(stream)
                self._base.observer(await self._batch_seen(stream, part, batch))
            return repeated

    async def _batch_seen(self, stream: str, part: Part, batch: BatchWork) -> BatchSeen:
        """The batch beside what its own plan promised. It is only shown: what cannot be read now is left out."""
        event = BatchSeen(stream, part, batch)
        try:
            event = replace(event, partitions=(await self._streams.get(stream)).spec.partitions)
            if batch.version is None:
                return event
            latest, _ = await self._plan_cache.latest(stream)
            record = await self._plan_cache.at(stream, batch.version)
            plan = None if record is None else await self._plan_cache.plan(stream, record)
        except UnskewError:
            return event
        event = replace(event, latest=latest.version if latest else None)
        return replace(event, promised=plan.info, partitions=plan.partitions) if plan else event

    async def get_scale(self, stream: str) -> ScaleAnswer:
        with self._calls:
            return await self._advice.scale(stream)

    async def watch_scale(self, stream: str) -> AsyncIterator[ScaleAnswer]:
        self._calls.check()
        async with aclosing(self._advice.watch(stream)) as advice:
            async for scale in advice:
                yield scale

    # -- plans

    async def build_plan(
        self, stream: str, batch: int | None = None, *, fresh: bool = False, histogram: Histogram | None = None
    ) -> BuiltPlan:
        with self._calls:
            return await self._planning.build(stream, batch, histogram, fresh=fresh)

    async def get_plan(self, stream: str, version: Version | None = None, if_none_match: str = "") -> Fetched:
        with self._calls:
            return await self._plan_cache.get(stream, version, if_none_match)

    async def watch_plans(self, stream: str, if_none_match: str = "") -> AsyncIterator[Fetched]:
        self._calls.check()
        async with aclosing(self._watching.watch(stream, if_none_match)) as plans:
            async for fetched in plans:
                yield fetched

    async def explain(self, stream: str, key: int, version: Version | None = None) -> Explanation:
        with self._calls:
            return await self._planning.explain(stream, key, version)

    # -- rounds

    async def sync(self, stream: str, report: Report, wait: float, seen: SeenRound, data: bytes = b"") -> Synced:
        with self._calls:
            return await self._rounds.sync(stream, report, wait, seen, data)


class _OpenCalls:
    """``with`` around a call: refuses it where the engine closes, and counts it, so that ``close`` waits for it."""

    def __init__(self, base: Base) -> None:
        self._base, self._count, self._done = base, 0, Waiters()

    def check(self) -> None:
        if self._base.closing:
            raise UnavailableError("this replica is shutting down; send the same request again, to another")

    def __enter__(self) -> None:
        self.check()
        self._count += 1

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count:
            self._done.wake()

    async def wait(self, seconds: float) -> None:
        """Until there is none, for so long at most."""
        end = monotonic() + seconds
        while self._count and (left := end - monotonic()) > 0:
            await self._done.wait(left)
