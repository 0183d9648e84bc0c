"""The settings of streams as every verb needs them, cached until news of a change.

A change of the number of partitions or of the key types needs no step of its own: the plans and reports that are there
stay, and their next use (``planning``, ``reducer``) begins anew or resizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unskew.core.errors import UnskewError
from unskew.core.stream_spec import StreamSpec, check_name
from unskew.service.concurrency import SingleFlight, monotonic
from unskew.service.engine.base import Base
from unskew.service.errors import DamagedError, NotFoundError, UnavailableError
from unskew.service.events.events import StreamChanged
from unskew.service.lru_cache import LruCache
from unskew.service.stores.records import StreamRecord
from unskew.wire.streams import spec_from_bytes, spec_to_bytes

__all__ = ["CachedStream", "Incarnations", "Streams", "no_stream"]

_CACHED = 10_000
_HOUR = 3_600_000_000
_MOST_PAGE = 1000


def no_stream(stream: str) -> NotFoundError:
    return NotFoundError(f"stream: there is no stream {stream!r}; put it first, or list the streams", field="stream")


def _spec_of(record: StreamRecord) -> StreamSpec:
    try:
        return spec_from_bytes(record.spec)
    except UnskewError as why:
        raise DamagedError("settings") from why


@dataclass(frozen=True)
class CachedStream:
    """A stream as the store has it."""

    record: StreamRecord
    spec: StreamSpec


class Incarnations:
    """The highest of each stream that was read or shown by an agent: a stream that begins anew gets a higher one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._highest: LruCache[str, int] = LruCache(_CACHED)

    def note(self, stream: str, incarnation: int) -> None:
        """One that claims to be more than an hour ahead of the clock is ignored."""
        if self._highest.get(stream, -1) < incarnation <= self._clock() * 1e6 + _HOUR:
            self._highest.put(stream, incarnation)

    def floor(self, stream: str) -> int:
        """The least incarnation that the stream may begin anew with."""
        return self._highest.get(stream, -1) + 1


class Streams:
    def __init__(self, base: Base, incarnations: Incarnations) -> None:
        self._base, self._incarnations = base, incarnations
        self._cache: LruCache[str, CachedStream] = LruCache(_CACHED)
        self._read_at: LruCache[str, float] = LruCache(_CACHED)
        self._reads: SingleFlight[CachedStream] = SingleFlight()

    # -- verbs

    async def put(
        self, stream: str, spec: StreamSpec, owner: str = "", most: int | None = None
    ) -> tuple[CachedStream, bool]:
        check_name("stream", stream)
        floor = self._incarnations.floor(stream)
        record, created = await self._base.store.put_stream(stream, spec_to_bytes(spec), floor, owner, most)
        self.forget(stream)
        cached = self._take(record)
        self._base.observer(StreamChanged(stream, "created" if created else "put"))
        return cached, created

    async def page(self, after: str, limit: int) -> Sequence[CachedStream]:
        records = await self._base.store.streams(after, max(1, min(limit, _MOST_PAGE)))
        return [self._take(record) for record in records]

    async def delete(self, stream: str) -> None:
        self._cache.pop(stream, None)
        self.forget(stream)
        if not await self._base.store.delete_stream(stream):
            raise no_stream(stream)
        self._base.observer(StreamChanged(stream, "deleted"))

    # -- for the other parts

    async def get(self, stream: str, *, fresh: bool = False, patience: float | None = None) -> CachedStream:
        """The stream, or ``NotFoundError``; where the store does not answer the cached one serves, unless ``fresh``,
        for which it is waited as long as it takes, or for so many seconds."""
        cached = self._cache.find(stream)
        if (
            cached is not None
            and not fresh
            and monotonic() - self._read_at.get(stream, -math.inf) < self._base.tuning.poll
        ):
            return cached
        reading = self._reads.begin(stream, lambda: self._read(stream))
        if cached is None or fresh:
            return await self._base.soon(reading, patience)
        try:
            return await self._base.soon(reading, self._base.tuning.cached_wait)
        except UnavailableError:
            return cached

    def last_known(self, stream: str) -> CachedStream | None:
        """As it was when it was last read; the store is not asked."""
        return self._cache.find(stream)

    async def _read(self, stream: str) -> CachedStream:
        check_name("stream", stream)
        record = await self._base.store.stream(stream)
        if record is None:
            self.forget(stream)
            if self._cache.pop(stream, None) is not None:
                self._base.observer(StreamChanged(stream, "deleted"))
            raise no_stream(stream)
        return self._take(record)

    def _take(self, record: StreamRecord) -> CachedStream:
        cached = self._cache.find(record.name)
        if cached is None or cached.record != record:
            spec = cached.spec if cached and cached.record.spec == record.spec else _spec_of(record)
            cached = CachedStream(record, spec)
        self._cache.put(record.name, cached)
        self._read_at.put(record.name, monotonic())
        self.note(record.name, record.incarnation)
        return cached

    def note(self, stream: str, incarnation: int) -> None:
        """An agent has shown this incarnation."""
        self._incarnations.note(stream, incarnation)

    def knows(self, stream: str) -> bool:
        return stream in self._cache

    def forget(self, stream: str) -> None:
        """Ask the store the next time."""
        self._read_at.pop(stream, None)
        self._reads.forget(stream)

    def forget_all(self) -> None:
        for stream in list(self._read_at):
            self.forget(stream)
