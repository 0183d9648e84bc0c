"""Which way would have been cheapest so far: each way's cost of every finished batch, added up with a slow decay.

Once a batch has run its histogram is known, and with it what every way of placing it would have cost, tried or not. So
the way for the next batch is the one whose costs so far sum up to least ("follow the leader"): no model of drift, and
nothing to tune. The sum forgets slowly (``DECAY``, some thirty batches), so that a change every fifty batches is
remembered until the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from unskew.core.errors import ConfigError

__all__ = ["DECAY", "WayChoice", "WayScores"]

DECAY = 0.97


@dataclass(frozen=True)
class WayChoice:
    """The way for the next batch, why, and the way that comes next (itself where there is no other)."""

    way: str
    runner_up: str
    reason: str


@dataclass(frozen=True)
class WayScores:
    """The decayed sums of what each way would have cost, of batches that weigh ``weight`` in all. A value: ``after``
    gives another one.

    Only ways that are scored in the last batch can be chosen, and only batches in which all of them were scored count:
    where a way can be scored that could not before, the sums begin with that batch.

    >>> scores = WayScores().after({"hash": 3.0, "same": 1.0})
    >>> scores.choice().way, scores.choice({"same": 2.5}).way
    ('same', 'hash')
    """

    decay: float = DECAY
    batches: int = 0
    sums: Mapping[str, float] = field(default_factory=dict)
    weight: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 < self.decay <= 1.0:
            raise ConfigError("decay", self.decay, "above 0 and up to 1")

    def after(self, costs: Mapping[str, float]) -> WayScores:
        """The scores with a batch for which each way would have had this cost; equal costs rank in this order."""
        if self.sums.keys() != costs.keys():
            return WayScores(self.decay, 1, dict(costs), 1.0)
        sums = {way: self.decay * self.sums[way] + cost for way, cost in costs.items()}
        return WayScores(self.decay, self.batches + 1, sums, self.decay * self.weight + 1.0)

    def mean(self, way: str) -> float:
        """The mean cost of a batch by this way, as far as it is remembered."""
        return self.sums[way] / self.weight

    def choice(self, extra: Mapping[str, float] | None = None) -> WayChoice:
        """The way that would have been cheapest so far. ``extra``: what a way costs on top in each batch, by what is
        known of it now: a first count that was slow is not held against counting for ever."""
        if not self.sums:
            raise ConfigError("costs", {}, "the cost of one way or more: call after() first")
        more = extra or {}
        mean = {way: self.mean(way) + more.get(way, 0.0) for way in self.sums}
        ranked = sorted(mean, key=mean.__getitem__)
        way, runner_up = ranked[0], ranked[min(1, len(ranked) - 1)]
        of = "the last batch" if self.batches == 1 else f"the last {self.batches} batches"
        reason = f"{way} would have cost {mean[way]:.3g} a batch over {of}, {runner_up} {mean[runner_up]:.3g}"
        return WayChoice(way, runner_up, reason)
