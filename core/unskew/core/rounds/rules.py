"""The rules of a round of cooperative learning (Dalton, section 4): how long it waits for whom, how DSYNC moves, which
counts are refused. Deviations from the paper are listed in ``next_step``.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from unskew.core.errors import ConfigError
from unskew.core.rounds.dsync import DsyncBounds, Interval, Round
from unskew.core.rounds.messages import Report
from unskew.core.sketches.tally import exact_sum

__all__ = ["LastReport", "Pace", "RoundRules", "check_report", "pressed", "seal_at"]

_WAITED_FOR_OTHERS = 0.2  # of a DSYNC
_MOST = 2**42  # tuples in one report: with fewer than 2**21 agents no sum over a round can wrap


@dataclass(frozen=True)
class RoundRules:
    """``patience`` and ``lease`` are in units of DSYNC, the others in seconds."""

    workers: int
    dsync: float = 20.0
    dsync_min: float = 1.0
    dsync_max: float = 3600.0
    patience: float = 1.5  # a round is sealed so long after its first report, whoever is missing
    lease: float = 3.0  # rounds wait for an agent so long after its report

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ConfigError("workers", self.workers, "a whole number, at least 1")
        if not 0.0 < self.dsync_min < math.inf:
            raise ConfigError("dsync_min", self.dsync_min, "seconds above 0")
        if not self.dsync_min <= self.dsync_max < math.inf:
            raise ConfigError("dsync_max", self.dsync_max, f"seconds, dsync_min = {self.dsync_min} or more")
        if not self.dsync_min <= self.dsync <= self.dsync_max:
            raise ConfigError("dsync", self.dsync, f"{self.dsync_min} to {self.dsync_max} (dsync_min to dsync_max)")
        for name in ("patience", "lease"):
            if not 1.0 <= getattr(self, name) < math.inf:
                raise ConfigError(name, getattr(self, name), "1 or more, in units of DSYNC")

    def clamp(self, interval: float) -> float:
        """The nearest interval within the bounds."""
        return min(max(interval, self.dsync_min), self.dsync_max)


@dataclass(frozen=True)
class LastReport:
    """Of an agent's last merged report: the session, the interval that it named, and how long other agents made it wait
    (from its arrival until its round was complete)."""

    session: int
    dsync: float
    kept: float


@dataclass(frozen=True)
class Pace:
    """DSYNC, and what its next step depends on: the work of the last merge, and when that ended."""

    interval: Interval
    work: float = 0.0
    merged_at: float | None = None

    def after(self, rules: RoundRules, *, asked: bool, opened: float, work: float, now: float) -> Pace:
        """From the end (``now``) of the merge of a round that was ``opened`` by its first report."""
        idle = None if self.merged_at is None else max(0.0, opened - self.merged_at)
        bounds = DsyncBounds(rules.dsync_min, rules.dsync_max)
        return Pace(self.interval.after(Round(asked, idle, work, self.work), bounds), work, now)


def check_report(report: Report) -> None:
    """Refuse counts that could wrap around when a round is summed up."""
    for what, tuples in (("loads", report.loads), ("rows", report.table.rows)):
        # Most are far below it, which their largest says already.
        if len(tuples) and int(tuples.max()) * len(tuples) > _MOST and exact_sum(tuples) > _MOST:
            raise ConfigError(what, exact_sum(tuples), f"at most {_MOST} tuples in a report; report more often")
    if report.records > _MOST:
        raise ConfigError("records", report.records, f"at most {_MOST} tuples in a report; report more often")


def pressed(report: Report, before: LastReport | None) -> bool:
    """Whether this request for a longer DSYNC counts: the agent had to wait for the reducer, and not for others."""
    if before is None or not report.longer:
        return False
    same = before.session == report.session and before.dsync == report.dsync
    return same and before.kept <= _WAITED_FOR_OTHERS * report.dsync


def seal_at(now: float, deadline: float, missing: Collection[float]) -> float:
    """When to seal a round that has a report in it: ``now``, or when to look again. ``missing`` are the leases of the
    live agents that are not in it."""
    if not missing or now >= deadline:
        return now
    return min(deadline, max(missing))
