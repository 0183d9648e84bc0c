"""The values that go into a store and come out of it. A store never looks into their bytes.
Those of rounds are core's (``core.rounds.round_log``): which report counts is decided there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from unskew.core.plan.plan import Version

__all__ = [
    "MISSED", "HistoryEntry", "Marks", "News", "NewsState", "PartKey", "PartOutcome", "PlanOutcome", "PlanRecord",
    "SourceParts", "StoredPart", "StreamRecord",
]  # fmt: skip


@dataclass(frozen=True)
class StreamRecord:
    """``incarnation``: microseconds since 1970 at which the stream's numbering began. ``owner``: who created it."""

    name: str
    spec: bytes
    created: float  # seconds since 1970, by the store's clock
    incarnation: int
    owner: str = ""


@dataclass(frozen=True, order=True)
class PartKey:
    """The name of a part of a report about a batch. ``kind``: "histogram" or "work"."""

    kind: str
    source: str
    batch: int
    run: int
    part: int
    parts: int


@dataclass(frozen=True)
class StoredPart:
    """A part that counts: it is of the highest run that was reported for its (kind, source, batch)."""

    key: PartKey
    data: bytes


@dataclass(frozen=True)
class SourceParts:
    """The parts of one source of a batch. ``mark`` changes when their data is replaced; "" before that."""

    mark: str
    parts: tuple[StoredPart, ...]


class PartOutcome(Enum):
    """What became of a part."""

    STORED = "stored"
    REPEATED = "repeated"  # this part of this run was there and stays as it was
    OLDER = "older"  # a later run of the batch was there


@dataclass(frozen=True)
class Marks:
    """A number for each batch of a stream, by kind and batch, that changes with each report about the batch."""

    incarnation: int
    of: Mapping[str, Mapping[int, int]]


@dataclass(frozen=True)
class PlanRecord:
    """A plan's bytes. ``purpose`` says what it was made for ("batch:17"), so that it is made once. ``advice``: the way
    that was advised with it. ``ways``: what that was learned from, which only the latest plan has."""

    version: Version
    digest: str
    data: bytes
    purpose: str = ""
    advice: bytes = b""
    ways: bytes = field(default=b"", compare=False)


class PlanOutcome(Enum):
    """What became of a new plan."""

    STORED = "stored"
    PURPOSE_TAKEN = "purpose taken"  # there is a plan for this purpose: use that one
    NOT_NEXT = "not next"  # another plan was stored in between: plan again from it


@dataclass(frozen=True)
class HistoryEntry:
    """Something that happened to a stream, and when, in seconds since 1970 by the store's clock."""

    at: float
    data: bytes


@dataclass(frozen=True)
class News:
    """Something of a stream changed: look again. Only a wake-up: it may come twice, late or never. News of a round
    carry its numbers, so that a replica that is up to date need not look. ``MISSED``: those of any stream may have been
    lost."""

    stream: str
    what: str  # "plan", "round", "stream", "missed"
    rounds: tuple[int, int] | None = field(default=None, compare=False)  # the open epoch and the last merged one


MISSED = News("", "missed")


@dataclass(frozen=True)
class NewsState:
    """``trouble``: why no news come; empty where they do. ``dropped``: messages that were no news, so far."""

    trouble: str = ""
    dropped: int = 0
