"""How streams go on after the store lost what it had confirmed (DESIGN, section 6).

Redis may come back empty, with a snapshot of an hour ago or, after a failover, without the last writes. A replica
notices by what it has read before: this wraps its store, and remembers the settings and the latest plan of each
stream; whether a merged round is lost is decided in ``core.rounds.replica``. Where the store is behind that, the stream
begins a new incarnation above the lost one, once for all replicas: so no number ever means two things, and agents adopt
whatever comes. The latest plan that the replica remembers is stored as the first one of the new incarnation, under a
new version with the same routes. Reports and learned tables are lost: the stream starts slower, and gives no wrong
answer.

A deleted stream stays deleted: the store remembers it for longer than any replica trusts what it has read. A stream
that no replica remembers is gone until somebody puts it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from unskew.core.errors import UnskewError
from unskew.core.plan.plan import Version
from unskew.service.concurrency import SingleFlight, monotonic
from unskew.service.errors import DamagedError, NotFoundError, UnavailableError
from unskew.service.lru_cache import LruCache
from unskew.service.stores.ports import Store
from unskew.service.stores.records import News, NewsState, PlanOutcome, PlanRecord, StreamRecord
from unskew.wire.plans import plan_from_bytes, plan_to_bytes, stream_and_version

__all__ = ["RecoveringStore", "recovering"]

_REMEMBERED = 10_000
_MAX_REASON = 2000
_log = logging.getLogger("unskew.service")


def recovering(store: Store, floor: Callable[[str], int], restored: Callable[[str], None]) -> Store:
    """The same store. ``floor``: the least incarnation that a stream may begin with, from what agents have shown.
    ``restored`` is called with the name of each stream that began anew here."""
    return cast(Store, RecoveringStore(store, floor, restored))


@dataclass(frozen=True)
class _LastRead:
    """A stream as the store had it, and when."""

    record: StreamRecord
    at: float


class RecoveringStore:
    """Has a method of its own only where an operation shows that something was lost; every other operation that misses
    its stream is repeated once the stream has begun anew."""

    def __init__(self, store: Store, floor: Callable[[str], int], restored: Callable[[str], None]) -> None:
        self._store, self._floor, self._restored = store, floor, restored
        self._streams: LruCache[str, _LastRead] = LruCache(_REMEMBERED)
        self._plans: LruCache[str, PlanRecord] = LruCache(_REMEMBERED)
        self._recoveries: SingleFlight[StreamRecord | None] = SingleFlight()

    def __getattr__(self, op: str) -> Callable[..., Any]:
        """Called for the first use of each operation only."""
        repeating = self._repeating(op)
        setattr(self, op, repeating)
        return repeating

    def _repeating(self, op: str) -> Callable[..., Any]:
        """The operation, done once more where its stream was lost and is there again."""
        getattr(self._store, op)  # an AttributeError where there is none
        store = self._store

        async def repeating(*args: Any, **named: Any) -> Any:
            try:
                return await getattr(store, op)(*args, **named)
            except NotFoundError:
                if not await self._recovered(args[0]):
                    raise
            return await getattr(store, op)(*args, **named)

        return repeating

    def news(self) -> AsyncIterator[News]:
        return self._checked(self._store.news())

    def news_state(self) -> NewsState:
        return self._store.news_state()

    def used_bytes(self) -> tuple[int, int]:
        return self._store.used_bytes()

    async def _checked(self, messages: AsyncIterator[News]) -> AsyncIterator[News]:
        """News of a stream's settings may mean that it was deleted: this replica must not bring it back."""
        async for news in messages:
            if news.what == "stream" and news.stream in self._streams:
                with contextlib.suppress(UnavailableError):
                    await self.stream(news.stream)
            yield news

    # -- streams

    async def put_stream(
        self, name: str, spec: bytes, floor: int = 0, owner: str = "", most: int | None = None
    ) -> tuple[StreamRecord, bool]:
        last = self._streams.get(name)
        record, created = await self._store.put_stream(name, spec, floor, owner, most)
        if last is not None and record.incarnation < last.record.incarnation:
            record = await self._recover(name, last.record.incarnation) or record
        self._remember(record)
        return record, created

    async def stream(self, name: str) -> StreamRecord | None:
        last = self._streams.get(name)
        record = await self._store.stream(name)
        if last is not None and (record is None or record.incarnation < last.record.incarnation):
            return await self._recover(name, last.record.incarnation)
        if record is not None:
            self._remember(record)
        return record

    async def streams(self, after: str, limit: int) -> Sequence[StreamRecord]:
        page = await self._store.streams(after, limit)
        names, end = {record.name for record in page}, page[-1].name if len(page) >= limit else None
        lost = [name for name in self._streams if name not in names and name > after and (end is None or name < end)]
        if any([await self._is_there(name) for name in sorted(lost)[:limit]]):
            page = await self._store.streams(after, limit)
        for record in page:
            self._remember(record)
        return page

    async def renew_stream(self, last: StreamRecord, age: float, floor: int = 0) -> tuple[StreamRecord, bool] | None:
        """Where a caller has seen that something was lost."""
        read, lost = _LastRead(last, monotonic() - age), max(last.incarnation, floor - 1)
        record = await self._recoveries.once((last.name, lost), lambda: self._renew(read, lost))
        return None if record is None else (record, True)

    async def _is_there(self, name: str) -> bool:
        try:
            return await self.stream(name) is not None
        except DamagedError:
            return False

    async def delete_stream(self, name: str) -> bool:
        remembered = name in self._streams
        deleted = await self._store.delete_stream(name)
        self._forget(name)
        return deleted or remembered

    # -- plans and history

    async def put_plan(self, stream: str, plan: PlanRecord, after: Version | None) -> PlanOutcome:
        outcome: PlanOutcome = await self._repeating("put_plan")(stream, plan, after)
        if outcome is PlanOutcome.STORED:
            self._remember_plan(stream, plan)
        return outcome

    async def plan(self, stream: str, version: Version | None = None) -> PlanRecord | None:
        if version is not None:
            return self._checked_plan(stream, await self._repeating("plan")(stream, version))
        last = self._plans.get(stream)
        record = await self._latest_plan(stream)
        if last is not None and _is_behind(record, last):
            await self._recover(stream, last.version.incarnation)
            record = await self._latest_plan(stream)
        if record is not None:
            self._remember_plan(stream, record)
            if stream not in self._streams:  # a replica that only watches plans has not read the settings yet
                await self.stream(stream)
        return record

    async def plan_for(self, stream: str, purpose: str) -> PlanRecord | None:
        return self._checked_plan(stream, await self._repeating("plan_for")(stream, purpose))

    async def _latest_plan(self, stream: str) -> PlanRecord | None:
        """A latest plan that is damaged, or of an incarnation that the stream has not reached, is lost as one that is
        gone: the stream begins anew."""
        try:
            record = self._checked_plan(stream, await self._store.plan(stream))
            if record is None or record.version.incarnation <= self._incarnation(stream):
                return record
            current = await self.stream(stream)
            if current is None or record.version.incarnation <= current.incarnation:
                return record
        except DamagedError as why:
            _log.error("the plan of a stream is lost: %s", why.message, extra={"stream": stream})
            current = await self.stream(stream)
            if current is None:
                raise
        await self._recover(stream, current.incarnation)
        return self._checked_plan(stream, await self._store.plan(stream))

    def _checked_plan(self, stream: str, record: PlanRecord | None) -> PlanRecord | None:
        """The record, where its bytes are whole, and of this stream and version; the remembered one was looked at."""
        last = self._plans.get(stream)
        if record is None or (last is not None and last.version == record.version and last.data == record.data):
            return record
        try:
            named = stream_and_version(record.data)
        except UnskewError as why:
            raise DamagedError(f"store: plan {record.version} of stream {stream!r} is damaged ({why})") from None
        if named not in (None, (stream, record.version)):
            raise DamagedError(f"store: in place of plan {record.version} of stream {stream!r} is another one, {named}")
        return record

    def _incarnation(self, stream: str) -> int:
        """The newest one that is remembered."""
        last = self._streams.get(stream)
        return -1 if last is None else last.record.incarnation

    async def note(self, stream: str, kind: str, data: bytes, keep: int) -> None:
        """Not repeated: an entry belongs to the incarnation that was lost."""
        await self._store.note(stream, kind, data, keep)

    # -- what this replica remembers

    def _remember(self, record: StreamRecord) -> None:
        last = self._streams.get(record.name)
        if last is None or last.record.incarnation <= record.incarnation:
            self._streams.put(record.name, _LastRead(record, monotonic()))

    def _remember_plan(self, stream: str, plan: PlanRecord) -> None:
        last = self._plans.get(stream)
        if last is None or last.version <= plan.version:
            self._plans.put(stream, plan)

    def _forget(self, stream: str) -> None:
        for cache in (self._streams, self._plans):
            cache.pop(stream, None)

    # -- beginning anew

    async def _recovered(self, stream: str) -> bool:
        """Whether a stream that the store does not have is there again."""
        last = self._streams.get(stream)
        return last is not None and await self._recover(stream, last.record.incarnation) is not None

    async def _recover(self, stream: str, lost: int) -> StreamRecord | None:
        """The newest incarnation, which begins here if there is none above ``lost``; None where it was deleted."""
        last = self._streams.get(stream)
        if last is None:
            return await self._store.stream(stream)
        return await self._recoveries.once((stream, lost), lambda: self._renew(last, lost))

    async def _renew(self, last: _LastRead, lost: int) -> StreamRecord | None:
        stream = last.record.name
        plans = [plan for plan in (self._plans.get(stream), await self._plan_left(stream, lost)) if plan is not None]
        incarnations = [last.record.incarnation, lost, *(plan.version.incarnation for plan in plans[:1])]
        floor, age = max(self._floor(stream), *(number + 1 for number in incarnations)), monotonic() - last.at
        renewed = await self._store.renew_stream(replace(last.record, incarnation=lost), age, floor)
        self._forget(stream)
        if renewed is None:
            return None
        record, begun = renewed
        self._remember(record)
        if begun:
            _log.warning("the store has lost a stream: it begins anew", extra={"stream": stream})
            self._restored(stream)
            if plans:
                await self._store_again(record, max(plans, key=lambda plan: plan.version))
        return record

    async def _plan_left(self, stream: str, lost: int) -> PlanRecord | None:
        """The latest plan that the store still has, if it is one of the incarnation that ends."""
        with contextlib.suppress(DamagedError):
            record = self._checked_plan(stream, await self._store.plan(stream))
            if record is not None and record.version.incarnation <= lost:
                return record
        return None

    async def _store_again(self, record: StreamRecord, plan: PlanRecord) -> None:
        """The last routes, as the first plan of this incarnation. Where that fails the next build makes one."""
        try:
            first = await asyncio.to_thread(_renumbered, plan, Version(record.incarnation, 1))
            await self._store.put_plan(record.name, first, None)
        except (UnskewError, ValueError) as why:
            _log.warning("the last plan was not put back: %s", why, extra={"stream": record.name})


def _is_behind(record: PlanRecord | None, last: PlanRecord) -> bool:
    """Whether the store's latest plan is not what it was: an older one, or another one of the same number."""
    if record is None or record.version < last.version:
        return True
    return record.version == last.version and record.digest != last.digest


def _renumbered(record: PlanRecord, version: Version) -> PlanRecord:
    """The same routes under another version."""
    plan = plan_from_bytes(record.data)
    reason = f"put back after the store had lost it: {plan.info.reason}"[:_MAX_REASON]
    info = replace(plan.info, version=version, previous=plan.version, reason=reason, moved_rows=0.0, moved_keys=0.0)
    return PlanRecord(version, record.digest, plan_to_bytes(replace(plan, info=info)))
