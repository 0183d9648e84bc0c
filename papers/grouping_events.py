"""Events and actions of Consistent Grouping's delegation machine (``grouping``), and its parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from unskew.core.errors import ConfigError
from unskew.core.grouping.signals import Signal, SignalRules, check_worker

__all__ = [
    "Action",
    "Aggregate",
    "Event",
    "GroupingRules",
    "GroupingTick",
    "Ignored",
    "Moved",
    "WorkerJoined",
    "WorkerLeft",
]


@dataclass(frozen=True)
class GroupingRules:
    """Parameters of the delegation; times in seconds. ``aggregate`` None: no merge is ever due."""

    signals: SignalRules = field(default_factory=SignalRules)
    slot: float = 1.0
    patience: int = 2
    aggregate: float | None = 60.0

    def __post_init__(self) -> None:
        if not 0.0 < self.slot < math.inf:
            raise ConfigError("slot", self.slot, "seconds above 0")
        if not 1 <= self.patience <= 1_000:
            raise ConfigError("patience", self.patience, "1 to 1000 slots")
        if self.aggregate is not None and not 0.0 < self.aggregate < math.inf:
            raise ConfigError("aggregate", self.aggregate, "seconds above 0, or None")


@dataclass(frozen=True)
class WorkerJoined:
    """A worker has been there since ``at``; a known worker that joins has restarted."""

    worker: int
    at: float

    def __post_init__(self) -> None:
        check_worker(self.worker, self.at)


@dataclass(frozen=True)
class WorkerLeft:
    """A worker has been gone since ``at``."""

    worker: int
    at: float

    def __post_init__(self) -> None:
        check_worker(self.worker, self.at)


@dataclass(frozen=True)
class GroupingTick:
    """Time has passed; ``Grouping.wake`` says when one is needed."""


@dataclass(frozen=True)
class Moved:
    """All later rows of these virtual workers go to ``taker``. ``version`` counts moves: sources adopt newer ones
    only."""

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
