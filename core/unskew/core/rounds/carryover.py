"""What one round leaves for the next: how often agents report, and of each agent its last merged report.

A replica writes it as bytes with the answer of a round, so that any other replica can go on from there.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from unskew.core.rounds.dsync import Bar, Interval
from unskew.core.rounds.messages import Answer
from unskew.core.rounds.round_log import ReportKey
from unskew.core.rounds.rules import LastReport, Pace, RoundRules

__all__ = ["MergedRound", "RoundCarryover"]


@dataclass(frozen=True)
class RoundCarryover:
    """``complete``: when the round took its last report, by the store's clock. ``last_reports`` by agent."""

    pace: Pace
    incarnation: int = 0
    complete: float = 0.0
    last_reports: dict[str, LastReport] = field(default_factory=dict)

    @property
    def dsync(self) -> float:
        """The interval that agents report in from now on."""
        return self.pace.interval.value

    def to_bytes(self) -> bytes:
        """JSON, of the same bytes wherever it is made."""
        agents = {agent: [last.session, last.dsync, last.kept] for agent, last in self.last_reports.items()}
        plain = {"pace": asdict(self.pace), "incarnation": self.incarnation, "complete": self.complete, "heard": agents}
        return json.dumps(plain, separators=(",", ":")).encode()

    @classmethod
    def of(cls, data: bytes, rules: RoundRules) -> RoundCarryover:
        """Read these bytes. DSYNC is moved into the bounds of ``rules``, which may have changed since. Before the first
        round there are no bytes: then DSYNC is as the rules have it."""
        if not data:
            return cls(Pace(Interval(rules.dsync)))
        plain = json.loads(data)
        pace = plain["pace"]
        interval = pace["interval"]
        bars = tuple(Bar(**bar) for bar in interval["bars"])
        interval = Interval(**{**interval, "bars": bars, "value": rules.clamp(interval["value"])})
        agents = {agent: LastReport(*last) for agent, last in plain["heard"].items()}
        return cls(Pace(**{**pace, "interval": interval}), plain["incarnation"], plain["complete"], agents)


@dataclass(frozen=True, eq=False)
class MergedRound:
    """A round that has its answer, the reports in it, what it leaves for the next, and the digests of the rounds up to
    it."""

    answer: Answer
    names: frozenset[ReportKey]
    carryover: RoundCarryover
    digests: bytes = b""

    @property
    def version(self) -> tuple[int, int]:
        """Of the answer: the incarnation of the stream and the epoch of the round."""
        return self.carryover.incarnation, self.answer.epoch

    def follows(self, other: MergedRound) -> bool:
        """Whether no round can have been merged between that one and this."""
        incarnation, epoch = other.version
        return self.version <= (incarnation, epoch + 1)
