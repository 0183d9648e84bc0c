"""Streams: the settings that are put, and a stream as it stands."""

from __future__ import annotations

from google.protobuf.struct_pb2 import Struct
from pydantic import Field

from unskew.core.errors import WireError
from unskew.core.limits import MAX_PARTITIONS
from unskew.core.stream_spec import StreamSpec as Spec
from unskew.service.rest.models.base import Model, Share, VersionText
from unskew.v1 import partitioner_pb2 as pb

__all__ = ["Stream", "StreamPage", "StreamSpec"]

_EXACT = 2**53  # beyond it not every whole number is a double, as parameters are kept


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
        for name, value in self.parameters.items():
            if isinstance(value, int) and abs(value) > _EXACT:
                raise WireError(f"spec.parameters.{name}", f"beyond {_EXACT} numbers are not exact; use a smaller one")
        parameters = Struct()
        parameters.update(self.parameters)
        return pb.StreamSpec(**{**vars(self), "parameters": parameters})


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


class StreamPage(Model):
    """Streams by name; ``next`` is what to ask ``after``, empty at the end. A page may hold fewer than asked for."""

    streams: list[Stream]
    next: str
