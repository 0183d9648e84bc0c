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
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from unskew.core.errors import ConfigError
from unskew.core.plan.plan import Version
from unskew.core.rounds.round_log import Commit, ReportKey, ReportOutcome, RoundView, StoredReport
from unskew.service.errors import DamagedError, UnavailableError, WritesRefusedError
from unskew.service.lru_cache import LruCache
from unskew.service.stores.address import Address
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
)
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
    SourceParts,
    StoredPart,
    StreamRecord,
)
from unskew.service.stores.redis import replies
from unskew.service.stores.redis.owner_bytes import OwnerBytes
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
_OWNERS = 10_000
_KINDS = ("histogram", "work")


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
        self._charges = OwnerBytes(self._client, prefix, ttl, self._used)
        self._owners: LruCache[str, str] = LruCache(_OWNERS)
        self._fullness = Fullness("Redis", "maxmemory")
        self._reports = WrittenReports(self._run, reply, self._limits)
        self._subscription: Subscription | None = None
        self._dropped = 0

    async def ping(self) -> None:
        """A write: a Redis that is full, or a replica, answers a PING."""
        await self._client.command("SET", f"{self._prefix}:probe", "", "EX", _PROBE)
        await self._read_fullness()

    async def _read_fullness(self) -> None:
        """A user without the right to INFO has no such bound."""
        reply = await self._client.permitted("INFO", "memory")
        self._fullness.read(*((0, 0) if reply is None else replies.memory_of(reply)))

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

    def used_bytes(self) -> tuple[int, int]:
        return self._fullness.used, self._fullness.most

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

    async def _hash(
        self, stream: str, data: str, index: str, source: str | None = None
    ) -> tuple[replies.Pairs, replies.Pairs]:
        """A large hash and the small one that says what of it counts, both as they were at one moment, read in replies
        of bounded size: the small one first. ``source``: only what is of this one."""
        for _ in range(_TRIES):
            most = self._reply if source is None else -1
            small, names, *sizes = await self._run("read_hash", stream, data, index, most)
            if not sizes:
                return replies.pairs(small), replies.pairs(names)
            if source is not None:
                of_source = [at for at, name in enumerate(names) if name.partition(b" ")[2].decode() == source]
                names, sizes = [names[at] for at in of_source], [[sizes[0][at] for at in of_source]]
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
        self._owners.put(name, record.owner)
        if claimed and record.owner != owner:
            await self._quotas.release(owner, name)
        return record, bool(created)

    async def stream(self, name: str) -> StreamRecord | None:
        fields = await self._run("stream", name)
        if fields is None:
            return None
        record = replies.stream_of(name, fields)
        self._owners.put(name, record.owner)
        return record

    async def streams(self, after: str, limit: int) -> Sequence[StreamRecord]:
        streams: list[StreamRecord] = []
        while len(streams) < limit:
            start = f"({after}" if after else "-"
            page = await self._client.command("ZRANGEBYLEX", self._index, start, "+", "LIMIT", 0, _PAGE)
            names = [name.decode(errors="replace") for name in page[: limit - len(streams)]]
            records = await asyncio.gather(*(self._listed(name) for name in names))
            streams.extend(record for record in records if record is not None)
            if len(page) < _PAGE and len(names) == len(page):
                break
            after = names[-1]
        return tuple(streams)

    async def _listed(self, name: str) -> StreamRecord | None:
        """What is gone is taken off the list; what cannot be read must not hide the others."""
        try:
            record = await self.stream(name)
        except DamagedError as why:
            _log.warning("left out of the list of streams: %s", why.message, extra={"stream": name})
            return None
        if record is None:
            await self._unlist(name)
        return record

    async def delete_stream(self, name: str) -> bool:
        owner = await self._run("delete_stream", name)
        await self._unlist(name)
        if owner is not None:
            await self._charges.forget(owner.decode(), name)
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
        limits = self._limits
        name = key.kind, key.batch, key.source, replies.digits(key.run), key.part, key.parts
        bounds = limits.batches, limits.kind_bytes(key.kind), limits.parts, limits.sources
        field = f"{key.part} {key.source}"
        outcome, *about = await self._charged(
            stream,
            len(field.encode()) + len(data) + PART_BYTES,
            lambda grow: self._run("put_part", stream, *name, data, *bounds, grow),
            small=key.kind == "work",
        )
        if outcome == b"parts":
            raise other_parts(key, about[0])
        if outcome == b"over":
            raise batch_full(stream, key, about[0].decode(), about[1], limits)
        return PartOutcome(outcome.decode())

    async def _charged(
        self, stream: str, size: int, write: Callable[[int], Awaitable[Any]], *, small: bool = False
    ) -> Any:
        """What the script answers that ``write`` runs: with 1 where the stream's owner has room for so many bytes, with
        0 where older ones have to make room in the stream itself."""
        if self._fullness.stale(size):
            await self._read_fullness()
        self._fullness.check(size, small=small)
        owner = self._owners.find(stream)
        if owner is None:
            record = await self.stream(stream)
            owner = "" if record is None else record.owner
        most = self._limits.bytes_of(owner)
        used = await self._charges.charge(owner, stream, size, most)
        charged = size if used is None else 0
        try:
            answer = await write(int(used is None))
        except WritesRefusedError:  # nothing was written. Where there was no answer it may have been.
            await self._charges.correct(owner, stream, -charged)
            raise
        await self._settle(stream, owner, charged, answer)
        if answer[0] == b"gone":
            raise missing(stream)
        if answer[0] == b"full":
            raise owner_full(owner, used or 0, size, most)
        return answer

    async def _settle(self, stream: str, owner: str, charged: int, answer: Sequence[Any]) -> None:
        """Charge what was written, and not what was thought to be."""
        if answer[0] not in (b"stored", b"replaced"):
            await self._charges.correct(owner, stream, -charged)
            return
        more, real = answer[1], answer[2].decode()
        self._fullness.wrote(max(0, more))
        if real != owner:
            self._owners.put(stream, real)
            await self._charges.correct(owner, stream, -charged)
            owner, charged = real, 0
        await self._charges.correct(owner, stream, more - charged)

    async def _used(self, stream: str) -> tuple[int, str]:
        used, owner = await self._run("used", stream, *_KINDS)
        return used, owner.decode()

    async def source_parts(self, stream: str, kind: str, batch: int, source: str) -> SourceParts:
        runs, data = await self._hash(stream, f"p:{kind}:{batch}", f"h:{kind}:{batch}", source)
        mark = dict(runs).get(f" {source}".encode(), b"").decode()
        return SourceParts(mark, _stored_parts(kind, batch, runs, data))

    async def replace_parts(self, stream: str, seen: SourceParts, data: Mapping[PartKey, bytes]) -> bool:
        first = next(iter(data))
        before = {part.key: len(part.data) for part in seen.parts}
        words = [word for key, new in data.items() for word in (key.part, before[key], new)]
        name = first.kind, first.batch, first.source, replies.digits(first.run), seen.mark
        answer = await self._run("replace_parts", stream, *name, *words)
        await self._settle(stream, self._owners.find(stream) or "", 0, answer)
        if answer[0] == b"gone":
            raise missing(stream)
        return bool(answer[0] == b"replaced")

    async def batch_sizes(self, stream: str, kind: str) -> Mapping[int, int]:
        flat = await self._run("batch_sizes", stream, kind)
        return dict(zip(replies.numbers_of(flat[::2]), flat[1::2], strict=True))

    async def parts(self, stream: str, kind: str, batch: int) -> Sequence[StoredPart]:
        return _stored_parts(kind, batch, *await self._hash(stream, f"p:{kind}:{batch}", f"h:{kind}:{batch}"))

    async def part_keys(self, stream: str, kind: str, batch: int) -> Sequence[PartKey]:
        # However small the data is, it is more than -1 bytes: the names come without it.
        runs, fields, _ = await self._run("read_hash", stream, f"p:{kind}:{batch}", f"h:{kind}:{batch}", -1)
        return tuple(sorted(replies.part_keys_of(kind, batch, replies.pairs(runs), fields).values()))

    async def batches(self, stream: str, kind: str, before: int | None, limit: int) -> Sequence[int]:
        numbers = replies.numbers_of(await self._run("batches", stream, kind))
        return tuple(sorted((n for n in numbers if before is None or n < before), reverse=True)[:limit])

    async def marks(self, stream: str, kinds: Sequence[str]) -> Marks | None:
        reply = await self._run("marks", stream, *kinds)
        if reply is None:
            return None
        return replies.marks_of(reply, kinds)

    # -- plans

    async def put_plan(self, stream: str, plan: PlanRecord, after: Version | None) -> PlanOutcome:
        version, last = replies.version_text(plan.version), replies.version_text(after)
        args = version, plan.digest, plan.data, plan.purpose, last, self._limits.plans, plan.advice, plan.ways
        size = len(plan.data) + len(plan.ways)
        outcome, *_ = await self._charged(
            stream, size, lambda grow: self._run("put_plan", stream, *args, self._limits.plan_bytes, grow)
        )
        return PlanOutcome(outcome.decode())

    async def plan(self, stream: str, version: Version | None = None) -> PlanRecord | None:
        return replies.plan_of(await self._run("plan", stream, replies.version_text(version)))

    async def plan_for(self, stream: str, purpose: str) -> PlanRecord | None:
        return replies.plan_of(await self._run("plan_for", stream, purpose))

    # -- rounds

    def report(self, stream: str, key: ReportKey, data: bytes, lease: float) -> Coroutine[Any, Any, ReportOutcome]:
        self._fullness.check(len(data), small=True)
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
        names, forget = json.dumps(commit.names), replies.micros(self._limits.forget)
        args = commit.epoch, commit.answer, commit.keep, names, forget, commit.digests, commit.after
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


def _stored_parts(kind: str, batch: int, runs: replies.Pairs, data: replies.Pairs) -> tuple[StoredPart, ...]:
    values = dict(data)
    parts = [StoredPart(key, values[field]) for field, key in replies.part_keys_of(kind, batch, runs, values).items()]
    return tuple(sorted(parts, key=lambda part: part.key))
