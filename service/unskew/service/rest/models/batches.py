"""Finished batches, advice on parallelism, and where a key goes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from unskew.core.limits import MAX_PARTITIONS
from unskew.service.rest.models.arrays import Count, Hash
from unskew.service.rest.models.base import Model, Seconds, Share, VersionText, version_of
from unskew.service.rest.models.plans import BatchPart
from unskew.v1 import partitioner_pb2 as pb

__all__ = ["Explain", "Explanation", "Fragment", "PartitionWork", "ReportBatch", "Reported", "Scale"]


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
