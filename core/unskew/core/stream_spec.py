"""Values that jobs, clients and the service exchange about a stream: its settings, the parts of its batches, their
work."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from unskew.core.errors import ConfigError
from unskew.core.parameters import check_range

if TYPE_CHECKING:
    from unskew.core.plan.plan import Version

__all__ = ["UNKNOWN_PARTS", "BatchWork", "Part", "StreamSpec", "Work", "check_name"]

_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._:/-]{1,200}")  # . and .. mean folders in an address
_MOST_HISTORY = 1000
UNKNOWN_PARTS = 1_000_000  # the most there may be; a task that does not know the number of tasks says this
_LONGEST = 1e9  # seconds between two reports; a few times this still fits a time
_OWN = ("name", "partitions", "seed", "weights")  # what ``make_planner`` takes beside a policy's parameters


def check_name(what: str, name: object) -> str:
    """A name of a stream, a source or an agent, or a ``ConfigError``."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(what, name, "1 to 200 letters, digits and . _ - : / (not . and ..)")
    return name


@dataclass(frozen=True)
class StreamSpec:
    """The settings of a stream: its routing policy, and how often its agents report. Refused if no planner accepts
    it."""

    partitions: int
    policy: str = "auto"
    parameters: Mapping[str, object] = field(default_factory=dict)
    weights: tuple[float, ...] = ()
    seed: int = 7
    key_types: tuple[str, ...] = ()
    history: int = 8
    decay: float = 0.5
    dsync: float = 20.0
    dsync_min: float = 1.0
    dsync_max: float = 3600.0

    def __post_init__(self) -> None:
        from unskew.core.planners import make_planner  # not at the top: most clients only fetch plans

        for name in _OWN:
            if name in self.parameters:
                allowed = f"no parameter of that name: a stream has its own {name}"
                raise ConfigError(f"parameters.{name}", self.parameters[name], allowed)
        make_planner(self.policy, self.partitions, self.seed, self.weights or None, **self.parameters)
        check_range("history", self.history, 1, _MOST_HISTORY, f"1 to {_MOST_HISTORY} batches")
        check_range("decay", self.decay, 0, 1)
        if not 0.0 < self.dsync_min <= self.dsync <= self.dsync_max < math.inf:
            raise ConfigError("dsync", (self.dsync_min, self.dsync, self.dsync_max), "0 < min <= value <= max, seconds")
        if self.dsync_max > _LONGEST:
            raise ConfigError("dsync_max", self.dsync_max, f"at most {_LONGEST:g} seconds")


@dataclass(frozen=True, order=True)
class Part:
    """A part of a batch: of ``source`` (application and query), in its ``run``-th run, number ``part`` of ``parts``
    (``UNKNOWN_PARTS`` where their number is not known)."""

    source: str
    batch: int
    run: int = 0
    part: int = 0
    parts: int = 1

    def __post_init__(self) -> None:
        check_name("source", self.source)
        for name, value, least, most in (
            ("batch", self.batch, -1, 2**62),
            ("run", self.run, 0, 2**62),
            ("parts", self.parts, 1, UNKNOWN_PARTS),
            ("part", self.part, 0, self.parts - 1),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise ConfigError(name, value, f"a whole number, {least} to {most}")


@dataclass(frozen=True)
class Work:
    """The work of one partition in a finished batch. ``queue``: rows that wait; ``capacity``: rows a second, 0 where it
    is not known."""

    partition: int
    rows: int = 0
    keys: int = 0
    fragments: int = 0
    seconds: float = 0.0
    queue: int = 0
    capacity: float = 0.0


@dataclass(frozen=True)
class BatchWork:
    """A finished batch, or a part of it. Times are of the whole batch, in seconds; 0 where another part has them.
    ``version`` is that of the plan that placed the batch, if one did."""

    work: tuple[Work, ...]
    interval: float = 0.0
    processing: float = 0.0
    map_time: float = 0.0
    reduce_time: float = 0.0
    version: Version | None = None
