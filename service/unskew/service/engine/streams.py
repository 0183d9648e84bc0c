"""The streams: their settings as every verb needs them, kept in memory for as long as no news says otherwise.

A change of the number of partitions or of the key types needs no step of its own: the plans and reports that are there
stay, and whoever uses them next (``planning``, ``reducing``) begins anew or resizes.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass

from unskew.core.stream_spec import StreamSpec, check_name
from unskew.service.concurrency import SingleFlight, monotonic
from unskew.service.engine.base import Base
from unskew.service.errors import NotFoundError, UnavailableError
from unskew.service.events.events import StreamChanged
from unskew.service.lru_cache import LruCache
from unskew.service.stores.ports import StreamRecord
from unskew.wire.streams import spec_from_bytes, spec_to_bytes

__all__ = ["CachedStream", "Streams", "no_stream"]

_KEPT = 10_000
_HOUR = 3_600_000_000
_MOST_PAGE = 1000


def no_stream(stream: str) -> NotFoundError:
    return NotFoundError(f"stream: there is no stream {stream!r}; put it first, or list the streams", field="stream")


@dataclass(frozen=True)
class CachedStream:
    """A stream as the store has it."""

    record: StreamRecord
    spec: StreamSpec


class Streams:
    def __init__(self, base: Base) -> None:
        self._base = base
        self._known: LruCache[str, CachedStream] = LruCache(_KEPT)
        self._read: dict[str, float] = {}
        self._reads: SingleFlight[CachedStream] = SingleFlight()
        self._highest: LruCache[str, int] = LruCache(_KEPT)

    # -- verbs

    async def put(
        self, stream: str, spec: StreamSpec, owner: str = "", most: int | None = None
    ) -> tuple[CachedStream, bool]:
        check_name("stream", stream)
        found = self._base.store.put_stream(stream, spec_to_bytes(spec), self.floor(stream), owner, most)
        record, created = await found
        self.forget(stream)
        known = self._take(record)
        self._base.observer(StreamChanged(stream, "created" if created else "put"))
        return known, created

    async def page(self, after: str, limit: int) -> Sequence[CachedStream]:
        records = await self._base.store.streams(after, max(1, min(limit, _MOST_PAGE)))
        return [self._take(record) for record in records]

    async def delete(self, stream: str) -> None:
        self._known.pop(stream, None)
        self.forget(stream)
        if not await self._base.store.delete_stream(stream):
            raise no_stream(stream)
        self._base.observer(StreamChanged(stream, "deleted"))

    # -- for the other parts

    async def get(self, stream: str, *, fresh: bool = False) -> CachedStream:
        """The stream, or ``NotFoundError``. Where the store cannot be asked, what is known of it serves, unless it has
        to be ``fresh``."""
        known = self._known.find(stream)
        if known is not None and not fresh and monotonic() - self._read.get(stream, -math.inf) < self._base.tuning.poll:
            return known
        asked = self._reads.once(stream, lambda: self._ask(stream))
        if known is None or fresh:
            return await asked
        try:
            return await asyncio.wait_for(asked, self._base.tuning.cached_wait)
        except (UnavailableError, asyncio.TimeoutError):
            return known

    async def _ask(self, stream: str) -> CachedStream:
        check_name("stream", stream)
        record = await self._base.store.stream(stream)
        if record is None:
            self.forget(stream)
            if self._known.pop(stream, None) is not None:
                self._base.observer(StreamChanged(stream, "deleted"))
            raise no_stream(stream)
        return self._take(record)

    def _take(self, record: StreamRecord) -> CachedStream:
        known = self._known.find(record.name)
        if known is None or known.record != record:
            spec = known.spec if known and known.record.spec == record.spec else spec_from_bytes(record.spec)
            known = CachedStream(record, spec)
        self._known.put(record.name, known)
        self._read[record.name] = monotonic()
        if len(self._read) > 2 * _KEPT:
            self._read = {name: at for name, at in self._read.items() if name in self._known}
        self.note(record.name, record.incarnation)
        return known

    def note(self, stream: str, incarnation: int) -> None:
        """An incarnation was seen, or shown by an agent: a stream of this name that begins anew is to have a higher.
        What claims to be more than an hour ahead is not believed."""
        if self._highest.get(stream, -1) < incarnation <= self._base.clock() * 1e6 + _HOUR:
            self._highest.put(stream, incarnation)

    def knows(self, stream: str) -> bool:
        return stream in self._known

    def floor(self, stream: str) -> int:
        """The least incarnation that the stream may begin anew with."""
        return self._highest.get(stream, -1) + 1

    def forget(self, stream: str) -> None:
        """Ask the store the next time."""
        self._read.pop(stream, None)
        self._reads.forget(stream)

    def forget_all(self) -> None:
        for stream in list(self._read):
            self.forget(stream)
