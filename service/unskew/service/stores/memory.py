"""The store of a single process: everything is in dictionaries and ends with it (DESIGN, section 6).

No operation waits, so each is atomic on its one loop. What is kept is bounded by ``Limits``; reports are dropped when
their round is merged. Incarnations rise over all streams, so that a stream that is put again never gets old numbers.
"""

from __future__ import annotations

import bisect
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from unskew.core.plan.plan import Version
from unskew.core.rounds.round_digests import begun
from unskew.core.rounds.round_log import Commit, ReportKey, ReportOutcome, RoundLog, RoundView, StoredReport
from unskew.service.errors import QuotaError
from unskew.service.lru_cache import LruCache
from unskew.service.stores.fullness import Fullness
from unskew.service.stores.limits import (
    PART_BYTES,
    Hub,
    Limits,
    batch_full,
    check_floor,
    missing,
    other_parts,
    owner_full,
    round_full,
    too_many,
)
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

__all__ = ["MemoryStore"]

_TOMBSTONES, _DAY = 10_000, 86_400.0


@dataclass
class _Batch:
    """Reports of one batch and kind: of each source its highest run with its number of parts, and the parts of it.
    ``replaced``: how often those of a source were."""

    runs: dict[str, tuple[int, int]] = field(default_factory=dict)
    data: dict[PartKey, bytes] = field(default_factory=dict)
    replaced: dict[str, int] = field(default_factory=dict)
    size: int = 0
    mark: int = 0

    def known(self, key: PartKey) -> PartOutcome | None:
        """What became of this part before; None: it is a new one."""
        run, parts = self.runs.get(key.source, (-1, 0))
        if key.run < run:
            return PartOutcome.OLDER
        if key.run == run and key.parts != parts:
            raise other_parts(key, parts)
        return PartOutcome.REPEATED if key in self.data else None

    def outdated(self, key: PartKey) -> list[PartKey]:
        """The parts of its source that are of an earlier run."""
        if self.runs.get(key.source, (key.run, 0))[0] == key.run:
            return []
        return [other for other in self.data if other.source == key.source]

    def put(self, key: PartKey, data: bytes, size: int) -> None:
        for old in self.outdated(key):
            del self.data[old]
        if self.runs.get(key.source, (-1, 0))[0] != key.run:
            self.runs[key.source] = (key.run, key.parts)
            self.replaced.pop(key.source, None)
        self.data[key] = data
        self.size = size


def _size(key: PartKey, data: bytes) -> int:
    return len(f"{key.part} {key.source}".encode()) + len(data) + PART_BYTES


def _plan_size(plan: PlanRecord) -> int:
    return len(plan.data) + len(plan.ways)


@dataclass
class _StoredStream:
    record: StreamRecord
    batches: dict[str, dict[int, _Batch]] = field(default_factory=dict)  # by kind; the one last reported to is last
    plans: dict[Version, PlanRecord] = field(default_factory=dict)  # the latest is last
    purposes: dict[str, Version] = field(default_factory=dict)
    rounds: RoundLog = field(default_factory=RoundLog)
    notes: dict[str, deque[HistoryEntry]] = field(default_factory=dict)  # by kind
    arrivals: int = 0

    @property
    def size(self) -> int:
        """What the stream's owner is charged for."""
        of_parts = sum(batch.size for kind in self.batches.values() for batch in kind.values())
        return of_parts + sum(map(_plan_size, self.plans.values()))

    def _owner_full(self, used: int, size: int, limits: Limits) -> QuotaError:
        return owner_full(self.record.owner, used, size, limits.bytes_of(self.record.owner))

    def put_part(self, key: PartKey, data: bytes, limits: Limits, owner_used: int) -> PartOutcome:
        kind = self.batches.setdefault(key.kind, {})
        batch = kind.get(key.batch) or _Batch()
        known = batch.known(key)
        if known is not None:
            return known
        outdated = batch.outdated(key)
        size = batch.size + _size(key, data) - sum(_size(old, batch.data[old]) for old in outdated)
        for quota, used, more, most in (
            ("parts", len(batch.data), 1 - len(outdated), limits.parts),
            ("sources", len(batch.runs), key.source not in batch.runs, limits.sources),
            ("bytes", batch.size, size - batch.size, limits.kind_bytes(key.kind)),
        ):
            if used + more > most:
                raise batch_full(self.record.name, key, quota, used, limits)
        total = sum(other.size for other in kind.values())
        left, many = total - batch.size + size, len(kind) + (key.batch not in kind)
        grow, silent = owner_used + _size(key, data) <= limits.bytes_of(self.record.owner), []
        for number, other in kind.items():
            if many <= limits.batches and left <= limits.kind_bytes(key.kind) and (grow or left <= total):
                break
            if number != key.batch:
                left, many = left - other.size, many - 1
                silent.append(number)
        if not grow and left > total:
            raise self._owner_full(owner_used, _size(key, data), limits)
        batch.put(key, data, size)
        for number in (key.batch, *silent):
            kind.pop(number, None)
        kind[key.batch] = batch
        batch.mark = self.arrivals = self.arrivals + 1
        return PartOutcome.STORED

    def replace_parts(self, seen: SourceParts, data: Mapping[PartKey, bytes]) -> bool:
        first = next(iter(data))
        batch = self.batches.get(first.kind, {}).get(first.batch)
        if (
            batch is None
            or str(batch.replaced.get(first.source, "")) != seen.mark
            or not data.keys() <= batch.data.keys()
        ):
            return False
        batch.size += sum(len(new) - len(batch.data[key]) for key, new in data.items())
        batch.data.update(data)
        batch.replaced[first.source] = self.arrivals = self.arrivals + 1
        return True

    def latest(self) -> PlanRecord | None:
        return next(reversed(self.plans.values()), None)

    def put_plan(self, plan: PlanRecord, after: Version | None, limits: Limits, owner_used: int) -> PlanOutcome:
        same, latest = self.plans.get(plan.version), self.latest()
        if same == plan:
            return PlanOutcome.STORED
        if plan.purpose and plan.purpose in self.purposes:
            return PlanOutcome.PURPOSE_TAKEN
        if after != (None if latest is None else latest.version) or (latest and plan.version <= latest.version):
            return PlanOutcome.NOT_NEXT
        if plan.version.incarnation != self.record.incarnation:
            return PlanOutcome.NOT_NEXT
        total = sum(map(_plan_size, self.plans.values()))
        left, many = total + _plan_size(plan) - (0 if latest is None else len(latest.ways)), len(self.plans) + 1
        grow, silent = owner_used + _plan_size(plan) <= limits.bytes_of(self.record.owner), []
        for old in self.plans.values():
            if many <= limits.plans and left <= limits.plan_bytes and (grow or left <= total):
                break
            left, many = left - len(old.data), many - 1
            silent.append(old)
        if not grow and left > total:
            raise self._owner_full(owner_used, _plan_size(plan), limits)
        if latest is not None:
            self.plans[latest.version] = replace(latest, ways=b"")
        self.plans[plan.version] = plan
        if plan.purpose:
            self.purposes[plan.purpose] = plan.version
        for old in silent:
            del self.plans[old.version]
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
        self._deleted: LruCache[str, int] = LruCache(_TOMBSTONES)  # the last incarnation that may not be renewed
        self._used: Counter[str] = Counter()  # bytes, by owner
        self._fullness = Fullness("the memory store", "--max-store-bytes")
        self._fullness.read(0, self._limits.store_bytes)
        self._hub = Hub()

    async def ping(self) -> None:
        return None

    @contextlib.contextmanager
    def _charged(self, entry: _StoredStream) -> Iterator[None]:
        """Around what changes how much is kept of a stream."""
        before = entry.size
        yield
        self._used[entry.record.owner] += entry.size - before
        self._fullness.read(self._used.total(), self._limits.store_bytes)

    async def close(self) -> None:
        self._hub.close()

    def news(self) -> AsyncIterator[News]:
        return self._hub.listen()

    def news_state(self) -> NewsState:
        return NewsState()

    def used_bytes(self) -> tuple[int, int]:
        return self._fullness.used, self._fullness.most

    def _existing(self, stream: str) -> _StoredStream:
        entry = self._streams.get(stream)
        if entry is None:
            raise missing(stream)
        return entry

    # -- streams

    async def put_stream(
        self, name: str, spec: bytes, floor: int = 0, owner: str = "", most: int | None = None
    ) -> tuple[StreamRecord, bool]:
        check_floor(floor)
        entry = self._streams.get(name)
        if entry is not None:
            if entry.record.spec != spec:
                entry.record = replace(entry.record, spec=spec)
                self._hub.publish(name, "stream")
            return entry.record, False
        if most is not None and self._owned[owner] >= most:
            raise too_many(owner, most)
        return self._begin(name, spec, floor, owner), True

    def _begin(self, name: str, spec: bytes, floor: int, owner: str) -> StreamRecord:
        now = self._clock()
        self._incarnation = max(int(now * 1e6), floor, self._incarnation + 1)
        record = StreamRecord(name, spec, now, self._incarnation, owner)
        last = self._streams.get(name)
        if last is None:
            self._owned[owner] += 1
            bisect.insort(self._names, name)
        else:
            self._used[last.record.owner] -= last.size
        self._streams[name] = _StoredStream(record, rounds=RoundLog(begun=begun(record.incarnation)))
        self._hub.publish(name, "stream")
        return record

    async def renew_stream(self, last: StreamRecord, age: float, floor: int = 0) -> tuple[StreamRecord, bool] | None:
        floor, entry = max(check_floor(floor), check_floor(last.incarnation) + 1), self._streams.get(last.name)
        if entry is not None and entry.record.incarnation > last.incarnation:
            return entry.record, False
        if entry is None and (age > _DAY or self._deleted.get(last.name, -1) >= last.incarnation):
            return None
        settings = last if entry is None else entry.record
        return self._begin(last.name, settings.spec, floor, settings.owner), True

    async def stream(self, name: str) -> StreamRecord | None:
        entry = self._streams.get(name)
        return None if entry is None else entry.record

    async def streams(self, after: str, limit: int) -> Sequence[StreamRecord]:
        start = bisect.bisect_right(self._names, after)
        return tuple(self._streams[name].record for name in self._names[start : start + limit])

    async def delete_stream(self, name: str) -> bool:
        deleted = self._streams.pop(name, None)
        self._deleted.put(name, max(self._incarnation, int(self._clock() * 1e6)))
        if deleted is None:
            return False
        self._owned[deleted.record.owner] -= 1
        self._used[deleted.record.owner] -= deleted.size
        self._fullness.read(self._used.total(), self._limits.store_bytes)
        del self._names[bisect.bisect_left(self._names, name)]
        self._hub.publish(name, "stream")
        return True

    # -- parts of batches

    async def put_part(self, stream: str, key: PartKey, data: bytes) -> PartOutcome:
        entry = self._existing(stream)
        self._fullness.check(len(data), small=key.kind == "work")
        with self._charged(entry):
            return entry.put_part(key, data, self._limits, self._used[entry.record.owner])

    async def source_parts(self, stream: str, kind: str, batch: int, source: str) -> SourceParts:
        entry = self._streams.get(stream)
        found = (entry.batches.get(kind, {}).get(batch) if entry else None) or _Batch()
        parts = tuple(StoredPart(key, found.data[key]) for key in sorted(found.data) if key.source == source)
        return SourceParts(str(found.replaced.get(source, "")), parts)

    async def replace_parts(self, stream: str, seen: SourceParts, data: Mapping[PartKey, bytes]) -> bool:
        entry = self._existing(stream)
        with self._charged(entry):
            return entry.replace_parts(seen, data)

    async def batch_sizes(self, stream: str, kind: str) -> Mapping[int, int]:
        entry = self._streams.get(stream)
        return {number: batch.size for number, batch in entry.batches.get(kind, {}).items()} if entry else {}

    async def parts(self, stream: str, kind: str, batch: int) -> Sequence[StoredPart]:
        entry = self._streams.get(stream)
        parts = entry.batches.get(kind, {}).get(batch) if entry else None
        return () if parts is None else tuple(StoredPart(key, parts.data[key]) for key in sorted(parts.data))

    async def part_keys(self, stream: str, kind: str, batch: int) -> Sequence[PartKey]:
        return tuple(part.key for part in await self.parts(stream, kind, batch))

    async def batches(self, stream: str, kind: str, before: int | None, limit: int) -> Sequence[int]:
        entry = self._streams.get(stream)
        numbers = entry.batches.get(kind, {}) if entry else {}
        return tuple(sorted((n for n in numbers if before is None or n < before), reverse=True)[:limit])

    async def marks(self, stream: str, kinds: Sequence[str]) -> Marks | None:
        entry = self._streams.get(stream)
        if entry is None:
            return None
        of = {kind: {number: batch.mark for number, batch in entry.batches.get(kind, {}).items()} for kind in kinds}
        return Marks(entry.record.incarnation, of)

    # -- plans

    async def put_plan(self, stream: str, plan: PlanRecord, after: Version | None) -> PlanOutcome:
        entry = self._existing(stream)
        before = entry.latest()
        self._fullness.check(_plan_size(plan))
        with self._charged(entry):
            outcome = entry.put_plan(plan, after, self._limits, self._used[entry.record.owner])
        if entry.latest() != before:
            self._hub.publish(stream, "plan")
        return outcome

    async def plan(self, stream: str, version: Version | None = None) -> PlanRecord | None:
        entry = self._streams.get(stream)
        if entry is None:
            return None
        return entry.latest() if version is None else entry.plans.get(version)

    async def plan_for(self, stream: str, purpose: str) -> PlanRecord | None:
        entry = self._streams.get(stream)
        version = entry.purposes.get(purpose) if entry else None
        return entry.plans[version] if entry and version else None

    # -- rounds

    async def report(self, stream: str, key: ReportKey, data: bytes, lease: float) -> ReportOutcome:
        rounds = self._existing(stream).rounds
        self._fullness.check(len(data), small=True)
        if key.agent not in rounds.agents and len(rounds.agents) >= self._limits.agents:
            full = round_full(stream, "agents", len(data), self._limits)
        else:
            outcome = rounds.report(key, data, self._clock(), lease, self._limits.stream_bytes)
            full = round_full(stream, outcome.value, len(data), self._limits)
        if full is not None:
            raise full
        return outcome

    async def round(self, stream: str) -> RoundView:
        entry = self._existing(stream)
        return entry.rounds.view(self._clock(), entry.record.incarnation)

    async def seal(self, stream: str, epoch: int) -> bool:
        rounds = self._existing(stream).rounds
        if rounds.seal(epoch):
            self._hub.publish(stream, "round", (rounds.open, rounds.merged))
        return epoch < rounds.open

    async def sealed(self, stream: str, epoch: int) -> Sequence[StoredReport]:
        entry = self._streams.get(stream)
        return entry.rounds.sealed(epoch) if entry else ()

    async def commit(self, stream: str, commit: Commit) -> Commit | None:
        rounds = self._existing(stream).rounds
        if rounds.commit(commit, self._clock(), self._limits.forget):
            self._hub.publish(stream, "round", (rounds.open, rounds.merged))
        return rounds.last if commit.epoch <= rounds.merged else None

    async def answer(self, stream: str) -> Commit | None:
        entry = self._streams.get(stream)
        return None if entry is None else entry.rounds.last

    # -- notes

    async def note(self, stream: str, kind: str, data: bytes, keep: int) -> None:
        notes = self._existing(stream).notes
        entries = notes.get(kind, ())
        more = () if entries and entries[-1].data == data else (HistoryEntry(self._clock(), data),)
        notes[kind] = deque((*entries, *more), keep)

    async def notes(self, stream: str, kind: str, last: int) -> Sequence[HistoryEntry]:
        entry = self._streams.get(stream)
        return tuple(entry.notes.get(kind, ()))[-last:] if entry else ()
