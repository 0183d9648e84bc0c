"""The store of a single process: everything in dictionaries, nothing outlives it (DESIGN, section 6).

No operation waits, so each is atomic on the one loop that it is for. What is kept is bounded by ``Limits``; reports go
when their round is merged. Incarnations rise over all streams, so that a stream put again never meets its old numbers.
"""

from __future__ import annotations

import bisect
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace

from unskew.core.plan.plan import Version
from unskew.core.rounds.round_log import RoundLog
from unskew.service.stores.limits import Hub, Limits, check_floor, missing, other_parts, too_many
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
    StoredPart,
    StoredReport,
    StreamRecord,
)

__all__ = ["MemoryStore"]

_REMEMBERED, _DAY = 10_000, 86_400.0


@dataclass
class _Batch:
    """Reports of one batch and kind: of each source its highest run, how many parts that has, and those that came."""

    runs: dict[str, tuple[int, int]] = field(default_factory=dict)
    held: dict[PartKey, bytes] = field(default_factory=dict)
    mark: int = 0

    def put(self, key: PartKey, data: bytes) -> PartOutcome:
        run, parts = self.runs.get(key.source, (-1, 0))
        if key.run < run:
            return PartOutcome.OLDER
        if key.run == run and key.parts != parts:
            raise other_parts(key, parts)
        if key in self.held:
            return PartOutcome.REPEATED
        if key.run > run:
            self.held = {old: kept for old, kept in self.held.items() if old.source != key.source}
            self.runs[key.source] = (key.run, key.parts)
        self.held[key] = data
        return PartOutcome.STORED


@dataclass
class _StoredStream:
    record: StreamRecord
    batches: dict[str, dict[int, _Batch]] = field(default_factory=dict)  # by kind; the one last reported to is last
    plans: dict[Version, PlanRecord] = field(default_factory=dict)  # the latest is last
    purposes: dict[str, Version] = field(default_factory=dict)
    rounds: RoundLog = field(default_factory=RoundLog)
    notes: dict[str, deque[HistoryEntry]] = field(default_factory=dict)  # by kind
    arrivals: int = 0

    def put_part(self, key: PartKey, data: bytes, most: int) -> PartOutcome:
        kind = self.batches.setdefault(key.kind, {})
        batch = kind.get(key.batch) or _Batch()
        outcome = batch.put(key, data)
        if outcome is PartOutcome.STORED:
            kind.pop(key.batch, None)
            kind[key.batch] = batch
            batch.mark = self.arrivals = self.arrivals + 1
            while len(kind) > most:
                del kind[next(iter(kind))]
        return outcome

    def latest(self) -> PlanRecord | None:
        return next(reversed(self.plans.values()), None)

    def put_plan(self, plan: PlanRecord, after: Version | None, most: int) -> PlanOutcome:
        same, latest = self.plans.get(plan.version), self.latest()
        if same == plan:
            return PlanOutcome.STORED
        if plan.purpose and plan.purpose in self.purposes:
            return PlanOutcome.PURPOSE_TAKEN
        if after != (None if latest is None else latest.version) or (latest and plan.version <= latest.version):
            return PlanOutcome.NOT_NEXT
        if plan.version.incarnation != self.record.incarnation:
            return PlanOutcome.NOT_NEXT
        self.plans[plan.version] = plan
        if plan.purpose:
            self.purposes[plan.purpose] = plan.version
        while len(self.plans) > most:
            old = self.plans.pop(next(iter(self.plans)))
            self.purposes.pop(old.purpose, None)
        return PlanOutcome.STORED


class MemoryStore:
    """``clock``: seconds since 1970.

    >>> import asyncio, time
    >>> asyncio.run(MemoryStore(time.time).stream("clicks")) is None
    True
    """

    def __init__(self, clock: Callable[[], float], limits: Limits | None = None) -> None:
        self._clock = clock
        self._limits = limits or Limits()
        self._streams: dict[str, _StoredStream] = {}
        self._names: list[str] = []
        self._owned: Counter[str] = Counter()
        self._incarnation = 0
        self._gone: dict[str, int] = {}  # deleted streams, by the incarnations that may not come back
        self._hub = Hub()

    async def ping(self) -> None:
        return None

    async def close(self) -> None:
        self._hub.close()

    def news(self) -> AsyncIterator[News]:
        return self._hub.listen()

    def _of(self, stream: str) -> _StoredStream:
        found = self._streams.get(stream)
        if found is None:
            raise missing(stream)
        return found

    # -- streams

    async def put_stream(
        self, name: str, spec: bytes, floor: int = 0, owner: str = "", most: int | None = None
    ) -> tuple[StreamRecord, bool]:
        check_floor(floor)
        had = self._streams.get(name)
        if had is not None:
            if had.record.spec != spec:
                had.record = replace(had.record, spec=spec)
                self._hub.tell(name, "stream")
            return had.record, False
        if most is not None and self._owned[owner] >= most:
            raise too_many(owner, most)
        return self._begin(name, spec, floor, owner), True

    def _begin(self, name: str, spec: bytes, floor: int, owner: str) -> StreamRecord:
        now = self._clock()
        self._incarnation = max(int(now * 1e6), floor, self._incarnation + 1)
        record = StreamRecord(name, spec, now, self._incarnation, owner)
        if name not in self._streams:
            self._owned[owner] += 1
            bisect.insort(self._names, name)
        self._streams[name] = _StoredStream(record)
        self._hub.tell(name, "stream")
        return record

    async def renew_stream(self, seen: StreamRecord, age: float, floor: int = 0) -> tuple[StreamRecord, bool] | None:
        floor, had = max(check_floor(floor), check_floor(seen.incarnation) + 1), self._streams.get(seen.name)
        if had is not None and had.record.incarnation > seen.incarnation:
            return had.record, False
        if had is None and (age > _DAY or self._gone.get(seen.name, -1) >= seen.incarnation):
            return None
        as_it_was = seen if had is None else had.record
        return self._begin(seen.name, as_it_was.spec, floor, as_it_was.owner), True

    async def stream(self, name: str) -> StreamRecord | None:
        found = self._streams.get(name)
        return None if found is None else found.record

    async def streams(self, after: str, limit: int) -> Sequence[StreamRecord]:
        start = bisect.bisect_right(self._names, after)
        return tuple(self._streams[name].record for name in self._names[start : start + limit])

    async def delete_stream(self, name: str) -> bool:
        gone = self._streams.pop(name, None)
        self._gone.pop(name, None)
        self._gone[name] = max(self._incarnation, int(self._clock() * 1e6))
        while len(self._gone) > _REMEMBERED:
            del self._gone[next(iter(self._gone))]
        if gone is None:
            return False
        self._owned[gone.record.owner] -= 1
        del self._names[bisect.bisect_left(self._names, name)]
        self._hub.tell(name, "stream")
        return True

    # -- parts of batches

    async def put_part(self, stream: str, key: PartKey, data: bytes) -> PartOutcome:
        return self._of(stream).put_part(key, data, self._limits.batches)

    async def parts(self, stream: str, kind: str, batch: int) -> Sequence[StoredPart]:
        found = self._streams.get(stream)
        held = found.batches.get(kind, {}).get(batch) if found else None
        return () if held is None else tuple(StoredPart(key, held.held[key]) for key in sorted(held.held))

    async def part_keys(self, stream: str, kind: str, batch: int) -> Sequence[PartKey]:
        return tuple(part.key for part in await self.parts(stream, kind, batch))

    async def batches(self, stream: str, kind: str, before: int | None, limit: int) -> Sequence[int]:
        found = self._streams.get(stream)
        numbers = found.batches.get(kind, {}) if found else {}
        return tuple(sorted((n for n in numbers if before is None or n < before), reverse=True)[:limit])

    async def marks(self, stream: str, kinds: Sequence[str]) -> Marks | None:
        found = self._streams.get(stream)
        if found is None:
            return None
        of = {kind: {number: batch.mark for number, batch in found.batches.get(kind, {}).items()} for kind in kinds}
        return Marks(found.record.incarnation, of)

    # -- plans

    async def put_plan(self, stream: str, plan: PlanRecord, after: Version | None) -> PlanOutcome:
        found = self._of(stream)
        before = len(found.plans), found.latest()
        outcome = found.put_plan(plan, after, self._limits.plans)
        if (len(found.plans), found.latest()) != before:
            self._hub.tell(stream, "plan")
        return outcome

    async def plan(self, stream: str, version: Version | None = None) -> PlanRecord | None:
        found = self._streams.get(stream)
        if found is None:
            return None
        return found.latest() if version is None else found.plans.get(version)

    async def plan_for(self, stream: str, purpose: str) -> PlanRecord | None:
        found = self._streams.get(stream)
        version = found.purposes.get(purpose) if found else None
        return found.plans[version] if found and version else None

    # -- rounds

    async def report(self, stream: str, key: ReportKey, data: bytes, lease: float) -> ReportOutcome:
        return self._of(stream).rounds.report(key, data, self._clock(), lease)

    async def round(self, stream: str) -> RoundView:
        found = self._of(stream)
        return found.rounds.view(self._clock(), found.record.incarnation)

    async def seal(self, stream: str, epoch: int) -> bool:
        rounds = self._of(stream).rounds
        if rounds.seal(epoch):
            self._hub.tell(stream, "round", (rounds.open, rounds.merged))
        return epoch < rounds.open

    async def sealed(self, stream: str, epoch: int) -> Sequence[StoredReport]:
        found = self._streams.get(stream)
        return found.rounds.sealed(epoch) if found else ()

    async def commit(self, stream: str, commit: Commit) -> Commit | None:
        rounds = self._of(stream).rounds
        if rounds.commit(commit, self._clock(), self._limits.forget):
            self._hub.tell(stream, "round", (rounds.open, rounds.merged))
        return rounds.last if commit.epoch <= rounds.merged else None

    async def answer(self, stream: str) -> Commit | None:
        found = self._streams.get(stream)
        return None if found is None else found.rounds.last

    # -- notes

    async def note(self, stream: str, kind: str, data: bytes, keep: int) -> None:
        of = self._of(stream).notes
        had = of.get(kind, ())
        more = () if had and had[-1].data == data else (HistoryEntry(self._clock(), data),)
        of[kind] = deque((*had, *more), keep)

    async def notes(self, stream: str, kind: str, last: int) -> Sequence[HistoryEntry]:
        found = self._streams.get(stream)
        return tuple(found.notes.get(kind, ()))[-last:] if found else ()
