"""The rounds machine against a hostile world: agents that come, go, die and start anew; reports that are lost, come
late, twice and in any order; merges that take their time or are done twice; replicas that die in the middle of one."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from unskew.core.dalton.qtable import QTable
from unskew.core.rounds.carryover import MergedRound
from unskew.core.rounds.messages import Answer, Report
from unskew.core.rounds.next_step import Step, next_step
from unskew.core.rounds.reduce_round import as_if_merged
from unskew.core.rounds.replica import ReplicaState, RoundTiming
from unskew.core.rounds.round_log import ReportOutcome, RoundView
from unskew.core.rounds.rules import RoundRules
from unskew.core.sketches.frequent import FrequentItems
from unskew.simulate.reducer import SimulatedReplica, SimulatedStore

WORKERS = 2
LIFE = 900.0  # of a message in the network
FORGET = 1_000.0
RULES = RoundRules(workers=WORKERS, dsync=10.0, dsync_min=2.5, dsync_max=80.0, patience=2.0, lease=2.5)
TIMING = RoundTiming(poll=5.0, takeover=1.0)
NAMES = ("ann", "bob", "cyd")
REPLICAS = 2
who = st.sampled_from(NAMES)
which = st.integers(0, REPLICAS - 1)
Name = tuple[str, int, int]


@dataclass
class Partner:
    """An agent as it should be: one report under way at a time, sent again until an answer names it."""

    name: str
    alive: bool = False
    session: int = 0
    seq: int = 0
    waiting: Report | None = None
    dsync: float = RULES.dsync
    adopted: int = 0
    lease: float = 0.0  # what the store should give it
    newest: tuple[int, int] = (0, 0)  # that arrived
    sent: float = 0.0  # the last time that it sent a report

    def starts(self) -> None:
        self.alive, self.session, self.seq, self.waiting = True, self.session + 1, 0, None

    def report(self, records: int, key: int, *, longer: bool) -> Report:
        self.seq += 1
        keys = np.full(records, key, np.uint64)
        table = QTable.of(np.array([key], np.uint64), [[-0.5] * WORKERS], [records], [[1] * WORKERS])
        frequent, loads = FrequentItems(8).update(keys), np.full(WORKERS, records)
        self.waiting = Report(
            self.name, self.session, self.seq, table, records, frequent, loads, self.dsync, longer=longer
        )
        return self.waiting

    def takes(self, answer: Answer) -> None:
        if self.alive and self.waiting is not None and self.waiting.name in answer.merged:
            self.waiting = None
        if self.alive and answer.epoch > self.adopted:
            self.adopted, self.dsync = answer.epoch, answer.dsync


@dataclass
class Ledger:
    """What the test counts by itself."""

    records: dict[Name, int] = field(default_factory=dict)  # of every report that was ever sent
    merged: dict[Name, int] = field(default_factory=dict)  # the epoch of each that was merged
    sums: dict[int, int] = field(default_factory=dict)  # GL of each epoch
    looked: float = 0.0  # the last time that a free replica looked
    decisions: list[tuple[RoundView, ReplicaState, float, Step]] = field(default_factory=list)


class World(RuleBasedStateMachine):
    """Two replicas over one store, a network and three agents."""

    def __init__(self) -> None:
        super().__init__()
        self.store = SimulatedStore(forget=FORGET)
        self.now = 0.0
        self.agents = {name: Partner(name) for name in NAMES}
        self.reports: list[tuple[float, Report]] = []  # under way, with when they were sent
        self.answers: list[tuple[str, Answer]] = []
        self.ledger = Ledger()
        self.replicas = [self.replica() for _ in range(REPLICAS)]

    # -- the replicas

    def replica(self) -> SimulatedReplica:
        def record(view: RoundView, state: ReplicaState, now: float, step: Step) -> None:
            self.ledger.decisions.append((view, state, now, step))

        return SimulatedReplica(self.store, RULES, TIMING, record)

    def look(self) -> float:
        """All replicas do what is due; seconds until one of them has to look again."""
        for one in self.replicas:
            sealed = self.store.rounds.open
            before = self.store.view(self.now)
            wait = one.look(self.now)
            while wait == 0.0:
                wait = one.look(self.now)
            if self.store.rounds.open > sealed:
                self.is_sealed_in_time(before, one)
        waits = [wait for one in self.replicas if (wait := one.look(self.now)) is not None]
        return min(waits, default=TIMING.poll)

    def is_sealed_in_time(self, before: RoundView, one: SimulatedReplica) -> None:
        """When all live agents are in it, or at its deadline; and it holds nothing that was merged before."""
        missing = before.live() - before.reported.keys()
        assert before.opened is not None
        assert not missing or self.now >= before.opened + RULES.patience * one.state.dsync
        assert one.merging is not None
        assert not {tuple(key) for key in one.merging.arrivals} & self.ledger.merged.keys()
        assert len({key.agent for key in one.merging.arrivals}) == len({r.agent for r in one.merging.reports})

    def passes(self, seconds: float) -> None:
        """Time, with a look wherever a replica asked for one."""
        end = self.now + seconds
        while self.now + (wait := self.look()) <= end:
            self.now += max(wait, 1e-6)
        self.now = end
        self.look()
        self.reports = [(sent, report) for sent, report in self.reports if end - sent < LIFE]

    @rule(seconds=st.sampled_from([0.5, 3.0, 3.0, 7.0, 7.0, 10.0, 20.0, 45.0, 300.0]))
    def time_passes(self, seconds: float) -> None:
        self.passes(seconds)

    @rule(name=who)
    def leases_end_in_an_open_round(self, name: str) -> None:
        """One reports shortly before the others, who are silent, are given up: long before the round's deadline."""
        end = max(agent.lease for agent in self.agents.values() if agent.name != name)
        self.passes(max(end - self.now - 1.0, 0.0))
        if self.agents[name].alive:
            self.reports_to_the_reducer(name, 1, 1, longer=False)
            self.the_last_report_arrives_at_once()
        self.passes(max(end - self.now, 0.0))

    @rule(at=which)
    def merge_ends(self, at: int) -> None:
        one = self.replicas[at]
        if one.merging is None:
            return
        job, merged, before = one.merging, self.store.rounds.merged, one.merging.carryover.dsync
        done = one.finish(self.now)
        assert self.store.rounds.merged == merged + (done is not None)
        if done is not None:
            assert done.answer.epoch == job.epoch == merged + 1
            self.counts(done)
            dsync = done.answer.dsync
            assert dsync in (before, before / 2, before * 2, RULES.dsync_min, RULES.dsync_max)
        self.look()

    def counts(self, done: MergedRound) -> None:
        for name in done.answer.merged:
            assert name not in self.ledger.merged
            self.ledger.merged[name] = done.answer.epoch
        self.ledger.sums[done.answer.epoch] = done.answer.records
        self.answers += [(name.agent, done.answer) for name in sorted(done.names)]

    @rule(at=which)
    def replica_dies(self, at: int) -> None:
        """All that it remembers is lost, a merge with it; a new one takes its place."""
        self.replicas[at] = self.replica()
        self.look()

    # -- the agents and the network

    @initialize(names=st.sets(who, min_size=1))
    def some_start(self, names: set[str]) -> None:
        for name in sorted(names):
            self.starts(name)

    @rule(name=who)
    def starts(self, name: str) -> None:
        """For the first time, or anew after a death that nobody noticed."""
        self.agents[name].starts()

    @rule(name=who)
    def dies(self, name: str) -> None:
        self.agents[name].alive = False

    @rule(name=who, records=st.integers(0, 9), key=st.integers(0, 2), longer=st.booleans())
    def reports_to_the_reducer(self, name: str, records: int, key: int, longer: bool) -> None:
        """A new report, or the last one again while that waits."""
        agent = self.agents[name]
        if agent.alive and agent.waiting is not None and self.now - agent.sent >= LIFE:
            self.starts(name)  # silent for so long it may have been forgotten: a new session
        if agent.alive:
            agent.sent = self.now
            report = agent.waiting or agent.report(records, key, longer=longer)
            self.ledger.records[report.name] = report.records
            self.reports.append((self.now, report))

    @precondition(lambda self: self.reports)
    @rule(data=st.data(), fate=st.sampled_from(["comes", "comes and may come again", "is lost"]), at=which)
    def a_report_travels(self, data: st.DataObject, fate: str, at: int) -> None:
        """Any of those under way, in any order, to any replica."""
        number = data.draw(st.integers(0, len(self.reports) - 1))
        _, report = self.reports[number]
        if fate != "comes and may come again":
            del self.reports[number]
        if fate != "is lost":
            self.arrives(report, at)

    @precondition(lambda self: self.reports)
    @rule()
    def the_last_report_arrives_at_once(self) -> None:
        """What mostly happens."""
        self.arrives(self.reports.pop()[1])

    def arrives(self, report: Report, at: int = 0) -> None:
        """An old report is no sign of life: it may be a dead agent's. One that is merged gets an answer that names
        it."""
        agent, one = self.agents[report.agent], self.replicas[at]
        name = report.session, report.seq
        outcome = one.report(report, self.now)
        assert (outcome is ReportOutcome.OLDER) <= (name < agent.newest)
        assert (outcome is ReportOutcome.MERGED) <= (report.name in self.ledger.merged)
        assert not (outcome is ReportOutcome.STORED and report.name in self.ledger.merged)
        if name >= agent.newest:
            agent.newest, agent.lease = name, max(agent.lease, self.now + one.state.lease)
        if outcome is ReportOutcome.MERGED and self.store.newest is not None:
            self.answers.append((report.agent, as_if_merged(self.store.newest.answer, report)))
        self.look()

    @precondition(lambda self: self.answers)
    @rule(data=st.data(), keep=st.booleans(), lost=st.booleans())
    def an_answer_arrives(self, data: st.DataObject, keep: bool, lost: bool) -> None:
        at = data.draw(st.integers(0, len(self.answers) - 1))
        name, answer = self.answers[at] if keep else self.answers.pop(at)
        if not lost:
            self.agents[name].takes(answer)

    @rule(names=st.sets(who, min_size=1), keep=st.booleans())
    def all_goes_well(self, names: set[str], keep: bool) -> None:
        """A whole round: reports, merge, answers; copies of the reports may stay under way."""
        under_way = list(self.reports)
        for name in sorted(names):
            self.reports_to_the_reducer(name, 3, 1, longer=False)
        sent = self.reports[len(under_way) :]
        for _ in sent:
            self.the_last_report_arrives_at_once()
        if keep:
            self.reports = under_way + sent
        self.passes(RULES.patience * self.replicas[0].state.dsync)
        self.all_merges_end()
        for name, answer in self.answers:
            self.agents[name].takes(answer)
        self.answers = []

    def all_merges_end(self) -> None:
        for at in range(REPLICAS):
            self.merge_ends(at)

    # -- always

    @invariant()
    def epochs_are_in_order(self) -> None:
        rounds = self.store.rounds
        assert rounds.open in (rounds.merged + 1, rounds.merged + 2)
        assert sorted(self.ledger.sums) == list(range(1, rounds.merged + 1))

    @invariant()
    def dsync_is_within_bounds(self) -> None:
        for one in self.replicas:
            assert RULES.dsync_min <= one.state.dsync <= RULES.dsync_max

    @invariant()
    def no_report_counts_in_two_rounds(self) -> None:
        distinct = sum(self.ledger.records[name] for name in self.ledger.merged)
        assert sum(self.ledger.sums.values()) == distinct

    @invariant()
    def no_round_is_overdue(self) -> None:
        """While a replica is free a round is not open past its deadline, nor sealed for long past its seal."""
        free = [one for one in self.replicas if one.merging is None]
        view = self.store.view(self.now)
        if len(free) < REPLICAS or view.opened is None or view.open > view.merged + 1:
            return
        assert self.now < view.opened + RULES.patience * free[0].state.dsync
        assert view.live() - view.reported.keys(), "a round that waits does so for an agent with a lease"

    @invariant()
    def only_agents_that_were_heard_within_a_lease_are_waited_for(self) -> None:
        """A dead one blocks nobody."""
        for member in self.store.view(self.now).members:
            assert member.lease <= self.agents[member.agent].lease

    def teardown(self) -> None:
        """The recorded decisions follow again from what was recorded. And when all goes well again, every agent gets
        its answer."""
        self.settles()
        for view, state, now, step in self.ledger.decisions:
            assert next_step(view, state, now) == step

    def settles(self) -> None:
        """Each live agent's last report is in a round within a few rounds' time, and its answer names it."""
        self.reports, self.answers = [], []
        for name, agent in self.agents.items():
            if agent.alive:
                self.reports_to_the_reducer(name, 1, 1, longer=False)
        for _, report in self.reports:
            self.arrives(report)
        for _ in range(4):
            self.all_merges_end()
            work = max(one.state.carryover.pace.work for one in self.replicas)
            self.passes(RULES.patience * RULES.dsync_max + TIMING.takeover + 4.0 * work)
        for name, answer in self.answers:
            self.agents[name].takes(answer)
        assert [agent.name for agent in self.agents.values() if agent.alive and agent.waiting] == []


def run(examples: int, steps: int) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    dose = settings(max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=checks)
    run_state_machine_as_test(World, settings=dose)


def test_the_rounds_keep_their_promises_in_a_hostile_world() -> None:
    """A small dose; `make test-long` gives the full one."""
    run(40, 60)


@pytest.mark.long
def test_the_rounds_keep_their_promises_in_a_hostile_world_for_long() -> None:
    """Hundreds of long lives."""
    run(600, 150)
