"""A cache of plans: by version, which never changes, and the latest of each stream, for a moment.

Where the store does not answer the latest cached plan is served, marked as stale.
"""

from __future__ import annotations

from dataclasses import dataclass

from unskew.core.errors import PlanFormatError
from unskew.core.plan.plan import Plan, Version
from unskew.service.api.verbs import Fetched
from unskew.service.concurrency import SingleFlight, monotonic
from unskew.service.engine.base import Base
from unskew.service.engine.streams import Streams
from unskew.service.errors import DamagedError, NotFoundError, UnavailableError
from unskew.service.events.events import PlanServed, Skipped
from unskew.service.lru_cache import LruCache
from unskew.service.stores.records import PlanRecord
from unskew.wire.plans import check_plan_bytes, plan_from_bytes

__all__ = ["PlanCache"]

_RECORDS, _PLANS, _STREAMS = 256, 64, 10_000


@dataclass(frozen=True)
class _Latest:
    record: PlanRecord | None
    read: float


class PlanCache:
    def __init__(self, base: Base, streams: Streams) -> None:
        self._base, self._streams = base, streams
        self._latest: LruCache[str, _Latest] = LruCache(_STREAMS)
        self._records: LruCache[tuple[str, Version], PlanRecord] = LruCache(_RECORDS)
        self._plans: LruCache[tuple[str, Version], Plan] = LruCache(_PLANS)
        self._reads: SingleFlight[PlanRecord | None] = SingleFlight()

    # -- verbs

    async def get(self, stream: str, version: Version | None, if_none_match: str) -> Fetched:
        if version is None:
            record, stale = await self.latest(stream)
        else:
            await self._streams.get(stream)  # a plan may be cached for longer than its stream exists
            record, stale = await self.at(stream, version), False
        if record is None:
            raise NotFoundError(
                f"stream {stream!r} has no plan yet: report a histogram and build one"
                if version is None
                else f"version: stream {stream!r} has no plan {version} (any more); ask for the latest",
                field="version",
            )
        matches = bool(if_none_match) and if_none_match == record.digest
        self._base.observer(PlanServed(stream, None if matches else record.version, stale))
        return Fetched(b"" if matches else record.data, record.digest, matches, stale)

    # -- for the other parts

    async def latest(self, stream: str, *, fresh: bool = False) -> tuple[PlanRecord | None, bool]:
        """The latest plan, and whether it is a cached one because the store did not answer; None: there is none yet."""
        cached = self._latest.find(stream)
        if cached is not None and not fresh and monotonic() - cached.read < self._base.tuning.fresh:
            return cached.record, False
        reading = self._reads.begin(stream, lambda: self._read(stream))
        if cached is None or cached.record is None:
            return await self._base.soon(reading, None), False
        try:
            return await self._base.soon(reading, None if fresh else self._base.tuning.cached_wait), False
        except UnavailableError as why:
            self._base.observer(Skipped(stream, "plan", f"the cached one is served: {why.message}"))
            return cached.record, True

    def last_known(self, stream: str) -> PlanRecord | None:
        """The latest plan as it was when it was last read; the store is not asked."""
        cached = self._latest.find(stream)
        return None if cached is None else cached.record

    async def _read(self, stream: str) -> PlanRecord | None:
        began = monotonic()
        record = await self._base.store.plan(stream)
        if record is not None:
            self._keep(stream, record)
        else:
            try:
                await self._streams.get(stream, fresh=True)
            except NotFoundError:
                self.forget(stream)
                raise
        self._latest.put(stream, _Latest(record, began))
        return record

    async def at(self, stream: str, version: Version) -> PlanRecord | None:
        record = self._records.find((stream, version))
        if record is None:
            record = await self._base.store.plan(stream, version)
            if record is not None:
                self._keep(stream, record)
        return record

    def _keep(self, stream: str, record: PlanRecord) -> None:
        """A plan that is not whole is told here and once, and not by everybody who would route by it."""
        known = self._records.find((stream, record.version))
        if known is None or known.data != record.data:
            try:
                check_plan_bytes(record.data)
            except PlanFormatError as why:
                raise DamagedError("plans") from why
        self._records.put((stream, record.version), record)

    async def plan(self, stream: str, record: PlanRecord) -> Plan:
        key = stream, record.version
        plan = self._plans.find(key)
        if plan is None or plan.digest != record.digest:
            plan = self._plans.put(key, await self._base.run(plan_from_bytes, record.data))
        return plan

    def add(self, stream: str, record: PlanRecord, plan: Plan) -> None:
        """A plan that was just stored as the latest."""
        self._records.put((stream, record.version), record)
        self._plans.put((stream, record.version), plan)
        self._reads.forget(stream)
        self._latest.put(stream, _Latest(record, monotonic()))

    def expire(self, stream: str) -> None:
        """Ask the store the next time; the cached plan stays for when it does not answer."""
        cached = self._latest.get(stream)
        if cached is not None:
            self._latest[stream] = _Latest(cached.record, float("-inf"))
        self._reads.forget(stream)

    def expire_all(self) -> None:
        for stream in list(self._latest):
            self.expire(stream)

    def forget(self, stream: str) -> None:
        """The stream is gone."""
        self._latest.pop(stream, None)
        self._reads.forget(stream)
        for cache in (self._records, self._plans):
            for key in [key for key in cache if key[0] == stream]:
                del cache[key]
