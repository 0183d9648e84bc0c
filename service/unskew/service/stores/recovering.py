"""A store that lost what it had said yes to, and how the streams that it held go on (DESIGN, section 6).

Redis may come back empty, with the state of an hour ago, or, after a failover, without the last writes. What is lost is
noticed by whoever has seen it: this wraps the store of one replica and remembers of each stream its settings, its
latest plan and its last merged round. Where the store knows less than that, the stream begins anew, once for all
replicas, in an incarnation above the one that was lost: so no number ever means two things, and agents adopt what
comes. The last plan known is put back as the first of the new life, under a new version with the same routes. What was
reported and learned is not: a slower start, and no wrong answer.

A stream that somebody deleted stays deleted: the store remembers that for longer than is believed here what was seen.
A stream that no replica remembers is gone; whoever wants it puts it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from unskew.core.errors import UnskewError
from unskew.core.plan.plan import Version
from unskew.service.concurrency import SingleFlight, monotonic
from unskew.service.errors import NotFoundError, UnavailableError
from unskew.service.events.events import Observer, StreamChanged, ignore
from unskew.service.lru_cache import LruCache
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
from unskew.wire.plans import plan_from_bytes, plan_to_bytes

__all__ = ["RecoveringStore"]

T = TypeVar("T")
_KEPT = 10_000
_log = logging.getLogger("unskew.service")


@dataclass(frozen=True)
class _Seen:
    """A stream as the store had it, and when."""

    record: StreamRecord
    at: float


class RecoveringStore:
    """``Store``. ``floor``: the least incarnation that a stream may begin with, from what agents have shown."""

    def __init__(self, store: Store, observer: Observer = ignore) -> None:
        self._store, self._observer = store, observer
        self.floor: Callable[[str], int] = lambda _stream: 0
        self._seen: LruCache[str, _Seen] = LruCache(_KEPT)
        self._plans: LruCache[str, PlanRecord] = LruCache(_KEPT)
        self._rounds: LruCache[str, tuple[int, int]] = LruCache(_KEPT)  # incarnation and last merged epoch
        self._mends: SingleFlight[StreamRecord | None] = SingleFlight()

    async def ping(self) -> None:
        await self._store.ping()

    async def close(self) -> None:
        await self._store.close()

    def news(self) -> AsyncIterator[News]:
        return self._looked_at(self._store.news())

    async def _looked_at(self, told: AsyncIterator[News]) -> AsyncIterator[News]:
        """What is told of a stream's settings may be that it was deleted: that is to be known here."""
        async for news in told:
            if news.what == "stream" and news.stream in self._seen:
                with contextlib.suppress(UnavailableError):
                    await self.stream(news.stream)
            yield news

    # -- streams

    async def put_stream(
        self, name: str, spec: bytes, floor: int = 0, owner: str = "", most: int | None = None
    ) -> tuple[StreamRecord, bool]:
        before = self._seen.get(name)
        record, created = await self._store.put_stream(name, spec, floor, owner, most)
        if before is not None and record.incarnation < before.record.incarnation:
            record = await self._mend(name, before.record.incarnation) or record
        self._saw(record)
        return record, created

    async def stream(self, name: str) -> StreamRecord | None:
        before = self._seen.get(name)
        record = await self._store.stream(name)
        if before is not None and (record is None or record.incarnation < before.record.incarnation):
            return await self._mend(name, before.record.incarnation)
        if record is not None:
            self._saw(record)
        return record

    async def streams(self, after: str, limit: int) -> Sequence[StreamRecord]:
        page = await self._store.streams(after, limit)
        names, end = {record.name for record in page}, page[-1].name if len(page) >= limit else None
        lost = [name for name in self._seen if name not in names and name > after and (end is None or name < end)]
        if any([await self.stream(name) for name in sorted(lost)[:limit]]):
            page = await self._store.streams(after, limit)
        for record in page:
            self._saw(record)
        return page

    async def delete_stream(self, name: str) -> bool:
        known = self._seen.get(name) is not None
        there = await self._store.delete_stream(name)
        self._forget(name)
        return there or known

    async def renew_stream(self, seen: StreamRecord, age: float, floor: int = 0) -> tuple[StreamRecord, bool] | None:
        return await self._store.renew_stream(seen, age, floor)

    # -- parts of batches

    async def put_part(self, stream: str, key: PartKey, data: bytes) -> PartOutcome:
        return await self._there(stream, lambda: self._store.put_part(stream, key, data))

    async def parts(self, stream: str, kind: str, batch: int) -> Sequence[StoredPart]:
        return await self._store.parts(stream, kind, batch)

    async def part_keys(self, stream: str, kind: str, batch: int) -> Sequence[PartKey]:
        return await self._store.part_keys(stream, kind, batch)

    async def batches(self, stream: str, kind: str, before: int | None, limit: int) -> Sequence[int]:
        return await self._store.batches(stream, kind, before, limit)

    async def marks(self, stream: str, kinds: Sequence[str]) -> Marks | None:
        return await self._store.marks(stream, kinds)

    # -- plans

    async def put_plan(self, stream: str, plan: PlanRecord, after: Version | None) -> PlanOutcome:
        outcome = await self._there(stream, lambda: self._store.put_plan(stream, plan, after))
        if outcome is PlanOutcome.STORED:
            self._took(stream, plan)
        return outcome

    async def plan(self, stream: str, version: Version | None = None) -> PlanRecord | None:
        known = self._plans.get(stream) if version is None else None
        found = await self._store.plan(stream, version)
        if known is not None and _behind(found, known):
            await self._mend(stream, known.version.incarnation)
            found = await self._store.plan(stream)
        if found is not None and version is None:
            self._took(stream, found)
            if stream not in self._seen:  # who only watches plans has not asked for it yet
                await self.stream(stream)
        return found

    async def plan_for(self, stream: str, purpose: str) -> PlanRecord | None:
        return await self._store.plan_for(stream, purpose)

    # -- rounds

    async def report(self, stream: str, key: ReportKey, data: bytes, lease: float) -> ReportOutcome:
        return await self._there(stream, lambda: self._store.report(stream, key, data, lease))

    async def round(self, stream: str) -> RoundView:
        known = self._rounds.get(stream, (0, 0))
        view = await self._there(stream, lambda: self._store.round(stream))
        if view.incarnation <= known[0] and (view.incarnation, view.merged) < known:
            await self._mend(stream, known[0])
            view = await self._store.round(stream)
        self._merged(stream, view.incarnation, view.merged)
        return view

    async def seal(self, stream: str, epoch: int) -> bool:
        return await self._there(stream, lambda: self._store.seal(stream, epoch))

    async def sealed(self, stream: str, epoch: int) -> Sequence[StoredReport]:
        return await self._store.sealed(stream, epoch)

    async def commit(self, stream: str, commit: Commit) -> Commit | None:
        life = self._rounds.get(stream, (0, 0))[0]
        stands = await self._there(stream, lambda: self._store.commit(stream, commit))
        if stands is not None and life == self._rounds.get(stream, (0, 0))[0]:
            self._merged(stream, life, stands.epoch)
        return stands

    async def answer(self, stream: str) -> Commit | None:
        return await self._store.answer(stream)

    # -- notes: those of a life that was lost are lost with it

    async def note(self, stream: str, kind: str, data: bytes, keep: int) -> None:
        await self._store.note(stream, kind, data, keep)

    async def notes(self, stream: str, kind: str, last: int) -> Sequence[HistoryEntry]:
        return await self._store.notes(stream, kind, last)

    # -- what was seen

    def _saw(self, record: StreamRecord) -> None:
        had = self._seen.get(record.name)
        if had is None or had.record.incarnation <= record.incarnation:
            self._seen.put(record.name, _Seen(record, monotonic()))

    def _took(self, stream: str, plan: PlanRecord) -> None:
        had = self._plans.get(stream)
        if had is None or had.version <= plan.version:
            self._plans.put(stream, plan)

    def _merged(self, stream: str, incarnation: int, epoch: int) -> None:
        self._rounds.put(stream, max(self._rounds.get(stream, (0, 0)), (incarnation, epoch)))

    def _forget(self, stream: str) -> None:
        for kept in (self._seen, self._plans, self._rounds):
            kept.pop(stream, None)

    # -- beginning anew

    async def _there(self, stream: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask; once more, if the stream was lost and is there again."""
        try:
            return await ask()
        except NotFoundError:
            seen = self._seen.get(stream)
            if seen is None or await self._mend(stream, seen.record.incarnation) is None:
                raise
            return await ask()

    async def _mend(self, stream: str, lost: int) -> StreamRecord | None:
        """The stream in its newest life, in a new one if there is none above ``lost``; None where it is to be gone."""
        seen = self._seen.get(stream)
        if seen is None:
            return await self._store.stream(stream)
        return await self._mends.once((stream, lost), lambda: self._renew(seen, lost))

    async def _renew(self, seen: _Seen, lost: int) -> StreamRecord | None:
        stream = seen.record.name
        known, left = self._plans.get(stream), await self._store.plan(stream)
        shown = [
            seen.record.incarnation,
            self._rounds.get(stream, (0, 0))[0],
            known.version.incarnation if known else 0,
        ]
        floor, age = max(self.floor(stream), *(incarnation + 1 for incarnation in shown)), monotonic() - seen.at
        renewed = await self._store.renew_stream(replace(seen.record, incarnation=lost), age, floor)
        self._forget(stream)
        if renewed is None:
            return None
        record, anew = renewed
        self._saw(record)
        if anew:
            _log.warning("the store has lost what it knew of a stream: it begins anew", extra={"stream": stream})
            self._observer(StreamChanged(stream, "restored"))
            await self._put_back(record, max((one for one in (known, left) if one), key=_version, default=None))
        return record

    async def _put_back(self, record: StreamRecord, plan: PlanRecord | None) -> None:
        """The routes of before, as the first plan of this life. Where that fails the next build makes one."""
        if plan is None:
            return
        try:
            again = await asyncio.to_thread(_again, plan, Version(record.incarnation, 1))
            await self._store.put_plan(record.name, again, None)
        except (UnskewError, ValueError) as why:
            _log.warning("the last plan was not put back: %s", why, extra={"stream": record.name})


def _version(plan: PlanRecord) -> Version:
    return plan.version


def _behind(found: PlanRecord | None, known: PlanRecord) -> bool:
    """Whether what the store has is not what it had: less, or something else of the same number."""
    if found is None or found.version < known.version:
        return True
    return found.version == known.version and found.digest != known.digest


def _again(record: PlanRecord, version: Version) -> PlanRecord:
    """The same routes under another version."""
    plan = plan_from_bytes(record.data)
    reason = f"put back after the store had lost it: {plan.info.reason}"[:2000]
    info = replace(plan.info, version=version, previous=plan.version, reason=reason, moved_rows=0.0, moved_keys=0.0)
    data = plan_to_bytes(replace(plan, info=info))
    return PlanRecord(version, record.digest, data)
