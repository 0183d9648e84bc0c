"""What the bytes of a part mean, for the engine: stores never look into them. A histogram is kept with its key types,
because values of other types have other hashes; work with when it was reported."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from unskew.core.histogram.histogram import Histogram
from unskew.core.stream_spec import BatchWork, Work
from unskew.service.stores.records import StoredPart
from unskew.wire.histograms import histogram_from_bytes, histogram_to_bytes
from unskew.wire.streams import reported_at, work_from_bytes, work_to_bytes

__all__ = ["HISTOGRAM", "WORK", "empty_part", "histogram_of", "keys_in", "merged_part", "pack", "types_of", "whole"]

HISTOGRAM, WORK = "histogram", "work"
_KEY_BYTES = 16  # a listed key: its hash and its count


def pack(histogram: Histogram, key_types: tuple[str, ...]) -> bytes:
    return histogram_to_bytes(histogram, json.dumps(key_types).encode() + b"\n")


def types_of(part: StoredPart) -> bytes:
    """What must be alike in parts that are added up: the key types of a histogram, in JSON."""
    return part.data[: part.data.index(b"\n")] if part.key.kind == HISTOGRAM else b""


def empty_part(part: StoredPart) -> bytes:
    """A part of no rows in its place."""
    if part.key.kind == HISTOGRAM:
        return types_of(part) + b"\n"
    return work_to_bytes(BatchWork(()), reported_at(part.data))


def merged_part(parts: Sequence[StoredPart]) -> bytes:
    """All of these as one; of histograms their types are alike."""
    if parts[0].key.kind == HISTOGRAM:
        histograms = [histogram_of(part) for part in parts]
        return histogram_to_bytes(histograms[0].merge(*histograms[1:]), types_of(parts[0]) + b"\n")
    return work_to_bytes(whole(parts), max(reported_at(part.data) for part in parts))


def histogram_of(part: StoredPart) -> Histogram:
    return histogram_from_bytes(part.data[part.data.index(b"\n") + 1 :])


def keys_in(parts: Sequence[StoredPart]) -> int:
    """How many keys these histograms list, at most: by their bytes."""
    return sum(len(part.data) for part in parts) // _KEY_BYTES


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
