"""Keyed state beside a query's checkpoint, and the results of its tasks (``proto/unskew/v1/state.proto``)."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from operator import add
from typing import TypeVar

import numpy as np
import xxhash
from google.protobuf.message import DecodeError, Message
from numpy.typing import NDArray

from unskew.core.errors import StateError, UnskewError
from unskew.core.histogram.histogram import Histogram, Tail
from unskew.core.histogram.history import History
from unskew.core.operators.keyed_plan import HOST_BITS, HOSTS, history_of
from unskew.core.operators.keyed_state import NEVER, StateFile, StatePart
from unskew.core.plan.plan import Plan
from unskew.v1 import state_pb2 as pb
from unskew.wire.plans import plan_from_bytes, plan_to_bytes

__all__ = [
    "FORMAT", "Figures", "Identity", "Manifest", "TaskResult", "identity_from_bytes", "identity_to_bytes",
    "manifest_from_bytes", "manifest_to_bytes", "task_result_from_bytes", "task_result_to_bytes",
]  # fmt: skip

FORMAT = 1
_SUM = 8  # bytes of XXH64 in front of the message

M = TypeVar("M", bound=Message)


@dataclass(frozen=True)
class Identity:
    """The query, stream and key that a state belongs to."""

    query: str
    stream: str
    name: str
    key_names: tuple[str, ...]
    key_types: tuple[str, ...]
    state: str
    time: str


@dataclass(frozen=True)
class Figures:
    """The counts of a batch. ``bytes_read`` and ``bytes_written`` are of state, blocks and indexes included."""

    rows: int = 0
    keys: int = 0
    created: int = 0
    forgotten: int = 0
    expired: int = 0
    moved: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_output: int = 0
    bytes_rows: int = 0

    def plus(self, other: Figures) -> Figures:
        return Figures(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, eq=False)
class TaskResult:
    """The result of one partition's task. ``keys_added``: how many more keys each host has. ``latest``: event time."""

    partition: int
    part: StatePart
    output: str
    figures: Figures
    rows: Histogram
    keys_added: NDArray[np.int64]
    latest: int | None


@dataclass(frozen=True, eq=False)
class Manifest:
    """A finished batch: ``plan`` places its state ``parts``, ``next_plan`` those of the next batch (``reason``)."""

    batch: int
    plan: Plan
    next_plan: Plan
    reason: str
    parts: tuple[StatePart, ...]
    outputs: tuple[str, ...]
    figures: Figures
    host_keys: NDArray[np.int64]
    history: History
    latest: int | None

    @property
    def files(self) -> frozenset[str]:
        """The state files that are in use after this batch."""
        return frozenset(name for part in self.parts for name in part.names)

    @property
    def keys(self) -> int:
        """How many keys have a state."""
        return int(self.host_keys.sum())


def identity_to_bytes(identity: Identity) -> bytes:
    return _sealed(pb.StateIdentity(format=FORMAT, **vars(identity)))


def identity_from_bytes(data: bytes) -> Identity:
    m = _opened(pb.StateIdentity, data, "identity")
    if m.format != FORMAT:
        raise StateError(f"the state is kept in format {m.format} and this unskew knows {FORMAT}: upgrade unskew")
    return Identity(m.query, m.stream, m.name, tuple(m.key_names), tuple(m.key_types), m.state, m.time)


def task_result_to_bytes(result: TaskResult) -> bytes:
    hosts = np.flatnonzero(result.keys_added)
    message = pb.StateDone(
        partition=result.partition,
        part=_part_message(result.part),
        output=result.output,
        figures=pb.StateFigures(**vars(result.figures)),
        rows=_counts_message(result.rows),
        host=hosts.tolist(),
        grown=result.keys_added[hosts].tolist(),
        latest=result.latest,
    )
    return _sealed(message)


def task_result_from_bytes(data: bytes) -> TaskResult:
    m = _opened(pb.StateDone, data, "report of a task")
    keys_added = np.zeros(HOSTS, np.int64)
    keys_added[np.array(m.host, np.int64)] = m.grown
    latest = m.latest if m.HasField("latest") else None
    return TaskResult(m.partition, _part(m.part), m.output, _figures(m.figures), _counts(m.rows), keys_added, latest)


def manifest_to_bytes(manifest: Manifest) -> bytes:
    same = manifest.next_plan == manifest.plan
    message = pb.StateManifest(
        batch=manifest.batch,
        plan=plan_to_bytes(manifest.plan),
        next_plan=b"" if same else plan_to_bytes(manifest.next_plan),
        reason=manifest.reason,
        parts=map(_part_message, manifest.parts),
        outputs=manifest.outputs,
        figures=pb.StateFigures(**vars(manifest.figures)),
        host_keys=manifest.host_keys.tolist(),
        history=map(_counts_message, manifest.history.batches),
        latest=manifest.latest,
    )
    return _sealed(message)


def manifest_from_bytes(data: bytes) -> Manifest:
    """The manifest in these bytes, or one clear error."""
    m = _opened(pb.StateManifest, data, "manifest")
    try:
        plan = plan_from_bytes(m.plan)
        next_plan = plan_from_bytes(m.next_plan) if m.next_plan else plan
        parts, outputs, figures = tuple(map(_part, m.parts)), tuple(m.outputs), _figures(m.figures)
        host_keys, history = np.array(m.host_keys, np.int64), history_of(map(_counts, m.history))
        latest = m.latest if m.HasField("latest") else None
        return Manifest(m.batch, plan, next_plan, m.reason, parts, outputs, figures, host_keys, history, latest)
    except (UnskewError, ValueError, OverflowError) as why:
        raise StateError(f"the manifest is whole but holds no usable state: {why}") from None


def _part_message(part: StatePart) -> pb.StatePart:
    return pb.StatePart(
        files=[pb.StateFile(name=each.name, size=each.size, live=each.live) for each in part.files],
        index_bytes=part.index_bytes,
        index_digest=part.index_digest,
        least_expiry=None if part.least == NEVER else part.least,
    )


def _part(m: pb.StatePart) -> StatePart:
    files = tuple(StateFile(each.name, each.size, each.live) for each in m.files)
    least = m.least_expiry if m.HasField("least_expiry") else NEVER
    return StatePart(files, m.index_bytes, m.index_digest, least)


def _figures(m: pb.StateFigures) -> Figures:
    return Figures(**{each.name: getattr(m, each.name) for each in fields(Figures)})


def _counts_message(rows: Histogram) -> pb.StateCounts:
    message = pb.StateCounts(hash=rows.hashes.tolist(), rows=rows.counts.tolist())
    if rows.tail is not None:
        tail = rows.tail.fold(HOST_BITS)
        hosts = np.flatnonzero(tail.rows)
        message.host.extend(hosts.tolist())
        message.host_rows.extend(tail.rows[hosts].tolist())
        message.host_keys.extend(tail.keys[hosts].tolist())
    return message


def _counts(m: pb.StateCounts) -> Histogram:
    rows, keys = np.zeros(HOSTS, np.int64), np.zeros(HOSTS, np.int64)
    hosts = np.array(m.host, np.int64)
    rows[hosts], keys[hosts] = m.host_rows, m.host_keys
    return Histogram(np.array(m.hash, np.uint64), np.array(m.rows, np.int64), Tail(rows, keys))


def _sealed(message: Message) -> bytes:
    body = message.SerializeToString(deterministic=True)
    return xxhash.xxh64_digest(body) + body


def _opened(kind: type[M], data: bytes, what: str) -> M:
    body = data[_SUM:]
    if xxhash.xxh64_digest(body) != data[:_SUM]:
        raise StateError(f"these bytes are no {what} of unskew's keyed state, or not whole: the checksum does not fit")
    try:
        return kind.FromString(body)
    except DecodeError as why:
        raise StateError(f"the bytes are whole but are no {what} of unskew's keyed state: {why}") from None
