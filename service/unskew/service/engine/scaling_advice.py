"""How many tasks a stream should have (Prompt, ``core.scaling.autoscale``): on request, pushed, and as a metric.

Advice is made from what the store has, so every replica gives the same; a batch is read again after each report about
it (``Store.marks``). Each replica that got a report of the stream, or was asked for its advice, exports it as a metric,
and renews it every few seconds for as long as the stream exists, so that no replica exports old advice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from unskew.core.scaling.autoscale import AutoScaler
from unskew.core.scaling.values import BatchStats, ScaleDecision, ScaleRules, ScaleState
from unskew.core.stream_spec import BatchWork
from unskew.service.api.verbs import ScaleAnswer
from unskew.service.concurrency import Signal, detached_task, finish, monotonic
from unskew.service.engine.base import Base
from unskew.service.engine.batches import Batches, expected
from unskew.service.engine.streams import Streams, no_stream
from unskew.service.errors import NotFoundError
from unskew.service.events.events import ScaleAdvised, Skipped
from unskew.service.lru_cache import LruCache
from unskew.service.stores.part_bytes import HISTOGRAM, WORK, came_at, whole
from unskew.service.stores.records import Marks, StoredPart

__all__ = ["Advice", "TimedBatch", "scale_of", "stats_of", "timed_of"]

_MOST_TASKS = 65_536  # map tasks; the advice counts no more
_LOOK_BACK = 64  # batches that it is made from
_KINDS = (WORK, HISTOGRAM)
_STREAMS = 1000  # whose batches are cached, and whose advice is exported
_MIN_INTERVAL = 1.0  # seconds between two updates of one watcher, however many reports come


class Advice:
    def __init__(self, base: Base, streams: Streams, batches: Batches) -> None:
        self._base, self._streams, self._batches = base, streams, batches
        self._cache: LruCache[str, _StreamAdvice] = LruCache(_STREAMS)
        self._shown: LruCache[str, ScaleAnswer | None] = LruCache(_STREAMS)  # None: not exported yet
        self._watching: dict[str, set[Signal]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Keep the exported advice current."""
        self._task = detached_task(self._renew())

    async def close(self) -> None:
        """``closing`` is set already."""
        for stream in self._watching:
            self.wake(stream)
        if self._task is not None:
            await finish(self._task)

    def reported(self, stream: str) -> None:
        """A batch was reported here."""
        self._shown.put(stream, self._shown.get(stream))
        self.wake(stream)

    def wake(self, stream: str) -> None:
        """Its watchers look again."""
        for reported in self._watching.get(stream, ()):
            reported.set()

    async def scale(self, stream: str) -> ScaleAnswer:
        """The advice now; it is exported, too."""
        advice = await self._advice(stream)
        self._export(stream, advice)
        return advice.scale

    async def _look(self, stream: str) -> ScaleAnswer:
        """The same, exported only if it has changed."""
        advice = await self._advice(stream)
        if _numbers(advice.scale) != _numbers(self._shown.get(stream)):
            self._export(stream, advice)
        return advice.scale

    async def _advice(self, stream: str) -> _StreamAdvice:
        cached = await self._streams.get(stream)
        marks = await self._base.store.marks(stream, _KINDS)
        if marks is None:
            raise no_stream(stream)
        last = self._cache.find(stream)
        last = last if last is not None and last.marks.incarnation == marks.incarnation else None
        settings = cached.spec.partitions, cached.record.created
        if last is not None and (last.marks, last.settings) == (marks, settings):
            return last
        timed = await self._timed(stream, marks, last)
        map_tasks = await self._map_tasks(stream, marks, last)
        scale = await self._base.run(scale_of, list(timed.values()), cached.spec.partitions, map_tasks)
        since = max([cached.record.created, *(batch.came for batch in timed.values())])
        advice = _StreamAdvice(marks, settings, map_tasks, replace(scale, since=since), timed)
        return self._cache.put(stream, advice)

    def _export(self, stream: str, advice: _StreamAdvice) -> None:
        """Not if the stream was deleted meanwhile."""
        if self._cache.find(stream) is advice and self._streams.knows(stream):
            scale = advice.scale
            self._shown.put(stream, scale)
            self._base.observer(
                ScaleAdvised(stream, scale.map_tasks, scale.reduce_tasks, scale.action, scale.zone, scale.reason)
            )

    def forget(self, stream: str) -> None:
        """The stream was deleted; its watchers look again and end."""
        self._shown.pop(stream, None)
        self._cache.pop(stream, None)
        self.wake(stream)

    async def watch(self, stream: str) -> AsyncGenerator[ScaleAnswer, None]:
        """The advice now, then after each report here, and every ``poll`` because of reports elsewhere."""
        reported = Signal()
        self._watching.setdefault(stream, set()).add(reported)
        try:
            while not self._base.closing:
                reported.clear()
                began = monotonic()
                yield await self._look(stream)
                await reported.wait(self._base.tuning.poll)
                if not self._base.closing:
                    await asyncio.sleep(began + _MIN_INTERVAL - monotonic())
        finally:
            watching = self._watching[stream]
            watching.discard(reported)
            if not watching:
                del self._watching[stream]

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._base.tuning.poll)
            for stream in list(self._shown):
                try:
                    await self._renew_one(stream)
                except NotFoundError:
                    self._shown.pop(stream, None)
                    self._cache.pop(stream, None)
                except Exception as why:  # noqa: BLE001 - whatever it is, the next stream is renewed
                    self._base.observer(Skipped(stream, "advice", f"{type(why).__name__}: {why}"))

    async def _renew_one(self, stream: str) -> None:
        """Reads only the marks if nothing was reported. A stream that is gone is read, so that all caches drop it."""
        marks, last = await self._base.store.marks(stream, _KINDS), self._cache.find(stream)
        if marks is None:
            await self._streams.get(stream, fresh=True)
        elif last is None or last.marks != marks or self._shown.get(stream) is None:
            await self._look(stream)

    async def _timed(self, stream: str, marks: Marks, last: _StreamAdvice | None) -> dict[int, TimedBatch]:
        """What advice is made from, the earliest batch first: those with new reports are read."""
        now = marks.of[WORK]
        numbers = sorted(now)[-_LOOK_BACK:]
        earlier = {} if last is None else {n: t for n, t in last.timed.items() if last.marks.of[WORK][n] == now.get(n)}
        same = {number: earlier[number] for number in numbers if number in earlier}
        read = await self._batches.parts(stream, WORK, [number for number in numbers if number not in same])
        clock = self._base.clock()
        changed = await self._base.run(lambda: {number: timed_of(parts, clock) for number, parts in read})
        return {number: batch for number in numbers if (batch := same.get(number) or changed.get(number)) is not None}

    async def _map_tasks(self, stream: str, marks: Marks, last: _StreamAdvice | None) -> int:
        """As many as the last histogram has parts; 0: none was reported."""
        if last is not None and last.marks.of[HISTOGRAM] == marks.of[HISTOGRAM]:
            return last.map_tasks
        batch = max(marks.of[HISTOGRAM], default=None)
        keys = () if batch is None else await self._base.store.part_keys(stream, HISTOGRAM, batch)
        return max(expected(keys).values(), default=0)


def stats_of(batch: BatchWork) -> BatchStats | None:
    """The input of Prompt's Algorithm 4; None where the batch did not report how long it took."""
    if not batch.interval or not batch.processing or not batch.map_time + batch.reduce_time:
        return None
    return BatchStats(
        batch.interval,
        batch.processing,
        batch.map_time,
        batch.reduce_time,
        sum(work.rows for work in batch.work),
        sum(work.keys for work in batch.work),
    )


def _numbers(scale: ScaleAnswer | None) -> tuple[object, ...]:
    return () if scale is None else (scale.map_tasks, scale.reduce_tasks, scale.action, scale.zone)


@dataclass(frozen=True, eq=False)
class _StreamAdvice:
    """What was read of a stream, and the advice that was made from it."""

    marks: Marks
    settings: tuple[int, float]  # the number of partitions, and when the stream was created
    map_tasks: int
    scale: ScaleAnswer
    timed: Mapping[int, TimedBatch] = field(default_factory=dict)


@dataclass(frozen=True)
class TimedBatch:
    """A batch as advice needs it: its reduce tasks, its times (None: not reported), and when it was reported."""

    tasks: int
    stats: BatchStats | None
    came: float = 0.0


def timed_of(parts: Sequence[StoredPart], now: float = 0.0) -> TimedBatch:
    """``now`` is taken for the time of reports of the last release, which do not have one."""
    batch = whole(parts)
    tasks = 1 + max((work.partition for work in batch.work), default=-1)
    return TimedBatch(tasks, stats_of(batch), max((came_at(part) or now for part in parts), default=0.0))


def scale_of(batches: Sequence[TimedBatch], partitions: int, map_tasks: int) -> ScaleAnswer:
    """The advice after these batches, the earliest first. Each batch counts with the reduce tasks that it had: advice
    that was not followed is given again. Of the map tasks only the present number is known."""
    present = min(max(map_tasks, 1), _MOST_TASKS)
    # A stream may have more of both than the rules allow by default: advice goes down from the present numbers.
    rules = ScaleRules(max_p=max(ScaleRules.max_p, present), max_r=max(ScaleRules.max_r, partitions))
    scaler = AutoScaler(ScaleState(p=present, r=partitions), rules)
    decision: ScaleDecision | None = None
    for batch in batches:
        if batch.stats is None:
            continue
        tasks = min(batch.tasks, scaler.rules.max_r)
        if tasks and scaler.state.r != tasks:
            scaler.state = replace(scaler.state, r=tasks, promised=None)
        decision = scaler.handle(batch.stats)
    if decision is None:
        return ScaleAnswer(map_tasks, partitions, "hold", 0, "no batch has reported how long it took yet")
    return ScaleAnswer(decision.p if map_tasks else 0, decision.r, decision.action, decision.zone, decision.reason)
