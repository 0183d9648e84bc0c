"""How many map and reduce tasks a stream should have (Prompt, ``core.autoscale``): on request, pushed, and as a metric.

Advice is made anew from what the store has, so every replica gives the same. It is shown as a metric by each replica
that a report of the stream came to, or that was asked for it: those look again every few seconds, for as long as the
stream is there, so that none goes on showing what was right once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from unskew.core.autoscale import AutoScaler, BatchStats, ScaleDecision, ScaleRules, ScaleState
from unskew.core.errors import UnskewError
from unskew.core.stream import BatchWork
from unskew.service.base import Base, Recent, apart, finish, monotonic
from unskew.service.batches import HISTOGRAM, WORK, Batches, expected, whole
from unskew.service.errors import NotFoundError, ServiceError
from unskew.service.observing import ScaleAdvised, Skipped
from unskew.service.ports import StoredPart
from unskew.service.streams import Known, Streams
from unskew.service.verbs import Scale
from unskew.wire.streams import came_of

__all__ = ["Advice", "Timed", "scale_of", "stats_of", "timed_of"]

_MOST_TASKS = 65_536  # map tasks that advice is given on
_LOOK_BACK = 64  # batches that it is made from
_MAY_CHANGE = 4  # the last batches of these, which may still be reported to or run again
_STREAMS = 1000  # whose batches are remembered, and whose advice is shown
_APART = 1.0  # seconds between two looks for one watcher, however many reports come


class Advice:
    def __init__(self, base: Base, streams: Streams, batches: Batches) -> None:
        self._base, self._streams, self._batches = base, streams, batches
        self._settled: Recent[str, tuple[int, dict[int, Timed]]] = Recent(_STREAMS)
        self._shown: Recent[str, Scale | None] = Recent(_STREAMS)  # None: not told yet
        self._watching: dict[str, set[asyncio.Event]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Keep what is shown current."""
        self._task = apart(self._keep())

    async def close(self) -> None:
        """``closing`` is set already."""
        for stream in self._watching:
            self.wake(stream)
        if self._task is not None:
            await finish(self._task)

    def heard(self, stream: str) -> None:
        """A batch was reported here."""
        self._shown.put(stream, self._shown.get(stream))
        self.wake(stream)

    def wake(self, stream: str) -> None:
        """Its watchers are to look again."""
        for poke in self._watching.get(stream, ()):
            poke.set()

    async def scale(self, stream: str) -> Scale:
        """The advice now, told to the observer too."""
        scale = await self._made(stream)
        self._tell(stream, scale)
        return scale

    async def _look(self, stream: str) -> Scale:
        """The same, told only if there is something to tell."""
        scale = await self._made(stream)
        if _numbers(scale) != _numbers(self._shown.get(stream)):
            self._tell(stream, scale)
        return scale

    async def _made(self, stream: str) -> Scale:
        known = await self._streams.get(stream)
        numbers = await self._base.store.batches(stream, WORK, None, _LOOK_BACK)
        last = await self._base.store.batches(stream, HISTOGRAM, None, 1)
        keys = await self._base.store.part_keys(stream, HISTOGRAM, last[0]) if last else ()
        map_tasks = max(expected(keys).values(), default=0)
        timed = await self._timed(known, numbers)
        scale = await self._base.run(scale_of, timed, known.spec.partitions, map_tasks)
        return replace(scale, since=max([known.record.created, *(batch.came for batch in timed)]))

    def _tell(self, stream: str, scale: Scale) -> None:
        self._shown.put(stream, scale)
        self._base.observer(ScaleAdvised(stream, scale))

    async def watch(self, stream: str) -> AsyncGenerator[Scale, None]:
        """The advice now, then after each report here, and every ``poll`` because of reports elsewhere."""
        poke = asyncio.Event()
        self._watching.setdefault(stream, set()).add(poke)
        try:
            while not self._base.closing:
                poke.clear()
                looked = monotonic()
                yield await self._look(stream)
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(poke.wait(), self._base.tuning.poll)
                if not self._base.closing:
                    await asyncio.sleep(looked + _APART - monotonic())
        finally:
            watching = self._watching[stream]
            watching.discard(poke)
            if not watching:
                del self._watching[stream]

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._base.tuning.poll)
            for stream in list(self._shown):
                try:
                    await self._look(stream)
                except NotFoundError:
                    self._shown.pop(stream, None)
                    self._settled.pop(stream, None)
                except (ServiceError, UnskewError) as why:
                    self._base.observer(Skipped(stream, "advice", str(why)))

    async def _timed(self, known: Known, numbers: Sequence[int]) -> list[Timed]:
        """What advice is made from, the earliest batch first. Reports still come to the last few batches; those before
        them are read once, so that who asks after each batch is answered from a few reads."""
        stream, life = known.record.name, known.record.incarnation
        had, settled = self._settled.find(stream) or (life, {})
        kept = settled if had == life else {}
        asked = [number for at, number in enumerate(numbers) if at < _MAY_CHANGE or number not in kept]
        read = await self._batches.parts(stream, WORK, asked)
        found = await self._base.run(lambda: {number: timed_of(parts) for number, parts in read})
        every = {number: found.get(number, kept.get(number)) for number in sorted(numbers)}
        timed = {number: batch for number, batch in every.items() if batch is not None}
        self._settled.put(stream, (life, timed))
        return list(timed.values())


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


def _numbers(scale: Scale | None) -> tuple[object, ...]:
    return () if scale is None else (scale.map_tasks, scale.reduce_tasks, scale.action, scale.zone)


@dataclass(frozen=True)
class Timed:
    """Of a batch, what advice is made from: its reduce tasks, what it took (None: it did not say), when it came."""

    tasks: int
    stats: BatchStats | None
    came: float = 0.0


def timed_of(parts: Sequence[StoredPart]) -> Timed:
    batch = whole(parts)
    tasks = 1 + max((work.partition for work in batch.work), default=-1)
    return Timed(tasks, stats_of(batch), max((came_of(part.data) for part in parts), default=0.0))


def scale_of(batches: Sequence[Timed], partitions: int, map_tasks: int) -> Scale:
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
            scaler.state = replace(scaler.state, r=had)
        decision = scaler.handle(batch.stats)
    if decision is None:
        return Scale(map_tasks, partitions, "hold", 0, "no batch has reported how long it took yet")
    return Scale(decision.p if map_tasks else 0, decision.r, decision.action, decision.zone, decision.reason)
