"""Replicas of the service that share the rounds of one stream, without the service: the same machine
(``core.rounds.next_step``) over the same rounds (``RoundLog``), on a clock that the simulation sets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from unskew.core.rounds.carryover import MergedRound
from unskew.core.rounds.messages import Report
from unskew.core.rounds.next_step import BeginAnew, Fetch, Merge, Seal, Step, TakeOver, Wait, next_step
from unskew.core.rounds.reduce_round import SealedRound, finish_round, merge_reports, resized_report
from unskew.core.rounds.replica import ReplicaState, RoundTiming
from unskew.core.rounds.round_log import Commit, ReportKey, ReportOutcome, RoundLog, RoundView
from unskew.core.rounds.rules import RoundRules, check_report

__all__ = ["SimulatedReplica", "SimulatedStore"]

_NEVER = float("inf")


@dataclass(eq=False)
class SimulatedStore:
    """What the replicas share: the rounds, the reports that are not merged, and the answer of the last merged round.
    ``forget``: seconds after its lease that an agent is remembered."""

    rounds: RoundLog = field(default_factory=RoundLog)
    reports: dict[ReportKey, Report] = field(default_factory=dict)
    newest: MergedRound | None = None
    incarnation: int = 0
    forget: float = 86_400.0

    def view(self, now: float) -> RoundView:
        return self.rounds.view(now, self.incarnation)

    def commit(self, merged: MergedRound, now: float) -> bool:
        """Whether this answer stands now."""
        keep = merged.carryover.to_bytes()
        commit = Commit(merged.answer.epoch, b"", tuple(merged.names), keep, merged.digests)
        if self.rounds.commit(commit, now, self.forget):
            self.newest = merged
            self.reports = {key: self.reports[key] for reports in self.rounds.epochs.values() for key in reports}
        return self.newest is merged


@dataclass(eq=False)
class SimulatedReplica:
    """A replica. ``merging`` is the round that it merges now: a merge takes as long as the simulation says, so it ends
    with ``finish``. ``record`` is called with each decision."""

    store: SimulatedStore
    rules: RoundRules
    timing: RoundTiming = field(default_factory=lambda: RoundTiming(poll=_NEVER))
    record: Callable[[RoundView, ReplicaState, float, Step], None] | None = None
    state: ReplicaState = field(init=False)
    merging: SealedRound | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.state = ReplicaState.begin(self.rules, self.timing)

    def report(self, report: Report, now: float) -> ReportOutcome:
        """An agent reports. Look after it, or after several."""
        check_report(report)
        key = ReportKey(*report.name)
        outcome = self.store.rounds.report(key, b"", now, 0.0 if report.guest else self.state.lease)
        if outcome is ReportOutcome.STORED:
            self.store.reports[key] = report
        return outcome

    def look(self, now: float) -> float | None:
        """Seal a round, or begin to merge one, if that is due. Seconds until the next look where nothing happens before
        that; None while a round is being merged."""
        if self.merging is not None:
            return None
        view = self.store.view(now)
        self.state = self.state.after_look(view, now, self.state.seen)
        while not isinstance(step := self._next_step(view, now), Wait):
            if self._do(step, view, now):
                return None
        return step.seconds

    def finish(self, now: float) -> MergedRound | None:
        """The merge ends, and its answer goes to the store; None where another one stands."""
        job, self.merging = self.merging, None
        assert job is not None, "look first: no round is being merged"
        merged = finish_round(job, merge_reports(job), now - job.now)
        stands = self.store.commit(merged, now)
        if stands:
            self.state = self.state.after_answer(merged, self.store.view(now).keep)
        return merged if stands else None

    def _next_step(self, view: RoundView, now: float) -> Step:
        step = next_step(view, self.state, now)
        if self.record is not None:
            self.record(view, self.state, now, step)
        return step

    def _do(self, step: BeginAnew | Fetch | Seal | Merge | TakeOver, view: RoundView, now: float) -> bool:
        """Whether a merge begins."""
        match step:
            case BeginAnew():
                raise AssertionError("the store of a simulation loses nothing")
            case Fetch():
                if self.store.newest is not None:
                    self.state = self.state.after_answer(self.store.newest, view.keep)
                self.state = self.state.after_fetch()
            case Seal(epoch):
                self.state = self.state.after_seal(closed=self.store.rounds.seal(epoch))
            case Merge(epoch, complete):
                self.merging = self._sealed_round(epoch, complete, view)
            case TakeOver(epoch):
                self.state = self.state.before_take_over(epoch, now)
                self.merging = self._sealed_round(epoch, None, view)
        return self.merging is not None

    def _sealed_round(self, epoch: int, complete: float | None, view: RoundView) -> SealedRound:
        stored = self.store.rounds.sealed(epoch)
        return SealedRound(
            epoch=epoch,
            incarnation=view.incarnation,
            arrivals={one.key: one.arrived for one in stored},
            reports=[resized_report(self.store.reports[one.key], self.rules.workers) for one in stored],
            previous=self.state.previous(view),
            carryover=self.state.carryover,
            members=frozenset(member.agent for member in view.members),
            complete=complete,
            now=view.now,
            rules=self.rules,
            digests=view.digests,
        )
