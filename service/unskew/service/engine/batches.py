"""What jobs report of their batches, and what plans are made from: the histogram, and feedback on the last plan. The
advice on parallelism is made from the same reports in ``scaling_advice``.

A report is kept under (source, batch, run, part): repeating it changes nothing, and the highest run counts. A histogram
is stored with its key types, because values of other types have other hashes.
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
from unskew.core.quality.cost_fit import COST_BATCHES, TaskTimes
from unskew.core.scaling.values import BatchStats
from unskew.core.stream_spec import UNKNOWN_PARTS, BatchWork, Part, Work
from unskew.service.engine.base import Base
from unskew.service.engine.streams import CachedStream, Streams
from unskew.service.engine.way_advice import Batch
from unskew.service.errors import ConflictError
from unskew.service.events.events import WorkSeen
from unskew.service.stores.records import PartKey, PartOutcome, StoredPart
from unskew.wire.histograms import histogram_from_bytes, histogram_to_bytes
from unskew.wire.streams import work_from_bytes, work_to_bytes

__all__ = ["HISTOGRAM", "WORK", "Batches", "Evidence", "expected", "feedback_of", "whole"]

HISTOGRAM, WORK = "histogram", "work"
_SMALL = 4096  # keys up to which a histogram is encoded on the loop
_AT_ONCE = 8
_KEY_BYTES = 16  # a listed key, its hash and its count
_AGES = 1e12  # seconds, and multiples of a partition's capacity: larger values are all the same
_COUNTS = ("rows", "keys", "fragments")


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a plan is made from, and a text that says so. No histogram: nothing was reported. ``batches``: those before
    the one that is planned for, by number, the earliest first; None where it was counted itself."""

    histogram: Histogram | None
    source: str
    batches: Sequence[Batch] | None = None

    @property
    def keys(self) -> int:
        """Of all histograms that are planned from: a measure of the time that it takes."""
        own = 0 if self.histogram is None else len(self.histogram.hashes)
        return own + sum(len(one.hashes) for _, one in self.batches or ())


class Batches:
    def __init__(self, base: Base, streams: Streams) -> None:
        self._base, self._streams = base, streams

    # -- verbs

    async def report_histogram(self, stream: str, part: Part, histogram: Histogram) -> bool:
        types = (await self._streams.get(stream)).spec.key_types
        if len(histogram.hashes) <= _SMALL:
            data = _pack(histogram, types)
        else:
            data = await self._base.heavy(len(histogram.hashes), _pack, histogram, types)
        outcome = await self._base.store.put_part(stream, _key(HISTOGRAM, part), data)
        return outcome is not PartOutcome.STORED

    async def report_work(self, stream: str, part: Part, batch: BatchWork) -> bool:
        await self._streams.get(stream)
        _check_work(batch)
        data = work_to_bytes(batch, self._base.clock())
        outcome = await self._base.store.put_part(stream, _key(WORK, part), data)
        return outcome is not PartOutcome.STORED

    # -- for plans

    async def evidence(self, cached: CachedStream, batch: int | None, *, fresh: bool) -> Evidence:
        """What was reported for this batch (``fresh``; None: the last one), else for those before it."""
        try:
            return await self._evidence(cached, batch, fresh=fresh)
        except HistogramError as why:  # each report by itself was valid
            raise ConflictError(
                f"batch: what was reported for {_batches_of(batch, fresh=fresh)} is no histogram together: {why}; "
                "report what is wrong again, under a higher run",
                field="batch",
            ) from None

    async def _evidence(self, cached: CachedStream, batch: int | None, *, fresh: bool) -> Evidence:
        stream, spec = cached.record.name, cached.spec
        if fresh and batch is not None:
            numbers: Sequence[int] = (batch,)
        else:
            numbers = await self._base.store.batches(stream, HISTOGRAM, batch, 1 if fresh else spec.history)
        history = History(spec.history if spec.decay else 1, spec.decay or 1.0)
        names: list[str] = []
        batches: list[Batch] = []
        for number, parts in await self.parts(stream, HISTOGRAM, numbers):
            merged = await self._base.heavy(_keys_of(parts), _merged, parts, spec.key_types)
            if merged is not None:
                history = history.add(merged)
                names.append(_batch_name(number, parts))
                batches.append((number, merged))
        if not names:
            why = f"no histogram of {_batches_of(batch, fresh=fresh)} was reported for keys of these types"
            return Evidence(None, why, None if fresh else ())
        source = names[0] if len(names) == 1 else f"{len(names)} batches, {names[0]} to {names[-1]}"
        merged = await self._base.heavy(sum(len(one.hashes) for _, one in batches), history.merged)
        return Evidence(merged, f"from {source}", None if fresh else batches)

    async def feedback(self, cached: CachedStream, before: int | None) -> Feedback:
        """The work of the last batch that was reported, and task times of as many as costs are fitted from."""
        stream, partitions = cached.record.name, cached.spec.partitions
        numbers = await self._base.store.batches(stream, WORK, before, COST_BATCHES)
        batches = await self.parts(stream, WORK, numbers)
        if not batches:
            return Feedback()
        reported = [await self._base.run(whole, parts) for _, parts in batches]
        self._base.observer(WorkSeen(stream, batches[-1][0], reported[-1], partitions))
        return await self._base.run(feedback_of, reported, partitions)

    async def parts(self, stream: str, kind: str, numbers: Sequence[int]) -> list[tuple[int, Sequence[StoredPart]]]:
        """The parts of these batches, the earliest batch first."""
        batches: list[tuple[int, Sequence[StoredPart]]] = []
        ordered = sorted(numbers)
        for at in range(0, len(ordered), _AT_ONCE):
            group = ordered[at : at + _AT_ONCE]
            parts = await asyncio.gather(*(self._base.store.parts(stream, kind, number) for number in group))
            batches.extend((number, of_batch) for number, of_batch in zip(group, parts, strict=True) if of_batch)
        return batches


def _key(kind: str, part: Part) -> PartKey:
    return PartKey(kind, part.source, part.batch, part.run, part.part, part.parts)


def _batches_of(batch: int | None, *, fresh: bool) -> str:
    if batch is None:
        return "the last batch" if fresh else "any batch"
    return f"batch {batch}" if fresh else f"the batches before {batch}"


def _batch_name(number: int, parts: Sequence[StoredPart]) -> str:
    """The batch, and how many of its parts have come."""
    many = sum(expected(part.key for part in parts).values())
    return f"batch {number}" if len(parts) >= many else f"batch {number} ({len(parts)} of {many} parts)"


def expected(keys: Iterable[PartKey]) -> dict[str, int]:
    """How many parts each source has: as it says, or where it does not know, by the highest number of a part."""
    counts: dict[str, int] = {}
    for key in keys:
        many = key.part + 1 if key.parts == UNKNOWN_PARTS else key.parts
        counts[key.source] = max(counts.get(key.source, 0), many)
    return counts


# -- histograms as bytes, with their key types --------------------------------------------------


def _pack(histogram: Histogram, key_types: tuple[str, ...]) -> bytes:
    return histogram_to_bytes(histogram, json.dumps(key_types).encode() + b"\n")


def _keys_of(parts: Sequence[StoredPart]) -> int:
    """At most: by their bytes."""
    return sum(len(part.data) for part in parts) // _KEY_BYTES


def _merged(parts: Sequence[StoredPart], key_types: tuple[str, ...]) -> Histogram | None:
    """All parts that count keys of these types, as one."""
    histograms = []
    for part in parts:
        types, _, data = part.data.partition(b"\n")
        if tuple(json.loads(types)) == key_types:
            histograms.append(histogram_from_bytes(data))
    if len(histograms) > 1:
        return histograms[0].merge(*histograms[1:])
    return histograms[0] if histograms else None


# -- work ---------------------------------------------------------------------------------------------------


def _check_work(batch: BatchWork) -> None:
    """Refuse what the advice on parallelism cannot be made from now, and not when it is read."""
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
            earlier = by_partition.get(work.partition)
            by_partition[work.partition] = work if earlier is None else _plus(earlier, work)
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


def feedback_of(batches: Sequence[BatchWork], partitions: int | None = None) -> Feedback:
    """Task times of these batches; of the last one which partitions are busy (the busiest first), idle, or neither, and
    the share that each of them should have. ``partitions``: how many there are; None: as many as have reported."""
    batch, times = batches[-1], tuple(times for times in map(_times_of, batches) if times is not None)
    if not _countable(batch):
        return Feedback(times=times)
    signals = _signals(batch)
    return Feedback(
        times=times,
        busy=tuple(one.worker for one in sorted(signals, key=_by_urgency) if one.kind == "busy"),
        idle=tuple(one.worker for one in sorted(signals, key=_by_urgency) if one.kind == "idle"),
        fine=tuple(one.worker for one in signals if one.kind == "fine"),
        shares=_wanted_shares(batch, signals, partitions or len(batch.work)),
    )


def _countable(batch: BatchWork) -> bool:
    """Whether it has work that can be added up: parts that are valid one by one may be more than a batch can be."""
    return bool(batch.work) and all(sum(getattr(work, name) for work in batch.work) <= MAX_ROWS for name in _COUNTS)


def _times_of(batch: BatchWork) -> TaskTimes | None:
    """Rows, keys and seconds of the partitions that were timed; None where none was."""
    timed = [work for work in batch.work if work.seconds] if _countable(batch) else []
    columns = zip(*((work.rows, work.keys, min(work.seconds, _AGES)) for work in timed), strict=True)
    return TaskTimes(*(np.array(column, np.float64) for column in columns)) if timed else None


def _signals(batch: BatchWork) -> list[Signal]:
    """CG's signals (``core.grouping.signals``). A partition's utilisation is its time, and that of its queue, over the
    interval; where that is unknown the average of all partitions is taken for the target utilisation."""
    rules = SignalRules()
    waits = [work.queue / work.capacity if work.capacity else 0.0 for work in batch.work]
    spent = [min(work.seconds + wait, _AGES) for work, wait in zip(batch.work, waits, strict=True)]
    whole = batch.interval or sum(spent) / len(spent) / rules.target
    if not whole:
        return []
    return [
        sense(rules, work.partition, min(took / whole, _AGES), 0.0)
        for work, took in zip(batch.work, spent, strict=True)
    ]


def _by_urgency(signal: Signal) -> tuple[float, int]:
    """The busiest, or the most idle, comes first."""
    return -signal.share, signal.worker


def _wanted_shares(batch: BatchWork, signals: Sequence[Signal], partitions: int) -> dict[int, float]:
    """The share of the rows that a busy or idle partition should have: what it had, less or more by its signal.
    Partitions that have not reported are taken to have had as much as the others."""
    rows = {work.partition: work.rows for work in batch.work}
    whole = sum(rows.values()) * max(partitions / len(rows), 1.0)
    sign = {"busy": -1.0, "idle": 1.0}
    return {
        one.worker: rows[one.worker] / whole * (1.0 + sign[one.kind] * one.share)
        for one in signals
        if one.kind in sign and rows[one.worker]
    }
