"""The round machine against a hostile world: agents that come, go, die and start anew; messages that are lost, come
late, twice and in any order; merges that take their time or are done twice; a driver that starts anew."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

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
from unskew.core.rounds.events import Drop, Event, Left, Merge, Merged, Renewed, Reported, Resumed, Send, Tick, Wake
from unskew.core.rounds.merge import merge
from unskew.core.rounds.messages import Answer, Report
from unskew.core.rounds.reducer import RoundRules, Rounds
from unskew.core.sketches.frequent import FrequentItems

WORKERS = 2
LIFE = 900.0  # of a message in the network: under RULES.forget
RULES = RoundRules(workers=WORKERS, dsync=10.0, dsync_min=2.5, dsync_max=80.0, patience=2.0, lease=2.5, forget=1_000.0)
NAMES = ("ann", "bob", "cyd")
who = st.sampled_from(NAMES)
Name = tuple[str, int, int]


def canonical(plain: Any) -> Any:
    """Plain data in a form that can be compared; anything that is not plain data fails."""
    if isinstance(plain, dict):
        assert all(isinstance(key, str) for key in plain)
        return {key: canonical(part) for key, part in plain.items()}
    if isinstance(plain, list | tuple):
        return [canonical(part) for part in plain]
    if isinstance(plain, np.ndarray):
        return [str(plain.dtype), plain.shape, plain.tobytes()]
    assert plain is None or isinstance(plain, int | float | str), plain
    return plain


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
    lease: float = 0.0  # what the reducer should give it
    left: bool = True  # and has not been heard of since
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

    def heard(self, now: float, dsync: float) -> None:
        self.lease, self.left = max(self.lease, now + RULES.lease * dsync), False

    def takes(self, answer: Answer) -> None:
        if self.alive and answer.epoch > self.adopted:
            self.adopted, self.dsync = answer.epoch, answer.dsync
            if self.waiting is not None and self.waiting.name in answer.merged:
                self.waiting = None


@dataclass
class Ledger:
    """What the test knows of rounds by itself."""

    records: dict[Name, int] = field(default_factory=dict)  # of every report that was ever sent
    merged: dict[Name, int] = field(default_factory=dict)  # the epoch of each that was merged
    sums: dict[int, int] = field(default_factory=dict)  # GL of each epoch
    opened: dict[int, tuple[float, float]] = field(default_factory=dict)  # first report of an epoch, and deadline
    free: float = 0.0  # when the last merge ended


class World(RuleBasedStateMachine):
    """The reducer, its driver, a network and three agents."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds = Rounds(RULES)
        self.log: list[tuple[Event, float]] = []
        self.now = 0.0
        self.wake: float | None = None
        self.running: Merge | None = None
        self.agents = {name: Partner(name) for name in NAMES}
        self.reports: list[tuple[float, Report]] = []  # under way, with when they were sent
        self.answers: list[Send] = []
        self.ledger = Ledger()

    # -- the driver

    def tell(self, event: Event) -> None:
        self.log.append((event, self.now))
        before, self.wake = self.rounds.open, None
        entered = self.rounds.deadline is not None
        for action in self.rounds.handle(event, self.now):
            match action:
                case Wake(at):
                    assert at > self.now
                    self.wake = at
                case Merge():
                    self.merges(action, new=not isinstance(event, Resumed))
                case Send():
                    self.sends(action)
                case Drop():
                    pass
        if self.rounds.deadline is not None and not (entered and self.rounds.open == before):
            self.ledger.opened.setdefault(self.rounds.open, (self.now, RULES.patience * self.rounds.dsync))

    def merges(self, action: Merge, *, new: bool) -> None:
        """A round is sealed in time, once, and holds nothing that was merged before."""
        assert self.running is None or not new
        assert action.epoch == self.rounds.merged + 1 == self.rounds.open - 1
        opened, patience = self.ledger.opened.get(action.epoch, (self.now, 0.0))
        if new:
            assert self.now <= max(opened + patience, self.ledger.free)
        assert [report.name for report in action.reports] == sorted({report.name for report in action.reports})
        assert len({report.agent for report in action.reports}) == len(action.reports)
        assert not {report.name for report in action.reports} & self.ledger.merged.keys()
        self.running = action

    def sends(self, action: Send) -> None:
        """An answer names a report of each agent that it is for."""
        assert action.age >= 0
        assert set(action.agents) <= {agent for agent, _, _ in action.answer.merged}
        for name in action.agents:
            if action.answer.epoch == self.rounds.merged and not self.agents[name].left:
                self.agents[name].heard(self.now, self.rounds.dsync)
        self.answers += [Send(action.answer, (agent,), action.age) for agent in action.agents]

    def passes(self, seconds: float) -> None:
        """Time, with a tick wherever the machine asked for one."""
        end = self.now + seconds
        while self.wake is not None and self.wake <= end:
            self.now = self.wake
            self.tell(Tick())
        self.now = end
        self.reports = [(sent, report) for sent, report in self.reports if end - sent < LIFE]

    @rule(seconds=st.sampled_from([0.5, 3.0, 3.0, 7.0, 7.0, 10.0, 20.0, 45.0, 300.0]), tick=st.booleans())
    def time_passes(self, seconds: float, tick: bool) -> None:
        self.passes(seconds)
        if tick:  # for no reason
            self.tell(Tick())

    @rule(name=who)
    def leases_end_in_an_open_round(self, name: str) -> None:
        """One reports shortly before the others, who are silent, are given up: long before the round's deadline."""
        end = max(agent.lease for agent in self.agents.values() if agent.name != name)
        self.passes(max(end - self.now - 1.0, 0.0))
        if self.agents[name].alive:
            self.reports_to_the_reducer(name, 1, 1, longer=False)
            self.the_last_report_arrives_at_once()
        self.passes(max(end - self.now, 0.0))

    @precondition(lambda self: self.running is not None)
    @rule()
    def merge_ends(self) -> None:
        action, self.running = self.running, None
        assert action is not None
        merged, before = self.rounds.merged, self.rounds.dsync
        self.ledger.free = self.now
        pool = merge(action.reports, action.previous)
        for report in action.reports:
            assert report.name not in self.ledger.merged
            self.ledger.merged[report.name] = action.epoch
        self.ledger.sums[action.epoch] = pool.records
        self.tell(Merged(action.epoch, pool))
        assert self.rounds.merged == merged + 1 == action.epoch
        assert self.rounds.dsync in (before, before / 2, before * 2, RULES.dsync_min, RULES.dsync_max)

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def merge_is_done_again(self, data: st.DataObject) -> None:
        """By another replica, of a round that is not being merged any more."""
        done = [event for event, _ in self.log if isinstance(event, Merged)]
        if done:
            merged = self.rounds.merged
            self.tell(data.draw(st.sampled_from(done)))
            assert self.rounds.merged == merged

    @rule()
    def driver_starts_anew(self) -> None:
        """What is kept is enough to go on; what it had under way is asked for again."""
        state = self.rounds.state()
        self.rounds = Rounds.restore(RULES, state)
        assert canonical(self.rounds.state()) == canonical(state)
        pending, self.running = self.running, None
        self.tell(Resumed())
        assert (self.running is None) == (pending is None)

    # -- the agents and the network

    @initialize(names=st.sets(who, min_size=1))
    def some_start(self, names: set[str]) -> None:
        for name in sorted(names):
            self.starts(name)

    @rule(name=who)
    def starts(self, name: str) -> None:
        """For the first time, or anew after a death that nobody noticed."""
        self.agents[name].starts()
        self.says_it_lives(name)

    @rule(name=who)
    def says_it_lives(self, name: str) -> None:
        agent = self.agents[name]
        if agent.alive:
            agent.heard(self.now, self.rounds.dsync)
            self.tell(Renewed(name))

    @rule(name=who, says_so=st.booleans())
    def goes(self, name: str, says_so: bool) -> None:
        agent = self.agents[name]
        if agent.alive and says_so:
            agent.lease, agent.left = self.now, True
            self.tell(Left(name))
        agent.alive = False

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
    @rule(data=st.data(), fate=st.sampled_from(["comes", "comes and may come again", "is lost"]))
    def a_report_travels(self, data: st.DataObject, fate: str) -> None:
        """Any of those under way, in any order."""
        at = data.draw(st.integers(0, len(self.reports) - 1))
        _, report = self.reports[at]
        if fate != "comes and may come again":
            del self.reports[at]
        if fate != "is lost":
            self.arrives(report)

    @precondition(lambda self: self.reports)
    @rule()
    def the_last_report_arrives_at_once(self) -> None:
        """What mostly happens."""
        self.arrives(self.reports.pop()[1])

    def arrives(self, report: Report) -> None:
        """An old report is no sign of life: it may be a dead agent's."""
        agent = self.agents[report.agent]
        if (report.session, report.seq) >= agent.newest:
            agent.newest = report.session, report.seq
            agent.heard(self.now, self.rounds.dsync)
        self.tell(Reported(report))

    @precondition(lambda self: self.answers)
    @rule(data=st.data(), keep=st.booleans(), lost=st.booleans())
    def an_answer_arrives(self, data: st.DataObject, keep: bool, lost: bool) -> None:
        at = data.draw(st.integers(0, len(self.answers) - 1))
        send = self.answers[at] if keep else self.answers.pop(at)
        if not lost:
            self.agents[send.agents[0]].takes(send.answer)

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
        self.passes(RULES.patience * self.rounds.dsync)
        if self.running is not None:
            self.merge_ends()
        for send in self.answers:
            self.agents[send.agents[0]].takes(send.answer)
        self.answers = []

    # -- always

    @invariant()
    def epochs_are_in_order(self) -> None:
        rounds = self.rounds
        assert rounds.sealed in (None, rounds.merged + 1)
        assert rounds.open == rounds.merged + 1 + (rounds.sealed is not None)
        assert (rounds.sealed is not None) == (self.running is not None)
        assert sorted(self.ledger.sums) == list(range(1, rounds.merged + 1))

    @invariant()
    def dsync_is_within_bounds(self) -> None:
        assert RULES.dsync_min <= self.rounds.dsync <= RULES.dsync_max

    @invariant()
    def no_report_counts_in_two_rounds(self) -> None:
        distinct = sum(self.ledger.records[name] for name in self.ledger.merged)
        assert sum(self.ledger.sums.values()) == distinct

    @invariant()
    def a_round_that_is_open_is_not_overdue(self) -> None:
        """It ends by its deadline, and it has asked for the tick that ends it."""
        if self.rounds.deadline is not None and self.running is None:
            assert self.now < self.rounds.deadline
            assert self.wake is not None
            assert self.wake <= self.rounds.deadline

    @invariant()
    def only_agents_with_a_lease_are_waited_for(self) -> None:
        """A dead one blocks nobody: a round that waits does so for one that was heard within a lease."""
        told = self.log[-1][1] if self.log else 0.0
        assert list(self.rounds.live()) == [name for name in NAMES if self.agents[name].lease > told]
        if self.rounds.deadline is not None and self.running is None:
            assert any(self.agents[name].lease > self.now for name in self.rounds.missing())

    def teardown(self) -> None:
        """The same log gives the same state. And when all goes well again, every agent gets its answer."""
        again = Rounds(RULES)
        for event, now in self.log:
            again.handle(event, now)
        resumed = Rounds.restore(RULES, self.rounds.state())
        assert canonical(again.state()) == canonical(self.rounds.state()) == canonical(resumed.state())
        self.settles()

    def settles(self) -> None:
        """Each live agent's last report is in a round within two rounds' time, and its answer names it."""
        self.reports, self.answers = [], []
        for name, agent in self.agents.items():
            if agent.alive:
                self.reports_to_the_reducer(name, 1, 1, longer=False)
        for _, report in self.reports:
            self.arrives(report)
        for _ in range(3):
            if self.running is not None:
                self.merge_ends()
            self.passes(RULES.patience * RULES.dsync_max)
        for send in self.answers:
            self.agents[send.agents[0]].takes(send.answer)
        assert [agent.name for agent in self.agents.values() if agent.alive and agent.waiting] == []


def run(examples: int, steps: int) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    dose = settings(max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=checks)
    run_state_machine_as_test(World, settings=dose)


def test_the_reducer_keeps_its_promises_in_a_hostile_world() -> None:
    """A small dose; `make test-long` gives the full one."""
    run(120, 60)


@pytest.mark.long
def test_the_reducer_keeps_its_promises_in_a_hostile_world_for_long() -> None:
    """Hundreds of long lives."""
    run(600, 150)
