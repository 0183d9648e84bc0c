"""The store that replicas share: Redis 7, alone, behind Sentinels or as a cluster (DESIGN, section 6).

Each operation is one script (``scripts``) on the keys of one stream, which share a hash tag. Only the list of streams
stands beside them: a name may be on it for a stream that is gone, which whoever lists then takes off. What Redis does
with a full memory must be to refuse (``maxmemory-policy noeviction``): a report that was taken must not be thrown away.

Published news wake listeners up; nothing depends on them. A Redis that lost its data has no streams: they are put
again and get a new incarnation.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from unskew.core.errors import ConfigError
from unskew.core.plan import Version
from unskew.service.errors import UnavailableError
from unskew.service.ports import (
    Commit,
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
from unskew.service.stores.address import Address
from unskew.service.stores.keeping import Hub, Limits, check_floor, missing, other_parts
from unskew.service.stores.link import Link, Patience
from unskew.service.stores.scripts import SCRIPTS

__all__ = ["RedisStore"]

_MICROS = 1e6
_JITTER = 0.1
_NEVER = "0" * 40
_PAGE = 100
_TRIES = 5
_FIELDS = 1000  # what Lua unpacks at once has a limit
_Pairs = list[tuple[bytes, bytes]]


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
        self._link = Link(address, patience or Patience())
        self._rng = random.Random()
        self._hub = Hub()
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
        what, _, stream = message.decode().partition(" ")
        self._hub.tell(stream, what)

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

    async def _shelf(self, stream: str, data: str, beside: str, epoch: object = "") -> tuple[_Pairs, _Pairs]:
        """A hash of data and the small one beside it, in answers of bounded size, as both were at one moment."""
        for _ in range(_TRIES):
            small, names, *sizes = await self._run("shelf", stream, data, beside, epoch, self._answer)
            if not sizes:
                return _pairs(small), _pairs(names)
            values: list[bytes | None] = []
            for some in _groups(names, sizes[0], self._answer):
                now, more = await self._run("books", stream, data, beside, *some)
                values += more if dict(_pairs(now)) == dict(_pairs(small)) else [None]
                if None in values:
                    break  # a later run came, or the round was merged: look again
            else:
                return _pairs(small), [(name, value or b"") for name, value in zip(names, values, strict=True)]
        raise UnavailableError(f"store: {data} of stream {stream!r} changes faster than it can be read; try again")

    # -- streams

    async def put_stream(self, name: str, spec: bytes, floor: int = 0) -> tuple[StreamRecord, bool]:
        created, *record = await self._run("put_stream", name, spec, check_floor(floor))
        await self._link.command("ZADD", self._index, 0, name)
        return _stream(name, record), bool(created)

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
        was = await self._run("delete_stream", name)
        await self._unlist(name)
        return bool(was)

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
        runs = {source.decode(): line.decode().split(" ") for source, line in heard}
        found = []
        for line, data in held:
            part, _, source = line.decode().partition(" ")
            run, parts = runs[source]
            found.append(StoredPart(PartKey(kind, source, batch, int(run), int(part), int(parts)), data))
        return tuple(sorted(found, key=lambda one: one.key))

    async def batches(self, stream: str, kind: str, before: int | None, limit: int) -> Sequence[int]:
        numbers = [int(text) for text in await self._run("batches", stream, kind)]
        return tuple(sorted((n for n in numbers if before is None or n < before), reverse=True)[:limit])

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
        name = f"{key.session:020d}{key.seq:020d}"
        return ReportOutcome((await self._change("report", stream, key.agent, name, data, _micros(lease))).decode())

    async def round(self, stream: str) -> RoundView:
        found = await self._run("round", stream)
        if found is None:
            raise missing(stream)
        now, incarnation, opened_epoch, merged, opened, came, leases, names, keep = found
        reported: dict[str, float] = {}
        for field, at in _pairs(came):
            agent, seconds = _report_key(field).agent, int(at) / _MICROS
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
        came, reports = await self._shelf(stream, f"r:{epoch}", f"i:{epoch}", epoch)
        when = {field: int(at) / _MICROS for field, at in came}
        found = [StoredReport(_report_key(field), data, when.get(field, 0.0)) for field, data in reports]
        return tuple(sorted(found, key=lambda report: report.key))

    async def commit(self, stream: str, commit: Commit) -> bool:
        names = json.dumps([[key.agent, key.session, key.seq] for key in commit.names])
        fields = [f"{key.agent} {key.session:020d}{key.seq:020d}" for key in commit.names]
        words = commit.epoch, commit.answer, commit.keep, names, _micros(self._limits.forget)
        return bool(await self._change("commit", stream, *words, *fields))

    async def answer(self, stream: str) -> Commit | None:
        epoch, answer, keep, names = await self._run("answer", stream)
        if epoch is None:
            return None
        return Commit(int(epoch), answer, tuple(ReportKey(*name) for name in json.loads(names)), keep)


def _pairs(flat: Sequence[bytes]) -> _Pairs:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _groups(names: Sequence[bytes], sizes: Sequence[int], most: int) -> Iterator[list[bytes]]:
    """The names in groups whose data is not above ``most``, where each alone is not."""
    group: list[bytes] = []
    total = 0
    for name, size in zip(names, sizes, strict=True):
        if group and (total + size > most or len(group) == _FIELDS):
            yield group
            group, total = [], 0
        group.append(name)
        total += size
    yield group


def _micros(seconds: float) -> int:
    return round(seconds * _MICROS)


def _version_text(version: Version) -> str:
    return f"{version.incarnation:020d}.{version.number:020d}"


def _stream(name: str, record: Sequence[bytes]) -> StreamRecord:
    spec, created, incarnation = record
    return StreamRecord(name, spec, int(created) / _MICROS, int(incarnation))


def _plan(found: Sequence[bytes] | None) -> PlanRecord | None:
    if found is None:
        return None
    version, digest, data, purpose = found
    incarnation, _, number = version.decode().partition(".")
    return PlanRecord(Version(int(incarnation), int(number)), digest.decode(), data, purpose.decode())


def _report_key(field: bytes) -> ReportKey:
    agent, _, name = field.decode().rpartition(" ")
    return ReportKey(agent, int(name[:20]), int(name[20:]))


def _members(leases: Sequence[bytes], names: Sequence[bytes]) -> tuple[Member, ...]:
    merged = {agent: line[40:].decode() for agent, line in _pairs(names)}
    members = []
    for agent, lease in sorted(_pairs(leases)):
        done = merged.get(agent, _NEVER)
        last = None if done == _NEVER else ReportKey(agent.decode(), int(done[:20]), int(done[20:]))
        members.append(Member(agent.decode(), int(float(lease)) / _MICROS, last))
    return tuple(members)
