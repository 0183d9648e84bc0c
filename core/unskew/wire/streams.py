"""Streams, parts of batches, finished batches and versions as messages and back.

A number that is 0 or unset in ``StreamSpec`` means its default where the contract says so; core checks all other
values.
"""

from __future__ import annotations

import math

import numpy as np
from google.protobuf.struct_pb2 import NULL_VALUE, Struct, Value

from unskew.core.errors import ConfigError, UnskewError, WireError
from unskew.core.histogram.histogram import MAX_ROWS
from unskew.core.keys.types import parse
from unskew.core.limits import MAX_PARTITIONS
from unskew.core.plan.plan import Version
from unskew.core.stream_spec import BatchWork, Part, StreamSpec, Work
from unskew.v1 import partitioner_pb2 as pb
from unskew.v1 import plan_pb2
from unskew.v1.kept_pb2 import KeptBatch
from unskew.wire.refusals import encoder, parsed, refusal, serialized, shown, text

__all__ = [
    "ACTIONS", "OUTCOMES", "part_from_message", "part_to_message", "reported_at", "spec_from_bytes",
    "spec_from_message", "spec_to_bytes", "spec_to_message", "version_from_message", "version_to_message",
    "work_from_bytes", "work_from_message", "work_to_bytes", "work_to_message",
]  # fmt: skip

# Core's words and their enums: the outcome of a request for a plan, and the advised action.
OUTCOMES = {
    "new": pb.PLAN_OUTCOME_NEW,
    "kept": pb.PLAN_OUTCOME_KEPT,
    "nothing reported": pb.PLAN_OUTCOME_NOTHING_REPORTED,
    "repeated": pb.PLAN_OUTCOME_REPEATED,
}
ACTIONS = {"hold": pb.SCALE_ACTION_HOLD, "out": pb.SCALE_ACTION_OUT, "in": pb.SCALE_ACTION_IN}

_NAME, _TEXT, _MANY = 200, 1000, 100  # characters of a name and of a parameter; parameters, key columns
_EXACT = 2**53  # beyond it not every whole number is a double
_COMMON = {"name", "partitions", "seed", "weights"}  # what every planner takes: fields of their own
_TIMES = ("interval_seconds", "processing_seconds", "map_seconds", "reduce_seconds")
_COUNTS = ("rows", "keys", "fragments", "queue")


@encoder("spec")
def spec_to_message(spec: StreamSpec) -> pb.StreamSpec:
    parameters = {name: _value(value, f"spec.parameters.{name}") for name, value in spec.parameters.items()}
    return pb.StreamSpec(
        partitions=spec.partitions,
        policy=spec.policy,
        parameters=Struct(fields=parameters) if parameters else None,
        weights=spec.weights,
        seed=spec.seed,
        key_types=spec.key_types,
        history=spec.history,
        decay=spec.decay + 0.0,
        dsync_seconds=spec.dsync,
        dsync_min_seconds=spec.dsync_min,
        dsync_max_seconds=spec.dsync_max,
    )


def spec_from_message(message: pb.StreamSpec, field: str = "spec") -> StreamSpec:
    """The settings, or a ``WireError`` whose field begins with ``field``."""
    default = StreamSpec(partitions=1)
    try:
        with np.errstate(all="ignore"):  # extreme doubles overflow here, and what results is refused
            return StreamSpec(
                partitions=message.partitions,
                policy=text(message.policy, f"{field}.policy", _NAME) or default.policy,
                parameters=_parameters(message.parameters, f"{field}.parameters"),
                weights=_weights(message, field),
                seed=message.seed,
                key_types=_key_types(message, field),
                history=message.history or default.history,
                decay=message.decay if message.HasField("decay") else default.decay,
                dsync=message.dsync_seconds or default.dsync,
                dsync_min=message.dsync_min_seconds or default.dsync_min,
                dsync_max=message.dsync_max_seconds or default.dsync_max,
            )
    except UnskewError as why:
        raise refusal(field, why, _names(message)) from None


def _names(message: pb.StreamSpec) -> dict[str, str]:
    """Fields of the message by the names in core's errors: a planner names its parameters without a path."""
    paths = {name: f"parameters.{name}" for name in message.parameters.fields}
    policy = message.policy or StreamSpec.policy
    return {**paths, f"{policy} parameter": "parameters", "dsync": "dsync_seconds", "dsync_max": "dsync_max_seconds"}


def spec_to_bytes(spec: StreamSpec) -> bytes:
    return serialized(spec_to_message(spec))


def spec_from_bytes(data: bytes) -> StreamSpec:
    return spec_from_message(parsed(pb.StreamSpec, data, "spec"))


def _weights(message: pb.StreamSpec, field: str) -> tuple[float, ...]:
    if len(message.weights) > MAX_PARTITIONS:
        raise WireError(f"{field}.weights", f"{len(message.weights):,} of them; give one for each partition, or none")
    return tuple(message.weights)


def _key_types(message: pb.StreamSpec, field: str) -> tuple[str, ...]:
    if len(message.key_types) > _MANY:
        raise WireError(f"{field}.key_types", f"{len(message.key_types):,} key columns; at most {_MANY} are allowed")
    names = tuple(text(name, f"{field}.key_types", _NAME) for name in message.key_types)
    for name in names:
        try:
            parse(name)
        except UnskewError as why:
            raise refusal(f"{field}.key_types", why) from None
    return names


def _value(value: object, field: str) -> Value:
    """A ``Struct`` has doubles only, so a whole number that is no double is refused: it would come back changed."""
    if value is None:
        return Value(null_value=NULL_VALUE)
    if isinstance(value, bool):
        return Value(bool_value=value)
    if isinstance(value, str):
        return Value(string_value=value)
    if not isinstance(value, (int, float)):
        raise WireError(field, f"{shown(value)} is no number, text, true, false or null")
    if not (math.isfinite(value) if isinstance(value, float) else abs(value) <= _EXACT):
        raise WireError(field, f"{value!r} is not exact as a finite 64-bit float; use another")
    return Value(number_value=value + 0.0)


def _parameters(struct: Struct, field: str) -> dict[str, object]:
    """By name, in the order of names."""
    if len(struct.fields) > _MANY:
        raise WireError(field, f"{len(struct.fields):,} parameters; at most {_MANY} are allowed")
    names = sorted(text(name, field, _NAME) for name in struct.fields)
    for name in _COMMON.intersection(names):
        raise WireError(f"{field}.{name}", "not a parameter; it has a field of its own")
    return {name: _parameter(struct.fields[name], f"{field}.{name}") for name in names}


def _parameter(value: Value, field: str) -> object:
    kind = value.WhichOneof("kind")
    if kind == "number_value":
        number = value.number_value
        if not math.isfinite(number):
            raise WireError(field, f"{number!r} is not allowed; use a finite number")
        return int(number) if number.is_integer() and abs(number) <= _EXACT else number
    if kind == "string_value":
        return text(value.string_value, field, _TEXT)
    if kind == "bool_value":
        return value.bool_value
    if kind == "null_value":
        return None
    raise WireError(field, "use a number, text, true, false or null")


@encoder("part")
def part_to_message(part: Part) -> pb.Part:
    return pb.Part(source=part.source, batch=part.batch, run=part.run, part=part.part, parts=part.parts)


def part_from_message(message: pb.Part, field: str = "part") -> Part:
    try:
        return Part(message.source, message.batch, message.run, message.part, message.parts)
    except ConfigError as why:
        raise refusal(field, why) from None


def version_to_message(version: Version) -> plan_pb2.PlanVersion:
    return plan_pb2.PlanVersion(incarnation=version.incarnation, number=version.number)


def version_from_message(message: plan_pb2.PlanVersion) -> Version:
    """The version; any pair of 64-bit numbers is one. Check first with ``HasField`` whether the field is set."""
    return Version(message.incarnation, message.number)


@encoder("partitions")
def work_to_message(
    batch: BatchWork, stream: str = "", part: Part | None = None, version: Version | None = None
) -> pb.ReportBatchRequest:
    """The request; a store keeps only the batch. ``version`` overrides the batch's own."""
    bound = version or batch.version
    return pb.ReportBatchRequest(
        stream=stream,
        part=None if part is None else part_to_message(part),
        partitions=[_work(work) for work in batch.work],
        interval_seconds=batch.interval + 0.0,
        processing_seconds=batch.processing + 0.0,
        map_seconds=batch.map_time + 0.0,
        reduce_seconds=batch.reduce_time + 0.0,
        version=None if bound is None else version_to_message(bound),
    )


def _work(work: Work) -> pb.PartitionWork:
    return pb.PartitionWork(
        partition=work.partition,
        rows=work.rows,
        keys=work.keys,
        fragments=work.fragments,
        seconds=work.seconds + 0.0,
        queue=work.queue,
        capacity=work.capacity + 0.0,
    )


def work_from_message(message: pb.ReportBatchRequest) -> BatchWork:
    """The work of the partitions in the order given; a partition that occurs twice is refused."""
    if len(message.partitions) > MAX_PARTITIONS:
        raise WireError("partitions", f"{len(message.partitions):,} of them; a stream has at most {MAX_PARTITIONS}")
    interval, processing, mapped, reduced = (_amount(getattr(message, name), name) for name in _TIMES)
    work = tuple(_work_of(task, f"partitions[{at}]") for at, task in enumerate(message.partitions))
    partitions: set[int] = set()
    for at, task in enumerate(work):
        if task.partition in partitions:
            raise WireError(f"partitions[{at}].partition", f"{task.partition} is there twice; give each partition once")
        partitions.add(task.partition)
    for name in _COUNTS:
        if sum(getattr(task, name) for task in work) > MAX_ROWS:
            raise WireError("partitions", f"{name}: more than 2^63 - 1 in all")
    version = version_from_message(message.version) if message.HasField("version") else None
    return BatchWork(work, interval, processing, mapped, reduced, version)


def _work_of(message: pb.PartitionWork, field: str) -> Work:
    if message.partition >= MAX_PARTITIONS:
        raise WireError(f"{field}.partition", f"{message.partition} is not allowed; use 0 to {MAX_PARTITIONS - 1}")
    seconds = _amount(message.seconds, f"{field}.seconds")
    capacity = _amount(message.capacity, f"{field}.capacity")
    return Work(message.partition, message.rows, message.keys, message.fragments, seconds, message.queue, capacity)


def _amount(value: float, field: str) -> float:
    """A finite number from 0 on; -0.0 is 0.0."""
    if not 0.0 <= value < math.inf:
        raise WireError(field, f"{value!r} is not allowed; use 0 or more")
    return value + 0.0


def work_to_bytes(batch: BatchWork, reported: float = 0.0) -> bytes:
    """``reported``: seconds since 1970 at which it was reported, 0 if not known."""
    return serialized(work_to_message(batch)) + serialized(KeptBatch(came=int(reported * 1e6)))


def work_from_bytes(data: bytes) -> BatchWork:
    return work_from_message(parsed(pb.ReportBatchRequest, data, "partitions"))


def reported_at(data: bytes) -> float:
    """When the batch in these bytes (``work_to_bytes``) was reported, in seconds since 1970."""
    return parsed(KeptBatch, data, "reported").came / 1e6
