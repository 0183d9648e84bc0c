"""Reports on their way to Redis and back: written in batches, and read back only where another replica wrote them.

A request to Redis costs this process more than it costs Redis. So reports of a stream that arrive while others of it
are being written go together with the next script; each has an outcome of its own. And of a sealed round only names
and digests are read, and then those reports that other replicas wrote.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import xxhash

from unskew.core.rounds.round_log import ReportKey, ReportOutcome, StoredReport
from unskew.service.concurrency import detached_task
from unskew.service.errors import UnavailableError
from unskew.service.stores.limits import Limits, missing, round_full
from unskew.service.stores.redis.replies import MICROS, groups, pairs, report_key, report_name

__all__ = ["RunScript", "WrittenReports"]

_TRIES = 5
_RECENT_BYTES = 64 << 20
_COALESCE_DELAY = 0.002  # seconds that a report waits for others of its stream: it will wait for its round anyway


class RunScript(Protocol):
    """A script by name, on the keys of a stream."""

    def __call__(self, name: str, stream: str, /, *args: object) -> Awaitable[Any]: ...


class _PendingReport(NamedTuple):
    """A report that is to be written, and the future of its outcome."""

    key: ReportKey
    data: bytes
    digest: str
    lease: float
    outcome: asyncio.Future[ReportOutcome]

    def words(self) -> tuple[object, ...]:
        """For the script."""
        return self.key.agent, report_name(self.key), self.data, self.digest, round(self.lease * MICROS)


class WrittenReports:
    """``most``: bytes of data to be sent or asked for at once. ``limits``: what a stream may have of them."""

    def __init__(self, run: RunScript, most: int, limits: Limits) -> None:
        self._run, self._most, self._limits = run, most, limits
        self._pending: dict[str, list[_PendingReport]] = {}
        self._writing: dict[str, asyncio.Task[None]] = {}
        self._recent = _RecentReports()

    # -- writing

    async def put(self, stream: str, key: ReportKey, data: bytes, lease: float) -> ReportOutcome:
        outcome: asyncio.Future[ReportOutcome] = asyncio.get_running_loop().create_future()
        report = _PendingReport(key, data, xxhash.xxh3_128_hexdigest(data), lease, outcome)
        self._pending.setdefault(stream, []).append(report)
        if stream not in self._writing:
            self._writing[stream] = detached_task(self._write(stream))
        return await outcome

    async def _write(self, stream: str) -> None:
        """All that is pending, also what arrives meanwhile. Where Redis does not answer all of it fails: each report by
        itself would wait in vain for as long as the first did."""
        bounds = self._limits.agents, self._limits.stream_bytes
        batch: list[_PendingReport] = []
        try:
            while stream in self._pending:
                await asyncio.sleep(_COALESCE_DELAY)
                batch = self._pending.pop(stream)
                for group in groups(batch, [len(report.data) for report in batch], self._most):
                    words = [word for report in group for word in report.words()]
                    self._set_outcomes(stream, group, await self._run("report", stream, *bounds, *words))
        except Exception as why:  # noqa: BLE001 - every caller is answered, whatever it is
            for report in batch + self._pending.pop(stream, []):
                if not report.outcome.done():
                    report.outcome.set_exception(why)
        finally:
            del self._writing[stream]

    def _set_outcomes(self, stream: str, group: Sequence[_PendingReport], reply: Any) -> None:
        if reply == b"gone":
            raise missing(stream)
        for report, text in zip(group, reply, strict=True):
            if (full := round_full(stream, text.decode(), len(report.data), self._limits)) is not None:
                if not report.outcome.done():
                    report.outcome.set_exception(full)
                continue
            outcome = ReportOutcome(text.decode())
            if outcome is ReportOutcome.STORED:
                self._recent.add(stream, report.key, report.digest, report.data)
            if not report.outcome.done():
                report.outcome.set_result(outcome)

    # -- reading

    async def sealed(self, stream: str, epoch: int) -> Sequence[StoredReport]:
        """In the order of their keys, as of one moment: nothing comes into a sealed round, and it goes as a whole."""
        for _ in range(_TRIES):
            fields, lines = await self._run("sealed", stream, epoch)
            about = {field: line.split(b" ") for field, line in pairs(lines)}
            data = {field: self._recent.find(stream, report_key(field), about.get(field)) for field in fields}
            absent = [field for field, value in data.items() if value is None]
            sizes = [int(about[field][2]) if field in about else 0 for field in absent]
            for group in groups(absent, sizes, self._most):
                data.update(zip(group, await self._run("reports", stream, epoch, *group), strict=True))
            if None not in data.values():
                arrived = {field: int(about[field][0]) / MICROS if field in about else 0.0 for field in fields}
                reports = [
                    StoredReport(report_key(field), value or b"", arrived[field]) for field, value in data.items()
                ]
                return tuple(sorted(reports, key=lambda report: report.key))
        raise UnavailableError(f"store: the reports of stream {stream!r} go while they are read; try again")

    def merged(self, stream: str, names: Iterable[ReportKey]) -> None:
        """These are not read again."""
        for key in names:
            self._recent.drop(stream, key)


class _RecentReports:
    """The last reports that this replica stored."""

    def __init__(self) -> None:
        self._data: OrderedDict[tuple[str, ReportKey], tuple[bytes, bytes]] = OrderedDict()
        self._size = 0

    def add(self, stream: str, key: ReportKey, digest: str, data: bytes) -> None:
        self.drop(stream, key)
        self._data[stream, key] = digest.encode(), data
        self._size += len(data)
        while self._size > _RECENT_BYTES:
            _, (_, old) = self._data.popitem(last=False)
            self._size -= len(old)

    def find(self, stream: str, key: ReportKey, about: Sequence[bytes] | None) -> bytes | None:
        """The data, if the report in Redis has the same digest. ``about``: its arrival, digest and size."""
        digest, data = self._data.get((stream, key), (b"", b""))
        return data if about is not None and about[1:2] == [digest] else None

    def drop(self, stream: str, key: ReportKey) -> None:
        _, data = self._data.pop((stream, key), (b"", b""))
        self._size -= len(data)
