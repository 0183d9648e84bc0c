"""Whether every round and every report counted exactly once: the books of the store against the agents' diaries.

The store's side is Redis's append-only file: each change that a script made, in order, also those that a later one
replaced and those before a kill. (Redis writes it before it answers, so it knows of all that was acknowledged.) The
agents' side is what each wrote down before it did it. ``wrong`` compares the two and has a line for every difference.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.agents import digest
from unskew.wire.round_messages import answer_from_bytes

__all__ = ["Diary", "Name", "Round", "commands", "read_diary", "rounds_of", "wrong"]

Name = tuple[str, int, int]
"""A report: agent, session, seq."""
Epoch = tuple[int, int]
"""A round: incarnation, epoch."""


@dataclass(frozen=True)
class Round:
    """A merged round as the store has it. ``held``: the reports that were in the sealed epoch when it was merged."""

    epoch: Epoch
    names: tuple[Name, ...]
    held: frozenset[Name]
    records: int
    digest: str


@dataclass
class Diary:
    """A life of an agent. ``posted`` has the records of each report that it made; ``loads`` a row for each batch."""

    name: str
    session: int
    posted: dict[int, int] = field(default_factory=dict)
    acked: set[int] = field(default_factory=set)
    adopted: dict[Epoch, str] = field(default_factory=dict)
    loads: dict[int, list[int]] = field(default_factory=dict)

    def names(self, seqs: Iterable[int]) -> set[Name]:
        return {(self.name, self.session, seq) for seq in seqs}

    @property
    def version(self) -> Epoch:
        return max(self.adopted, default=(0, 0))


def read_diary(path: Path) -> Diary:
    """A last line that is cut short was written in the moment of a kill."""
    lines = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
    diary = Diary(lines[0]["name"], lines[0]["session"])
    for line in lines[1:]:
        match line["what"]:
            case "posted":
                diary.posted[line["seq"]] = line["records"]
            case "acked":
                diary.acked.add(line["seq"])
            case "adopted":
                diary.adopted[tuple(line["version"])] = line["digest"]
            case "routed":
                diary.loads[line["batch"]] = line["loads"]
    return diary


# -- what Redis wrote down


def commands(folder: Path) -> Iterator[list[bytes]]:
    """The commands in the append-only files of this server's folder, in order."""
    for path in sorted(folder.glob("*.incr.aof"), key=lambda path: int(path.name.split(".")[-3])):
        yield from _parsed(path.read_bytes())


def _parsed(data: bytes) -> Iterator[list[bytes]]:
    """``*3 $3 SET $1 a $1 b``, each on a line of its own; the end may be cut short."""
    at = 0
    while at < len(data):
        head, at = _line(data, at)
        words = []
        for _ in range(int(head[1:])):
            size, at = _line(data, at)
            words.append(data[at : at + int(size[1:])])
            at += int(size[1:]) + 2
        if at > len(data):
            return
        yield words


def _line(data: bytes, at: int) -> tuple[bytes, int]:
    end = data.find(b"\r\n", at)
    return (data[at:end], end + 2) if end >= 0 else (b"*0", len(data) + 1)


def rounds_of(stream: str, written: Iterable[Sequence[bytes]], prefix: str = "unskew") -> list[Round]:
    """The rounds that were merged, one for each time that an answer was put."""
    base = f"{{{prefix}:{stream}}}:".encode()
    incarnation, found = 0, []
    held: dict[bytes, set[Name]] = {}
    for words in written:
        verb = words[0].upper()
        if len(words) < 2 or not words[1].startswith(base):
            continue
        key = words[1].removeprefix(base)
        fields = dict(zip(words[2::2], words[3::2], strict=False)) if verb == b"HSET" else {}
        if key == b"m" and b"inc" in fields:
            incarnation, held = int(fields[b"inc"]), {}
        elif key.startswith(b"r:") and verb == b"HSET":
            held.setdefault(key[2:], set()).update(_name(name) for name in fields)
        elif key.startswith(b"r:") and verb == b"HDEL":
            held[key[2:]] -= {_name(name) for name in words[2:]}
        elif key == b"c" and fields:
            found.append(_round(incarnation, fields, held))
    return found


def _name(text: bytes) -> Name:
    agent, _, name = text.decode().rpartition(" ")
    return agent, int(name[:20]), int(name[20:])


def _round(incarnation: int, fields: Mapping[bytes, bytes], held: Mapping[bytes, set[Name]]) -> Round:
    names = tuple((agent, session, seq) for agent, session, seq in json.loads(fields[b"names"]))
    answer: Any = answer_from_bytes(fields[b"answer"], names)
    return Round(
        epoch=(incarnation, int(fields[b"epoch"])),
        names=names,
        held=frozenset(held.get(fields[b"epoch"], ())),
        records=answer.records,
        digest=digest(answer.table),
    )


# -- what has to fit


def wrong(rounds: Sequence[Round], diaries: Sequence[Diary], live: Iterable[str]) -> list[str]:
    """What does not fit; empty if all does. ``live`` are the agents that halted at one version, each in
    its last life."""
    posted = {name: records for diary in diaries for name, records in _posted(diary)}
    lives = {diary.name: diary for diary in sorted(diaries, key=lambda diary: diary.session)}
    incarnations = sorted({one.epoch[0] for one in rounds})
    return [
        *_numbering(rounds),
        *(line for number in incarnations for line in _once([one for one in rounds if one.epoch[0] == number])),
        *_contents(rounds, posted),
        *_acknowledged(rounds, diaries),
        *_tables(rounds, diaries),
        *_ends([lives[name] for name in live], rounds),
    ]


def _posted(diary: Diary) -> Iterator[tuple[Name, int]]:
    for seq, records in diary.posted.items():
        yield (diary.name, diary.session, seq), records


def _numbering(rounds: Sequence[Round]) -> Iterator[str]:
    """Each epoch is merged once, one after another, and an incarnation ends when the next begins."""
    before: Epoch = (0, 0)
    for one in rounds:
        follows = one.epoch == (before[0], before[1] + 1) or (one.epoch[0] > before[0] and one.epoch[1] == 1)
        if not follows:
            yield f"round {one.epoch} was merged after {before}"
        before = one.epoch


def _once(rounds: Sequence[Round]) -> Iterator[str]:
    counts = Counter(name for one in rounds for name in one.names)
    for name, count in counts.items():
        if count > 1:
            yield f"report {name} is in {count} rounds: {[one.epoch for one in rounds if name in one.names]}"


def _contents(rounds: Sequence[Round], posted: Mapping[Name, int]) -> Iterator[str]:
    for one in rounds:
        if set(one.names) != one.held:
            yield f"round {one.epoch} names other reports than it held: {sorted(set(one.names) ^ one.held)}"
        unknown = [name for name in one.names if name not in posted]
        if unknown:
            yield f"round {one.epoch} has reports that no agent made: {unknown}"
        total = sum(posted.get(name, 0) for name in one.names)
        if total != one.records:
            yield f"round {one.epoch} counts {one.records} tuples, its reports have {total}"


def _acknowledged(rounds: Sequence[Round], diaries: Sequence[Diary]) -> Iterator[str]:
    merged = {name for one in rounds for name in one.names}
    for diary in diaries:
        for name in sorted(diary.names(diary.acked) - merged):
            yield f"report {name} was acknowledged and is in no round"


def _tables(rounds: Sequence[Round], diaries: Sequence[Diary]) -> Iterator[str]:
    """Whoever has a version has the table that the store had under it."""
    stored = {one.epoch: one.digest for one in rounds}
    for diary in diaries:
        for version, found in diary.adopted.items():
            if stored.get(version) != found:
                yield f"{diary.name} has table {found} as {version}, the store had {stored.get(version)}"


def _ends(diaries: Sequence[Diary], rounds: Sequence[Round]) -> Iterator[str]:
    """All at the last round, nothing under way; what each reported since its life began was merged, to the tuple."""
    last = rounds[-1].epoch if rounds else (0, 0)
    merged = {name for one in rounds for name in one.names}
    for diary in diaries:
        if diary.version != last:
            yield f"{diary.name} ends at {diary.version}, the last round is {last}"
        under_way = sorted(diary.names(diary.posted) - merged)
        if under_way:
            yield f"{diary.name} made reports that are in no round: {under_way}"
