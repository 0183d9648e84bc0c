"""The rounds of one stream as a store keeps them: which report counts, and in which round.

This is the one statement of it in Python: the memory store and the simulator run it, and the Lua script of the Redis
store is held to the same table of cases (``tests/conformance/reports.json``).

A round takes reports while it is open. ``seal`` closes it, ``commit`` puts its answer; rounds are merged in their
order. A report is named (agent, session, seq) and counts in exactly one round:

- repeated in a round that is not merged it stays as it was; in a merged round it counts no more;
- one that is older than the latest report of its agent does not count, and does not renew the lease: it may have been
  on its way since before its agent died;
- a new session of an agent takes the place of the older one in the open round: one vote a round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

__all__ = ["Commit", "Member", "ReportKey", "ReportOutcome", "RoundLog", "RoundView", "StoredReport"]

_NEVER = (0, 0)


class ReportKey(NamedTuple):
    """The name of a report of an agent (``messages.Report.name``)."""

    agent: str
    session: int
    seq: int


class ReportOutcome(Enum):
    """What became of a report."""

    STORED = "stored"  # it counts in the open round
    REPEATED = "repeated"  # it is in a round that is not merged yet
    MERGED = "merged"  # it is in a merged round: the answer is there
    OLDER = "older"  # a later one of the same agent has come
    FULL = "full"  # the open round has no room for it: nothing was changed


@dataclass(frozen=True)
class StoredReport:
    """A report in a round, and when it came by the store's clock."""

    key: ReportKey
    data: bytes
    arrived: float


@dataclass(frozen=True)
class Member:
    """An agent: until when rounds wait for it, and the last of its reports that is in a merged round."""

    agent: str
    lease: float
    merged: ReportKey | None = None


@dataclass(frozen=True)
class RoundView:
    """What has to be known to seal or to merge, read at one moment of the store's clock.

    ``reported`` are the agents in the open round and when their reports came; ``keep`` is what the last commit left for
    the next round (``carryover``), ``digests`` are those of the last rounds (``round_digests``).
    """

    now: float
    incarnation: int
    open: int
    merged: int
    opened: float | None
    reported: dict[str, float] = field(default_factory=dict)
    members: tuple[Member, ...] = ()
    keep: bytes = b""
    digests: bytes = b""

    def live(self) -> frozenset[str]:
        """The agents that have a lease."""
        return frozenset(member.agent for member in self.members if member.lease > self.now)


@dataclass(frozen=True)
class Commit:
    """The answer of a round. ``names`` are the reports in it. ``after``: the digests of the rounds that it was merged
    after, without which it is not compared with those that the store has; ``digests``: with its own."""

    epoch: int
    answer: bytes
    names: tuple[ReportKey, ...]
    keep: bytes
    digests: bytes = b""
    after: bytes = field(default=b"", compare=False)


@dataclass
class _AgentRecord:
    """The lease of an agent, and the last (session, seq) of it that was taken and that was merged."""

    lease: float = 0.0
    latest: tuple[int, int] = _NEVER
    merged: tuple[int, int] = _NEVER


@dataclass
class RoundLog:
    """The rounds of one stream. ``open`` is the round that takes reports, ``merged`` the last one that has an answer.
    ``epochs`` holds the reports of the rounds that are not merged, the open one included.

    >>> log = RoundLog()
    >>> log.report(ReportKey("a", 1, 1), b"", now=0.0, lease=60.0), log.report(ReportKey("a", 1, 1), b"", 1.0, 60.0)
    (<ReportOutcome.STORED: 'stored'>, <ReportOutcome.REPEATED: 'repeated'>)
    >>> log.seal(1), log.open
    (True, 2)
    """

    open: int = 1
    merged: int = 0
    opened: float | None = None
    epochs: dict[int, dict[ReportKey, StoredReport]] = field(default_factory=dict)
    agents: dict[str, _AgentRecord] = field(default_factory=dict)
    last: Commit | None = None
    size: int = 0  # bytes of the reports in the open round
    begun: bytes = b""  # the digests before the first round

    @property
    def digests(self) -> bytes:
        """Of the last rounds."""
        return self.begun if self.last is None else self.last.digests

    def report(self, key: ReportKey, data: bytes, now: float, lease: float, most: float = math.inf) -> ReportOutcome:
        """Take a report, and renew its agent's lease by so many seconds. ``most``: bytes of a round."""
        agent, name = self.agents.get(key.agent) or _AgentRecord(), (key.session, key.seq)
        unmerged = any(key in reports for reports in self.epochs.values())
        if name < agent.latest and name != agent.merged and not unmerged:
            return ReportOutcome.OLDER
        if not unmerged and name != agent.merged and self.size + len(data) > most:
            return ReportOutcome.FULL
        if name >= agent.latest:
            agent.lease = max(agent.lease, now + lease)
            self.agents[key.agent] = agent
        if unmerged:
            return ReportOutcome.REPEATED
        if name == agent.merged:
            return ReportOutcome.MERGED
        self._enter(StoredReport(key, data, now), ReportKey(key.agent, *agent.latest))
        agent.latest = name
        return ReportOutcome.STORED

    def _enter(self, report: StoredReport, latest: ReportKey) -> None:
        """Put the report in the open round. Reports of an older session of its agent leave it; none of the same session
        does."""
        reports, key = self.epochs.setdefault(self.open, {}), report.key
        if latest in reports and latest.session < key.session:
            for old in [old for old in reports if old.agent == key.agent and old.session < key.session]:
                self.size -= len(reports.pop(old).data)
        reports[key] = report
        self.size += len(report.data)
        if self.opened is None:
            self.opened = report.arrived

    def seal(self, epoch: int) -> bool:
        """Close the round for reports; whether this call did it. An empty one stays open: it would have no answer."""
        if epoch != self.open or not self.epochs.get(epoch):
            return False
        self.open, self.opened, self.size = epoch + 1, None, 0
        return True

    def sealed(self, epoch: int) -> tuple[StoredReport, ...]:
        """The reports of a sealed round, in the order of their names; none where it is open or merged."""
        reports = self.epochs.get(epoch, {}) if epoch < self.open else {}
        return tuple(reports[key] for key in sorted(reports))

    def commit(self, commit: Commit, now: float, forget: float) -> bool:
        """Put the answer of a sealed round; whether this call did it. The answer must be of exactly the reports that
        are in the round, and be merged after the rounds that are here. Agents whose lease ended ``forget`` seconds ago
        are forgotten."""
        epoch = commit.epoch
        if epoch != self.merged + 1 or epoch >= self.open or commit.after not in (b"", self.digests):
            return False
        if sorted(commit.names) != sorted(self.epochs.get(epoch, {})):
            return False
        self.epochs.pop(epoch, None)
        self.merged, self.last = epoch, commit
        for name in commit.names:
            agent = self.agents.setdefault(name.agent, _AgentRecord())
            agent.merged = max(agent.merged, (name.session, name.seq))
        self._forget(now - forget)
        return True

    def _forget(self, before: float) -> None:
        unmerged = {key.agent for reports in self.epochs.values() for key in reports}
        silent = [name for name, agent in self.agents.items() if agent.lease <= before and name not in unmerged]
        for name in silent:
            del self.agents[name]

    def view(self, now: float, incarnation: int) -> RoundView:
        """All that a replica looks at."""
        reported: dict[str, float] = {}
        for key, report in self.epochs.get(self.open, {}).items():
            reported[key.agent] = min(report.arrived, reported.get(key.agent, report.arrived))
        members = tuple(
            Member(name, agent.lease, None if agent.merged == _NEVER else ReportKey(name, *agent.merged))
            for name, agent in sorted(self.agents.items())
        )
        keep = b"" if self.last is None else self.last.keep
        return RoundView(now, incarnation, self.open, self.merged, self.opened, reported, members, keep, self.digests)
