"""What the round machine remembers, and the same as plain data: dictionaries and lists of numbers, strings and numpy
arrays, which any format can hold. Answers that several agents share are kept once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from unskew.core.dalton.qtable import QTable
from unskew.core.errors import ConfigError
from unskew.core.rounds.dsync import Bar, Interval
from unskew.core.rounds.messages import Answer, Report
from unskew.core.sketches.frequent import FrequentItems

__all__ = ["Entry", "Member", "Sealed", "State", "from_fields", "to_fields"]

_FORMAT = 1


@dataclass(frozen=True)
class Entry:
    """A report in a round. ``pressed``: its agent had to wait for the reducer for as long as a DSYNC."""

    report: Report
    arrived: float
    pressed: bool


@dataclass(frozen=True)
class Member:
    """An agent: until when it is waited for, and the last of its reports that was merged, with the answer to it."""

    lease: float
    heard: float
    session: int = 0
    seq: int = 0
    dsync: float = 0.0  # that the report named
    answer: Answer | None = None
    arrived: float = 0.0  # when the report came
    complete: float = 0.0  # when its round was sealed


@dataclass(frozen=True)
class Sealed:
    """A round that takes no more reports, and is being merged."""

    epoch: int
    opened: float
    sealed: float
    began: float  # the merge
    entries: dict[str, Entry]


@dataclass
class State:
    """``open`` is the epoch that takes reports; ``merged`` the last that is done; one between them may be sealed."""

    interval: Interval
    now: float = 0.0
    open: int = 1
    opened: float = 0.0  # of the open round, once it has an entry
    deadline: float = 0.0
    entries: dict[str, Entry] = field(default_factory=dict)
    sealed: Sealed | None = None
    merged: int = 0
    merged_at: float | None = None
    work: float = 0.0  # of the last merge
    previous: Answer | None = None
    members: dict[str, Member] = field(default_factory=dict)


def to_fields(state: State) -> dict[str, Any]:
    """The state as plain data."""
    shared = {id(answer): answer for answer in (state.previous, *(m.answer for m in state.members.values())) if answer}
    place = {key: at for at, key in enumerate(shared)}
    return {
        **_plain(state, "interval", "entries", "sealed", "previous", "members"),
        "format": _FORMAT,
        "interval": asdict(state.interval),
        "entries": [_entry(entry) for entry in state.entries.values()],
        "sealed": None if state.sealed is None else _sealed(state.sealed),
        "answers": [_answer(answer) for answer in shared.values()],
        "previous": place.get(id(state.previous), -1),
        "members": {
            agent: {**_plain(member, "answer"), "answer": place.get(id(member.answer), -1)}
            for agent, member in state.members.items()
        },
    }


def from_fields(plain: Mapping[str, Any]) -> State:
    """The inverse of ``to_fields``."""
    given = dict(plain)
    if given.pop("format", None) != _FORMAT:
        raise ConfigError("state", plain.get("format"), f"a state of format {_FORMAT}, as Rounds.state() gives it")
    answers = [_answer_of(answer) for answer in given.pop("answers")]
    bars = tuple(Bar(**bar) for bar in given["interval"]["bars"])
    members = {
        agent: Member(**{**member, "answer": _pick(answers, member["answer"])})
        for agent, member in given["members"].items()
    }
    return State(
        **{
            **given,
            "interval": Interval(**{**given["interval"], "bars": bars}),
            "entries": _entries_of(given["entries"]),
            "sealed": None if given["sealed"] is None else _sealed_of(given["sealed"]),
            "previous": _pick(answers, given["previous"]),
            "members": members,
        }
    )


def _plain(value: Any, *but: str) -> dict[str, Any]:
    return {part.name: getattr(value, part.name) for part in fields(value) if part.name not in but}


def _entry(entry: Entry) -> dict[str, Any]:
    report = entry.report
    parts = {"table": _plain(report.table), "frequent": _plain(report.frequent)}
    return {**_plain(entry, "report"), "report": {**_plain(report, *parts), **parts}}


def _entries_of(plain: list[dict[str, Any]]) -> dict[str, Entry]:
    entries = (Entry(**{**entry, "report": _report_of(entry["report"])}) for entry in plain)
    return {entry.report.agent: entry for entry in entries}


def _report_of(plain: Mapping[str, Any]) -> Report:
    parts = {"table": QTable(**plain["table"]), "frequent": FrequentItems(**plain["frequent"])}
    return Report(**{**plain, **parts})


def _sealed(sealed: Sealed) -> dict[str, Any]:
    return {**_plain(sealed, "entries"), "entries": [_entry(entry) for entry in sealed.entries.values()]}


def _sealed_of(plain: Mapping[str, Any]) -> Sealed:
    return Sealed(**{**plain, "entries": _entries_of(plain["entries"])})


def _answer(answer: Answer) -> dict[str, Any]:
    return {
        **_plain(answer),
        "merged": [list(name) for name in answer.merged],
        "table": _plain(answer.table),
        "unsure": np.array(sorted(answer.unsure), np.uint64),
    }


def _answer_of(plain: Mapping[str, Any]) -> Answer:
    names = tuple((agent, session, seq) for agent, session, seq in plain["merged"])
    parts = {"table": QTable(**plain["table"]), "unsure": frozenset(plain["unsure"].tolist())}
    return Answer(**{**plain, **parts, "merged": names})


def _pick(answers: list[Answer], place: int) -> Answer | None:
    return answers[place] if place >= 0 else None
