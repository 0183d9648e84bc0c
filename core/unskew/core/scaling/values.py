"""The values of Prompt's Algorithm 4 (``autoscale``): a batch's statistics, the rules, the state, the decision."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Literal

from unskew.core.errors import ConfigError
from unskew.core.parameters import check_range, check_whole

__all__ = ["BatchStats", "Load", "ScaleDecision", "ScaleRules", "ScaleState"]

Action = Literal["out", "in", "hold"]


@dataclass(frozen=True)
class BatchStats:
    """What one finished batch measured; times in seconds, ``keys`` distinct."""

    interval: float
    processing: float
    map_time: float
    reduce_time: float
    rows: int
    keys: int

    def __post_init__(self) -> None:
        if not 0.0 < self.interval < math.inf:
            raise ConfigError("interval", self.interval, "seconds above 0")
        for name in ("processing", "map_time", "reduce_time", "rows", "keys"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(name, getattr(self, name), "0 or more")
        if self.processing and not self.map_time + self.reduce_time:
            raise ConfigError("map_time", self.map_time, "the time of the map stage (and reduce_time of the reduce)")


@dataclass(frozen=True)
class Load:
    """One batch, or the mean of several, per second of interval: W, its two stages, rate and keys."""

    w: float
    map_part: float
    reduce_part: float
    rate: float
    keys: float

    @classmethod
    def of(cls, stats: BatchStats) -> Load:
        """One batch."""
        per = 1.0 / stats.interval
        return cls(
            stats.processing * per, stats.map_time * per, stats.reduce_time * per, stats.rows * per, float(stats.keys)
        )

    @classmethod
    def mean(cls, loads: tuple[Load, ...]) -> Load:
        """The mean of several batches."""
        columns = zip(*(asdict(load).values() for load in loads), strict=True)
        return cls(*(sum(column) / len(loads) for column in columns))

    @property
    def cost(self) -> float:
        """What both stages take for a row, in seconds."""
        return (self.map_part + self.reduce_part) / self.rate if self.rate else 0.0

    @property
    def map_share(self) -> float:
        """The map stage's share of both stages' time."""
        both = self.map_part + self.reduce_part
        return self.map_part / both if both else 0.5


@dataclass(frozen=True)
class ScaleRules:
    """Parameters of Algorithm 4; ``grace`` None means ``d`` batches; tasks are counted in ``increment``s."""

    thres: float = 0.9
    step: float = 0.1
    d: int = 5
    grace: int | None = None
    tolerance: float = 0.05
    increment: int = 1
    min_p: int = 1
    max_p: int = 1024
    min_r: int = 1
    max_r: int = 1024
    as_published: bool = False

    def __post_init__(self) -> None:
        if not 0.0 < self.thres <= 1.0:
            raise ConfigError("thres", self.thres, "above 0 and at most 1")
        if not 0.0 < self.step < self.thres:
            raise ConfigError("step", self.step, f"above 0 and below thres = {self.thres}")
        check_range("tolerance", self.tolerance, 0, 1)
        check_whole("d", self.d, 1, 1_000)
        check_whole("grace", 0 if self.grace is None else self.grace, 0, 1_000)
        check_whole("increment", self.increment, 1, 1_000)
        check_whole("min_p", self.min_p, 1, 65_536)
        check_whole("min_r", self.min_r, 1, 65_536)
        check_whole("max_p", self.max_p, self.min_p, 65_536)
        check_whole("max_r", self.max_r, self.min_r, 65_536)

    @property
    def grace_batches(self) -> int:
        """Batches after a change in which no reverse change is made."""
        return self.d if self.grace is None else self.grace

    @property
    def middle(self) -> float:
        """The middle of Zone 2: the W that a change aims at."""
        return self.thres - self.step / 2

    def zone(self, w: float) -> int:
        """Fig. 9b: 3 overloaded, 2 stable, 1 under-used."""
        if w > self.thres:
            return 3
        return 1 if w <= self.thres - self.step else 2


@dataclass(frozen=True)
class ScaleState:
    """The whole state of the machine. ``promised``: the cost of a row that the last large scale-out should reach."""

    p: int
    r: int
    above: int = 0
    below: int = 0
    grace: int = 0
    last: Action = "hold"
    settled: bool = False
    window: tuple[Load, ...] = ()
    baseline: Load | None = None
    promised: float | None = None


@dataclass(frozen=True)
class ScaleDecision:
    """Map tasks ``p`` and reduce tasks ``r`` from the next batch on, and why."""

    p: int
    r: int
    zone: int
    w: float
    action: Action
    reason: str
