"""The store that replicas share: Redis 7, alone, behind Sentinels or as a cluster (DESIGN, section 6).

Each operation is one script (``scripts``) on the keys of one stream, which share a hash tag. Only the list of streams
stands beside them: a name may be on it for a stream that is gone, which whoever lists then takes off. What Redis does
with a full memory must be to refuse (``maxmemory-policy noeviction``): a report that was taken must not be thrown away.

Published news wake listeners up; nothing depends on them. A Redis that lost its data has no streams: whoever has seen
them puts them back (``mending``), and they get a new incarnation. One that was deleted is remembered for a day as such.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

from unskew.core.errors import ConfigError
from unskew.core.plan.plan import Version
from unskew.service.errors import UnavailableError
from unskew.service.stores.address import Address
from unskew.service.stores.limits import Hub, Limits, check_floor, missing, other_parts, too_many
from unskew.service.stores.records import (
    Commit,
    HistoryEntry,
    Marks,
    Member,
    News,
    PartKey,
    PartOutcome,
    PlanOutcome,
    PlanRecord,
    ReportKey,
    ReportOutcome,
    RoundView,
    StoredPart,
    StoredReport,
    StreamRecord,
)
from unskew.service.stores.redis.redis_client import Patience, RedisClient
from unskew.service.stores.redis.report_batches import Pairs, Reports, field_of, groups, key_of, pairs
from unskew.service.stores.redis.scripts import SCRIPTS

__all__ = ["RedisStore"]

_MICROS = 1e6
_JITTER = 0.1
_NEVER = "0" * 40
_DELETED = 86_400.0  # seconds that a deleted stream is known to be (scripts)
_CERTAIN = 0.45  # of the time to live
_PAGE = 100
_TRIES = 5
_LOOKED, _AT_ONCE = 1000, 50  # streams of an owner that are looked at where it seems to have too many
_CLAIMED = 60.0  # seconds that a claim stands before the stream is there


class RedisStore:
    """``ttl``: seconds that a stream is kept at most after anybody asked for it; 0.45 of that are certain.
    ``answer``: bytes of data that are asked for at once, so that no answer takes long."""

    def __init__(
        self,
        address: Address,
        *,
        prefix: str = "unskew",
        ttl: float = 30 * 86_400.0,
        limits: Limits | None = None,
        patience: Patience | None = None,
        answer: int = 4 << 20,
    ) -> None:
        if not prefix or set(prefix) & set("{}"):
            raise ConfigError("prefix", prefix, "some text without { and }")
        if not 60.0 <= ttl <= 1e9:
            raise ConfigError("ttl", ttl, "seconds, 60 to 1e9")
        self._prefix, self._ttl, self._limits, self._answer = prefix, ttl, limits or Limits(), answer
        self._link = RedisClient(address, patience or Patience())
        self._rng = random.Random()
        self._hub = Hub()
        self._reports = Reports(self._run, answer)
        self._listening: asyncio.Task[None] | None = None

    @property
    def broken(self) -> bool:
        """Whether operations fail at once, because Redis has not answered for a while."""
        return self._link.broken

    async def ping(self) -> None:
        await self._link.command("PING")

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listening
        self._hub.close()
        await self._link.close()

    def news(self) -> AsyncIterator[News]:
        if self._listening is None:
            self._listening = asyncio.get_running_loop().create_task(self._link.listen(self._channel, self._heard))
        return self._hub.listen()

    def _heard(self, message: bytes) -> None:
        what, *rest = message.decode().split(" ")  # a stream's name has no space in it
        self._hub.tell(rest[0], what, (int(rest[1]), int(rest[2])) if len(rest) == 3 else None)

    @property
    def _channel(self) -> str:
        return f"{self._prefix}:news"

    @property
    def _index(self) -> str:
        return f"{self._prefix}:streams"

    async def _run(self, name: str, stream: str, *args: object) -> Any:
        life = int(1000.0 * self._ttl * self._rng.uniform(1.0 - _JITTER, 1.0))
        key = f"{{{self._prefix}:{stream}}}:m"
        return await self._link.run(SCRIPTS[name], (key,), (life, self._channel, stream, *args))

    async def _change(self, name: str, stream: str, *args: object) -> Any:
        """A script that needs the stream."""
        outcome = await self._run(name, stream, *args)
        if outcome == b"gone":
            raise missing(stream)
        return outcome

    async def _shelf(self, stream: str, data: str, beside: str) -> tuple[Pairs, Pairs]:
        """A hash of data and the small one beside it, in answers of bounded size, as both were at one moment."""
        for _ in range(_TRIES):
            small, names, *sizes = await self._run("shelf", stream, data, beside, self._answer)
            if not sizes:
                return pairs(small), pairs(names)
            values: list[bytes | None] = []
            for some in groups(names, sizes[0], self._answer):
                now, more = await self._run("books", stream, data, beside, *some)
                values += more if dict(pairs(now)) == dict(pairs(small)) else [None]
                if None in values:
                    break  # a later run came, or the round was merged: look again
            else:
                return pairs(small), [(name, value or b"") for name, value in zip(names, values, strict=True)]
        raise UnavailableError(f"store: {data} of stream {stream!r} changes faster than it can be read; try again")

    # -- streams

    async def put_stream(
        self, name: str, spec: bytes, floor: int = 0, owner: str = "", most: int | None = None
    ) -> tuple[StreamRecord, bool]:
        check_floor(floor)
        claimed = bool(owner) and await self._claim(owner, name, most)
        created, *record = await self._run("put_stream", name, spec, floor, owner)
        await self._link.command("ZADD", self._index, 0, name)
        found = _stream(name, record)
        if claimed and found.owner != owner:
            await self._release(owner, name)
        return found, bool(created)

    async def stream(self, name: str) -> StreamRecord | None:
        record = await self._run("stream", name)
        return None if record is None else _stream(name, record)

    async def streams(self, after: str, limit: int) -> Sequence[StreamRecord]:
        found: list[StreamRecord] = []
        while len(found) < limit:
            start = f"({after}" if after else "-"
            page = await self._link.command("ZRANGEBYLEX", self._index, start, "+", "LIMIT", 0, _PAGE)
            names = [name.decode() for name in page[: limit - len(found)]]
            records = await asyncio.gather(*(self.stream(name) for name in names))
            for name, record in zip(names, records, strict=True):
                if record is None:
                    await self._unlist(name)
                else:
                    found.append(record)
            if len(page) < _PAGE and len(names) == len(page):
                break
            after = names[-1]
        return tuple(found)

    async def delete_stream(self, name: str) -> bool:
        owner = await self._run("delete_stream", name)
        await self._unlist(name)
        if owner:
            await self._release(owner.decode(), name)
        return owner is not None

    async def renew_stream(self, seen: StreamRecord, age: float, floor: int = 0) -> tuple[StreamRecord, bool] | None:
        recent = age < min(_DELETED / 2.0, _CERTAIN * self._ttl)  # else it may have been deleted, or be expired
        words = seen.spec, seen.owner, check_floor(seen.incarnation), check_floor(floor), int(recent)
        found = await self._run("renew_stream", seen.name, *words)
        if found is None:
            return None
        anew, *fields = found
        record = _stream(seen.name, fields)
        await self._link.command("ZADD", self._index, 0, seen.name)
        if record.owner:
            await self._claim(record.owner, seen.name, None)
        return record, bool(anew)

    # -- how many streams somebody has

    async def _claim(self, owner: str, name: str, most: int | None) -> bool:
        """Count the stream to its owner, if it is a new one or the owner's; whether it was not counted before."""
        there = await self.stream(name)
        if there is not None:
            if there.owner != owner:
                return False
            most = None
        words = name, "" if most is None else most
        outcome = await self._link.run(SCRIPTS["claim"], (self._owned(owner),), words)
        if outcome == b"full" and await self._made_room(owner):
            outcome = await self._link.run(SCRIPTS["claim"], (self._owned(owner),), words)
        if outcome == b"full":
            raise too_many(owner, most or 0)
        return bool(outcome == b"new")

    async def _made_room(self, owner: str) -> bool:
        """Whether some that are counted are gone: expired, or lost by who created or deleted them."""
        listed = pairs(await self._link.command("ZRANGE", self._owned(owner), 0, _LOOKED - 1, "WITHSCORES"))
        room = False
        for at in range(0, len(listed), _AT_ONCE):
            some = [(name.decode(), int(score)) for name, score in listed[at : at + _AT_ONCE]]
            records = await asyncio.gather(*(self.stream(name) for name, _ in some))
            for (name, score), record in zip(some, records, strict=True):
                if record is None or record.owner != owner:
                    room = await self._release(owner, name, _micros(_CLAIMED), score) or room
                else:  # others are looked at first the next time
                    await self._link.run(SCRIPTS["claim"], (self._owned(owner),), (name, ""))
        return room

    async def _release(self, owner: str, name: str, age: int = 0, seen: int | None = None) -> bool:
        words = name, "" if seen is None else seen, age
        return bool(await self._link.run(SCRIPTS["release"], (self._owned(owner),), words))

    def _owned(self, owner: str) -> str:
        return f"{self._prefix}:owned:{owner}"

    async def _unlist(self, name: str) -> None:
        """Off the list; and on again, if somebody put the stream meanwhile."""
        await self._link.command("ZREM", self._index, name)
        if await self.stream(name) is not None:
            await self._link.command("ZADD", self._index, 0, name)

    # -- parts of batches

    async def put_part(self, stream: str, key: PartKey, data: bytes) -> PartOutcome:
        where = key.kind, key.batch, key.source, f"{key.run:020d}", key.part, key.parts
        outcome = (await self._change("put_part", stream, *where, data, self._limits.batches)).decode()
        if outcome.startswith("parts "):
            raise other_parts(key, int(outcome.removeprefix("parts ")))
        return PartOutcome(outcome)

    async def parts(self, stream: str, kind: str, batch: int) -> Sequence[StoredPart]:
        heard, held = await self._shelf(stream, f"p:{kind}:{batch}", f"h:{kind}:{batch}")
        keys = _part_keys(kind, batch, heard, [line for line, _ in held])
        found = [StoredPart(key, data) for key, (_, data) in zip(keys, held, strict=True)]
        return tuple(sorted(found, key=lambda one: one.key))

    async def part_keys(self, stream: str, kind: str, batch: int) -> Sequence[PartKey]:
        # However small the data is, it is more than is asked for: the names come without it.
        heard, lines, _ = await self._run("shelf", stream, f"p:{kind}:{batch}", f"h:{kind}:{batch}", -1)
        return tuple(sorted(_part_keys(kind, batch, pairs(heard), lines)))

    async def batches(self, stream: str, kind: str, before: int | None, limit: int) -> Sequence[int]:
        numbers = [int(text) for text in await self._run("batches", stream, kind)]
        return tuple(sorted((n for n in numbers if before is None or n < before), reverse=True)[:limit])

    async def marks(self, stream: str, kinds: Sequence[str]) -> Marks | None:
        found = await self._run("marks", stream, *kinds)
        if found is None:
            return None
        incarnation, *scored = found
        of = {kind: {int(n): int(score) for n, score in pairs(one)} for kind, one in zip(kinds, scored, strict=True)}
        return Marks(int(incarnation), of)

    # -- plans

    async def put_plan(self, stream: str, plan: PlanRecord, after: Version | None) -> PlanOutcome:
        last = "" if after is None else _version_text(after)
        words = _version_text(plan.version), plan.digest, plan.data, plan.purpose, last, self._limits.plans
        return PlanOutcome((await self._change("put_plan", stream, *words)).decode())

    async def plan(self, stream: str, version: Version | None = None) -> PlanRecord | None:
        return _plan(await self._run("plan", stream, "" if version is None else _version_text(version)))

    async def plan_for(self, stream: str, purpose: str) -> PlanRecord | None:
        return _plan(await self._run("plan_for", stream, purpose))

    # -- rounds

    async def report(self, stream: str, key: ReportKey, data: bytes, lease: float) -> ReportOutcome:
        return await self._reports.put(stream, key, data, lease)

    async def round(self, stream: str) -> RoundView:
        found = await self._run("round", stream)
        if found is None:
            raise missing(stream)
        now, incarnation, opened_epoch, merged, opened, came, leases, names, keep = found
        reported: dict[str, float] = {}
        for field, about in pairs(came):
            agent, seconds = key_of(field).agent, int(about.split(b" ")[0]) / _MICROS
            reported[agent] = min(seconds, reported.get(agent, seconds))
        return RoundView(
            now=int(now) / _MICROS,
            incarnation=int(incarnation),
            open=int(opened_epoch),
            merged=int(merged),
            opened=None if opened is None else int(opened) / _MICROS,
            reported=reported,
            members=_members(leases, names),
            keep=keep or b"",
        )

    async def seal(self, stream: str, epoch: int) -> bool:
        return bool(await self._change("seal", stream, epoch))

    async def sealed(self, stream: str, epoch: int) -> Sequence[StoredReport]:
        return await self._reports.sealed(stream, epoch)

    async def commit(self, stream: str, commit: Commit) -> Commit | None:
        names = json.dumps([[key.agent, key.session, key.seq] for key in commit.names])
        fields = [field_of(key) for key in commit.names]
        words = commit.epoch, commit.answer, commit.keep, names, _micros(self._limits.forget)
        outcome = await self._change("commit", stream, *words, *fields)
        if outcome == b"not sealed":
            return None
        self._reports.merged(stream, commit.names)
        return commit if outcome == b"merged" else _commit(outcome)

    async def answer(self, stream: str) -> Commit | None:
        return _commit(await self._run("answer", stream))

    # -- notes

    async def note(self, stream: str, kind: str, data: bytes, keep: int) -> None:
        await self._change("note", stream, kind, data, keep)

    async def notes(self, stream: str, kind: str, last: int) -> Sequence[HistoryEntry]:
        return tuple(_note(line) for line in await self._run("notes", stream, kind, last))


def _micros(seconds: float) -> int:
    return round(seconds * _MICROS)


def _version_text(version: Version) -> str:
    return f"{version.incarnation:020d}.{version.number:020d}"


def _stream(name: str, record: Sequence[bytes]) -> StreamRecord:
    spec, created, incarnation, owner = record
    return StreamRecord(name, spec, int(created) / _MICROS, int(incarnation), (owner or b"").decode())


def _part_keys(kind: str, batch: int, heard: Pairs, lines: Sequence[bytes]) -> list[PartKey]:
    """``heard``: of each source the run that counts and its number of parts; ``lines``: the parts that came."""
    runs = {source.decode(): line.decode().split(" ") for source, line in heard}
    found = []
    for line in lines:
        part, _, source = line.decode().partition(" ")
        run, parts = runs[source]
        found.append(PartKey(kind, source, batch, int(run), int(part), int(parts)))
    return found


def _plan(found: Sequence[bytes] | None) -> PlanRecord | None:
    if found is None:
        return None
    version, digest, data, purpose = found
    incarnation, _, number = version.decode().partition(".")
    return PlanRecord(Version(int(incarnation), int(number)), digest.decode(), data, purpose.decode())


def _commit(found: Sequence[Any]) -> Commit | None:
    epoch, answer, keep, names = found
    if epoch is None:
        return None
    return Commit(int(epoch), answer, tuple(ReportKey(*name) for name in json.loads(names)), keep)


def _note(line: bytes) -> HistoryEntry:
    at, _, data = line.partition(b" ")
    return HistoryEntry(int(at) / _MICROS, data)


def _members(leases: Sequence[bytes], names: Sequence[bytes]) -> tuple[Member, ...]:
    merged = {agent: line[40:].decode() for agent, line in pairs(names)}
    members = []
    for agent, lease in sorted(pairs(leases)):
        done = merged.get(agent, _NEVER)
        last = None if done == _NEVER else ReportKey(agent.decode(), int(done[:20]), int(done[20:]))
        members.append(Member(agent.decode(), int(float(lease)) / _MICROS, last))
    return tuple(members)
