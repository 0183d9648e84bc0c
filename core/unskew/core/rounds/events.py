"""What the round machine is told, and what it asks its driver to do: values, so that a log of them can be kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from unskew.core.rounds.merge import Pool
from unskew.core.rounds.messages import Answer, Report

__all__ = [
    "Action", "Drop", "Event", "Left", "Merge", "Merged", "Name", "Renewed", "Reported", "Resumed", "Send", "Tick",
    "Wake",
]  # fmt: skip

Name: TypeAlias = "tuple[str, int, int]"


@dataclass(frozen=True)
class Reported:
    """A SYNC message came: for the first time or again, in any order."""

    report: Report


@dataclass(frozen=True)
class Renewed:
    """An agent lives: the first word of a new one, or a sign of life between its reports."""

    agent: str


@dataclass(frozen=True)
class Left:
    """An agent went and said so: nobody waits for it any more. What it reported counts."""

    agent: str


@dataclass(frozen=True)
class Tick:
    """Time passed."""


@dataclass(frozen=True)
class Merged:
    """A ``Merge`` is done: by the driver, or by anyone who has the same reports."""

    epoch: int
    pool: Pool


@dataclass(frozen=True)
class Resumed:
    """The driver started anew from a kept state: what it had under way is lost."""


Event: TypeAlias = "Reported | Renewed | Left | Tick | Merged | Resumed"


@dataclass(frozen=True)
class Merge:
    """Do ``merging.merge(reports, previous)`` and come back with ``Merged``; its duration is the reducer's work."""

    epoch: int
    reports: tuple[Report, ...]
    previous: Answer | None


@dataclass(frozen=True)
class Send:
    """Give this answer to these agents. ``age``: seconds since its round was complete. An agent that has its next
    report due DSYNC after *that* moment is in step with the others, whenever it started."""

    answer: Answer
    agents: tuple[str, ...]
    age: float


@dataclass(frozen=True)
class Wake:
    """Come with a ``Tick`` at this time, or with any event before. Takes the place of earlier ones."""

    at: float


@dataclass(frozen=True)
class Drop:
    """A report (by name) or a merge (by epoch) that adds nothing, and why: for a counter and a log, no reply."""

    what: Name | int
    reason: str


Action: TypeAlias = "Merge | Send | Wake | Drop"
