"""What a reporter with a credential may claim: an honest report, and one thing in it that is not so."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tests.service.faces import report
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire import report_to_message
from unskew.wire.packed import pack_floats, pack_numbers

__all__ = ["LIES", "NEWS", "WORKERS", "sync_of"]

WORKERS = 8
_MOST = 2**64 - 1
NEWS = (
    "plan STREAM", "stream STREAM", "round STREAM 0 0", "round STREAM 1 0",
    "round STREAM 9999999999999999 9999999999999998", "round STREAM 5 9999999999999999",
    "round no-such-stream 1 1", "plan STREAM\n", "plan ../../etc", "round STREAM -1 -1", "stream STREAM db9",
    "", "\x00", "plan " + "x" * 10_000, "round STREAM 1e9 1e9", "missed STREAM", "plan STREAM 1",
)  # fmt: skip
"""What a replica that lies may publish, of the stream in capitals."""
Lie = Callable[[str, int], tuple[str, Any]]
"""The stream and a number that was not used yet in; the verb and the request out."""


def sync_of(stream: str, agent: str, seq: int, session: int = 1, wait: float = 0.0) -> pb.SyncRequest:
    honest = replace(report(WORKERS, agent), seq=seq, session=session)
    return pb.SyncRequest(stream=stream, report=report_to_message(honest), wait_seconds=wait)


def _sync(change: Callable[[Any], object]) -> Lie:
    def lie(stream: str, number: int) -> tuple[str, Any]:
        request = sync_of(stream, "liar", number)
        change(request.report)
        return "Sync", request

    return lie


def _set(name: str, value: object) -> Callable[[Any], object]:
    *path, last = name.split(".")

    def change(message: Any) -> None:
        for one in path:
            message = getattr(message, one)
        setattr(message, last, value)

    return change


def _histogram(**fields: object) -> Lie:
    def lie(stream: str, number: int) -> tuple[str, Any]:
        part = pb.Part(source="liar", batch=number, parts=1)
        honest = {"hashes": pack_numbers(np.array([1, 2], np.uint64)), "counts": pack_numbers(np.array([3, 4]))}
        return "ReportHistogram", iter([pb.ReportHistogramRequest(stream=stream, part=part, **(honest | fields))])

    return lie


def _part(**fields: int) -> Lie:
    def lie(stream: str, number: int) -> tuple[str, Any]:
        part = pb.Part(**({"source": "liar", "batch": number, "parts": 1} | fields))
        return "ReportBatch", pb.ReportBatchRequest(stream=stream, part=part)

    return lie


def _work(**fields: object) -> Lie:
    def lie(stream: str, number: int) -> tuple[str, Any]:
        work = pb.PartitionWork(**({"partition": 1, "rows": 10, "seconds": 1.0} | fields))
        part = pb.Part(source="liar", batch=number, parts=1)
        return "ReportBatch", pb.ReportBatchRequest(stream=stream, part=part, partitions=[work])

    return lie


def _floats(value: float) -> bytes:
    return pack_floats(np.full((2, WORKERS), value))


def _numbers(*values: int) -> bytes:
    return pack_numbers(np.array(values, np.uint64))


LIES: Mapping[str, Lie] = {
    "values of NaN": _sync(_set("table.values", _floats(math.nan))),
    "values of inf": _sync(_set("table.values", _floats(math.inf))),
    "values of 1e308": _sync(_set("table.values", _floats(1e308))),
    "rows of 2^63": _sync(_set("table.rows", _numbers(2**63, 2))),
    "rows below 0": _sync(_set("table.rows", np.array([-1, 2], np.int64).tobytes())),
    "rows whose sum wraps": _sync(_set("table.rows", _numbers(2**62, 2**62))),
    "loads of 2^63": _sync(_set("loads", _numbers(*[2**63] * WORKERS))),
    "too few loads": _sync(_set("loads", _numbers(1))),
    "records of 2^64 - 1": _sync(_set("records", _MOST)),
    "other records than its summary": _sync(_set("records", 11)),
    "a summary that counts more than there was": _sync(_set("frequent.counts", _numbers(100, 200))),
    "a summary of 2^63": _sync(_set("frequent.total", 2**63)),
    "a summary with an error of 2^63": _sync(_set("frequent.error", 2**63)),
    "a summary without room": _sync(_set("frequent.capacity", 0)),
    "a billion workers": _sync(_set("table.workers", 10**9)),
    "no worker": _sync(_set("table.workers", 0)),
    "another number of workers": _sync(_set("table.workers", 4)),
    "hashes that repeat": _sync(_set("table.hashes", _numbers(5, 5))),
    "half a hash": _sync(_set("table.hashes", b"\x01\x02\x03")),
    "DSYNC of NaN": _sync(_set("dsync_seconds", math.nan)),
    "DSYNC of -1": _sync(_set("dsync_seconds", -1.0)),
    "DSYNC of inf": _sync(_set("dsync_seconds", math.inf)),
    "no session": _sync(_set("session", 0)),
    "no seq": _sync(_set("seq", 0)),
    "a wait of NaN": lambda stream, number: ("Sync", sync_of(stream, "liar", number, wait=math.nan)),
    "a wait of a year": lambda stream, number: ("Sync", sync_of(stream, "liar", number, wait=3e7)),
    "a wait below 0": lambda stream, number: ("Sync", sync_of(stream, "liar", number, wait=-1.0)),
    "two million parts": _part(parts=2_000_000),
    "part 7 of 3": _part(part=7, parts=3),
    "batch 2^63 - 1": _part(batch=2**63 - 1),
    "batch -2": _part(batch=-2),
    "run 2^63 - 1": _part(run=2**63 - 1),
    "work of NaN seconds": _work(seconds=math.nan),
    "work of -1 seconds": _work(seconds=-1.0),
    "work of inf rows a second": _work(capacity=math.inf),
    "work of partition 2^31": _work(partition=2**31),
    "more counts than hashes": _histogram(counts=_numbers(1, 2, 3)),
    "counts of 2^63": _histogram(counts=_numbers(2**63, 2**63)),
    "counts below 0": _histogram(counts=np.array([-5, 4], np.int64).tobytes()),
    "counts whose sum wraps": _histogram(counts=_numbers(2**62, 2**62)),
    "a hash twice": _histogram(hashes=_numbers(1, 1)),
}
"""Each is refused by one error that names the field, and nothing is changed."""
