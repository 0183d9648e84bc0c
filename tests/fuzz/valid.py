"""Requests that the service takes, and what becomes of them when something goes wrong on the way.

Made by a ``Random`` and not drawn piece by piece: it is ten times as fast, and the deep code needs many. The streams
have few partitions and agents report often, so that reports fit the stream and rounds end at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.fuzz.messages import STREAMS, TEXTS
from unskew.core.planners import PLANNERS
from unskew.v1 import partitioner_pb2 as pb

__all__ = ["WAIT", "a_request", "a_spec", "broken_bytes", "broken_message", "requests_of"]

WAIT = 0.02  # seconds that a sync waits at most: a hang is to be seen, not waited for
_WORKERS = (1, 2, 3, 4, 9)
_WORKERS_OF = dict(zip(STREAMS, (*_WORKERS, 300), strict=True))  # reports are for the partitions that a stream has
_EDGES = (0, 1, 2, 8192, 8193, 2**31, 2**32 - 1, 2**42, 2**48, 2**62, 2**63 - 1)
_NUMBERS = (0.0, -0.0, 1e-300, 5e-324, 1e300, 1.7e308, math.inf, -math.inf, math.nan, -1.0, 0.5)


def a_spec(random: Random, workers: int | None = None) -> pb.StreamSpec:
    spec = pb.StreamSpec(
        partitions=workers or random.choice(_WORKERS),
        policy=random.choice(["", *PLANNERS]),
        seed=random.getrandbits(64),
        history=random.randrange(4),
        key_types=random.choice([[], [], ["bigint"], ["string", "int"]]),
        dsync_seconds=0.02,
        dsync_min_seconds=0.01,
        dsync_max_seconds=random.choice([0.05, 5.0, 1e9]),
    )
    if random.random() < 0.3:
        spec.weights.extend(random.uniform(0.1, 3.0) for _ in range(spec.partitions))
    if random.random() < 0.3:
        spec.decay = random.choice([0.0, 0.5, 1.0])
    return spec


def _part(random: Random) -> pb.Part:
    parts = random.choice((1, 2, 3))
    return pb.Part(
        source=random.choice(("app/query", "app:2")),
        batch=random.randrange(6),
        run=random.randrange(3),
        part=random.randrange(parts),
        parts=parts,
    )


def _keys(random: Random, most: int) -> list[int]:
    """Hashes in ascending order, some of which come again and again."""
    return sorted(
        {random.choice((random.randrange(9), random.getrandbits(64))) for _ in range(random.randint(0, most))}
    )


def _packed(numbers: list[int]) -> bytes:
    return np.array(numbers, np.uint64).astype("<u8").tobytes()


def _rows(random: Random) -> int:
    return random.choice((1, 5, 100, 100_000, random.choice((1, 2**40, 2**61, 2**62))))


def _fill(random: Random, message: pb.Histogram | pb.ReportHistogramRequest) -> None:
    keys = _keys(random, 40)
    message.hashes, message.counts = _packed(keys), _packed([_rows(random) for _ in keys])
    if random.random() < 0.2:
        message.spread = _packed([random.randrange(2000) for _ in keys])
    if random.random() < 0.3:
        hosts = 1 << random.randrange(5)
        tail = [random.randrange(1000) for _ in range(hosts)]
        message.tail_rows, message.tail_keys = _packed(tail), _packed([min(rows, 3) for rows in tail])


def _report_histogram(random: Random, stream: str) -> pb.ReportHistogramRequest:
    message = pb.ReportHistogramRequest(stream=stream, part=_part(random))
    _fill(random, message)
    return message


def _build_plan(random: Random, stream: str) -> pb.BuildPlanRequest:
    message = pb.BuildPlanRequest(stream=stream, fresh=random.random() < 0.5)
    if random.random() < 0.6:
        message.batch = random.choice((-1, 0, 1, 2, 3, 4, 5, 6, 2**62))
    if random.random() < 0.3:
        _fill(random, message.histogram)
    return message


def _table(random: Random, workers: int) -> pb.QTable:
    keys = _keys(random, 6)
    values = [random.choice((-2.0, 0.0, 1.0, random.uniform(-2, 1))) for _ in range(len(keys) * workers)]
    held = np.array([[random.random() < 0.5 for _ in range(workers)] for _ in keys], np.bool_).reshape(-1, workers)
    return pb.QTable(
        workers=workers,
        hashes=_packed(keys),
        values=np.array(values, "<f8").tobytes(),
        rows=_packed([random.choice((0, 1, 50, 2**38)) for _ in keys]),
        held=np.packbits(held, axis=1, bitorder="little").tobytes(),
    )


def _sync(random: Random, stream: str, workers: int) -> pb.SyncRequest:
    keys = _keys(random, 6)
    counts = [random.choice((1, 7, 300, 2**38)) for _ in keys]
    total = sum(counts) + (random.randrange(9) if len(keys) < 6 else 0)
    report = pb.SyncReport(
        agent=random.choice(("a1", "a2", "a3")),
        session=random.choice((1, 1, 1, 2, 2**63)),
        seq=random.randint(1, 40),
        table=_table(random, workers),
        records=total,
        frequent=pb.FrequentItems(
            capacity=random.choice((6, 8, 100)), hashes=_packed(keys), counts=_packed(counts), total=total
        ),
        loads=_packed([random.randrange(1000) for _ in range(workers)]),
        dsync_seconds=random.choice((0.02, 0.05, 1.0)),
        longer=random.random() < 0.3,
        guest=random.random() < 0.2,
    )
    wait = random.choice((0.0, 0.0, WAIT))
    incarnation = random.choice((0, 0, 1, 2**50, 2**64 - 1))
    return pb.SyncRequest(stream=stream, report=report, wait_seconds=wait, incarnation=incarnation)


def _report_batch(random: Random, stream: str, workers: int) -> pb.ReportBatchRequest:
    message = pb.ReportBatchRequest(stream=stream, part=_part(random))
    for partition in range(workers):
        message.partitions.add(
            partition=partition,
            rows=random.choice((random.randrange(5000), 2**62 // workers, 2**63 // workers - 1)),
            keys=random.randrange(500),
            fragments=random.randrange(500),
            seconds=random.choice((0.0, 0.2, 5.0, 1e-300, 1e300)),
            queue=random.choice((0, 10, 2**60 // workers)),
            capacity=random.choice((0.0, 100.0, 5e-324)),
        )
    if random.random() < 0.8:
        message.map_seconds, message.reduce_seconds = (random.choice((0.1, 1.0, 1e-9, 1e9, 1e308)) for _ in range(2))
        message.processing_seconds = message.map_seconds + random.choice((0.1, 1.0))
        message.interval_seconds = random.choice((0.01, 1.0, 1e-300, 1e300))
    return message


def requests_of(random: Random, stream: str, workers: int) -> Iterator[tuple[str, Message]]:
    """Endlessly: what a job does with its stream, in an order that makes sense now and then."""
    while True:
        yield a_request(random, random.choice(_USUAL), stream, workers)


def a_request(random: Random, verb: str, stream: str = "", workers: int = 0) -> tuple[str, Message]:
    stream = stream or random.choice(STREAMS)
    workers = workers or (_WORKERS_OF[stream] if random.random() < 0.95 else random.choice(_WORKERS))
    version = pb.GetPlanRequest().version.__class__(incarnation=random.choice((0, 1, 2**63)), number=1)
    some = version if random.random() < 0.2 else None
    make: dict[str, Callable[[], Message]] = {
        "PutStream": lambda: pb.PutStreamRequest(stream=stream, spec=a_spec(random, workers)),
        "GetStream": lambda: pb.GetStreamRequest(stream=stream),
        "ListStreams": lambda: pb.ListStreamsRequest(limit=random.choice((0, 1, 1000)), after=random.choice(TEXTS[:9])),
        "DeleteStream": lambda: pb.DeleteStreamRequest(stream=stream),
        "ReportHistogram": lambda: _report_histogram(random, stream),
        "BuildPlan": lambda: _build_plan(random, stream),
        "GetPlan": lambda: pb.GetPlanRequest(stream=stream, version=some),
        "WatchPlans": lambda: pb.WatchPlansRequest(stream=stream),
        "Sync": lambda: _sync(random, stream, workers),
        "ReportBatch": lambda: _report_batch(random, stream, workers),
        "GetScale": lambda: pb.GetScaleRequest(stream=stream),
        "Explain": lambda: pb.ExplainRequest(stream=stream, hash=random.randrange(9), version=some),
    }
    return verb, make[verb]()


_USUAL = ("ReportHistogram",) * 4 + ("BuildPlan",) * 4 + ("Sync",) * 6 + ("ReportBatch",) * 3 + (
    "GetScale", "GetScale", "Explain", "GetPlan", "GetStream", "ListStreams", "PutStream",
)  # fmt: skip


# -- what goes wrong ------------------------------------------------------------------------------------------


def broken_message(random: Random, message: Message) -> None:
    """One field somewhere in it, set to something that its type can say."""
    field = random.choice(message.DESCRIPTOR.fields)
    if field.message_type is not None and field.message_type.full_name == "google.protobuf.Struct":
        getattr(message, field.name).update({random.choice(TEXTS): random.choice((1.0, "x", None, [1.0]))})
    elif field.is_repeated:
        values = getattr(message, field.name)
        if field.message_type is not None:
            broken_message(random, random.choice(values) if values and random.random() < 0.8 else values.add())
        elif len(values) and random.random() < 0.5:
            values[random.randrange(len(values))] = _odd(random, field)
        else:
            values.extend(_odd(random, field) for _ in range(random.choice((1, 2, 200))))
    elif field.message_type is not None:
        if random.random() < 0.15:
            message.ClearField(field.name)
        else:
            broken_message(random, getattr(message, field.name))
    elif field.type == FieldDescriptor.TYPE_BYTES:
        setattr(message, field.name, broken_bytes(random, getattr(message, field.name)))
    elif field.name != "wait_seconds":
        setattr(message, field.name, _odd(random, field))


def _odd(random: Random, field: FieldDescriptor) -> float | str | bool:
    kind = field.type
    if kind in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
        return random.choice(_NUMBERS)
    if kind == FieldDescriptor.TYPE_STRING:
        return random.choice((*TEXTS, *STREAMS, *(f"nobody-{random.getrandbits(40):x}" for _ in range(6))))
    if kind == FieldDescriptor.TYPE_BOOL:
        return random.random() < 0.5
    if kind == FieldDescriptor.TYPE_UINT32:
        return random.choice(_EDGES[:7])
    if kind in (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64):
        return random.choice((*_EDGES, 2**63, 2**64 - 1))
    return random.choice((*_EDGES, -1, -2, -(2**63)))


def broken_bytes(random: Random, data: bytes) -> bytes:
    """Cut off, flipped, repeated, longer, or with a piece of something else in it."""
    kind, at = random.randrange(6), random.randint(0, len(data))
    if kind == 0:
        return data[:at]
    if kind == 1 and data:
        flipped = bytearray(data)
        for _ in range(random.randint(1, 3)):
            flipped[random.randrange(len(data))] ^= 1 << random.randrange(8)
        return bytes(flipped)
    if kind == 2:
        return data + data
    if kind == 3:
        return data[:at] + random.randbytes(random.randint(1, 9)) + data[at:]
    if kind == 4:
        return data + random.choice((b"\xff" * 8, b"\0" * 8, b"\0" * 7, b"\xff" * 800))
    return data[:at] + data[min(len(data), at + random.randint(1, 9)) :]
