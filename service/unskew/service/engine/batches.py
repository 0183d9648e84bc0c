"""What jobs report of their batches, and what plans are made from: the histogram, and feedback on the last plan. The
advice on parallelism is made from the same reports in ``scaling_advice``.

A report is kept under (source, batch, run, part): repeating it changes nothing, and the highest run counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from unskew.core.errors import ConfigError, HistogramError
from unskew.core.grouping.signals import Signal, SignalRules, sense
from unskew.core.histogram.histogram import MAX_ROWS, Histogram
from unskew.core.histogram.history import History
from unskew.core.limits import MAX_PARTITIONS
from unskew.core.planners import Feedback
from unskew.core.quality.cost_fit import COST_BATCHES, TaskTimes
from unskew.core.scaling.values import BatchStats
from unskew.core.stream_spec import UNKNOWN_PARTS, BatchWork, Part
from unskew.service.engine.base import Base
from unskew.service.engine.part_merging import PartMerging
from unskew.service.engine.streams import CachedStream, Streams
from unskew.service.engine.way_advice import Batch
from unskew.service.errors import ConflictError, QuotaError
from unskew.service.events.events import WorkSeen
from unskew.service.stores.part_bytes import HISTOGRAM, WORK, histogram_of, key_types_of, keys_in, pack, whole
from unskew.service.stores.records import PartKey, PartOutcome, StoredPart
from unskew.wire.streams import work_to_bytes

__all__ = ["BatchChoice", "Batches", "Evidence", "expected", "feedback_of"]

_SMALL = 4096  # keys up to which a histogram is encoded on the loop
_AT_ONCE = 8
_MUCH = 8 << 20  # bytes beyond which batches are read one by one
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


@dataclass(frozen=True)
class BatchChoice:
    """The batches that a plan is made from, the earliest first, and how many bytes they have; ``of`` so many that were
    asked for."""

    batch: int | None
    fresh: bool
    numbers: tuple[int, ...]
    size: int
    of: int


class Batches:
    def __init__(self, base: Base, streams: Streams) -> None:
        self._base, self._streams, self._merging = base, streams, PartMerging(base)

    # -- verbs

    async def report_histogram(self, stream: str, part: Part, histogram: Histogram) -> bool:
        types = (await self._streams.get(stream)).spec.key_types
        if len(histogram.hashes) <= _SMALL:
            data = pack(histogram, types)
        else:
            data = await self._base.heavy(len(histogram.hashes), pack, histogram, types)
        outcome = await self._merging.put(stream, _key(HISTOGRAM, part), data)
        return outcome is not PartOutcome.STORED

    async def report_work(self, stream: str, part: Part, batch: BatchWork) -> bool:
        await self._streams.get(stream)
        _check_work(batch)
        data = work_to_bytes(batch, self._base.clock())
        outcome = await self._merging.put(stream, _key(WORK, part), data)
        return outcome is not PartOutcome.STORED

    # -- for plans

    async def wanted(self, cached: CachedStream, batch: int | None, *, fresh: bool) -> BatchChoice:
        """Which batches to plan from: this one (``fresh``; None: the last one), else those before it. The earliest are
        left out where all are too much for one plan; a ``QuotaError`` where the last one is by itself."""
        stream, most = cached.record.name, self._base.tuning.plan_bytes
        sizes = await self._base.store.batch_sizes(stream, HISTOGRAM)
        if fresh and batch is not None:
            numbers = [batch] if batch in sizes else []
        else:
            numbers = sorted((number for number in sizes if batch is None or number < batch), reverse=True)
            numbers = numbers[: 1 if fresh else cached.spec.history]
        sums = list(accumulate(sizes[number] for number in numbers))
        fitting = sum(size <= most for size in sums)
        if numbers and not fitting:
            raise QuotaError(
                "plan bytes",
                f"batch: batch {numbers[0]} of stream {stream!r} has {sums[0]:,} bytes of histograms, and a plan is "
                f"made from {most:,} at most; list fewer keys one by one (the tail has the others), or have "
                "--max-plan-bytes raised",
                field="batch",
            )
        return BatchChoice(
            batch, fresh, tuple(sorted(numbers[:fitting])), sums[fitting - 1] if fitting else 0, len(numbers)
        )

    async def evidence(self, cached: CachedStream, wanted: BatchChoice) -> Evidence:
        """What was reported for these batches."""
        try:
            return await self._evidence(cached, wanted)
        except HistogramError as why:  # each report by itself was valid
            raise ConflictError(
                f"batch: what was reported for {_batches_of(wanted)} is no histogram together: {why}; "
                "report what is wrong again, under a higher run",
                field="batch",
            ) from None

    async def _evidence(self, cached: CachedStream, wanted: BatchChoice) -> Evidence:
        spec = cached.spec
        history = History(spec.history if spec.decay else 1, spec.decay or 1.0)
        names: list[str] = []
        batches: list[Batch] = []
        at_once = 1 if wanted.size > _MUCH else _AT_ONCE
        async for number, parts in self._each(cached.record.name, HISTOGRAM, wanted.numbers, at_once):
            merged = await self._base.heavy(keys_in(parts), _merged, parts, spec.key_types)
            if merged is not None:
                history = history.add(merged)
                names.append(_batch_name(number, parts))
                batches.append((number, merged))
        if not names:
            why = f"no histogram of {_batches_of(wanted)} was reported for keys of these types"
            return Evidence(None, why, None if wanted.fresh else ())
        source = names[0] if len(names) == 1 else f"{len(names)} batches, {names[0]} to {names[-1]}"
        if wanted.of > len(wanted.numbers):
            source += f" (with the {wanted.of - len(wanted.numbers)} before more than --max-plan-bytes)"
        merged = await self._base.heavy(sum(len(one.hashes) for _, one in batches), history.merged)
        return Evidence(merged, f"from {source}", None if wanted.fresh else batches)

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
        return [found async for found in self._each(stream, kind, sorted(numbers), _AT_ONCE)]

    async def _each(
        self, stream: str, kind: str, numbers: Sequence[int], at_once: int
    ) -> AsyncGenerator[tuple[int, Sequence[StoredPart]], None]:
        for at in range(0, len(numbers), at_once):
            group = numbers[at : at + at_once]
            parts = await asyncio.gather(*(self._base.store.parts(stream, kind, number) for number in group))
            for number, of_batch in zip(group, parts, strict=True):
                if of_batch:
                    yield number, of_batch


def _key(kind: str, part: Part) -> PartKey:
    return PartKey(kind, part.source, part.batch, part.run, part.part, part.parts)


def _batches_of(wanted: BatchChoice) -> str:
    if wanted.batch is None:
        return "the last batch" if wanted.fresh else "any batch"
    return f"batch {wanted.batch}" if wanted.fresh else f"the batches before {wanted.batch}"


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


def _merged(parts: Sequence[StoredPart], key_types: tuple[str, ...]) -> Histogram | None:
    """All parts that count keys of these types, as one."""
    counted = (histogram_of(part) for part in parts if key_types_of(part) == key_types)
    histograms = [histogram for histogram in counted if histogram is not None]
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
