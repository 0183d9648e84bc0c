"""Reports on their way to Redis and back: together where many come at once, and not back where they came from here.

A request to Redis costs this process more than Redis itself. So reports of a stream that come while others of it are
being written go together, with the next script; each has an outcome of its own. And of a sealed round only names and
digests are asked for, and those reports that other replicas wrote.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import xxhash

from unskew.service.concurrency import detached_task
from unskew.service.errors import UnavailableError
from unskew.service.stores.limits import missing
from unskew.service.stores.ports import ReportKey, ReportOutcome, StoredReport

__all__ = ["Pairs", "Reports", "field_of", "groups", "key_of", "pairs"]

_MICROS = 1e6
_TRIES = 5
_FIELDS = 1000  # what Lua unpacks at once has a limit
_KEPT = 64 << 20
_COMPANY = 0.002  # seconds that a report waits for others of its stream: it will wait for its round anyway
T = TypeVar("T")
Pairs = list[tuple[bytes, bytes]]


class Run(Protocol):
    """A script by name, on the keys of a stream."""

    def __call__(self, name: str, stream: str, /, *args: object) -> Awaitable[Any]: ...


@dataclass(frozen=True, eq=False)
class _Waiting:
    """A report that is to be written, and who waits for what becomes of it."""

    key: ReportKey
    data: bytes
    lease: float
    outcome: asyncio.Future[ReportOutcome]


class Reports:
    """``most``: bytes of data to be sent or asked for at once."""

    def __init__(self, run: Run, most: int) -> None:
        self._run, self._most = run, most
        self._waiting: dict[str, list[_Waiting]] = {}
        self._writing: dict[str, asyncio.Task[None]] = {}
        self._written = _Written()

    # -- there

    async def put(self, stream: str, key: ReportKey, data: bytes, lease: float) -> ReportOutcome:
        one = _Waiting(key, data, lease, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(stream, []).append(one)
        if stream not in self._writing:
            self._writing[stream] = detached_task(self._write(stream))
        return await one.outcome

    async def _write(self, stream: str) -> None:
        """What waits, and what has come meanwhile. Where Redis does not answer all that wait are told so: each would
        wait for it in vain as long as the first did."""
        waiting: list[_Waiting] = []
        try:
            while stream in self._waiting:
                await asyncio.sleep(_COMPANY)
                waiting = self._waiting.pop(stream)
                for some in groups(waiting, [len(one.data) for one in waiting], self._most):
                    await self._write_some(stream, some)
        except Exception as why:  # noqa: BLE001 - whoever waits is told, whatever it is
            for one in waiting + self._waiting.pop(stream, []):
                if not one.outcome.done():
                    one.outcome.set_exception(why)
        finally:
            del self._writing[stream]

    async def _write_some(self, stream: str, some: Sequence[_Waiting]) -> None:
        digests = [xxhash.xxh3_128_hexdigest(one.data) for one in some]
        words: list[object] = []
        for one, digest in zip(some, digests, strict=True):
            words += (one.key.agent, _name(one.key), one.data, digest, round(one.lease * _MICROS))
        said = await self._run("report", stream, *words)
        if said == b"gone":
            raise missing(stream)
        for one, digest, outcome in zip(some, digests, said, strict=True):
            found = ReportOutcome(outcome.decode())
            if found is ReportOutcome.STORED:
                self._written.add(stream, one.key, digest, one.data)
            if not one.outcome.done():
                one.outcome.set_result(found)

    # -- and back

    async def sealed(self, stream: str, epoch: int) -> Sequence[StoredReport]:
        """In the order of their keys, as they were at one moment: nothing comes into a sealed round, and it goes as a
        whole."""
        for _ in range(_TRIES):
            names, lines = await self._run("sealed", stream, epoch)
            about = {name: line.split(b" ") for name, line in pairs(lines)}
            found = {name: self._written.find(stream, key_of(name), *about.get(name, ())[1:2]) for name in names}
            lacking = [name for name, data in found.items() if data is None]
            sizes = [int(about[name][2]) if name in about else 0 for name in lacking]
            for some in groups(lacking, sizes, self._most):
                found.update(zip(some, await self._run("reports", stream, epoch, *some), strict=True))
            if None not in found.values():
                came = {name: int(about[name][0]) / _MICROS if name in about else 0.0 for name in names}
                every = [StoredReport(key_of(name), data or b"", came[name]) for name, data in found.items()]
                return tuple(sorted(every, key=lambda report: report.key))
        raise UnavailableError(f"store: the reports of stream {stream!r} go while they are read; try again")

    def merged(self, stream: str, names: Iterable[ReportKey]) -> None:
        """These are not asked for again."""
        for key in names:
            self._written.drop(stream, key)


class _Written:
    """The last reports that were stored from here."""

    def __init__(self) -> None:
        self._data: OrderedDict[tuple[str, ReportKey], tuple[bytes, bytes]] = OrderedDict()
        self._size = 0

    def add(self, stream: str, key: ReportKey, digest: str, data: bytes) -> None:
        self.drop(stream, key)
        self._data[stream, key] = digest.encode(), data
        self._size += len(data)
        while self._size > _KEPT:
            _, (_, old) = self._data.popitem(last=False)
            self._size -= len(old)

    def find(self, stream: str, key: ReportKey, digest: bytes = b"") -> bytes | None:
        """The data, if what is there under this name has this digest."""
        had, data = self._data.get((stream, key), (b"", b""))
        return data if had and had == digest else None

    def drop(self, stream: str, key: ReportKey) -> None:
        _, data = self._data.pop((stream, key), (b"", b""))
        self._size -= len(data)


# -- names and answers ----------------------------------------------------------------------------------------


def _name(key: ReportKey) -> str:
    return f"{key.session:020d}{key.seq:020d}"


def field_of(key: ReportKey) -> str:
    return f"{key.agent} {_name(key)}"


def key_of(field: bytes) -> ReportKey:
    agent, _, name = field.decode().rpartition(" ")
    return ReportKey(agent, int(name[:20]), int(name[20:]))


def pairs(flat: Sequence[bytes]) -> Pairs:
    return list(zip(flat[::2], flat[1::2], strict=True))


def groups(things: Sequence[T], sizes: Sequence[int], most: int) -> Iterator[list[T]]:
    """The things in groups whose sizes sum up to ``most`` at most, where one alone is not above it."""
    group: list[T] = []
    total = 0
    for thing, size in zip(things, sizes, strict=True):
        if group and (total + size > most or len(group) == _FIELDS):
            yield group
            group, total = [], 0
        group.append(thing)
        total += size
    if group:
        yield group
