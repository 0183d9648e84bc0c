"""The words of Consistent Grouping's delegation: its rules, what happens (events), what is to be done (actions).

``sense`` is the worker's side (CG, section 5.3): each worker watches its own utilisation, by any measure of its own,
and says busy, idle or fine; the signal rides on a report that it sends anyway. The other side is ``grouping``.

- A signal may say what share of its load the worker would be rid of, or would bear besides; the paper's is binary
  (``as_published``). Why: docs/decisions, 0009.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from unskew.core.errors import ConfigError
from unskew.core.limits import MAX_PARTITIONS

__all__ = [
    "Action",
    "Aggregate",
    "Event",
    "GroupingRules",
    "GroupingTick",
    "Ignored",
    "Moved",
    "Signal",
    "WorkerJoined",
    "WorkerLeft",
    "sense",
]

Kind = Literal["busy", "idle", "fine"]
_LEAST = 0.01  # a utilisation below counts as this, so that nobody asks for more than 80 times its load


@dataclass(frozen=True)
class GroupingRules:
    """Parameters of the delegation; times in seconds. ``aggregate`` None: no merge is ever due."""

    busy: float = 0.85
    idle: float = 0.75
    slot: float = 1.0
    patience: int = 2
    aggregate: float | None = 60.0
    as_published: bool = False

    def __post_init__(self) -> None:
        if not 0.0 < self.idle < self.busy < math.inf:
            raise ConfigError("busy", (self.idle, self.busy), "thresholds with 0 < idle < busy")
        if not 0.0 < self.slot < math.inf:
            raise ConfigError("slot", self.slot, "seconds above 0")
        if not 1 <= self.patience <= 1_000:
            raise ConfigError("patience", self.patience, "1 to 1000 slots")
        if self.aggregate is not None and not 0.0 < self.aggregate < math.inf:
            raise ConfigError("aggregate", self.aggregate, "seconds above 0, or None")

    @property
    def target(self) -> float:
        """The utilisation in the middle of the two thresholds."""
        return (self.busy + self.idle) / 2.0


@dataclass(frozen=True)
class Signal:
    """A worker at its own time ``at``: busy, idle or fine. ``share`` is the part of its load that it would be rid of,
    or would bear besides; 0 asks for one virtual worker."""

    worker: int
    at: float
    kind: Kind
    share: float = 0.0

    def __post_init__(self) -> None:
        _check(self.worker, self.at)
        if self.kind not in ("busy", "idle", "fine"):
            raise ConfigError("kind", self.kind, ("busy", "idle", "fine"))
        if not 0.0 <= self.share < math.inf:
            raise ConfigError("share", self.share, "0 or more")


@dataclass(frozen=True)
class WorkerJoined:
    """A worker is there since ``at``; one that is known already has been started anew."""

    worker: int
    at: float

    def __post_init__(self) -> None:
        _check(self.worker, self.at)


@dataclass(frozen=True)
class WorkerLeft:
    """A worker has been gone since ``at``."""

    worker: int
    at: float

    def __post_init__(self) -> None:
        _check(self.worker, self.at)


@dataclass(frozen=True)
class GroupingTick:
    """Time has passed; ``Grouping.wake`` says when one is needed."""


@dataclass(frozen=True)
class Moved:
    """These virtual workers are the taker's for all later rows. ``version`` counts moves: sources adopt newer only."""

    version: int
    giver: int
    taker: int
    virtual: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class Aggregate:
    """Merge the partial states of all keys now, for the ``number``-th time."""

    number: int


@dataclass(frozen=True)
class Ignored:
    """The event changed nothing, and why."""

    reason: str


Event = Signal | WorkerJoined | WorkerLeft | GroupingTick
Action = Moved | Aggregate | Ignored


def sense(rules: GroupingRules, worker: int, utilisation: float, at: float) -> Signal:
    """What a worker says of its utilisation, by any measure of its own in which 1 is all that it can do.

    >>> sense(GroupingRules(), 3, 1.6, at=10.0)
    Signal(worker=3, at=10.0, kind='busy', share=0.5)
    """
    if not 0.0 <= utilisation < math.inf:
        raise ConfigError("utilisation", utilisation, "0 or more")
    kind: Kind = "busy" if utilisation > rules.busy else "idle" if utilisation < rules.idle else "fine"
    share = 0.0
    if kind == "busy" and not rules.as_published:
        share = 1.0 - rules.target / utilisation
    if kind == "idle" and not rules.as_published:
        share = rules.target / max(utilisation, _LEAST) - 1.0
    return Signal(worker, at, kind, share)


def _check(worker: int, at: float) -> None:
    if isinstance(worker, bool) or not isinstance(worker, int) or not 0 <= worker < MAX_PARTITIONS:
        raise ConfigError("worker", worker, f"a whole number from 0 to {MAX_PARTITIONS - 1}")
    if not 0.0 <= at < math.inf:
        raise ConfigError("at", at, "seconds, 0 or more")
