"""Early batch release: when to cut a batch off, so that its plan is ready at the heartbeat.

Prompt, section 4.2 (end) and Fig. 7: the cut-off of a batch is (1 - slack) of its interval; planning runs in
the slack; rows that come later belong to the next batch. A passive machine: the driver says when an interval
opens and how long each plan took, the machine says when to cut off.

The paper states only that 5 % of the interval sufficed. How slack follows the measured planning times is
ours: the longest of the last ``memory`` plans plus a margin. Where plan times come from one distribution,
whatever its shape, the next is longer than the last 200 with probability 1/201, so 99.5 % are in time even
without the margin; a slow drift is covered by the margin, and a sudden step costs one late plan. Where a
plan takes more than the cap, no cut-off within the cap can help: the release says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from unskew.core.errors import ConfigError

__all__ = ["EarlyRelease", "EarlyReleaseState", "IntervalOpened", "PlanBuilt", "ReleaseAt", "ReleaseRules"]


@dataclass(frozen=True)
class IntervalOpened:
    """A batch interval of ``length`` seconds opens now; its heartbeat is at its end."""

    length: float

    def __post_init__(self) -> None:
        if not 0.0 < self.length < math.inf:
            raise ConfigError("length", self.length, "seconds above 0")


@dataclass(frozen=True)
class PlanBuilt:
    """A plan was built; from cut-off to ready it took ``seconds``."""

    seconds: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.seconds < math.inf:
            raise ConfigError("seconds", self.seconds, "seconds, 0 or more")


@dataclass(frozen=True)
class ReleaseAt:
    """The decision: release the batch for planning at ``cutoff``; ``slack`` is a share of the interval."""

    cutoff: float
    heartbeat: float
    slack: float
    reason: str


@dataclass(frozen=True)
class ReleaseRules:
    """Parameters of early release."""

    max_slack: float = 0.05
    min_slack: float = 0.001
    margin: float = 0.1
    memory: int = 200
    warmup: int = 20

    def __post_init__(self) -> None:
        if not 0.0 < self.max_slack <= 0.05:
            raise ConfigError("max_slack", self.max_slack, "above 0 and at most 0.05 of the interval")
        if not 0.0 < self.min_slack <= self.max_slack:
            raise ConfigError("min_slack", self.min_slack, f"above 0 and at most max_slack = {self.max_slack}")
        if not 0.0 <= self.margin <= 1.0:
            raise ConfigError("margin", self.margin, "0 to 1")
        if not 1 <= self.memory <= 10_000:
            raise ConfigError("memory", self.memory, "1 to 10000 plans")
        if not 1 <= self.warmup <= self.memory:
            raise ConfigError("warmup", self.warmup, f"1 to memory = {self.memory}")


@dataclass(frozen=True)
class EarlyReleaseState:
    """What the machine remembers: the seconds that the last plans took, oldest first."""

    recent: tuple[float, ...] = ()

    def to_fields(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> EarlyReleaseState:
        """The inverse of ``to_fields``."""
        return cls(recent=tuple(PlanBuilt(float(seconds)).seconds for seconds in fields["recent"]))


class EarlyRelease:
    """Prompt's Early Batch Release (section 4.2, Fig. 7).

    >>> machine = EarlyRelease(ReleaseRules(margin=0.25, warmup=1))
    >>> machine.handle(PlanBuilt(seconds=0.2), now=9.9)
    ()
    >>> release, = machine.handle(IntervalOpened(length=10.0), now=10.0)
    >>> release.cutoff, release.heartbeat, release.slack
    (19.75, 20.0, 0.025)
    """

    def __init__(self, rules: ReleaseRules | None = None, state: EarlyReleaseState | None = None) -> None:
        self.rules = rules or ReleaseRules()
        self.state = state or EarlyReleaseState()

    def handle(self, event: IntervalOpened | PlanBuilt, now: float) -> tuple[ReleaseAt, ...]:
        """Take one event; an opened interval is answered with its release."""
        if isinstance(event, PlanBuilt):
            self.state = learn(self.rules, self.state, event)
            return ()
        return (release(self.rules, self.state, event, now),)


def learn(rules: ReleaseRules, state: EarlyReleaseState, event: PlanBuilt) -> EarlyReleaseState:
    """Remember one more planning time, forget the oldest beyond ``memory``."""
    return EarlyReleaseState((*state.recent, event.seconds)[-rules.memory :])


def release(rules: ReleaseRules, state: EarlyReleaseState, event: IntervalOpened, now: float) -> ReleaseAt:
    """When to cut off the interval that opens ``now``."""
    slack, reason = _slack(rules, state.recent, event.length)
    heartbeat = now + event.length
    return ReleaseAt(heartbeat - slack * event.length, heartbeat, slack, reason)


def _slack(rules: ReleaseRules, recent: tuple[float, ...], length: float) -> tuple[float, str]:
    if len(recent) < rules.warmup:
        return rules.max_slack, f"full slack: {len(recent)} of the first {rules.warmup} plans measured"
    longest = max(recent)
    needed = longest * (1.0 + rules.margin) / length
    if needed > rules.max_slack:
        late = "; a plan may come late: lengthen the interval" if longest / length > rules.max_slack else ""
        return rules.max_slack, (
            f"capped at {rules.max_slack:.1%}: the longest of {len(recent)} plans took {longest / length:.1%}"
            f" of this interval{late}"
        )
    return max(rules.min_slack, needed), (
        f"the longest of {len(recent)} plans took {longest / length:.2%} of this interval"
    )
