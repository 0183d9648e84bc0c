"""What jobs report of their batches, and what follows from it for plans: the histogram to plan from, feedback.
The advice on parallelism is made of the same reports in ``advice``.

A report is kept under (source, batch, run, part): the same again changes nothing, and the highest run counts. A
histogram remembers the key types of its time, because hashes of other types are other hashes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from unskew.core.errors import ConfigError, HistogramError
from unskew.core.grouping.signals import Signal, SignalRules, sense
from unskew.core.histogram.histogram import MAX_ROWS, Histogram
from unskew.core.histogram.history import History
from unskew.core.limits import MAX_PARTITIONS
from unskew.core.planners import Feedback
from unskew.core.scaling.values import BatchStats
from unskew.core.stream_spec import UNKNOWN_PARTS, BatchWork, Part, Work
from unskew.service.engine.base import Base
from unskew.service.engine.streams import CachedStream, Streams
from unskew.service.errors import ConflictError
from unskew.service.events.events import WorkSeen
from unskew.service.stores.records import PartKey, PartOutcome, StoredPart
from unskew.wire.histograms import histogram_from_bytes, histogram_to_bytes
from unskew.wire.streams import work_from_bytes, work_to_bytes

__all__ = ["HISTOGRAM", "WORK", "Batches", "Evidence", "expected", "feedback_of", "whole"]

HISTOGRAM, WORK = "histogram", "work"
_SMALL = 4096  # keys that are packed on the loop
_AT_ONCE = 8
_AGES = 1e12  # seconds, and times what a partition can do: beyond that one is as busy as another
_COUNTS = ("rows", "keys", "fragments")


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a plan is made from, in words too. No histogram: nothing was reported."""

    histogram: Histogram | None
    source: str


class Batches:
    def __init__(self, base: Base, streams: Streams) -> None:
        self._base, self._streams = base, streams

    # -- verbs

    async def report_histogram(self, stream: str, part: Part, histogram: Histogram) -> bool:
        known = await self._streams.get(stream)
        types = known.spec.key_types
        if len(histogram.hashes) <= _SMALL:
            data = _pack(histogram, types)
        else:
            data = await self._base.heavy(_pack, histogram, types)
        outcome = await self._base.store.put_part(stream, _key(HISTOGRAM, part), data)
        return outcome is not PartOutcome.STORED

    async def report_work(self, stream: str, part: Part, batch: BatchWork) -> bool:
        await self._streams.get(stream)
        _check_work(batch)
        data = work_to_bytes(batch, self._base.clock())
        outcome = await self._base.store.put_part(stream, _key(WORK, part), data)
        return outcome is not PartOutcome.STORED

    # -- for plans

    async def evidence(self, known: CachedStream, batch: int | None, *, fresh: bool) -> Evidence:
        """What was reported for this batch (``fresh``; None: the last one), or for the batches before it."""
        try:
            return await self._evidence(known, batch, fresh=fresh)
        except HistogramError as why:  # each report by itself was right
            raise ConflictError(
                f"batch: what was reported for {_asked(batch, fresh=fresh)} is no histogram together: {why}; report "
                "what is wrong again, under a higher run",
                field="batch",
            ) from None

    async def _evidence(self, known: CachedStream, batch: int | None, *, fresh: bool) -> Evidence:
        stream, spec = known.record.name, known.spec
        if fresh and batch is not None:
            numbers: Sequence[int] = (batch,)
        else:
            numbers = await self._base.store.batches(stream, HISTOGRAM, batch, 1 if fresh else spec.history)
        history = History(spec.history if spec.decay else 1, spec.decay or 1.0)
        told: list[str] = []
        for number, parts in await self.parts(stream, HISTOGRAM, numbers):
            found = await self._base.heavy(_merged, parts, spec.key_types)
            if found is not None:
                history = history.add(found)
                told.append(_named(number, parts))
        if not told:
            return Evidence(None, f"no histogram of {_asked(batch, fresh=fresh)} was reported for keys of these types")
        histogram = await self._base.heavy(history.merged)
        return Evidence(
            histogram, f"from {told[0] if len(told) == 1 else f'{len(told)} batches, {told[0]} to {told[-1]}'}"
        )

    async def feedback(self, known: CachedStream, before: int | None) -> Feedback:
        """What the last batch that reported its work took."""
        stream = known.record.name
        numbers = await self._base.store.batches(stream, WORK, before, 1)
        for number, parts in await self.parts(stream, WORK, numbers):
            partitions = known.spec.partitions
            self._base.observer(WorkSeen(stream, number, await self._base.run(whole, parts), partitions))
            return await self._base.run(feedback_of, parts, partitions)
        return Feedback()

    async def parts(self, stream: str, kind: str, numbers: Sequence[int]) -> list[tuple[int, Sequence[StoredPart]]]:
        """The parts of these batches, the earliest batch first."""
        found: list[tuple[int, Sequence[StoredPart]]] = []
        ordered = sorted(numbers)
        for at in range(0, len(ordered), _AT_ONCE):
            some = ordered[at : at + _AT_ONCE]
            parts = await asyncio.gather(*(self._base.store.parts(stream, kind, number) for number in some))
            found.extend((number, of) for number, of in zip(some, parts, strict=True) if of)
        return found


def _key(kind: str, part: Part) -> PartKey:
    return PartKey(kind, part.source, part.batch, part.run, part.part, part.parts)


def _asked(batch: int | None, *, fresh: bool) -> str:
    if batch is None:
        return "the last batch" if fresh else "any batch"
    return f"batch {batch}" if fresh else f"the batches before {batch}"


def _named(number: int, parts: Sequence[StoredPart]) -> str:
    """The batch, and how much of it is there."""
    many = sum(expected(part.key for part in parts).values())
    return f"batch {number}" if len(parts) >= many else f"batch {number} ({len(parts)} of {many} parts)"


def expected(keys: Iterable[PartKey]) -> dict[str, int]:
    """How many parts each source has: as it says, or where it does not know as the highest one tells."""
    found: dict[str, int] = {}
    for key in keys:
        many = key.part + 1 if key.parts == UNKNOWN_PARTS else key.parts
        found[key.source] = max(found.get(key.source, 0), many)
    return found


# -- histograms as bytes, with the key types of their time --------------------------------------------------


def _pack(histogram: Histogram, key_types: tuple[str, ...]) -> bytes:
    return histogram_to_bytes(histogram, json.dumps(key_types).encode() + b"\n")


def _merged(parts: Sequence[StoredPart], key_types: tuple[str, ...]) -> Histogram | None:
    """All parts that count keys of these types, as one."""
    found = []
    for part in parts:
        types, _, data = part.data.partition(b"\n")
        if tuple(json.loads(types)) == key_types:
            found.append(histogram_from_bytes(data))
    return found[0].merge(*found[1:]) if len(found) > 1 else found[0] if found else None


# -- work ---------------------------------------------------------------------------------------------------


def _check_work(batch: BatchWork) -> None:
    """What the advice on parallelism could not be made from is refused here, not later."""
    for work in batch.work:
        if not 0 <= work.partition < MAX_PARTITIONS:
            raise ConfigError("partition", work.partition, f"0 to {MAX_PARTITIONS - 1}")
    if batch.processing and not batch.map_time + batch.reduce_time:
        raise ConfigError("map_seconds", batch.map_time, "the time of the map stage (and reduce_seconds) with it")
    if batch.interval:
        BatchStats(batch.interval, batch.processing, batch.map_time, batch.reduce_time, 0, 0)


def whole(parts: Sequence[StoredPart]) -> BatchWork:
    """A batch from its parts: work of a partition adds up, times are the batch's."""
    by_partition: dict[int, Work] = {}
    whole = BatchWork(())
    for part in parts:
        batch = work_from_bytes(part.data)
        for work in batch.work:
            had = by_partition.get(work.partition)
            by_partition[work.partition] = work if had is None else _plus(had, work)
        whole = BatchWork(
            (),
            max(whole.interval, batch.interval),
            max(whole.processing, batch.processing),
            max(whole.map_time, batch.map_time),
            max(whole.reduce_time, batch.reduce_time),
            max(filter(None, (whole.version, batch.version)), default=None),
        )
    return replace(whole, work=tuple(by_partition[partition] for partition in sorted(by_partition)))


def _plus(one: Work, other: Work) -> Work:
    return Work(
        one.partition,
        one.rows + other.rows,
        one.keys + other.keys,
        one.fragments + other.fragments,
        one.seconds + other.seconds,
        one.queue + other.queue,
        one.capacity + other.capacity,
    )


def feedback_of(parts: Sequence[StoredPart], partitions: int | None = None) -> Feedback:
    """What the partitions had and took, in their order; who is busy (the busiest first), idle, or neither, and how
    much they want. ``partitions``: how many there are; None: as many as have reported."""
    batch = whole(parts)
    if not batch.work or any(sum(getattr(work, name) for work in batch.work) > MAX_ROWS for name in _COUNTS):
        return Feedback()  # parts that are right one by one may be more together than there can be: nothing is learned
    timed = any(work.seconds for work in batch.work)
    signals = _signals(batch)
    return Feedback(
        loads=np.array([work.rows for work in batch.work], np.int64),
        seconds=np.array([min(work.seconds, _AGES) for work in batch.work]) if timed else None,
        keys=np.array([work.keys for work in batch.work], np.int64),
        fragments=np.array([work.fragments for work in batch.work], np.int64),
        busy=tuple(one.worker for one in sorted(signals, key=_hurry) if one.kind == "busy"),
        idle=tuple(one.worker for one in sorted(signals, key=_hurry) if one.kind == "idle"),
        fine=tuple(one.worker for one in signals if one.kind == "fine"),
        shares=_wanted(batch, signals, partitions or len(batch.work)),
    )


def _signals(batch: BatchWork) -> list[Signal]:
    """CG's signals (``core.grouping.signals``). A partition's utilisation is its time, and that of what waits for it,
    over the interval; where that is not known, over what all have on average, taken for as much as is wanted."""
    rules = SignalRules()
    waits = [work.queue / work.capacity if work.capacity else 0.0 for work in batch.work]
    spent = [min(work.seconds + wait, _AGES) for work, wait in zip(batch.work, waits, strict=True)]
    whole = batch.interval or sum(spent) / len(spent) / rules.target
    if not whole:
        return []
    told = [(work.partition, min(took / whole, _AGES)) for work, took in zip(batch.work, spent, strict=True)]
    return [sense(rules, partition, utilisation, 0.0) for partition, utilisation in told]


def _hurry(signal: Signal) -> tuple[float, int]:
    """Who is busiest, or idlest, comes first."""
    return -signal.share, signal.worker


def _wanted(batch: BatchWork, signals: Sequence[Signal], partitions: int) -> dict[int, float]:
    """The share of the rows that a busy or idle partition would have: what it had, less or more by what it signals. Of
    partitions that have not reported it is assumed that they had as much as the others."""
    rows = {work.partition: work.rows for work in batch.work}
    whole = sum(rows.values()) * max(partitions / len(rows), 1.0)
    sign = {"busy": -1.0, "idle": 1.0}
    return {
        one.worker: rows[one.worker] / whole * (1.0 + sign[one.kind] * one.share)
        for one in signals
        if one.kind in sign and rows[one.worker]
    }
