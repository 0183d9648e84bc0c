"""How many map and reduce tasks a stream should have (Prompt, ``core.scaling.autoscale``): on request, pushed, and as a
metric.

Advice is made from what the store has, so every replica gives the same; a batch is read again after each report to
it (``Store.marks``). It is shown as a metric by each replica that a report of the stream came to, or that was asked for
it: those look again every few seconds, for as long as the stream is there, so that none goes on showing what was right
once.
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
from unskew.service.engine.batches import HISTOGRAM, WORK, Batches, expected, whole
from unskew.service.engine.streams import Streams, no_stream
from unskew.service.errors import NotFoundError
from unskew.service.events.events import ScaleAdvised, Skipped
from unskew.service.lru_cache import LruCache
from unskew.service.stores.records import Marks, StoredPart
from unskew.wire.streams import came_of

__all__ = ["Advice", "TimedBatch", "scale_of", "stats_of", "timed_of"]

_MOST_TASKS = 65_536  # map tasks that advice is given on
_LOOK_BACK = 64  # batches that it is made from
_KINDS = (WORK, HISTOGRAM)
_STREAMS = 1000  # whose batches are remembered, and whose advice is shown
_APART = 1.0  # seconds between two looks for one watcher, however many reports come


class Advice:
    def __init__(self, base: Base, streams: Streams, batches: Batches) -> None:
        self._base, self._streams, self._batches = base, streams, batches
        self._read: LruCache[str, _Read] = LruCache(_STREAMS)
        self._shown: LruCache[str, ScaleAnswer | None] = LruCache(_STREAMS)  # None: not told yet
        self._watching: dict[str, set[Signal]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Keep what is shown current."""
        self._task = detached_task(self._keep())

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
        """Its watchers are to look again."""
        for reported in self._watching.get(stream, ()):
            reported.set()

    async def scale(self, stream: str) -> ScaleAnswer:
        """The advice now, told to the observer too."""
        read = await self._made(stream)
        self._tell(stream, read)
        return read.scale

    async def _look(self, stream: str) -> ScaleAnswer:
        """The same, told only if there is something to tell."""
        read = await self._made(stream)
        if _numbers(read.scale) != _numbers(self._shown.get(stream)):
            self._tell(stream, read)
        return read.scale

    async def _made(self, stream: str) -> _Read:
        known = await self._streams.get(stream)
        marks = await self._base.store.marks(stream, _KINDS)
        if marks is None:
            raise no_stream(stream)
        had = self._read.find(stream)
        had = had if had is not None and had.marks.incarnation == marks.incarnation else None
        asked = known.spec.partitions, known.record.created
        if had is not None and (had.marks, had.asked) == (marks, asked):
            return had
        timed = await self._timed(stream, marks, had)
        map_tasks = await self._map_tasks(stream, marks, had)
        scale = await self._base.run(scale_of, list(timed.values()), known.spec.partitions, map_tasks)
        since = max([known.record.created, *(batch.came for batch in timed.values())])
        made = _Read(marks, asked, map_tasks, replace(scale, since=since), timed)
        self._read.put(stream, made)
        return made

    def _tell(self, stream: str, read: _Read) -> None:
        """Not of a stream that was deleted while it was looked at."""
        if self._read.find(stream) is read and self._streams.knows(stream):
            self._shown.put(stream, read.scale)
            scale = read.scale
            self._base.observer(
                ScaleAdvised(stream, scale.map_tasks, scale.reduce_tasks, scale.action, scale.zone, scale.reason)
            )

    def forget(self, stream: str) -> None:
        """It was deleted; its watchers are to see that."""
        self._shown.pop(stream, None)
        self._read.pop(stream, None)
        self.wake(stream)

    async def watch(self, stream: str) -> AsyncGenerator[ScaleAnswer, None]:
        """The advice now, then after each report here, and every ``poll`` because of reports elsewhere."""
        reported = Signal()
        self._watching.setdefault(stream, set()).add(reported)
        try:
            while not self._base.closing:
                reported.clear()
                looked = monotonic()
                yield await self._look(stream)
                await reported.wait(self._base.tuning.poll)
                if not self._base.closing:
                    await asyncio.sleep(looked + _APART - monotonic())
        finally:
            watching = self._watching[stream]
            watching.discard(reported)
            if not watching:
                del self._watching[stream]

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._base.tuning.poll)
            for stream in list(self._shown):
                try:
                    await self._current(stream)
                except NotFoundError:
                    self._shown.pop(stream, None)
                    self._read.pop(stream, None)
                except Exception as why:  # noqa: BLE001 - whatever it is, the next stream is to be looked at
                    self._base.observer(Skipped(stream, "advice", f"{type(why).__name__}: {why}"))

    async def _current(self, stream: str) -> None:
        """One look at a stream that nothing was reported to; one that is gone is asked for, so that all hear of it."""
        marks, had = await self._base.store.marks(stream, _KINDS), self._read.find(stream)
        if marks is None:
            await self._streams.get(stream, fresh=True)
        elif had is None or had.marks != marks or self._shown.get(stream) is None:
            await self._look(stream)

    async def _timed(self, stream: str, marks: Marks, had: _Read | None) -> dict[int, TimedBatch]:
        """What advice is made from, the earliest batch first: read where it was reported to since."""
        now, known = marks.of[WORK], {} if had is None else had.timed
        numbers = sorted(now)[-_LOOK_BACK:]
        same = {n: known[n] for n in numbers if n in known and had is not None and had.marks.of[WORK][n] == now[n]}
        read = await self._batches.parts(stream, WORK, [number for number in numbers if number not in same])
        clock = self._base.clock()
        found = await self._base.run(lambda: {number: timed_of(parts, clock) for number, parts in read})
        return {number: batch for number in numbers if (batch := same.get(number) or found.get(number)) is not None}

    async def _map_tasks(self, stream: str, marks: Marks, had: _Read | None) -> int:
        """As many as the last histogram has parts; 0: none was reported."""
        if had is not None and had.marks.of[HISTOGRAM] == marks.of[HISTOGRAM]:
            return had.map_tasks
        last = max(marks.of[HISTOGRAM], default=None)
        keys = () if last is None else await self._base.store.part_keys(stream, HISTOGRAM, last)
        return max(expected(keys).values(), default=0)


def stats_of(batch: BatchWork) -> BatchStats | None:
    """What Prompt's Algorithm 4 looks at; None where the batch did not say how long it took."""
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
class _Read:
    """What was read of a stream, and the advice that was made of it."""

    marks: Marks
    asked: tuple[int, float]
    map_tasks: int
    scale: ScaleAnswer
    timed: Mapping[int, TimedBatch] = field(default_factory=dict)


@dataclass(frozen=True)
class TimedBatch:
    """Of a batch, what advice is made from: its reduce tasks, what it took (None: it did not say), when it came."""

    tasks: int
    stats: BatchStats | None
    came: float = 0.0


def timed_of(parts: Sequence[StoredPart], now: float = 0.0) -> TimedBatch:
    """``now``: when a report came that does not say it, of the release before: what is not known to be old is new."""
    batch = whole(parts)
    tasks = 1 + max((work.partition for work in batch.work), default=-1)
    return TimedBatch(tasks, stats_of(batch), max((came_of(part.data) or now for part in parts), default=0.0))


def scale_of(batches: Sequence[TimedBatch], partitions: int, map_tasks: int) -> ScaleAnswer:
    """The advice after these batches, the earliest first. The reduce tasks of each are those that it had: advice that
    nobody took is given again. Of the map tasks only their present number is known."""
    present = min(max(map_tasks, 1), _MOST_TASKS)
    # A stream may have more of both than the rules would begin with: advice goes down from what there is.
    rules = ScaleRules(max_p=max(ScaleRules.max_p, present), max_r=max(ScaleRules.max_r, partitions))
    scaler = AutoScaler(ScaleState(p=present, r=partitions), rules)
    decision: ScaleDecision | None = None
    for batch in batches:
        if batch.stats is None:
            continue
        had = min(batch.tasks, scaler.rules.max_r)
        if had and scaler.state.r != had:
            scaler.state = replace(scaler.state, r=had, promised=None)
        decision = scaler.handle(batch.stats)
    if decision is None:
        return ScaleAnswer(map_tasks, partitions, "hold", 0, "no batch has reported how long it took yet")
    return ScaleAnswer(decision.p if map_tasks else 0, decision.r, decision.action, decision.zone, decision.reason)
