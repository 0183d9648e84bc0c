"""What both stores share: how much is kept of a stream, the errors that they raise, and the delivery of news."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from unskew.core.errors import ConfigError
from unskew.service.errors import ConflictError, LimitError, NotFoundError, QuotaError
from unskew.service.stores.records import News, PartKey

__all__ = [
    "MOST_INCARNATION", "PART_BYTES", "Hub", "Limits", "batch_full", "check_floor", "missing", "other_parts",
    "owner_full", "round_full", "too_many",
]  # fmt: skip

MOST_INCARNATION = 2**53 - 1
"""Microseconds up to the year 2255, whole in a double: Redis scripts count in these."""

PART_BYTES = 96
"""What a part takes beside its name and its data."""

_MOST_NEWS = 4096
_WORK_SHARE, _PLAN_SHARE = 16, 4  # of a stream's bytes: work of a partition takes ten times as much once it is read


def _none(_owner: str) -> None:
    """No owner has a bound of its own."""


@dataclass(frozen=True)
class Limits:
    """What is kept of a stream: so many latest plans, so many batches of each kind that were reported last, and for how
    many seconds after its lease an agent: a report that is under way for longer counts as a new one.

    Of a batch there are at most so many ``parts`` and ``sources``. Where the reports of a stream are more than
    ``stream_bytes`` those of the batches that were longest silent go. ``owner_bytes`` are of all streams that one
    identity has created, where ``own_owner_bytes`` names no other number for it; ``store_bytes`` of the whole memory
    store."""

    plans: int = 64
    batches: int = 64
    forget: float = 86_400.0
    stream_bytes: int = 128 << 20
    owner_bytes: int = 256 << 20
    store_bytes: int = 512 << 20
    parts: int = 20_000
    sources: int = 1_000
    agents: int = 5_000
    own_owner_bytes: Callable[[str], int | None] = _none

    def __post_init__(self) -> None:
        for name in ("plans", "batches", "stream_bytes", "owner_bytes", "store_bytes", "parts", "sources", "agents"):
            if getattr(self, name) < 1:
                raise ConfigError(name, getattr(self, name), "a whole number, at least 1")
        if not 0.0 < self.forget <= 1e9:
            raise ConfigError("forget", self.forget, "seconds above 0, at most 1e9")

    def bytes_of(self, owner: str) -> int:
        """Of all streams of this owner: ``own_owner_bytes`` where it says so, else as of all others."""
        return self.own_owner_bytes(owner) or self.owner_bytes

    def kind_bytes(self, kind: str) -> int:
        """Bytes of reports of this kind."""
        return self.stream_bytes // _WORK_SHARE if kind == "work" else self.stream_bytes

    @property
    def plan_bytes(self) -> int:
        return self.stream_bytes // _PLAN_SHARE


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


def batch_full(stream: str, key: PartKey, quota: str, used: int, limits: Limits) -> QuotaError:
    """``quota``: "bytes", "parts" or "sources", of which the batch has ``used``."""
    of_batch = f"part: batch {key.batch} of stream {stream!r} has {used:,} {quota}"
    if quota == "bytes":
        most, way_out = limits.kind_bytes(key.kind), "list fewer keys, or have --max-stream-bytes raised"
        text = f"{of_batch} of reports, and with this one more than the {most:,} that it may have; {way_out}"
    else:
        most = limits.parts if quota == "parts" else limits.sources
        text = f"{of_batch}, all that it may have ({most:,}); report it in fewer, or have --max-{quota} raised"
    return QuotaError(f"batch {quota}", text, field="part")


def owner_full(owner: str, used: int, size: int, most: int) -> QuotaError:
    whose = f"the streams that {owner} has created" if owner else "the streams of callers without a credential"
    return QuotaError(
        "identity bytes",
        f"stream: {whose} hold {used:,} bytes of reports and plans, and may hold {most:,}: {size:,} more have no room; "
        "delete a stream, list fewer keys, or have --max-identity-bytes raised, for all or with the credential",
        field="stream",
    )


def round_full(stream: str, outcome: str, size: int, limits: Limits) -> QuotaError | None:
    """Why a report of an agent is refused, by what the store says: too many "agents", or the round is "full"."""
    if outcome == "agents":
        return QuotaError(
            "agents",
            f"report.agent: stream {stream!r} knows {limits.agents:,} agents, all that it may have; report as fewer "
            "agents, wait until some are forgotten (a day after their lease), or have --max-agents raised",
            field="report.agent",
        )
    if outcome == "full":
        return QuotaError(
            "round bytes",
            f"report: with these {size:,} bytes the round of stream {stream!r} would have more than the "
            f"{limits.stream_bytes:,} that it may have; send it again in the next round, list fewer keys, or have "
            "--max-stream-bytes raised",
            field="report",
        )
    return None


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
