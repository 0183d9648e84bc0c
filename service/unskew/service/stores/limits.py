"""What both stores share: how much is kept of a stream, the errors that they raise, and the delivery of news."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator
from dataclasses import dataclass

from unskew.core.errors import ConfigError
from unskew.service.errors import ConflictError, LimitError, NotFoundError
from unskew.service.stores.records import News, PartKey

__all__ = ["MOST_INCARNATION", "Hub", "Limits", "check_floor", "missing", "other_parts", "too_many"]

MOST_INCARNATION = 2**53 - 1
"""Microseconds up to the year 2255, whole in a double: Redis scripts count in these."""

_MOST_NEWS = 4096


@dataclass(frozen=True)
class Limits:
    """What is kept of a stream: so many latest plans, so many batches of each kind that were reported last, and for how
    many seconds after its lease an agent: a report that is under way for longer counts as a new one."""

    plans: int = 64
    batches: int = 64
    forget: float = 86_400.0

    def __post_init__(self) -> None:
        for name in ("plans", "batches"):
            if getattr(self, name) < 1:
                raise ConfigError(name, getattr(self, name), "a whole number, at least 1")
        if not 0.0 < self.forget <= 1e9:
            raise ConfigError("forget", self.forget, "seconds above 0, at most 1e9")


def check_floor(floor: int) -> int:
    """Refuse an incarnation that is out of range."""
    if not 0 <= floor < MOST_INCARNATION:
        raise ConfigError("incarnation", floor, f"microseconds since 1970, 0 to {MOST_INCARNATION - 1}")
    return floor


def missing(stream: str) -> NotFoundError:
    return NotFoundError(f"stream {stream!r}: there is none of that name; put it first", field="stream")


def too_many(owner: str, most: int) -> LimitError:
    return LimitError(
        f"stream: {owner} has created {most} streams that are still there, all that it may have; delete one, or have "
        "its max_streams raised",
        field="stream",
    )


def other_parts(key: PartKey, parts: int) -> ConflictError:
    """A run has one number of parts: with two, the same rows would count twice."""
    return ConflictError(
        f"part.parts: run {key.run} of batch {key.batch} of {key.source!r} has {parts} parts, not {key.parts}; "
        "report a re-run under a higher run",
        field="part.parts",
    )


class Inbox:
    """The wake-ups that one listener has not read yet, each once; where there are too many the oldest is dropped."""

    def __init__(self) -> None:
        self._waiting: dict[News, None] = {}
        self._wake = asyncio.Event()
        self._closed = False

    def put(self, news: News) -> None:
        self._waiting.pop(news, None)
        self._waiting[news] = None
        if len(self._waiting) > _MOST_NEWS:
            del self._waiting[next(iter(self._waiting))]
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._wake.set()

    def __aiter__(self) -> Inbox:
        return self

    async def __anext__(self) -> News:
        while not self._waiting:
            if self._closed:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        news = next(iter(self._waiting))
        del self._waiting[news]
        return news


class Hub:
    """All listeners of this process. One that is garbage-collected is dropped."""

    def __init__(self) -> None:
        self._inboxes: weakref.WeakSet[Inbox] = weakref.WeakSet()
        self._closed = False

    def listen(self) -> AsyncIterator[News]:
        inbox = Inbox()
        if self._closed:
            inbox.close()
        self._inboxes.add(inbox)
        return inbox

    def publish(self, stream: str, what: str, rounds: tuple[int, int] | None = None) -> None:
        self.deliver(News(stream, what, rounds))

    def deliver(self, news: News) -> None:
        for inbox in list(self._inboxes):
            inbox.put(news)

    def close(self) -> None:
        self._closed = True
        for inbox in list(self._inboxes):
            inbox.close()
