"""What REST says in JSON: the messages of the gRPC contract by the same names, arrays unpacked. This documents them,
and turns them into messages and back; what a value may be beyond its type is judged where the messages are read.
Lists of numbers are numpy arrays here (``json_arrays``, which also says what a key hash looks like). What is
answered comes from our own messages and is not looked at again: it is put together by ``model_construct``.
"""

from __future__ import annotations

import re
from itertools import chain, pairwise
from typing import Annotated, Any, Literal

import numpy as np
from google.protobuf.struct_pb2 import Struct
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from unskew.core.errors import WireError
from unskew.core.limits import MAX_PARTITIONS
from unskew.core.plan.plan import Version
from unskew.core.stream_spec import StreamSpec as Spec
from unskew.service.app.settings import MAX_JSON_KEYS
from unskew.service.rest.json_arrays import (
    AllHashes,
    Count,
    Counts,
    Hash,
    Hashes,
    Matrix,
    PerHost,
    PerWorker,
    hash_of,
    no_numbers,
)
from unskew.v1 import partitioner_pb2 as pb
from unskew.v1 import plan_pb2
from unskew.wire import ACTIONS

__all__ = [
    "BuildPlan",
    "Built",
    "Explain",
    "Explanation",
    "Model",
    "PlanDocument",
    "Problem",
    "ReportBatch",
    "ReportHistogram",
    "Reported",
    "ReportedHistogram",
    "Scale",
    "Stream",
    "StreamPage",
    "StreamSpec",
    "SyncRequest",
    "SyncResponse",
    "hash_of",
    "version_of",
]

_EXACT = 2**53  # beyond it not every whole number is a double, as parameters are kept
_VERSION = re.compile(r"([0-9]{1,20})\.([0-9]{1,20})")


def version_of(text: str) -> plan_pb2.PlanVersion:
    """``incarnation.number``, as a message."""
    found = _VERSION.fullmatch(text)
    if found is None or max(parts := [int(part) for part in found.groups()]) >= 2**64:
        raise WireError("version", f"{text[:80]!r} is not allowed; use incarnation.number, such as 1760000000000000.3")
    return plan_pb2.PlanVersion(incarnation=parts[0], number=parts[1])


def _text(version: plan_pb2.PlanVersion | Version) -> str:
    return f"{version.incarnation}.{version.number}"


Share = Annotated[float, Field(ge=0.0, le=1.0)]
Seconds = Annotated[float, Field(ge=0.0)]
VersionText = Annotated[str, Field(max_length=50, description="incarnation.number", examples=["1760000000000000.3"])]


class Model(BaseModel):
    # Strings are not remembered by the JSON parser: no hash comes twice, and looking takes longer than making it.
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True, cache_strings="keys")


def _packed(numbers: NDArray[Any]) -> bytes:
    return numbers.astype("<u8", copy=False).tobytes()


def _unpacked(data: bytes) -> NDArray[np.uint64]:
    return np.frombuffer(data, "<u8")


# -- streams --------------------------------------------------------------------------------------------------


class StreamSpec(Model):
    """One routing policy, and how often agents report. What is left out has its default."""

    partitions: int = Field(ge=1, le=MAX_PARTITIONS)
    policy: str = Field("auto", max_length=200, description="a planner's name, as `unskew policies` lists them")
    parameters: dict[str, bool | int | float | str | None] = Field(
        default_factory=dict, max_length=100, description="the planner's own, by name"
    )
    weights: list[float] = Field(
        default_factory=list,
        max_length=MAX_PARTITIONS,
        description="relative capacity of each partition; empty: all alike",
    )
    seed: int = Field(Spec.seed, ge=0, le=2**64 - 1)
    key_types: list[str] = Field(default_factory=list, max_length=100, description="Spark's names, one a key column")
    history: int = Field(Spec.history, ge=1, le=1000, description="batches that a plan looks back on")
    decay: Share = Field(Spec.decay, description="weight of a batch against the one after it")
    dsync_seconds: float = Field(Spec.dsync, gt=0, description="between two reports of an agent, to begin with")
    dsync_min_seconds: float = Field(Spec.dsync_min, gt=0)
    dsync_max_seconds: float = Field(Spec.dsync_max, gt=0)

    def message(self) -> pb.StreamSpec:
        plain = self.model_dump(exclude={"parameters"})
        parameters = Struct()
        for name, value in self.parameters.items():
            if isinstance(value, int) and abs(value) > _EXACT:
                raise WireError(f"spec.parameters.{name}", f"beyond {_EXACT} numbers are not exact; use a smaller one")
        parameters.update(self.parameters)
        return pb.StreamSpec(**plain, parameters=parameters)

    @classmethod
    def of(cls, message: pb.StreamSpec) -> StreamSpec:
        names = [name for name in cls.model_fields if name != "parameters"]
        found = {name: getattr(message, name) for name in names}
        found["parameters"] = {name: _parameter(value) for name, value in sorted(dict(message.parameters).items())}
        return cls.model_construct(**{**found, "weights": list(message.weights), "key_types": list(message.key_types)})


def _parameter(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


class Stream(Model):
    """A stream as it stands."""

    name: str
    spec: StreamSpec
    created: str = Field(description="when, in RFC 3339")
    version: VersionText | None = Field(description="of its latest plan")
    plan_digest: str
    epoch: int = Field(description="the last merged round of cooperative learning")
    agents: int = Field(description="agents with a lease")
    dsync_seconds: float

    @classmethod
    def of(cls, message: pb.Stream) -> Stream:
        return cls.model_construct(
            name=message.name,
            spec=StreamSpec.of(message.spec),
            created=message.created.ToJsonString(),
            version=_text(message.version) if message.HasField("version") else None,
            plan_digest=message.plan_digest,
            epoch=message.epoch,
            agents=message.agents,
            dsync_seconds=message.dsync_seconds,
        )


class StreamPage(Model):
    """Streams by name; ``next`` is what to ask ``after``, empty at the end. A page may hold fewer than asked for."""

    streams: list[Stream]
    next: str


# -- histograms and plans -------------------------------------------------------------------------------------


class Tail(Model):
    """Rows and distinct keys of all unlisted keys, per host: equal ranges of the hash space, a power of two of them."""

    rows: PerHost
    keys: PerHost


class Histogram(Model):
    """Rows of each key, and of the unlisted keys per host. More than 50,000 keys: send protobuf."""

    hashes: Hashes = Field(description="key hashes, as Spark's xxhash64 returns them, each once")
    counts: Counts = Field(description="rows of each, above 0")
    spread: Counts = Field(default_factory=no_numbers, description="distinct spread values of each; empty: not known")
    tail: Tail | None = None

    def fields(self) -> dict[str, bytes]:
        tail = {} if self.tail is None else {"tail_rows": self.tail.rows, "tail_keys": self.tail.keys}
        arrays = {"hashes": self.hashes, "counts": self.counts, "spread": self.spread, **tail}
        return {name: _packed(array) for name, array in arrays.items()}


class _Part(Model):
    source: str = Field(min_length=1, max_length=200, description="application and query: whose batches these are")
    batch: int = Field(ge=-1, le=2**62)
    run: int = Field(0, ge=0, le=2**62, description="higher in a re-run of the batch: then this one counts")
    part: int = Field(0, ge=0, lt=1_000_000)
    parts: int = Field(1, ge=1, le=1_000_000)

    def part_message(self) -> pb.Part:
        return pb.Part(source=self.source, batch=self.batch, run=self.run, part=self.part, parts=self.parts)


class ReportHistogram(Histogram, _Part):
    """The key counts of one part of one batch."""

    def message(self, stream: str) -> pb.ReportHistogramRequest:
        return pb.ReportHistogramRequest(stream=stream, part=self.part_message(), **self.fields())


class ReportedHistogram(Model):
    """What was taken; ``repeated_report``: it, or a later one, was there already, and nothing changed."""

    rows: int
    keys: int
    repeated_report: bool

    @classmethod
    def of(cls, message: pb.ReportHistogramResponse) -> ReportedHistogram:
        return cls.model_construct(rows=message.rows, keys=message.keys, repeated_report=message.repeated_report)


class BuildPlan(Model):
    """A plan for a batch, from what was reported for it (``fresh``) or for the batches before it; or from the
    histogram given here."""

    batch: int | None = Field(None, ge=-1, le=2**62)
    fresh: bool = False
    histogram: Histogram | None = None

    def message(self, stream: str) -> pb.BuildPlanRequest:
        histogram = None if self.histogram is None else pb.Histogram(**self.histogram.fields())
        return pb.BuildPlanRequest(stream=stream, batch=self.batch, fresh=self.fresh, histogram=histogram)


class Split(Model):
    """``2**bits`` slots: a row with spread hash s is in slot k = (s >>> 1) >>> (63 - bits), and goes to ``first[k]`` if
    (s >>> 1) < ``cut[k]``, else to ``second[k]``."""

    bits: int
    first: list[int]
    second: list[int]
    cut: list[Hash]


class HotKey(Model):
    """A key with a route of its own: one partition, or a split."""

    hash: Hash
    partition: int | None
    split: Split | None
    rows: int
    reason: str


class PlanDocument(Model):
    """A plan. A row whose key hash is in ``hot`` goes where that says; another to
    ``tail[hash >>> (64 - log2(length of tail))]``."""

    stream: str
    version: VersionText
    digest: str
    policy: str
    reason: str
    batch: int | None
    previous: VersionText | None
    moved_rows: Share
    moved_keys: Share
    rows: int
    keys: int
    loads: list[int] = Field(description="predicted rows per partition")
    partitions: int
    key_types: list[str]
    hot: list[HotKey]
    tail: list[int]


class Built(Model):
    """The plan, what happened, and why."""

    version: VersionText
    digest: str
    outcome: Literal["new", "kept", "nothing reported", "repeated"]
    reason: str
    plan: PlanDocument


# -- learning -------------------------------------------------------------------------------------------------


class QTable(Model):
    """Rows of a Q-table in ascending order of hash: for each key a value per worker (-2: never tried), its rows, and
    the workers that hold it."""

    workers: int = Field(ge=1, le=MAX_PARTITIONS)
    hashes: Hashes = Field(default_factory=no_numbers)
    values: Matrix = Field(default_factory=lambda: no_numbers().reshape(0, 0))
    rows: Counts = Field(default_factory=no_numbers)
    held: list[list[int]] = Field(default_factory=list, max_length=MAX_JSON_KEYS, description="numbers of workers")

    def message(self) -> pb.QTable:
        keys, workers = len(self.hashes), self.workers
        if self.values.size != keys * workers or len(self.values) != keys or len(self.held) != keys:
            raise WireError("report.table.values", f"give {workers} values, and one list in held, for each key")
        return pb.QTable(
            workers=workers,
            hashes=_packed(self.hashes),
            values=self.values.astype("<f8", copy=False).tobytes(),
            rows=_packed(self.rows),
            held=np.packbits(self._holders(), axis=1, bitorder="little").tobytes(),
        )

    def _holders(self) -> NDArray[np.bool_]:
        """A row of bits for each key."""
        found = np.zeros((len(self.held), self.workers), np.bool_)
        counts = [len(workers) for workers in self.held]
        try:
            holders = np.fromiter(chain.from_iterable(self.held), np.int64, sum(counts))
        except OverflowError:
            holders = np.array([-1])
        if len(holders) and not 0 <= int(holders.min()) <= int(holders.max()) < self.workers:
            raise WireError("report.table.held", f"use workers 0 to {self.workers - 1}")
        found[np.repeat(np.arange(len(counts)), counts), holders] = True
        return found

    @classmethod
    def of(cls, message: pb.QTable) -> QTable:
        workers, keys = message.workers, len(message.hashes) // 8
        bits = np.frombuffer(message.held, np.uint8).reshape(keys, -1 if keys else 0)
        held = np.unpackbits(bits, axis=1, bitorder="little")
        holders = np.nonzero(held)[1].tolist()
        ends = [0, *np.cumsum(held.sum(axis=1, dtype=np.int64)).tolist()]
        return cls.model_construct(
            workers=workers,
            hashes=_unpacked(message.hashes),
            values=np.frombuffer(message.values, "<f8").reshape(keys, workers),
            rows=_unpacked(message.rows),
            held=[holders[start:end] for start, end in pairwise(ends)],
        )


class FrequentItems(Model):
    """The mergeable summary of the keys that came: no key has more than ``error`` rows beyond its count."""

    capacity: int = Field(ge=1, lt=2**32)
    hashes: Hashes = Field(default_factory=no_numbers)
    counts: Counts = Field(default_factory=no_numbers)
    error: Count = 0
    total: Count = 0
    rounding: Count = 0

    def message(self) -> pb.FrequentItems:
        rest = {name: getattr(self, name) for name in ("capacity", "error", "total", "rounding")}
        return pb.FrequentItems(hashes=_packed(self.hashes), counts=_packed(self.counts), **rest)


class SyncReport(Model):
    """An agent's report: everything since its report before."""

    agent: str = Field(min_length=1, max_length=200)
    session: int = Field(ge=1, lt=2**64)
    seq: int = Field(ge=1, lt=2**64)
    table: QTable
    records: Count = 0
    frequent: FrequentItems
    loads: PerWorker
    dsync_seconds: float = Field(gt=0)
    longer: bool = False
    guest: bool = Field(default=False, description="no round waits for it: an agent that reports after it holds that")


class SyncRequest(Model):
    """A report, and how long to wait for its round; ``incarnation`` and ``epoch`` of the newest answer there is."""

    report: SyncReport
    wait_seconds: float = Field(0.0, ge=0.0, le=60.0)
    incarnation: int = Field(0, ge=0, lt=2**64)
    epoch: int = Field(0, ge=0, lt=2**64)

    def message(self, stream: str) -> pb.SyncRequest:
        given = self.report
        report = pb.SyncReport(
            agent=given.agent,
            session=given.session,
            seq=given.seq,
            table=given.table.message(),
            records=given.records,
            frequent=given.frequent.message(),
            loads=_packed(given.loads),
            dsync_seconds=given.dsync_seconds,
            longer=given.longer,
            guest=given.guest,
        )
        return pb.SyncRequest(
            stream=stream,
            report=report,
            wait_seconds=self.wait_seconds,
            incarnation=self.incarnation,
            epoch=self.epoch,
        )


class SyncAnswer(Model):
    """The global state after a round: news if (incarnation, epoch) is greater than what the agent has."""

    incarnation: int
    epoch: int
    table: QTable
    records: int
    unsure: AllHashes
    split: AllHashes
    loads: PerWorker
    dsync_seconds: float
    merged: bool
    age_seconds: float

    @classmethod
    def of(cls, message: pb.SyncAnswer) -> SyncAnswer:
        return cls.model_construct(
            incarnation=message.incarnation,
            epoch=message.epoch,
            table=QTable.of(message.table),
            records=message.records,
            unsure=_unpacked(message.unsure),
            split=_unpacked(message.split),
            loads=_unpacked(message.loads),
            dsync_seconds=message.dsync_seconds,
            merged=message.merged,
            age_seconds=message.age_seconds,
        )


class SyncResponse(Model):
    """No answer: not yet; ask again with the same report."""

    answer: SyncAnswer | None

    @classmethod
    def of(cls, message: pb.SyncResponse) -> SyncResponse:
        answer = SyncAnswer.of(message.answer) if message.HasField("answer") else None
        return cls.model_construct(answer=answer)


# -- batches, parallelism, explanations -----------------------------------------------------------------------


class PartitionWork(Model):
    """What one partition had and took; 0 where not known."""

    partition: int = Field(ge=0, lt=MAX_PARTITIONS)
    rows: Count = 0
    keys: Count = 0
    fragments: Count = 0
    seconds: Seconds = 0.0
    queue: Count = Field(0, description="rows waiting")
    capacity: float = Field(0.0, ge=0.0, description="rows a second")


class ReportBatch(_Part):
    """What a finished batch took. Times are of the whole batch, told once, by part 0."""

    partitions: list[PartitionWork] = Field(default_factory=list, max_length=MAX_PARTITIONS)
    interval_seconds: Seconds = 0.0
    processing_seconds: Seconds = 0.0
    map_seconds: Seconds = 0.0
    reduce_seconds: Seconds = 0.0
    version: VersionText | None = Field(None, description="of the plan that the batch was bound to")

    def message(self, stream: str) -> pb.ReportBatchRequest:
        times = ("interval_seconds", "processing_seconds", "map_seconds", "reduce_seconds")
        return pb.ReportBatchRequest(
            stream=stream,
            part=self.part_message(),
            partitions=[pb.PartitionWork(**work.model_dump()) for work in self.partitions],
            version=None if self.version is None else version_of(self.version),
            **{name: getattr(self, name) for name in times},
        )


class Reported(Model):
    """``repeated_report``: it was there already, and nothing changed."""

    repeated_report: bool


class Scale(Model):
    """Advice on parallelism. Zone 1: too many tasks, 2: as it should be, 3: too few; 0: not known yet."""

    map_tasks: int
    reduce_tasks: int
    action: Literal["hold", "out", "in"]
    zone: int
    reason: str

    @classmethod
    def of(cls, message: pb.GetScaleResponse) -> Scale:
        action = next(name for name, number in ACTIONS.items() if number == message.action)
        plain = {name: getattr(message, name) for name in ("map_tasks", "reduce_tasks", "zone", "reason")}
        return cls.model_validate({**plain, "action": action})


class Explain(Model):
    """A key, one value for each of its columns (null for NULL), with Spark's types of them if the stream's spec does
    not say; or a hash. Here and not in the address, so that keys stay out of access logs."""

    key: list[str | int | float | bool | None] | None = Field(None, min_length=1, max_length=100)
    types: list[str] = Field(default_factory=list, max_length=100)
    hash: Hash | None = None
    version: VersionText | None = None


class Fragment(Model):
    """A place of the key, and its share of the key's rows."""

    partition: int
    share: Share


class Explanation(Model):
    """Where the key goes, and why. ``share`` is of all rows."""

    hash: Hash
    version: VersionText | None
    hot: bool
    rows: int
    share: float
    fragments: list[Fragment]
    reason: str

    @classmethod
    def of(cls, key: int, message: pb.ExplainResponse) -> Explanation:
        return cls(
            hash=key,
            version=_text(message.version) if message.HasField("version") else None,
            hot=message.hot,
            rows=message.rows,
            share=message.share,
            fragments=[Fragment(partition=one.partition, share=one.share) for one in message.fragments],
            reason=message.reason,
        )


# -- errors ---------------------------------------------------------------------------------------------------


class FieldProblem(Model):
    """What is wrong with one field."""

    field: str
    detail: str


class Problem(Model):
    """RFC 9457. ``code`` is the name of the gRPC status that the same call would get."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[FieldProblem] = Field(default_factory=list)
