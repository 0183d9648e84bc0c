"""What the service can be asked to do, in values of core: the port behind gRPC and REST.

``engine.Engine`` implements it. All verbs may be repeated. They raise a ``ServiceError``, or a ``UnskewError`` of core
where a value is not allowed (answered as INVALID_ARGUMENT).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from unskew.core.freshness.way_scores import WayChoice
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Explanation, Plan, Version
from unskew.core.rounds.messages import Answer, Report
from unskew.core.rounds.round_digests import SeenRound
from unskew.core.stream_spec import BatchWork, Part, StreamSpec
from unskew.service.events.history import BatchNote, Expected, Observed, PlanNote, RoundNote

__all__ = ["BuiltPlan", "Fetched", "NameFilter", "Overview", "ScaleAnswer", "StreamInfo", "Summary", "Synced", "Verbs"]

NameFilter: TypeAlias = Callable[[str], bool]  # by a stream's name


@dataclass(frozen=True)
class StreamInfo:
    """A stream as it stands. ``version`` is that of its latest plan."""

    name: str
    spec: StreamSpec
    created: float
    version: Version | None
    digest: str
    epoch: int
    agents: int
    dsync: float


@dataclass(frozen=True)
class BuiltPlan:
    """A plan's bytes, what happened ("new", "kept", "nothing reported", "repeated"), and why; and which way the batch
    should go, where that was advised. ``stale``: the store did not answer, this is the last plan known here."""

    plan: bytes
    digest: str
    version: Version
    outcome: str
    reason: str
    advice: WayChoice | None = None
    stale: bool = False


@dataclass(frozen=True)
class Fetched:
    """A plan's bytes; empty where the caller has it. ``stale``: the store did not answer, this is a cached plan."""

    plan: bytes
    digest: str
    not_modified: bool = False
    stale: bool = False


@dataclass(frozen=True, eq=False)
class Synced:
    """The answer of the newest merged round, if the caller does not have it yet."""

    answer: Answer | None
    incarnation: int = 0
    merged: bool = False
    age: float = 0.0


@dataclass(frozen=True)
class ScaleAnswer:
    """Prompt's advice. Zone 0: unknown yet. ``map_tasks`` is 0 as long as no histogram has shown how many there are."""

    map_tasks: int
    reduce_tasks: int
    action: str  # "hold", "out", "in"
    zone: int
    reason: str
    since: float = 0.0  # seconds since 1970 of the last report of a batch, or else of the stream's creation


@dataclass(frozen=True)
class Summary:
    """A stream as a line in a list: the last plan that was made and the last batch that was reported, if any."""

    info: StreamInfo
    plan: PlanNote | None
    batch: BatchNote | None


@dataclass(frozen=True, eq=False)
class Overview:
    """A stream as it stands, and its history. ``expected`` is of the present plan."""

    info: StreamInfo
    plan: Plan | None
    expected: Expected | None
    observed: Observed | None
    plans: Sequence[PlanNote]
    batches: Sequence[BatchNote]
    rounds: Sequence[RoundNote]


class Verbs(Protocol):
    async def put_stream(
        self, stream: str, spec: StreamSpec, owner: str = "", most: int | None = None
    ) -> tuple[StreamInfo, bool]:
        """Whether it was created; a new one of an owner that has ``most`` is refused with a ``LimitError``."""

    async def get_stream(self, stream: str) -> StreamInfo: ...

    async def list_streams(self, after: str, limit: int, allowed: NameFilter | None = None) -> Sequence[StreamInfo]:
        """By name, those for which ``allowed`` is true."""

    async def delete_stream(self, stream: str) -> None: ...

    async def report_histogram(self, stream: str, part: Part, histogram: Histogram) -> bool:
        """Whether this part had been reported already."""

    async def build_plan(
        self, stream: str, batch: int | None = None, *, fresh: bool = False, histogram: Histogram | None = None
    ) -> BuiltPlan: ...

    async def get_plan(self, stream: str, version: Version | None = None, if_none_match: str = "") -> Fetched: ...

    def watch_plans(self, stream: str, if_none_match: str = "") -> AsyncIterator[Fetched]: ...

    async def sync(self, stream: str, report: Report, wait: float, seen: SeenRound, data: bytes = b"") -> Synced:
        """Take the report; wait so many seconds for its round. ``seen``: the round of the newest answer that the caller
        has. ``data``: the report in bytes (``wire.round_messages``), if it is at hand."""

    def drain(self) -> None:
        """End all waits of syncs, now and from now on: each is answered with the newest round there is."""

    async def report_batch(self, stream: str, part: Part, batch: BatchWork) -> bool: ...

    async def get_scale(self, stream: str) -> ScaleAnswer: ...

    def watch_scale(self, stream: str) -> AsyncIterator[ScaleAnswer]:
        """The advice now, and again after each report of a batch to this replica, and every few seconds."""

    async def explain(self, stream: str, key: int, version: Version | None = None) -> Explanation: ...

    async def overview(self, stream: str) -> Overview: ...

    async def summaries(self, after: str, limit: int, allowed: NameFilter | None = None) -> Sequence[Summary]:
        """The same streams, each as a line that is a few seconds old at most."""
