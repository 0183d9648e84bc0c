"""What jobs report of their batches, and what they get: plans, advice on parallelism, where a key goes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from unskew.core.limits import MAX_PARTITIONS
from unskew.service.rest.models.arrays import Count, Counts, Hash, Hashes, PerHost, no_numbers
from unskew.service.rest.models.base import Model, Seconds, Share, VersionText, packed, version_of
from unskew.v1 import partitioner_pb2 as pb

__all__ = [
    "BuildPlan", "Built", "Explain", "Explanation", "Fragment", "PlanDocument", "ReportBatch", "ReportHistogram",
    "Reported", "ReportedHistogram", "Scale",
]  # fmt: skip


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
        return {name: packed(array) for name, array in arrays.items()}


class BatchPart(Model):
    source: str = Field(min_length=1, max_length=200, description="application and query: whose batches these are")
    batch: int = Field(ge=-1, le=2**62)
    run: int = Field(0, ge=0, le=2**62, description="higher in a re-run of the batch: then this one counts")
    part: int = Field(0, ge=0, lt=1_000_000)
    parts: int = Field(1, ge=1, le=1_000_000)

    def part_message(self) -> pb.Part:
        return pb.Part(source=self.source, batch=self.batch, run=self.run, part=self.part, parts=self.parts)


class ReportHistogram(Histogram, BatchPart):
    """The key counts of one part of one batch."""

    def message(self, stream: str) -> pb.ReportHistogramRequest:
        return pb.ReportHistogramRequest(stream=stream, part=self.part_message(), **self.fields())


class ReportedHistogram(Model):
    """What was taken; ``repeated_report``: it, or a later one, was there already, and nothing changed."""

    rows: int
    keys: int
    repeated_report: bool


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


class Way(Model):
    """How fresh the counts should be that a batch is placed by, as would have been cheapest for the batches so far:
    `previous`, by this plan; `last`, by a plan of the last batch alone (its number, `fresh`); `same`, counted first and
    then planned (`fresh`); `hash`, by plain hashing."""

    way: str
    runner_up: str = Field(description="the way that comes next")
    reason: str = Field(description="what both would have cost, in even shares of a batch")


class Built(Model):
    """The plan, what happened, and why; ``advice`` is null where nothing was advised yet. ``stale``: the store did not
    answer, this is the last plan known here, not made for this request."""

    version: VersionText
    digest: str
    outcome: Literal["new", "kept", "nothing reported", "repeated"]
    reason: str
    advice: Way | None
    stale: bool = False
    plan: PlanDocument


class PartitionWork(Model):
    """What one partition had and took; 0 where not known."""

    partition: int = Field(ge=0, lt=MAX_PARTITIONS)
    rows: Count = 0
    keys: Count = 0
    fragments: Count = 0
    seconds: Seconds = 0.0
    queue: Count = Field(0, description="rows waiting")
    capacity: float = Field(0.0, ge=0.0, description="rows a second")


class ReportBatch(BatchPart):
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
            partitions=[pb.PartitionWork(**vars(work)) for work in self.partitions],
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
