"""What happens in the engine, as values told to an observer: what metrics and logs are made of, without a change here.

An observer is called on the loop: it must be quick and must not raise.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from unskew.core.plan.plan import PlanInfo, Version
from unskew.core.stream_spec import BatchWork, Part
from unskew.service.api.verbs import ScaleAnswer
from unskew.service.stores.ports import (
    Commit,
    HistoryEntry,
    Marks,
    News,
    PartKey,
    PartOutcome,
    PlanOutcome,
    PlanRecord,
    ReportKey,
    ReportOutcome,
    RoundView,
    Store,
    StoredPart,
    StoredReport,
    StreamRecord,
)

MOST_SHOWN = 256
"""Partitions of a stream whose loads are told one by one."""

__all__ = [
    "MOST_SHOWN",
    "AgentsSeen", "BatchSeen", "Event", "ObservedStore", "Observer", "PlanBuilt", "PlanServed", "RoundMerged",
    "ScaleAdvised", "Skipped", "StoreCalled", "StreamChanged", "WatchersSeen", "WorkSeen", "ignore", "together",
]  # fmt: skip

T = TypeVar("T")


@dataclass(frozen=True)
class StreamChanged:
    """``what``: "created", "put", "deleted"; "restored": the store had lost it, and it began anew."""

    stream: str
    what: str


@dataclass(frozen=True)
class PlanBuilt:
    """``outcome`` as in ``Built``; ``info`` is that of the plan that was answered. ``by_hash``: the rows per partition
    that plain hashing would have given for the same histogram, where they were counted; ``by_plan``: those that the
    plan gives it, which are not those of ``info`` where an older plan was kept."""

    stream: str
    policy: str
    outcome: str
    reason: str
    seconds: float
    digest: str
    partitions: int
    hot_keys: int
    fragments: int
    info: PlanInfo
    by_hash: tuple[int, ...] = ()
    by_plan: tuple[int, ...] = ()


@dataclass(frozen=True)
class PlanServed:
    """``version`` is None where the caller had it."""

    stream: str
    version: Version | None
    stale: bool


@dataclass(frozen=True)
class RoundMerged:
    """``outcome``: "complete", "deadline", "taken over", or "repeated" where another replica was first. ``seconds``:
    since the round's first report."""

    stream: str
    epoch: int
    reports: int
    outcome: str
    seconds: float
    dsync: float


@dataclass(frozen=True)
class AgentsSeen:
    """Agents with a lease, and the present interval."""

    stream: str
    agents: int
    dsync: float


@dataclass(frozen=True)
class BatchSeen:
    """A batch, or a part of it, was reported. ``latest`` is the latest plan's version then; ``promised`` what the plan
    says of itself that the batch was bound to. Each is None where it is not known. ``partitions``: how many the rows
    were for, also those that had none."""

    stream: str
    part: Part
    batch: BatchWork
    latest: Version | None = None
    promised: PlanInfo | None = None
    partitions: int = 0


@dataclass(frozen=True)
class WorkSeen:
    """All that was reported of a batch, by whichever replicas."""

    stream: str
    number: int
    batch: BatchWork
    partitions: int = 0


@dataclass(frozen=True)
class ScaleAdvised:
    stream: str
    scale: ScaleAnswer


@dataclass(frozen=True)
class WatchersSeen:
    stream: str
    watchers: int


class StoreCalled(NamedTuple):
    """One operation; ``error`` is the class of what it raised. A tuple: quick to make, one a call."""

    op: str
    seconds: float
    error: str | None = None


@dataclass(frozen=True)
class Skipped:
    """Something was not done, and why; of which version or round, where it is about one."""

    stream: str
    what: str
    reason: str
    version: Version | None = None
    round: int | None = None


Event: TypeAlias = (
    "StreamChanged | PlanBuilt | PlanServed | RoundMerged | AgentsSeen | BatchSeen | ScaleAdvised | WatchersSeen | "
    "StoreCalled | Skipped | WorkSeen"
)


class Observer(Protocol):
    def __call__(self, event: Event, /) -> None: ...


def ignore(event: Event, /) -> None:
    """The observer that does nothing."""


def together(*observers: Observer) -> Observer:
    """All of them, in this order."""

    def each(event: Event, /) -> None:
        for observer in observers:
            observer(event)

    return each


class ObservedStore:
    """A store whose operations are told to an observer."""

    def __init__(self, store: Store, observer: Observer, clock: Callable[[], float] = time.perf_counter) -> None:
        self._store, self._observer, self._clock = store, observer, clock

    async def _call(self, op: str, call: Awaitable[T]) -> T:
        started, error = self._clock(), None
        try:
            return await call
        except BaseException as why:
            error = type(why).__name__
            raise
        finally:
            self._observer(StoreCalled(op, self._clock() - started, error))

    async def ping(self) -> None:
        await self._call("ping", self._store.ping())

    async def close(self) -> None:
        await self._store.close()

    def news(self) -> AsyncIterator[News]:
        return self._store.news()

    async def put_stream(
        self, name: str, spec: bytes, floor: int = 0, owner: str = "", most: int | None = None
    ) -> tuple[StreamRecord, bool]:
        return await self._call("put_stream", self._store.put_stream(name, spec, floor, owner, most))

    async def stream(self, name: str) -> StreamRecord | None:
        return await self._call("stream", self._store.stream(name))

    async def streams(self, after: str, limit: int) -> Sequence[StreamRecord]:
        return await self._call("streams", self._store.streams(after, limit))

    async def delete_stream(self, name: str) -> bool:
        return await self._call("delete_stream", self._store.delete_stream(name))

    async def renew_stream(self, seen: StreamRecord, age: float, floor: int = 0) -> tuple[StreamRecord, bool] | None:
        return await self._call("renew_stream", self._store.renew_stream(seen, age, floor))

    async def put_part(self, stream: str, key: PartKey, data: bytes) -> PartOutcome:
        return await self._call("put_part", self._store.put_part(stream, key, data))

    async def parts(self, stream: str, kind: str, batch: int) -> Sequence[StoredPart]:
        return await self._call("parts", self._store.parts(stream, kind, batch))

    async def part_keys(self, stream: str, kind: str, batch: int) -> Sequence[PartKey]:
        return await self._call("part_keys", self._store.part_keys(stream, kind, batch))

    async def batches(self, stream: str, kind: str, before: int | None, limit: int) -> Sequence[int]:
        return await self._call("batches", self._store.batches(stream, kind, before, limit))

    async def marks(self, stream: str, kinds: Sequence[str]) -> Marks | None:
        return await self._call("marks", self._store.marks(stream, kinds))

    async def put_plan(self, stream: str, plan: PlanRecord, after: Version | None) -> PlanOutcome:
        return await self._call("put_plan", self._store.put_plan(stream, plan, after))

    async def plan(self, stream: str, version: Version | None = None) -> PlanRecord | None:
        return await self._call("plan", self._store.plan(stream, version))

    async def plan_for(self, stream: str, purpose: str) -> PlanRecord | None:
        return await self._call("plan_for", self._store.plan_for(stream, purpose))

    async def report(self, stream: str, key: ReportKey, data: bytes, lease: float) -> ReportOutcome:
        return await self._call("report", self._store.report(stream, key, data, lease))

    async def round(self, stream: str) -> RoundView:
        return await self._call("round", self._store.round(stream))

    async def seal(self, stream: str, epoch: int) -> bool:
        return await self._call("seal", self._store.seal(stream, epoch))

    async def sealed(self, stream: str, epoch: int) -> Sequence[StoredReport]:
        return await self._call("sealed", self._store.sealed(stream, epoch))

    async def commit(self, stream: str, commit: Commit) -> Commit | None:
        return await self._call("commit", self._store.commit(stream, commit))

    async def answer(self, stream: str) -> Commit | None:
        return await self._call("answer", self._store.answer(stream))

    async def note(self, stream: str, kind: str, data: bytes, keep: int) -> None:
        await self._call("note", self._store.note(stream, kind, data, keep))

    async def notes(self, stream: str, kind: str, last: int) -> Sequence[HistoryEntry]:
        return await self._call("notes", self._store.notes(stream, kind, last))
