"""What happens in the engine, as values for observers: metrics, logs, traces and history are made from them.

An observer is called on the loop: it must be quick and must not raise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from unskew.core.freshness.way_scores import WayChoice
from unskew.core.plan.plan import PlanInfo, Version
from unskew.core.stream_spec import BatchWork, Part
from unskew.service.stores.metered import StoreCalled

MOST_SHOWN = 256
"""Partitions of a stream whose loads are exported one by one."""

__all__ = [
    "MOST_SHOWN",
    "AgentsSeen", "BatchSeen", "Event", "Observer", "PlanBuilt", "PlanServed", "RoundMerged",
    "ScaleAdvised", "Skipped", "StoreCalled", "StreamChanged", "WatchersSeen", "WorkSeen", "ignore", "loads_of",
    "rows_of", "together",
]  # fmt: skip


@dataclass(frozen=True)
class StreamChanged:
    """``what``: "created", "put", "deleted"; "restored": the store had lost it, and it began anew."""

    stream: str
    what: str


@dataclass(frozen=True)
class PlanBuilt:
    """``outcome`` as in ``BuiltPlan``; ``info`` is that of the plan in the answer. ``by_hash``: the rows per partition
    that plain hashing would have given for the same histogram, where they were counted; ``by_plan``: those that the
    plan gives for it, which differ from those of ``info`` where an older plan was kept. ``advice``: the way for the
    batch, where there is one."""

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
    advice: WayChoice | None = None


@dataclass(frozen=True)
class PlanServed:
    """``version`` is None where the caller had it already."""

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
    """A batch, or a part of it, was reported. ``latest``: the latest plan's version then; ``promised``: the info of the
    plan that the batch was routed by; each is None where it is unknown. ``partitions``: how many there were, also those
    without rows."""

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
    """How many tasks are advised; see ``api.verbs.ScaleAnswer``."""

    stream: str
    map_tasks: int
    reduce_tasks: int
    action: str
    zone: int
    reason: str


@dataclass(frozen=True)
class WatchersSeen:
    stream: str
    watchers: int


@dataclass(frozen=True)
class Skipped:
    """Something was not done, and why; with its round, where it is about one."""

    stream: str
    what: str
    reason: str
    round: int | None = None


Event: TypeAlias = (
    "StreamChanged | PlanBuilt | PlanServed | RoundMerged | AgentsSeen | BatchSeen | ScaleAdvised | WatchersSeen | "
    "StoreCalled | Skipped | WorkSeen"
)


class Observer(Protocol):
    def __call__(self, event: Event, /) -> None: ...


def rows_of(batch: BatchWork) -> dict[int, int]:
    return {work.partition: work.rows for work in batch.work}


def loads_of(rows: Mapping[int, int], partitions: int) -> list[int]:
    """The rows of each partition in order, of at least so many."""
    return [rows.get(at, 0) for at in range(max(max(rows, default=-1) + 1, partitions))]


def ignore(event: Event, /) -> None:
    """The observer that does nothing."""


def together(*observers: Observer) -> Observer:
    """All of them, in this order."""

    def each(event: Event, /) -> None:
        for observer in observers:
            observer(event)

    return each
