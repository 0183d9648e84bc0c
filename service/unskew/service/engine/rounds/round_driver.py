"""The driver of one stream's rounds on this replica: it asks the machine in ``core.rounds.next_step`` what to do, does
it at the store, and hands the outcome back. It decides nothing itself.

Each replica that agents of a stream talk to has a driver for it. It looks at the round when its own agents have
reported, when news comes, when the machine says that something will be due, and every ``poll`` seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from unskew.core.errors import UnskewError
from unskew.core.rounds.carryover import MergedRound
from unskew.core.rounds.messages import Report
from unskew.core.rounds.next_step import BeginAnew, Fetch, Merge, Seal, Step, TakeOver, Wait, next_step
from unskew.core.rounds.replica import ReplicaState, RoundTiming
from unskew.core.rounds.round_digests import SeenRound
from unskew.core.rounds.round_log import Commit, ReportKey, RoundView, StoredReport
from unskew.core.rounds.rules import RoundRules
from unskew.core.rounds.wake_ups import WakeUps
from unskew.service.concurrency import Waiters, detached_task, monotonic
from unskew.service.engine.base import Base
from unskew.service.engine.rounds.reducer import (
    MergeJob,
    RecentReports,
    RoundResult,
    merged_round,
    reduce_round,
    rules_of,
)
from unskew.service.engine.streams import CachedStream
from unskew.service.errors import NotFoundError
from unskew.service.events.events import AgentsSeen, RoundMerged, Skipped

__all__ = ["Recorder", "RoundDriver", "not_recorded"]

_ON_LOOP = 1 << 20
"""Bytes of reports that are merged on the loop, in a millisecond or two. A thread would keep the loop from the
interpreter's lock for as long, and hand it over and back at each of some hundred short steps, which costs more."""
_REFUSED = (UnskewError, ArithmeticError, LookupError, TypeError, ValueError)

Recorder: TypeAlias = "Callable[[str, RoundView, ReplicaState, float, Step], None]"
"""Called with each decision: the stream, what the machine was asked about, and its answer."""


def not_recorded(stream: str, view: RoundView, state: ReplicaState, now: float, step: Step) -> None:
    """Decisions are recorded by tests only."""


class RoundDriver:
    """``answered`` wakes those who wait for an answer. ``error`` is set once the stream is gone."""

    def __init__(self, base: Base, stream: CachedStream, record: Recorder = not_recorded) -> None:
        self._base, self.stream, self._record = base, stream.record.name, record
        self._stream, tuning = stream, base.tuning
        timing = RoundTiming(tuning.poll, tuning.retry, tuning.takeover)
        self.state = ReplicaState.begin(rules_of(stream.spec, tuning), timing)
        self._wake_ups, self._wake = WakeUps(monotonic(), monotonic()), Waiters()
        self.answered = Waiters()
        self._reports = RecentReports()
        self._read: tuple[Commit, RoundRules] | None = None  # what the newest answer was read from
        self.error: NotFoundError | None = None
        self.task = detached_task(self._run())

    # -- for the verbs

    def use(self, stream: CachedStream) -> None:
        """An agent is here: go on."""
        self._wake_ups = self._wake_ups.after_use(monotonic())
        if stream.spec is not self._stream.spec:
            self.state = self.state.with_rules(rules_of(stream.spec, self._base.tuning))
        self._stream = stream
        if self.task.done():
            self.error = None
            self.task = detached_task(self._run())

    def reported(self, key: ReportKey, data: bytes, report: Report) -> None:
        self._reports.add(key, data, report)
        self._wake_by(self._wake_ups.after_report(key.agent, monotonic()))

    def shown(self, seen: SeenRound) -> None:
        """An agent has the answer of this round."""
        self.state = self.state.after_shown(seen)

    def news(self, rounds: tuple[int, int] | None) -> None:
        """Something happened to the rounds, maybe at another replica."""
        self._wake_by(self._wake_ups.after_news(rounds, monotonic(), waiting=len(self.answered) > 0))

    def wake(self) -> None:
        """Everybody who waits is to see that the replica is closing, or draining."""
        self.answered.wake()
        self._wake.wake()

    async def newest(self, *, fresh: bool = False) -> MergedRound | None:
        """The answer of the last merged round."""
        if self.state.answer is None or fresh:
            await self._fetch()
        return self.state.answer

    def age(self, merged: MergedRound) -> float:
        """Seconds since that round was complete."""
        return self.state.age(merged, monotonic())

    # -- the loop

    async def _run(self) -> None:
        while not self._base.closing and not self._idle():
            try:
                seconds = await self._turn()
            except NotFoundError as why:
                self.error = why
                self._forget(self.state.begin_anew())
                return
            except _REFUSED as why:
                # The store is away, or another release left what cannot be read here: neither is for ever.
                self._base.observer(Skipped(self.stream, "round", f"{type(why).__name__}: {why}"))
                self.state = self.state.after_failure()
                seconds = self.state.retry
            await self._sleep(seconds)

    def _idle(self) -> bool:
        rules = self.state.rules
        longest_round = (rules.lease + rules.patience) * self.state.dsync
        return self._wake_ups.is_idle(monotonic(), longest_round, waiting=len(self.answered) > 0)

    async def _sleep(self, seconds: float) -> None:
        """For so long, or until something has to be looked at."""
        self._wake_ups = self._wake_ups.after_wait(seconds, monotonic())
        while not self._base.closing and (left := self._wake_ups.look_at - monotonic()) > 0:
            await self._wake.wait(left)

    def _wake_by(self, wake_ups: WakeUps) -> None:
        earlier = wake_ups.look_at < self._wake_ups.look_at
        self._wake_ups = wake_ups
        if earlier:
            self._wake.wake()

    async def _turn(self) -> float:
        """Look, and do what is due; how long nothing will be."""
        self._wake_ups, held = self._wake_ups.before_look(), self.state.seen
        view = await self._base.store.round(self.stream)
        self._looked(view, held)
        while not isinstance(step := self._next_step(view), Wait):
            await self._do(step, view)
        self.state = self.state.after_turn()
        return step.seconds

    def _next_step(self, view: RoundView) -> Step:
        now = monotonic()
        step = next_step(view, self.state, now)
        self._record(self.stream, view, self.state, now, step)
        return step

    def _looked(self, view: RoundView, held: frozenset[SeenRound]) -> None:
        state = self.state.after_look(view, monotonic(), held)
        if state.restarts > self.state.restarts:
            self._forget(state)
        self.state = state
        live = view.live()
        missing = live - view.reported.keys()
        self._wake_ups = self._wake_ups.after_look(live, missing, (view.open, view.merged), state.dsync)
        self._base.observer(AgentsSeen(self.stream, len(live), state.dsync))

    def _forget(self, state: ReplicaState) -> None:
        """The stream is another one of the same name, or gone."""
        self.state, self._read = state, None
        self._reports.next_round()
        self.answered.wake()

    # -- the steps

    async def _do(self, step: BeginAnew | Fetch | Seal | Merge | TakeOver, view: RoundView) -> None:
        match step:
            case BeginAnew(lost):
                # Not if it is deleted meanwhile: of a record that was read so long ago no stream is made.
                await self._base.store.renew_stream(replace(self._stream.record, incarnation=lost), math.inf)
                self.state = self.state.after_begin_anew()
            case Fetch():
                await self._fetch()
                self.state = self.state.after_fetch()
            case Seal(epoch):
                self._wake_ups = self._wake_ups.before_seal()
                closed = await self._base.store.seal(self.stream, epoch)
                self.state = self.state.after_seal(closed=closed)
            case Merge(epoch, complete, outcome):
                await self._merge(view, epoch, complete, outcome)
            case TakeOver(epoch):
                self.state = self.state.before_take_over(epoch, monotonic())
                await self._merge(view, epoch, None, "taken over")

    async def _fetch(self) -> None:
        commit = await self._base.store.answer(self.stream)
        if commit is not None and self._read != (commit, self.state.rules):
            await self._take(commit, None)

    async def _merge(self, view: RoundView, epoch: int, complete: float | None, outcome: str) -> None:
        """Merge a sealed round, and offer its answer to the store."""
        began, state = monotonic(), self.state
        reports = await self._base.store.sealed(self.stream, epoch)
        job = MergeJob(
            epoch=epoch,
            view=view,
            reports=reports,
            previous=state.previous(view),
            carryover=state.carryover,
            complete=complete,
            rules=state.rules,
            read=self._reports.read,
            elapsed=lambda: monotonic() - began,
        )
        result = await self._reduce(job)
        stands = await self._base.store.commit(self.stream, result.commit)
        ours = stands == result.commit
        if stands is not None:
            await self._take(stands, result if ours else None)
        self._merged(job, reports, outcome if ours else "repeated", ours=ours)

    async def _reduce(self, job: MergeJob) -> RoundResult:
        few = sum(len(stored.data) for stored in job.reports) <= _ON_LOOP
        result = reduce_round(job) if few else await self._base.run(reduce_round, job)
        for why in result.dropped:
            self._base.observer(Skipped(self.stream, "report", why, round=job.epoch))
        return result

    def _merged(self, job: MergeJob, reports: Sequence[StoredReport], outcome: str, *, ours: bool) -> None:
        """The answer of a round stands, of this replica or of another."""
        self.state = self.state.after_merge(job.view, job.epoch, ours=ours)
        if ours:
            self._wake_ups = self._wake_ups.after_merge(job.epoch)
        first = min((stored.arrived for stored in reports), default=job.view.now)
        seconds = max(job.view.now - first, 0.0) + job.elapsed()
        merged = RoundMerged(self.stream, job.epoch, len(reports), outcome, seconds, self.state.dsync)
        self._base.observer(merged)

    async def _take(self, commit: Commit, result: RoundResult | None) -> None:
        """A commit of the store is the newest answer. It is read if it was not made here, under the present rules."""
        rules = self.state.rules
        if result is not None and result.rules == rules:
            merged = result.merged
        else:
            merged = await self._base.run(merged_round, commit, rules)
        state = self.state.after_answer(merged, commit.keep)
        if state is not self.state:
            self.state, self._read = state, (commit, rules)
            self._reports.next_round()
            self.answered.wake()
