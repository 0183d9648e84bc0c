"""What the bytes of a part mean, for the engine: stores never look into them. A histogram is kept with its key types,
because values of other types have other hashes; work with when it was reported. A part that cannot be read, because the
store cut it or another release wrote it, is told in the log and left out: plans are made from the others."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace

from unskew.core.errors import UnskewError
from unskew.core.histogram.histogram import Histogram
from unskew.core.stream_spec import BatchWork, Work
from unskew.service.stores.records import StoredPart
from unskew.wire.histograms import histogram_from_bytes, histogram_to_bytes
from unskew.wire.streams import reported_at, work_from_bytes, work_to_bytes

__all__ = [
    "HISTOGRAM", "WORK", "came_at", "empty_part", "histogram_of", "key_types_of", "keys_in", "merged_part", "pack",
    "types_of", "whole",
]  # fmt: skip

HISTOGRAM, WORK = "histogram", "work"
_log = logging.getLogger("unskew.service")
_KEY_BYTES = 16  # a listed key: its hash and its count


def pack(histogram: Histogram, key_types: tuple[str, ...]) -> bytes:
    return histogram_to_bytes(histogram, json.dumps(key_types).encode() + b"\n")


def types_of(part: StoredPart) -> bytes:
    """What must be alike in parts that are added up: the key types of a histogram, in JSON."""
    return part.data.partition(b"\n")[0] if part.key.kind == HISTOGRAM else b""


def key_types_of(part: StoredPart) -> tuple[str, ...] | None:
    """Of the keys that this histogram counts; None where it cannot be read."""
    try:
        return tuple(json.loads(types_of(part)))
    except (ValueError, TypeError):
        _left_out(part, "its key types are gone")
        return None


def empty_part(part: StoredPart) -> bytes:
    """A part of no rows in its place."""
    if part.key.kind == HISTOGRAM:
        return types_of(part) + b"\n"
    return work_to_bytes(BatchWork(()), reported_at(part.data))


def merged_part(parts: Sequence[StoredPart]) -> bytes:
    """All of these as one; of histograms their types are alike. An error where one cannot be read."""
    if parts[0].key.kind == HISTOGRAM:
        histograms = [_histogram(part) for part in parts]
        return histogram_to_bytes(histograms[0].merge(*histograms[1:]), types_of(parts[0]) + b"\n")
    came = max(reported_at(part.data) for part in parts)
    return work_to_bytes(whole(parts), came)


def histogram_of(part: StoredPart) -> Histogram | None:
    """None where it cannot be read."""
    try:
        return _histogram(part)
    except UnskewError as why:
        _left_out(part, why)
        return None


def _histogram(part: StoredPart) -> Histogram:
    return histogram_from_bytes(part.data.partition(b"\n")[2])


def came_at(part: StoredPart) -> float:
    """When this work was reported; 0.0 where that cannot be read."""
    try:
        return reported_at(part.data)
    except UnskewError:
        return 0.0


def _left_out(part: StoredPart, why: object) -> None:
    key = part.key
    _log.warning("a part of batch %d cannot be read and is left out: %s", key.batch, why, extra={"source": key.source})


def keys_in(parts: Sequence[StoredPart]) -> int:
    """How many keys these histograms list, at most: by their bytes."""
    return sum(len(part.data) for part in parts) // _KEY_BYTES


def whole(parts: Sequence[StoredPart]) -> BatchWork:
    """A batch from its parts: work of a partition adds up, times are the batch's."""
    by_partition: dict[int, Work] = {}
    whole = BatchWork(())
    for part in parts:
        try:
            batch = work_from_bytes(part.data)
        except UnskewError as why:
            _left_out(part, why)
            continue
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
