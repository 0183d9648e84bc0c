"""The store that the verbs stand on: what must be atomic, in outcomes with names. Memory and Redis both keep to it.

Everything of a stream is under its name. Values are bytes: a store never looks into them. Any replica may send any
message, and every operation may be repeated: the second time it says that it was done.

A round of cooperative learning goes REPORT, SEAL, COMMIT (DESIGN, section 6). Reports are kept under the open epoch.
``seal(e)`` closes epoch e for all at once, and only if it is the open one; what comes later counts in the next.
``commit(e)`` puts the answer, and only if the last merged epoch is e - 1. Who merges is of no account: the sealed
reports are the same for everybody, and merging is a pure function of them. A store that was wiped starts a new
incarnation, so that no older answer or plan is taken for news.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from unskew.core.plan.plan import Version
from unskew.core.rounds.round_log import Commit, Member, ReportKey, ReportOutcome, RoundView, StoredReport

__all__ = [
    "Commit",
    "HistoryEntry",
    "Member",
    "News",
    "PartKey",
    "PartOutcome",
    "PlanOutcome",
    "PlanRecord",
    "ReportKey",
    "ReportOutcome",
    "RoundView",
    "Store",
    "StoredPart",
    "StoredReport",
    "StreamRecord",
]


@dataclass(frozen=True)
class StreamRecord:
    """A stream as it was put. ``incarnation``: microseconds since 1970 at which its numbering began. ``owner`` is who
    created it, whoever changed it since."""

    name: str
    spec: bytes
    created: float  # seconds since 1970, by the store's clock
    incarnation: int
    owner: str = ""


# -- histograms and batch reports ---------------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class PartKey:
    """Which part of which batch of whom a report is about, and of which kind ("histogram", "work")."""

    kind: str
    source: str
    batch: int
    run: int
    part: int
    parts: int


@dataclass(frozen=True)
class StoredPart:
    """A report that counts: of the highest run of its (kind, source, batch) that anything was heard of."""

    key: PartKey
    data: bytes


class PartOutcome(Enum):
    """What became of a report."""

    STORED = "stored"
    REPEATED = "repeated"  # this part of this run was there: it stays as it was
    OLDER = "older"  # a later run of the batch was there


@dataclass(frozen=True)
class Marks:
    """Of each batch of a stream, by kind and number, a mark that is another one after each report to it."""

    incarnation: int
    of: Mapping[str, Mapping[int, int]]


# -- plans --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlanRecord:
    """A plan's bytes. ``purpose`` names what it was made for ("batch:17"), so that it is made once."""

    version: Version
    digest: str
    data: bytes
    purpose: str = ""


class PlanOutcome(Enum):
    """What became of a new plan."""

    STORED = "stored"
    PURPOSE_TAKEN = "purpose taken"  # there is a plan for this purpose: take that one
    NOT_NEXT = "not next"  # another plan came between: plan again from it


# -- news ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class News:
    """Something of a stream changed: look again. A wake-up only; it may come twice, late or not at all. News of a round
    say how far the rounds are, so that who knows need not look."""

    stream: str
    what: str  # "plan", "round", "stream"
    rounds: tuple[int, int] | None = field(default=None, compare=False)  # the open epoch and the last merged one


# -- notes --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HistoryEntry:
    """Something that happened to a stream, kept to be shown; and when, in seconds since 1970 by the store's clock."""

    at: float
    data: bytes


class Store(Protocol):
    """Raises ``UnavailableError`` where it cannot be asked in time: then it may have done what was asked, or not."""

    async def ping(self) -> None:
        """Whether it can be asked at all."""

    async def close(self) -> None: ...

    def news(self) -> AsyncIterator[News]:
        """Wake-ups of all streams, from now on."""

    # streams
    async def put_stream(
        self, name: str, spec: bytes, floor: int = 0, owner: str = "", most: int | None = None
    ) -> tuple[StreamRecord, bool]:
        """Create or change a stream; whether it was created. A new one's incarnation is at least ``floor``. A new one
        of an owner that has ``most`` streams, or more, is refused with a ``LimitError``."""

    async def stream(self, name: str) -> StreamRecord | None: ...

    async def streams(self, after: str, limit: int) -> Sequence[StreamRecord]:
        """By name."""

    async def delete_stream(self, name: str) -> bool:
        """Whether there was one. It stays deleted: also where the store had lost it."""

    async def renew_stream(self, seen: StreamRecord, age: float, floor: int = 0) -> tuple[StreamRecord, bool] | None:
        """The life of the stream that was ``seen``, ``age`` seconds ago, was lost, wholly or its latest part: begin a
        newer one, of an incarnation of at least ``floor``. Where a newer one has begun already it is that; None where
        the stream was deleted since, or so long ago was seen that nobody can tell. Whether it began here and now.
        Where some of it is there its settings are those, else those that were seen."""

    # parts of batches
    async def put_part(self, stream: str, key: PartKey, data: bytes) -> PartOutcome: ...

    async def parts(self, stream: str, kind: str, batch: int) -> Sequence[StoredPart]:
        """The reports that count, of one batch, of all sources; in the order of their keys."""

    async def part_keys(self, stream: str, kind: str, batch: int) -> Sequence[PartKey]:
        """Their keys alone: the data may be megabytes."""

    async def batches(self, stream: str, kind: str, before: int | None, limit: int) -> Sequence[int]:
        """The latest batches that have reports, descending, all smaller than ``before``."""

    async def marks(self, stream: str, kinds: Sequence[str]) -> Marks | None:
        """Whether anything was reported since somebody looked last; None where there is no such stream. A look like
        this does not put off the day on which a stream that nobody uses goes."""

    # plans
    async def put_plan(self, stream: str, plan: PlanRecord, after: Version | None) -> PlanOutcome:
        """Make this the latest plan, if ``after`` still is, and if there is none for its purpose. "Stored" is said
        again of the very same record only: another's of the same routes may be for another purpose."""

    async def plan(self, stream: str, version: Version | None = None) -> PlanRecord | None:
        """A plan by version, or the latest."""

    async def plan_for(self, stream: str, purpose: str) -> PlanRecord | None: ...

    # rounds
    async def report(self, stream: str, key: ReportKey, data: bytes, lease: float) -> ReportOutcome:
        """Keep a report and renew its agent's lease by so many seconds."""

    async def round(self, stream: str) -> RoundView: ...

    async def seal(self, stream: str, epoch: int) -> bool:
        """Close this epoch for reports, if it is open and has any; whether it is closed now."""

    async def sealed(self, stream: str, epoch: int) -> Sequence[StoredReport]:
        """The reports of a sealed epoch, in the order of their keys; empty where it is merged."""

    async def commit(self, stream: str, commit: Commit) -> Commit | None:
        """Put the answer of an epoch, if it is sealed and the one before it is the last merged. The answer that stands
        now: this one, or what another made of the epoch or of a later one; None where the epoch is not merged."""

    async def answer(self, stream: str) -> Commit | None:
        """The answer of the last merged epoch."""

    # notes
    async def note(self, stream: str, kind: str, data: bytes, keep: int) -> None:
        """Add a note, unless it says what the last one of its kind does; of each kind the last ``keep`` stay."""

    async def notes(self, stream: str, kind: str, last: int) -> Sequence[HistoryEntry]:
        """The last so many of this kind, the earliest first."""
