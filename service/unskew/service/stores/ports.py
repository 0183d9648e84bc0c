"""The ports of the store: what must be atomic, in outcomes with names. Memory and Redis both keep to them.

Everything of a stream is under its name. Any replica may send any message, and every operation may be repeated: the
second time the outcome says that it was done. An operation that needs the stream raises ``NotFoundError`` where there
is none; one that only reads returns nothing. Every operation raises ``UnavailableError`` where the store does not
answer in time: then it may have been done, or not.

A round of cooperative learning goes REPORT, SEAL, COMMIT (DESIGN, section 6). Reports are kept under the open epoch.
``seal(e)`` closes epoch e for all at once, and only if it is the open one; later reports count in the next.
``commit(e)`` stores the answer, and only if the last merged epoch is e - 1. It does not matter which replica merges:
the sealed reports are the same for all, and merging is a pure function of them. A store that was wiped starts a new
incarnation, so that no older answer or plan is taken for a new one.

A new operation is one method in a port here, one in ``memory`` and one in ``redis.store`` with its script. ``metered``
and ``recovering`` cover it without a change.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from unskew.core.plan.plan import Version
from unskew.core.rounds.round_log import Commit, ReportKey, ReportOutcome, RoundView, StoredReport
from unskew.service.stores.records import (
    HistoryEntry,
    Marks,
    News,
    NewsState,
    PartKey,
    PartOutcome,
    PlanOutcome,
    PlanRecord,
    SourceParts,
    StoredPart,
    StreamRecord,
)

__all__ = ["HistoryStore", "PartStore", "PlanStore", "RoundStore", "Store", "StreamStore"]


class StreamStore(Protocol):
    """The streams and their settings."""

    async def put_stream(
        self, name: str, spec: bytes, floor: int = 0, owner: str = "", most: int | None = None
    ) -> tuple[StreamRecord, bool]:
        """Create or change a stream; whether it was created. A new one's incarnation is at least ``floor``. A new one
        of an owner that has ``most`` streams, or more, is refused with a ``LimitError``."""

    async def stream(self, name: str) -> StreamRecord | None: ...

    async def streams(self, after: str, limit: int) -> Sequence[StreamRecord]:
        """By name."""

    async def delete_stream(self, name: str) -> bool:
        """Whether there was one. It stays deleted, also where the store had lost it."""

    async def renew_stream(self, last: StreamRecord, age: float, floor: int = 0) -> tuple[StreamRecord, bool] | None:
        """Begin a new incarnation, of at least ``floor``, of a stream that the store lost wholly or in part; whether
        it began here and now. ``last``: the record that a replica last read, ``age`` seconds ago.

        Where a newer incarnation has begun already it is returned; where the stream was deleted since, or may have been
        deleted because ``last`` is too old, None. Settings that the store still has win over those of ``last``."""


class PartStore(Protocol):
    """What jobs report of their batches, in parts."""

    async def put_part(self, stream: str, key: PartKey, data: bytes) -> PartOutcome:
        """Keep a part; batches that were longest silent make room for it. A ``QuotaError`` where there is none all the
        same: then nothing was changed."""

    async def source_parts(self, stream: str, kind: str, batch: int, source: str) -> SourceParts:
        """The parts of one source that count."""

    async def replace_parts(self, stream: str, seen: SourceParts, data: Mapping[PartKey, bytes]) -> bool:
        """Put other data for these parts, which are all of one source; False, and nothing is changed, where the parts
        were replaced since they were ``seen``, or a later run has come. Their names stay: none counts twice."""

    async def batch_sizes(self, stream: str, kind: str) -> Mapping[int, int]:
        """Bytes of the reports of each batch."""

    async def parts(self, stream: str, kind: str, batch: int) -> Sequence[StoredPart]:
        """The parts of one batch that count, of all sources, in the order of their keys."""

    async def part_keys(self, stream: str, kind: str, batch: int) -> Sequence[PartKey]:
        """Their keys alone: the data may be megabytes."""

    async def batches(self, stream: str, kind: str, before: int | None, limit: int) -> Sequence[int]:
        """The latest batches that have reports, descending, all smaller than ``before``."""

    async def marks(self, stream: str, kinds: Sequence[str]) -> Marks | None:
        """The marks of all batches; None where there is no such stream. Unlike every other operation this one does not
        extend the time for which a stream that nobody uses is kept."""


class PlanStore(Protocol):
    """The latest plans of each stream."""

    async def put_plan(self, stream: str, plan: PlanRecord, after: Version | None) -> PlanOutcome:
        """Make this the latest plan, if ``after`` still is, and if there is none for its purpose. Repeating the very
        same record is "stored" again; an equal plan for another purpose is not. The oldest plans make room for it; a
        ``QuotaError`` where there is none all the same."""

    async def plan(self, stream: str, version: Version | None = None) -> PlanRecord | None:
        """A plan by version, or the latest."""

    async def plan_for(self, stream: str, purpose: str) -> PlanRecord | None: ...


class RoundStore(Protocol):
    """The rounds of cooperative learning."""

    async def report(self, stream: str, key: ReportKey, data: bytes, lease: float) -> ReportOutcome:
        """Keep a report and renew its agent's lease by so many seconds. A ``QuotaError`` where the stream knows as many
        agents as it may."""

    async def round(self, stream: str) -> RoundView: ...

    async def seal(self, stream: str, epoch: int) -> bool:
        """Close this epoch for reports, if it is open and has any; whether it is closed now."""

    async def sealed(self, stream: str, epoch: int) -> Sequence[StoredReport]:
        """The reports of a sealed epoch, in the order of their keys; empty where it is merged."""

    async def commit(self, stream: str, commit: Commit) -> Commit | None:
        """Store the answer of an epoch, if it is sealed and the one before it is the last merged. The answer that is
        valid now: this one, or another replica's of this or a later epoch; None where the epoch is not merged."""

    async def answer(self, stream: str) -> Commit | None:
        """The answer of the last merged epoch."""


class HistoryStore(Protocol):
    """What happened to each stream, to be shown."""

    async def note(self, stream: str, kind: str, data: bytes, keep: int) -> None:
        """Add an entry, unless it equals the last one of its kind. The last ``keep`` of each kind stay."""

    async def notes(self, stream: str, kind: str, last: int) -> Sequence[HistoryEntry]:
        """The last so many of this kind, the earliest first."""


class Store(StreamStore, PartStore, PlanStore, RoundStore, HistoryStore, Protocol):
    """All ports over one state, with its health and its news."""

    async def ping(self) -> None:
        """Raises ``UnavailableError`` where the store does not answer, ``WritesRefusedError`` where it takes no write.
        It may be called once a second, and costs one small write at most."""

    async def close(self) -> None: ...

    def news(self) -> AsyncIterator[News]:
        """Wake-ups of all streams, from now on."""

    def news_state(self) -> NewsState:
        """Whether they come."""

    def used_bytes(self) -> tuple[int, int]:
        """Bytes in use, as last read, and how many there may be; 0 where there is no bound."""
