"""The store that replicas share: Redis 7, alone, behind Sentinels or as a cluster (DESIGN, section 6).

Each operation is one script (``scripts``) on the keys of one stream, which share a hash tag. Only the list of streams
and the owners' quotas stand beside them: a name may be on the list for a stream that is gone, and is taken off by
whoever lists it. Redis must refuse writes when it is full (``maxmemory-policy noeviction``): no taken report may go.

Published news wake listeners up; nothing depends on them. A Redis that lost its data has no streams: replicas that
remember them put them back (``recovering``), in a new incarnation. A deleted stream is remembered as such for a day.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Coroutine, Sequence
from typing import Any

from unskew.core.errors import ConfigError
from unskew.core.plan.plan import Version
from unskew.core.rounds.round_log import Commit, ReportKey, ReportOutcome, RoundView, StoredReport
from unskew.service.errors import UnavailableError
from unskew.service.stores.address import Address
from unskew.service.stores.limits import Hub, Limits, check_floor, missing, other_parts
from unskew.service.stores.records import (
    MISSED,
    HistoryEntry,
    Marks,
    News,
    NewsState,
    PartKey,
    PartOutcome,
    PlanOutcome,
    PlanRecord,
    StoredPart,
    StreamRecord,
)
from unskew.service.stores.redis import replies
from unskew.service.stores.redis.owner_quotas import OwnerQuotas
from unskew.service.stores.redis.redis_client import Patience, RedisClient
from unskew.service.stores.redis.replies import news_of
from unskew.service.stores.redis.report_batches import WrittenReports
from unskew.service.stores.redis.scripts import SCRIPTS
from unskew.service.stores.redis.subscription import Subscription

__all__ = ["RedisStore"]

_log = logging.getLogger("unskew.service")
_JITTER = 0.1
_PROBE = 60  # seconds that the key of readiness stays
_DELETED = 86_400.0  # seconds for which a deleted stream is remembered (scripts)
_CERTAIN = 0.45  # of the time to live
_PAGE = 100
_TRIES = 5


class RedisStore:
    """``Store``. ``ttl``: seconds that a stream is kept at most after its last use; 0.45 of that are certain.
    ``reply``: bytes of data that are asked for at once, so that no reply takes long."""

    def __init__(
        self,
        address: Address,
        *,
        prefix: str = "unskew",
        ttl: float = 30 * 86_400.0,
        limits: Limits | None = None,
        patience: Patience | None = None,
        reply: int = 4 << 20,
    ) -> None:
        if not prefix or set(prefix) & set("{}"):
            raise ConfigError("prefix", prefix, "some text without { and }")
        if not 60.0 <= ttl <= 1e9:
            raise ConfigError("ttl", ttl, "seconds, 60 to 1e9")
        self._prefix, self._ttl, self._limits, self._reply = prefix, ttl, limits or Limits(), reply
        self._shared_channel, self._index = f"{prefix}:news", f"{prefix}:streams"
        self._channel = f"{self._shared_channel}:{address.db}" if address.db else self._shared_channel
        self._client = RedisClient(address, patience or Patience())
        self._rng = random.Random()
        self._hub = Hub()
        self._quotas = OwnerQuotas(self._client, prefix, self.stream)
        self._reports = WrittenReports(self._run, reply)
        self._subscription: Subscription | None = None
        self._dropped = 0

    async def ping(self) -> None:
        """A write: a Redis that is full, or a replica, answers a PING."""
        await self._client.command("SET", f"{self._prefix}:probe", "", "EX", _PROBE)

    async def close(self) -> None:
        if self._subscription is not None:
            await self._subscription.close()
        self._hub.close()
        await self._client.close()

    # -- news

    def news(self) -> AsyncIterator[News]:
        if self._subscription is None:
            channels = sorted({self._channel, self._shared_channel})
            self._subscription = Subscription(channels, self._take_message, self._client.subscriber)
        return self._hub.listen()

    def news_state(self) -> NewsState:
        return NewsState("" if self._subscription is None else self._subscription.trouble, self._dropped)

    def _take_message(self, message: tuple[bytes, bytes] | None) -> None:
        """Pub/sub ignores database numbers, and anybody may publish. Database 0 has the shared channel, on which the
        replicas of the release before this one publish for every database: elsewhere their news are wake-ups without
        numbers, which are another database's as likely as not. What is marked for one database is on its own channel,
        too (docs/decisions/0036-news-channels.md)."""
        if message is None:
            self._hub.deliver(MISSED)
            return
        channel, data = message
        read = news_of(data)
        if read is None:
            self._drop()
            return
        news, only_for = read
        if not only_for:
            own = channel == self._channel.encode()
            self._hub.publish(news.stream, news.what, news.rounds if own else None)

    def _drop(self) -> None:
        if not self._dropped:
            _log.warning("a message on the channel %s is no news: dropped, as all such are", self._shared_channel)
        self._dropped += 1

    # -- scripts

    def _run(self, name: str, stream: str, *args: object) -> Awaitable[Any]:
        expiry = int(1000.0 * self._ttl * self._rng.uniform(1.0 - _JITTER, 1.0))
        key = f"{{{self._prefix}:{stream}}}:m"
        return self._client.run(SCRIPTS[name], (key,), (expiry, self._channel, stream, *args))

    async def _change(self, name: str, stream: str, *args: object) -> Any:
        """A script that needs the stream."""
        outcome = await self._run(name, stream, *args)
        if outcome == b"gone":
            raise missing(stream)
        return outcome

    async def _hash(self, stream: str, data: str, index: str) -> tuple[replies.Pairs, replies.Pairs]:
        """A large hash and the small one that says what of it counts, both as they were at one moment, read in replies
        of bounded size: the small one first."""
        for _ in range(_TRIES):
            small, names, *sizes = await self._run("read_hash", stream, data, index, self._reply)
            if not sizes:
                return replies.pairs(small), replies.pairs(names)
            values: list[bytes | None] = []
            for group in replies.groups(names, sizes[0], self._reply):
                current, more = await self._run("read_fields", stream, data, index, *group)
                values += more if dict(replies.pairs(current)) == dict(replies.pairs(small)) else [None]
                if None in values:
                    break  # a later run came, or the round was merged: read again
            else:
                return replies.pairs(small), [(name, value or b"") for name, value in zip(names, values, strict=True)]
        raise UnavailableError(f"store: {data} of stream {stream!r} changes faster than it can be read; try again")

    # -- streams

    async def put_stream(
        self, name: str, spec: bytes, floor: int = 0, owner: str = "", most: int | None = None
    ) -> tuple[StreamRecord, bool]:
        check_floor(floor)
        claimed = bool(owner) and await self._quotas.claim(owner, name, most)
        created, *fields = await self._run("put_stream", name, spec, floor, owner)
        await self._client.command("ZADD", self._index, 0, name)
        record = replies.stream_of(name, fields)
        if claimed and record.owner != owner:
            await self._quotas.release(owner, name)
        return record, bool(created)

    async def stream(self, name: str) -> StreamRecord | None:
        fields = await self._run("stream", name)
        return None if fields is None else replies.stream_of(name, fields)

    async def streams(self, after: str, limit: int) -> Sequence[StreamRecord]:
        streams: list[StreamRecord] = []
        while len(streams) < limit:
            start = f"({after}" if after else "-"
            page = await self._client.command("ZRANGEBYLEX", self._index, start, "+", "LIMIT", 0, _PAGE)
            names = [name.decode() for name in page[: limit - len(streams)]]
            records = await asyncio.gather(*(self.stream(name) for name in names))
            for name, record in zip(names, records, strict=True):
                if record is None:
                    await self._unlist(name)
                else:
                    streams.append(record)
            if len(page) < _PAGE and len(names) == len(page):
                break
            after = names[-1]
        return tuple(streams)

    async def delete_stream(self, name: str) -> bool:
        owner = await self._run("delete_stream", name)
        await self._unlist(name)
        if owner:
            await self._quotas.release(owner.decode(), name)
        return owner is not None

    async def renew_stream(self, last: StreamRecord, age: float, floor: int = 0) -> tuple[StreamRecord, bool] | None:
        recent = age < min(_DELETED / 2.0, _CERTAIN * self._ttl)  # else it may have been deleted, or be expired
        args = last.spec, last.owner, check_floor(last.incarnation), check_floor(floor), int(recent)
        reply = await self._run("renew_stream", last.name, *args)
        if reply is None:
            return None
        begun, *fields = reply
        record = replies.stream_of(last.name, fields)
        await self._client.command("ZADD", self._index, 0, last.name)
        if record.owner:
            await self._quotas.claim(record.owner, last.name, None)
        return record, bool(begun)

    async def _unlist(self, name: str) -> None:
        """Take the name off the list; put it back if the stream was put again meanwhile."""
        await self._client.command("ZREM", self._index, name)
        if await self.stream(name) is not None:
            await self._client.command("ZADD", self._index, 0, name)

    # -- parts of batches

    async def put_part(self, stream: str, key: PartKey, data: bytes) -> PartOutcome:
        name = key.kind, key.batch, key.source, replies.digits(key.run), key.part, key.parts
        outcome = (await self._change("put_part", stream, *name, data, self._limits.batches)).decode()
        if outcome.startswith("parts "):
            raise other_parts(key, int(outcome.removeprefix("parts ")))
        return PartOutcome(outcome)

    async def parts(self, stream: str, kind: str, batch: int) -> Sequence[StoredPart]:
        runs, data = await self._hash(stream, f"p:{kind}:{batch}", f"h:{kind}:{batch}")
        keys = replies.part_keys_of(kind, batch, runs, [field for field, _ in data])
        parts = [StoredPart(key, value) for key, (_, value) in zip(keys, data, strict=True)]
        return tuple(sorted(parts, key=lambda part: part.key))

    async def part_keys(self, stream: str, kind: str, batch: int) -> Sequence[PartKey]:
        # However small the data is, it is more than -1 bytes: the names come without it.
        runs, fields, _ = await self._run("read_hash", stream, f"p:{kind}:{batch}", f"h:{kind}:{batch}", -1)
        return tuple(sorted(replies.part_keys_of(kind, batch, replies.pairs(runs), fields)))

    async def batches(self, stream: str, kind: str, before: int | None, limit: int) -> Sequence[int]:
        numbers = [int(text) for text in await self._run("batches", stream, kind)]
        return tuple(sorted((n for n in numbers if before is None or n < before), reverse=True)[:limit])

    async def marks(self, stream: str, kinds: Sequence[str]) -> Marks | None:
        reply = await self._run("marks", stream, *kinds)
        if reply is None:
            return None
        incarnation, *scores = reply
        marks = map(replies.pairs, scores)
        of = {kind: {int(n): int(mark) for n, mark in flat} for kind, flat in zip(kinds, marks, strict=True)}
        return Marks(int(incarnation), of)

    # -- plans

    async def put_plan(self, stream: str, plan: PlanRecord, after: Version | None) -> PlanOutcome:
        version, last = replies.version_text(plan.version), replies.version_text(after)
        args = version, plan.digest, plan.data, plan.purpose, last, self._limits.plans, plan.advice, plan.ways
        return PlanOutcome((await self._change("put_plan", stream, *args)).decode())

    async def plan(self, stream: str, version: Version | None = None) -> PlanRecord | None:
        return replies.plan_of(await self._run("plan", stream, replies.version_text(version)))

    async def plan_for(self, stream: str, purpose: str) -> PlanRecord | None:
        return replies.plan_of(await self._run("plan_for", stream, purpose))

    # -- rounds

    def report(self, stream: str, key: ReportKey, data: bytes, lease: float) -> Coroutine[Any, Any, ReportOutcome]:
        return self._reports.put(stream, key, data, lease)

    async def round(self, stream: str) -> RoundView:
        reply = await self._run("round", stream)
        if reply is None:
            raise missing(stream)
        return replies.round_of(reply)

    async def seal(self, stream: str, epoch: int) -> bool:
        return bool(await self._change("seal", stream, epoch))

    def sealed(self, stream: str, epoch: int) -> Coroutine[Any, Any, Sequence[StoredReport]]:
        return self._reports.sealed(stream, epoch)

    async def commit(self, stream: str, commit: Commit) -> Commit | None:
        fields = [replies.report_field(key) for key in commit.names]
        args = commit.epoch, commit.answer, commit.keep, json.dumps(commit.names), replies.micros(self._limits.forget)
        outcome = await self._change("commit", stream, *args, *fields)
        if outcome == b"not sealed":
            return None
        self._reports.merged(stream, commit.names)
        return commit if outcome == b"merged" else replies.commit_of(outcome)

    async def answer(self, stream: str) -> Commit | None:
        return replies.commit_of(await self._run("answer", stream))

    # -- history

    async def note(self, stream: str, kind: str, data: bytes, keep: int) -> None:
        await self._change("note", stream, kind, data, keep)

    async def notes(self, stream: str, kind: str, last: int) -> Sequence[HistoryEntry]:
        return tuple(replies.history_entry_of(line) for line in await self._run("notes", stream, kind, last))
