"""The values that go into a store and come out of it. A store never looks into their bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from unskew.core.plan.plan import Version

__all__ = [
    "Commit",
    "HistoryEntry",
    "Marks",
    "Member",
    "News",
    "PartKey",
    "PartOutcome",
    "PlanOutcome",
    "PlanRecord",
    "ReportKey",
    "ReportOutcome",
    "RoundView",
    "StoredPart",
    "StoredReport",
    "StreamRecord",
]


@dataclass(frozen=True)
class StreamRecord:
    """A stream and its settings. ``incarnation``: microseconds since 1970 at which its numbering began. ``owner``: who
    created it, whoever changed it since."""

    name: str
    spec: bytes
    created: float  # seconds since 1970, by the store's clock
    incarnation: int
    owner: str = ""


# -- histograms and reports of batches ------------------------------------------------------------------------


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


# -- plans ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlanRecord:
    """A plan's bytes. ``purpose`` says what it was made for ("batch:17"), so that it is made once."""

    version: Version
    digest: str
    data: bytes
    purpose: str = ""


class PlanOutcome(Enum):
    """What became of a new plan."""

    STORED = "stored"
    PURPOSE_TAKEN = "purpose taken"  # there is a plan for this purpose: use that one
    NOT_NEXT = "not next"  # another plan was stored in between: plan again from it


# -- rounds of cooperative learning ---------------------------------------------------------------------------


class ReportKey(NamedTuple):
    """The name of an agent's report (``core.rounds.messages``)."""

    agent: str
    session: int
    seq: int


@dataclass(frozen=True)
class StoredReport:
    """A report in a round, and when it arrived by the store's clock."""

    key: ReportKey
    data: bytes
    arrived: float


class ReportOutcome(Enum):
    """What became of a report."""

    STORED = "stored"  # in the open epoch, or in place of an earlier session's that was not merged
    REPEATED = "repeated"  # it is in a round that is not merged yet
    MERGED = "merged"  # it is in a merged round: the answer is there
    OLDER = "older"  # a later one of the same agent was there


@dataclass(frozen=True)
class Member:
    """An agent: until when a round waits for it, and the last of its reports that is in a merged round."""

    agent: str
    lease: float
    merged: ReportKey | None = None


@dataclass(frozen=True)
class RoundView:
    """All that sealing and merging are decided by, read at one moment of the store's clock.

    ``reported``: the agents in the open epoch and when their reports arrived. ``keep``: what the last commit left for
    the next one (how often to report, how long the merge took).
    """

    now: float
    incarnation: int
    open: int
    merged: int
    opened: float | None
    reported: dict[str, float] = field(default_factory=dict)
    members: tuple[Member, ...] = ()
    keep: bytes = b""


@dataclass(frozen=True)
class Commit:
    """The answer of a round. ``names``: the reports in it."""

    epoch: int
    answer: bytes
    names: tuple[ReportKey, ...]
    keep: bytes


# -- history and news -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HistoryEntry:
    """Something that happened to a stream, and when, in seconds since 1970 by the store's clock."""

    at: float
    data: bytes


@dataclass(frozen=True)
class News:
    """Something of a stream changed: look again. Only a wake-up: it may come twice, late or never. News of a round
    carry its numbers, so that a replica that is up to date need not look."""

    stream: str
    what: str  # "plan", "round", "stream"
    rounds: tuple[int, int] | None = field(default=None, compare=False)  # the open epoch and the last merged one
