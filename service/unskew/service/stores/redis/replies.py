"""Names and numbers as the scripts write them, and the values that are in their replies."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, TypeVar

from unskew.core.plan.plan import Version
from unskew.core.rounds.round_log import Commit, Member, ReportKey, RoundView
from unskew.service.errors import DamagedError
from unskew.service.stores.records import HistoryEntry, News, PartKey, PlanRecord, StreamRecord

__all__ = [
    "MICROS", "Pairs", "commit_of", "digits", "groups", "history_entry_of", "memory_of", "micros", "news_of", "pairs",
    "part_keys_of", "plan_of", "report_field", "report_key", "report_name", "round_of", "stream_of", "version_text",
]  # fmt: skip

MICROS = 1e6
_DIGITS = 20
_NEVER = "0" * 2 * _DIGITS
_NEWS = re.compile(rb"(plan|round|stream) ([A-Za-z0-9._:/-]{1,200})(?: (\d{1,16}) (\d{1,16}))?(?: (db\d{1,10}))?")
_MAX_FIELDS = 1000  # that Lua unpacks at once
T = TypeVar("T")
Pairs = list[tuple[bytes, bytes]]
Read = TypeVar("Read", bound=Callable[..., Any])


def _reading(what: str) -> Callable[[Read], Read]:
    """Values that are not as the scripts write them are told as damage."""

    def of(read: Read) -> Read:
        @wraps(read)
        def checked(*reply: Any) -> Any:
            try:
                return read(*reply)
            except (ValueError, TypeError, LookupError) as why:
                raise DamagedError(what) from why

        return checked  # type: ignore[return-value]  # the same function, but for its errors

    return of


def pairs(flat: Sequence[bytes]) -> Pairs:
    return list(zip(flat[::2], flat[1::2], strict=True))


def groups(items: Sequence[T], sizes: Sequence[int], most: int) -> Iterator[list[T]]:
    """The items in groups whose sizes sum up to ``most`` at most, where one alone is not above it."""
    group: list[T] = []
    total = 0
    for item, size in zip(items, sizes, strict=True):
        if group and (total + size > most or len(group) == _MAX_FIELDS):
            yield group
            group, total = [], 0
        group.append(item)
        total += size
    if group:
        yield group


def news_of(message: bytes) -> tuple[News, bytes] | None:
    """Published news, and for which database alone, if for one; None where the message is none."""
    read = _NEWS.fullmatch(message)
    if read is None:
        return None
    what, stream, opened, merged, db = read.groups()
    rounds = None if opened is None else (int(opened), int(merged))
    return News(stream.decode(), what.decode(), rounds), db or b""


def memory_of(reply: Any) -> tuple[int, int]:
    """Bytes in use and ``maxmemory``, 0 where there is none. A cluster's client has read the reply already, perhaps of
    several nodes: then of the fullest one."""
    if isinstance(reply, bytes):
        lines = (line.partition(":") for line in reply.decode().splitlines())
        reply = {name: value for name, _, value in lines}
    if "used_memory" in reply:
        return int(reply["used_memory"]), int(reply.get("maxmemory", 0))
    nodes = [memory_of(node) for node in reply.values()]
    return max(nodes, key=lambda node: node[0] / node[1] if node[1] else 0.0, default=(0, 0))


def micros(seconds: float) -> int:
    return round(seconds * MICROS)


def digits(number: int) -> str:
    """So many digits that numbers compare as texts do."""
    return f"{number:0{_DIGITS}d}"


def version_text(version: Version | None) -> str:
    return "" if version is None else f"{digits(version.incarnation)}.{digits(version.number)}"


def report_name(key: ReportKey) -> str:
    """A report of an agent."""
    return digits(key.session) + digits(key.seq)


def report_field(key: ReportKey) -> str:
    """A report of a round."""
    return f"{key.agent} {report_name(key)}"


def report_key(field: bytes) -> ReportKey:
    agent, _, name = field.decode().rpartition(" ")
    return _named(agent, name)


def _named(agent: str, name: str) -> ReportKey:
    return ReportKey(agent, int(name[:_DIGITS]), int(name[_DIGITS:]))


@_reading("settings")
def stream_of(name: str, reply: Sequence[bytes]) -> StreamRecord:
    spec, created, incarnation, owner = reply
    return StreamRecord(name, spec, int(created) / MICROS, int(incarnation), (owner or b"").decode())


@_reading("reports")
def part_keys_of(kind: str, batch: int, runs: Pairs, fields: Sequence[bytes]) -> list[PartKey]:
    """``runs``: of each source the run that counts and its number of parts. ``fields``: the parts that are there."""
    by_source = {source.decode(): line.decode().split(" ") for source, line in runs}
    keys = []
    for field in fields:
        part, _, source = field.decode().partition(" ")
        run, parts = by_source[source]
        keys.append(PartKey(kind, source, batch, int(run), int(part), int(parts)))
    return keys


@_reading("plans")
def plan_of(reply: Sequence[bytes] | None) -> PlanRecord | None:
    if reply is None:
        return None
    version, digest, data, purpose, advice, ways = reply
    incarnation, _, number = version.decode().partition(".")
    of = Version(int(incarnation), int(number))
    return PlanRecord(of, digest.decode(), data, purpose.decode(), advice or b"", ways or b"")


@_reading("rounds")
def round_of(reply: Sequence[Any]) -> RoundView:
    now, incarnation, open_epoch, merged, opened, arrivals, leases, names, keep = reply
    reported: dict[str, float] = {}
    for field, about in pairs(arrivals):
        agent, arrived = report_key(field).agent, int(about.split(b" ")[0]) / MICROS
        reported[agent] = min(arrived, reported.get(agent, arrived))
    return RoundView(
        now=int(now) / MICROS,
        incarnation=int(incarnation),
        open=int(open_epoch),
        merged=int(merged),
        opened=None if opened is None else int(opened) / MICROS,
        reported=reported,
        members=_members(leases, names),
        keep=keep or b"",
    )


def _members(leases: Sequence[bytes], names: Sequence[bytes]) -> tuple[Member, ...]:
    """``names``: of each agent its last report that was taken, and its last one that was merged."""
    merged = {agent: line[2 * _DIGITS :].decode() for agent, line in pairs(names)}
    members = []
    for agent, lease in sorted(pairs(leases)):
        name = merged.get(agent, _NEVER)
        last = None if name == _NEVER else _named(agent.decode(), name)
        members.append(Member(agent.decode(), int(float(lease)) / MICROS, last))
    return tuple(members)


@_reading("rounds")
def commit_of(reply: Sequence[Any]) -> Commit | None:
    epoch, answer, keep, names = reply
    if epoch is None:
        return None
    return Commit(int(epoch), answer, tuple(ReportKey(*name) for name in json.loads(names)), keep)


@_reading("history")
def history_entry_of(line: bytes) -> HistoryEntry:
    at, _, data = line.partition(b" ")
    return HistoryEntry(int(at) / MICROS, data)
