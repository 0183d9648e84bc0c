"""The Q-table reducer (Dalton, section 4): which reports make a round, who gets which answer, and how often.

A passive machine: ``handle(event, now)`` gives actions; merging and clocks are the driver's. A round opens with its
first report. It is sealed when every live agent is in it, or at its deadline, and as soon as the round before is
merged; what comes later counts in the next. Reports are named (agent, session, seq) and count once: one that was
merged gets its answer again, an older one is dropped. What is remembered grows with agents, not with messages; an
agent is forgotten after ``forget`` seconds of silence: no message may be under way for longer, and an agent that was
silent for so long begins a new session.

Deviations from the paper:

- "All n messages" is said of agents that have a lease, not of messages; the deadline is ours. Both are in units of
  DSYNC, because agents report once in it. A deadline under one DSYNC would let agents that started at different
  moments report to rounds of their own for ever.
- A request for a longer DSYNC counts where it names the present value, where the report before, whose answer it waited
  for, was sent under that value too (the request would be stale otherwise), and where the agent waited for the
  reducer, not for other agents: those kept it for at most 0.2 DSYNC. Else one agent that dies, or starts out of step,
  would drive DSYNC to its bound. The last one to report in a round has waited for nobody, so a slow reducer is seen.
- An agent that is in a round with an older life of its own takes its place: one vote a round.
- A guest has no lease. Tasks of a batch are guests of their driver, which reports after them: how many there will be in
  the next batch nobody knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unskew.core.errors import ConfigError
from unskew.core.rounds.dsync import Interval
from unskew.core.rounds.events import (
    Action,
    Drop,
    Event,
    Left,
    Merge,
    Merged,
    Renewed,
    Reported,
    Resumed,
    Send,
    Tick,
    Wake,
)
from unskew.core.rounds.merge import Pool
from unskew.core.rounds.messages import Answer, Report
from unskew.core.rounds.rules import LastReport, Pace, RoundRules, check_report, pressed, seal_at
from unskew.core.rounds.state import Entry, Member, Sealed, State, from_fields, to_fields

__all__ = ["RoundRules", "Rounds"]


class Rounds:
    """One stream's reducer.

    >>> rounds = Rounds(RoundRules(workers=2))
    >>> rounds.handle(Renewed("a"), now=0.0), rounds.open, rounds.merged, rounds.dsync
    ((), 1, 0, 20.0)
    """

    def __init__(self, rules: RoundRules) -> None:
        self.rules = rules
        self._state = State(Interval(rules.dsync))

    @property
    def open(self) -> int:
        """The epoch that takes reports."""
        return self._state.open

    @property
    def sealed(self) -> int | None:
        """The epoch that is being merged."""
        return None if self._state.sealed is None else self._state.sealed.epoch

    @property
    def merged(self) -> int:
        """The last epoch that was merged; 0 before the first."""
        return self._state.merged

    @property
    def dsync(self) -> float:
        """The interval that agents are told from now on."""
        return self._state.interval.value

    @property
    def deadline(self) -> float | None:
        """When the open round is sealed at the latest, once a report is in it and no merge is under way."""
        return self._state.deadline if self._state.entries else None

    def live(self) -> tuple[str, ...]:
        """The agents that have a lease."""
        return tuple(sorted(agent for agent, member in self._state.members.items() if member.lease > self._state.now))

    def missing(self) -> tuple[str, ...]:
        """Those of them that the open round waits for."""
        return tuple(agent for agent in self.live() if agent not in self._state.entries)

    def state(self) -> dict[str, Any]:
        """All of it as plain data."""
        return to_fields(self._state)

    @classmethod
    def restore(cls, rules: RoundRules, state: Mapping[str, Any]) -> Rounds:
        """The machine that ``state`` was taken from, on the same clock. Give it ``Resumed`` if a merge may be lost."""
        rounds = cls(rules)
        kept = rounds._state = from_fields(state)
        reports = [entry.report.table for entry in (*kept.entries.values(), *_entries(kept.sealed).values())]
        for table in reports if kept.previous is None else (*reports, kept.previous.table):
            rounds._check_workers(table.workers)
        kept.interval = replace(kept.interval, value=rules.clamp(kept.interval.value))
        return rounds

    def handle(self, event: Event, now: float) -> tuple[Action, ...]:
        """Take one event. What cannot be of this stream is refused: ConfigError, nothing changed. ``now`` is in seconds
        of any clock from 0 on; where it steps back, time stands still."""
        if isinstance(event, Reported):
            self._check_workers(event.report.table.workers)
            check_report(event.report)
        elif isinstance(event, Merged):
            self._check_workers(event.pool.table.workers)
        self._state.now = max(self._state.now, now)
        return (*self._take(event), *self._proceed())

    def _take(self, event: Event) -> tuple[Action, ...]:
        match event:
            case Reported(report):
                return self._reported(report)
            case Merged(epoch, pool):
                return self._merged(epoch, pool)
            case Renewed(agent):
                self._renew(agent, self.rules.lease)
            case Left(agent):
                self._left(agent)
            case Resumed():
                return self._resumed()
            case Tick():
                pass
        return ()

    # -- reports and agents

    def _check_workers(self, found: int) -> None:
        if found != self.rules.workers:
            allowed = f"{self.rules.workers}, the stream's; start the agent anew with it, or put the stream anew"
            raise ConfigError("workers", found, allowed)

    def _reported(self, report: Report) -> tuple[Action, ...]:
        state, name = self._state, (report.session, report.seq)
        member = state.members.get(report.agent) or Member(0.0, 0.0)
        under_way = [
            (entry.report.session, entry.report.seq)
            for entries in (state.entries, _entries(state.sealed))
            if (entry := entries.get(report.agent)) is not None
        ]
        merged = (member.session, member.seq)
        if name < max((merged, *under_way)):
            # Not even a sign of life: it may have been under way since before its agent died.
            return (Drop(report.name, "older than one that has come"),)
        self._renew(report.agent, leases=0.0 if report.guest else self.rules.lease)
        if name in under_way:
            return (Drop(report.name, "has come already"),)
        if name == merged and member.answer is not None:
            return (Send(member.answer, (report.agent,), state.now - member.complete),)
        self._enter(report, member)
        return ()

    def _enter(self, report: Report, member: Member) -> None:
        state = self._state
        if not state.entries:
            state.opened, state.deadline = state.now, state.now + self.rules.patience * self.dsync
        before = LastReport(member.session, member.dsync, member.complete - member.arrived)
        state.entries[report.agent] = Entry(report, state.now, pressed(report, before))

    def _renew(self, agent: str, leases: float) -> None:
        now = self._state.now
        member = self._state.members.get(agent) or Member(now, now)
        lease = max(member.lease, now + leases * self.dsync)
        self._state.members[agent] = replace(member, lease=lease, heard=now)

    def _left(self, agent: str) -> None:
        member = self._state.members.get(agent)
        if member is not None:
            self._state.members[agent] = replace(member, lease=self._state.now, heard=self._state.now)

    # -- rounds

    def _proceed(self) -> tuple[Action, ...]:
        """Forget who is long silent, seal the open round if it is time, else say when it will be."""
        state = self._state
        self._forget()
        if not state.entries or state.sealed is not None:
            return ()
        at = seal_at(state.now, state.deadline, [state.members[agent].lease for agent in self.missing()])
        return (self._seal(),) if at <= state.now else (Wake(at),)

    def _seal(self) -> Merge:
        state = self._state
        state.sealed = Sealed(state.open, state.opened, state.now, state.now, state.entries)
        state.open, state.entries = state.open + 1, {}
        return self._merge(state.sealed)

    def _merge(self, sealed: Sealed) -> Merge:
        reports = sorted((entry.report for entry in sealed.entries.values()), key=lambda report: report.name)
        return Merge(sealed.epoch, tuple(reports), self._state.previous)

    def _resumed(self) -> tuple[Action, ...]:
        state = self._state
        if state.sealed is None:
            return ()
        state.sealed = replace(state.sealed, began=state.now)
        return (self._merge(state.sealed),)

    def _merged(self, epoch: int, pool: Pool) -> tuple[Action, ...]:
        state, sealed = self._state, self._state.sealed
        if sealed is None or sealed.epoch != epoch:
            return (Drop(epoch, "this round is not being merged"),)
        self._time(sealed)
        agents = tuple(sorted(sealed.entries))
        names = tuple(sealed.entries[agent].report.name for agent in agents)
        number = self.rules.incarnation
        answer = Answer(epoch, names, pool.table, pool.records, pool.unsure, pool.loads, self.dsync, pool.split, number)
        state.sealed, state.merged, state.previous = None, epoch, answer
        for agent in agents:
            self._answered(sealed.entries[agent], answer, sealed.sealed)
        return (Send(answer, agents, state.now - sealed.sealed),)

    def _answered(self, entry: Entry, answer: Answer, complete: float) -> None:
        """An agent that waited for the reducer is not called silent for that: unless it left, or is a guest, its lease
        runs anew."""
        members, now, report = self._state.members, self._state.now, entry.report
        old = members[report.agent]
        left = old.lease <= old.heard or report.guest
        lease = old.lease if left else max(old.lease, now + self.rules.lease * self.dsync)
        members[report.agent] = Member(
            lease, old.heard, report.session, report.seq, report.dsync, answer, entry.arrived, complete
        )

    def _time(self, sealed: Sealed) -> None:
        """The work of the merge that ends now, and what follows for DSYNC."""
        state = self._state
        value = state.interval.value
        asked = any(entry.pressed and entry.report.dsync == value for entry in sealed.entries.values())
        pace = Pace(state.interval, state.work, state.merged_at)
        pace = pace.after(self.rules, asked=asked, opened=sealed.opened, work=state.now - sealed.began, now=state.now)
        state.interval, state.work, state.merged_at = pace.interval, pace.work, pace.merged_at

    def _forget(self) -> None:
        state = self._state
        silent = [
            agent
            for agent, member in state.members.items()
            if member.lease <= state.now
            and member.heard + self.rules.forget <= state.now
            and agent not in state.entries
            and agent not in _entries(state.sealed)
        ]
        for agent in silent:
            del state.members[agent]


def _entries(sealed: Sealed | None) -> dict[str, Entry]:
    return {} if sealed is None else sealed.entries
