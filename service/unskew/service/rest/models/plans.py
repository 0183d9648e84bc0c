"""Histograms, and the plans that are made from them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from unskew.service.rest.models.arrays import Counts, Hash, Hashes, PerHost, no_numbers
from unskew.service.rest.models.base import Model, Share, VersionText, packed
from unskew.v1 import partitioner_pb2 as pb

__all__ = ["BatchPart", "BuildPlan", "Built", "PlanDocument", "ReportHistogram", "ReportedHistogram"]


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


class Built(Model):
    """The plan, what happened, and why."""

    version: VersionText
    digest: str
    outcome: Literal["new", "kept", "nothing reported", "repeated"]
    reason: str
    plan: PlanDocument
