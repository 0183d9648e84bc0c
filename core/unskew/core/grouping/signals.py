"""What a worker says about its load in Consistent Grouping (CG, section 5.3): busy, idle or fine.

``sense`` turns a measured utilisation into a signal, which rides on a report that the worker sends anyway. The planner
``cg`` acts on signals; the paper's own delegation machine is in ``papers/grouping.py``.

Deviation: a signal may also say what share of its load the worker wants to lose, or could take on; the paper's is
binary (``as_published``). The reason is in docs/decisions, 0009.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from unskew.core.errors import ConfigError
from unskew.core.limits import MAX_PARTITIONS
from unskew.core.parameters import check_whole

__all__ = ["Kind", "Signal", "SignalRules", "check_worker", "sense"]

Kind = Literal["busy", "idle", "fine"]
_LEAST = 0.01  # a lower utilisation counts as this, so that nobody asks for more than 80 times its load


@dataclass(frozen=True)
class SignalRules:
    """The thresholds of utilisation: above ``busy`` a worker is busy, below ``idle`` it is idle."""

    busy: float = 0.85
    idle: float = 0.75
    as_published: bool = False

    def __post_init__(self) -> None:
        if not 0.0 < self.idle < self.busy < math.inf:
            raise ConfigError("busy", (self.idle, self.busy), "thresholds with 0 < idle < busy")

    @property
    def target(self) -> float:
        """The utilisation in the middle of the two thresholds."""
        return (self.busy + self.idle) / 2.0


@dataclass(frozen=True)
class Signal:
    """What a worker says at its own time ``at``. ``share`` is the part of its load that it wants to lose (busy), or
    could take on besides (idle); 0 asks for one virtual worker."""

    worker: int
    at: float
    kind: Kind
    share: float = 0.0

    def __post_init__(self) -> None:
        check_worker(self.worker, self.at)
        if self.kind not in ("busy", "idle", "fine"):
            raise ConfigError("kind", self.kind, ("busy", "idle", "fine"))
        if not 0.0 <= self.share < math.inf:
            raise ConfigError("share", self.share, "0 or more")


def sense(rules: SignalRules, worker: int, utilisation: float, at: float) -> Signal:
    """The signal of a worker with this utilisation, in any measure of which 1 is all that the worker can do.

    >>> sense(SignalRules(), 3, 1.6, at=10.0)
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


def check_worker(worker: int, at: float) -> None:
    """Refuse a worker number or a time that cannot be one."""
    check_whole("worker", worker, 0, MAX_PARTITIONS - 1)
    if not 0.0 <= at < math.inf:
        raise ConfigError("at", at, "seconds, 0 or more")
