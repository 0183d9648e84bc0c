"""Real agents and the service's rounds in a hostile world: agents that come, go, die and start anew; a replica that
crashes; messages that are lost, come late, twice and in any order; merges that take their time.

Beside each agent runs a shadow: a plain list of the rewards met since its last report. What an agent makes of an
answer must be that list played back on the global values (Eq. 5), so that each reward counts once: in a report, or in
the list.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
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
from numpy.typing import NDArray

from unskew.core.dalton import row_loop as kernels
from unskew.core.dalton.qtable import UNTRIED, QTable
from unskew.core.rounds.agent import Agent, AgentSettings, AgentTick, Answered, Routed, Tuples
from unskew.core.rounds.agent import SendReport as ReportOut
from unskew.core.rounds.carryover import MergedRound
from unskew.core.rounds.messages import Answer, Report
from unskew.core.rounds.next_step import Step, next_step
from unskew.core.rounds.reduce_round import as_if_merged
from unskew.core.rounds.replica import ReplicaState, RoundTiming
from unskew.core.rounds.round_log import ReportOutcome, RoundView
from unskew.core.rounds.rules import RoundRules
from unskew.simulate.reducer import SimulatedReplica, SimulatedStore

WORKERS = 4
DSYNC = 10.0
RULES = RoundRules(workers=WORKERS, dsync=DSYNC, dsync_min=5.0, dsync_max=40.0)
TIMING = RoundTiming(poll=5.0, takeover=1.0)
FORGET = 2_000.0
LIFE = 400.0  # of a message: under FORGET
WINDOW, SLIDE = 45.0, 8.0
FLOOD = 160  # over 32 n: the first interval calls nothing hot before
QUIET = 400  # seconds in which a quiet world must have settled
NAMES = ("ann", "bob", "cyd")
who = st.sampled_from(NAMES)
hot = st.sampled_from([1, 1, 2, 2, 3])
Cell = tuple[int, int]
Name = tuple[str, int, int]


def canonical(value: Any) -> Any:
    """For comparing states to the bit: arrays as their bytes, values by their fields."""
    if isinstance(value, dict):
        return {key: canonical(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(part) for part in value]
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    return {name: canonical(part) for name, part in vars(value).items()} if hasattr(value, "__dict__") else repr(value)


@dataclass
class Shadow:
    """What a life of an agent should know, by the simplest means."""

    agent: Agent
    log: list[tuple[Any, float]] = field(default_factory=list)
    tuples: int = 0
    reported: int = 0
    since: dict[int, list[tuple[int, float]]] = field(default_factory=dict)  # key -> (worker, reward)
    unseen: set[int] = field(default_factory=set)  # keys of which some rewards since the report were not watched
    reports: dict[Name, bytes] = field(default_factory=dict)

    def handle(self, event: Any, now: float) -> tuple[Any, ...]:
        self.log.append((event, now))
        epoch, actions = self.agent.version[1], self.agent.handle(event, now)
        assert self.agent.version[1] >= epoch
        for action in actions:
            if isinstance(action, ReportOut):
                self._reported(action.report)
        return actions

    def route(self, keys: NDArray[np.uint64], now: float) -> tuple[Any, ...]:
        self.tuples += len(keys)
        actions = self.handle(Tuples(keys, np.full(len(keys), now)), now)
        assert isinstance(actions[0], Routed)
        workers = actions[0].workers
        assert workers.shape == keys.shape
        assert ((workers >= 0) & (workers < WORKERS)).all()
        return actions

    def watch(self, key: int, now: float) -> tuple[Any, ...]:
        """Route one tuple, and write down its reward. An interval may end right after it, and take the row along."""
        before = self._row(key, int(now // SLIDE))
        due = self.agent._due is not None and now >= self.agent._due
        if due:
            self.unseen.add(key)
        actions = self.route(np.array([key], np.uint64), now)
        row = self._at(key)
        if not due and row >= 0 and self.agent.learner.rows.entry[row, kernels.UNTIL] != kernels.NEVER:
            worker = int(actions[0].workers[0])
            old, new = before[worker], float(self.agent.learner.rows.values[row, worker])
            reward = new if old == UNTRIED else (new - old) / 0.1 + old
            self.since.setdefault(key, []).append((worker, reward))
        return actions

    def answered(self, answer: Any, age: float, now: float) -> None:
        new = answer.epoch > self.agent.version[1]
        self.handle(Answered(answer, age), now)
        if not new:
            return
        for key, values in zip(answer.table.hashes.tolist(), answer.table.values.tolist(), strict=True):
            if key not in self.unseen:
                assert self._values(key) == pytest.approx(played(values, self.since.get(key, [])), abs=1e-9)
        self._forget_cold()

    def _reported(self, report: Report) -> None:
        bits = pickle.dumps(canonical(report))
        if report.name not in self.reports:
            assert report.seq == len(self.reports) + 1
            self.reported += report.records
            assert self.reported == self.tuples
            assert report.loads.sum() <= self.tuples
            self.since, self.unseen = {}, set()
        assert self.reports.setdefault(report.name, bits) == bits
        self._forget_cold()

    def _forget_cold(self) -> None:
        """A key that is not hot any more has nothing learned."""
        hot = set(self.agent.learner.hot_keys().tolist())
        self.since = {key: rewards for key, rewards in self.since.items() if key in hot}
        self.unseen &= hot

    def _at(self, key: int) -> int:
        with np.errstate(over="ignore"):
            return int(kernels.row_of(np.uint64(key), self.agent.learner.rows))

    def _values(self, key: int) -> list[float]:
        assert self._at(key) >= 0
        values: list[float] = self.agent.learner.rows.values[self._at(key)].tolist()
        return values

    def _row(self, key: int, slide: int) -> list[float]:
        """The values that a tuple in this slide finds: without those of fragments that have left the window."""
        rows, row = self.agent.learner.rows, self._at(key)
        if row < 0:
            return [UNTRIED] * WORKERS
        used, away = rows.used[row], rows.away[row]
        left = (used != kernels.NEVER) & (used <= slide - self.agent.learner.common.slides) & (away == 0)
        values: list[float] = np.where(left, UNTRIED, rows.values[row]).tolist()
        return values


def played(values: list[float], rewards: list[tuple[int, float]]) -> list[float]:
    """Eq. 5, reward by reward; the first of a worker takes the place of -2."""
    out = list(values)
    for worker, reward in rewards:
        out[worker] = reward if out[worker] == UNTRIED else out[worker] + 0.1 * (reward - out[worker])
    return out


class Cooperation(RuleBasedStateMachine):
    @initialize(capacity=st.sampled_from([3, 4096]), seed=st.integers(0, 99))
    def begin(self, capacity: int, seed: int) -> None:
        self.capacity, self.rng, self.now = capacity, np.random.default_rng(seed), 0.0
        self.store, self.decisions = SimulatedStore(forget=FORGET), []
        self._replace_the_replica()
        self.living: dict[str, Shadow] = {}
        self.buried: list[Shadow] = []
        self.lives = dict.fromkeys(NAMES, 0)
        self.network: list[tuple[float, Callable[[], None]]] = []
        self.reports: dict[Name, int] = {}  # records of every report that was ever sent
        self.counted: dict[int, tuple[int, tuple[Name, ...]]] = {}  # epoch -> GL and the reports in it
        for name in NAMES[:2]:
            self.starts(name)
            self.is_flooded(name, key=1, share=0.9)
            self.is_flooded(name, key=2, share=0.9)
        self._bring_all()
        self.time_passes(DSYNC)
        self._bring_all()

    # -- agents

    def _start(self, name: str) -> None:
        self.lives[name] += 1
        of = AgentSettings(
            name, WORKERS, DSYNC, NAMES.index(name), self.lives[name], window=WINDOW, slide=SLIDE,
            capacity=self.capacity, parameters={"split_cap": None, "epsilon": 0.3},
        )  # fmt: skip
        self.living[name] = Shadow(Agent(of))
        self._do(name, self.living[name].handle(AgentTick(), self.now))

    def _do(self, name: str, actions: tuple[Any, ...]) -> None:
        for action in actions:
            if isinstance(action, ReportOut):
                report = action.report
                assert report.name[0] == name
                self.reports[report.name] = report.records
                self._post(partial(self._report, report))

    @rule(name=who)
    def starts(self, name: str) -> None:
        if name not in self.living:
            self._start(name)

    @rule(name=who)
    def goes(self, name: str) -> None:
        if name in self.living:
            self.buried.append(self.living.pop(name))

    @rule(name=who, key=hot, rows=st.integers(1, 9))
    def routes(self, name: str, key: int, rows: int) -> None:
        for _ in range(rows if name in self.living else 0):
            self._do(name, self.living[name].watch(key, self.now))

    @rule(key=hot, rows=st.integers(1, 9), arrive=st.booleans())
    def all_report_and_learn_on(self, key: int, rows: int, arrive: bool) -> None:
        self.time_passes(DSYNC)
        if arrive:
            self.all_messages_arrive()
        for name in NAMES:
            self.routes(name, key, rows)

    @rule(name=who, key=st.integers(1, 3), share=st.sampled_from([0.1, 0.4, 0.9]))
    def is_flooded(self, name: str, key: int, share: float) -> None:
        if name in self.living:
            shadow = self.living[name]
            keys = self.rng.integers(100, 10_000, FLOOD, dtype=np.uint64)
            keys[: round(share * FLOOD)] = key
            shadow.unseen.update(keys.tolist())
            actions = shadow.route(self.rng.permutation(keys), self.now)
            if len(actions) == 1:
                shadow.unseen.update(shadow.agent.learner.hot_keys().tolist())
            self._do(name, actions)

    # -- the replica

    def _replace_the_replica(self) -> None:
        def record(view: RoundView, state: ReplicaState, now: float, step: Step) -> None:
            self.decisions.append((view, state, now, step))

        self.replica = SimulatedReplica(self.store, RULES, TIMING, record)

    def _report(self, report: Report) -> None:
        outcome, newest = self.replica.report(report, self.now), self.store.newest
        if outcome is ReportOutcome.MERGED and newest is not None:
            self._answer(report.agent, as_if_merged(newest.answer, report), newest)
        self._look()

    def _look(self) -> None:
        open_before, merged = self.store.rounds.open, self.store.rounds.merged
        while self.replica.look(self.now) == 0.0:
            pass
        assert self.store.rounds.open >= open_before
        assert self.store.rounds.merged == merged

    def _answer(self, name: str, answer: Answer, merged: MergedRound) -> None:
        age = self.replica.state.age(merged, self.now)

        def arrives() -> None:
            if name in self.living:
                self.living[name].answered(answer, age, self.now)

        self._post(arrives)

    @precondition(lambda self: self.replica.merging)
    @rule()
    def a_merge_is_done(self) -> None:
        merged = self.replica.finish(self.now)
        assert merged is not None, "there is one replica only"
        answer = merged.answer
        self.counted[answer.epoch] = answer.records, answer.merged
        for name in sorted(merged.names):
            self._answer(name.agent, answer, merged)
        self._look()

    @rule()
    def the_replica_crashes(self) -> None:
        """All that it remembers is lost, a merge with it: the next one takes that over."""
        self._replace_the_replica()
        self._look()

    # -- time and the network

    def _post(self, message: Callable[[], None]) -> None:
        self.network.append((self.now, message))

    @rule(seconds=st.sampled_from([0.5, 2.0, 5.0, 10.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for name in list(self.living):
            self._do(name, self.living[name].handle(AgentTick(), self.now))
        self._look()
        self.network = [(at, message) for at, message in self.network if at + LIFE > self.now]

    @precondition(lambda self: self.network)
    @rule(at=st.integers(0, 20), copies=st.sampled_from([0, 1, 1, 1, 2]))
    def a_message_arrives(self, at: int, copies: int) -> None:
        """In any order; or never; or once, and again later."""
        sent, message = self.network.pop(at % len(self.network))
        if copies:
            message()
        if copies == 2:
            self.network.append((sent, message))

    @precondition(lambda self: self.network)
    @rule()
    def all_messages_arrive(self) -> None:
        pending, self.network = self.network, []
        for _, message in pending:
            message()

    @rule()
    def all_goes_well(self) -> None:
        self._bring_all()

    def _bring_all(self) -> None:
        while self.network or self.replica.merging:
            self.all_messages_arrive()
            if self.replica.merging:
                self.a_merge_is_done()

    # -- what always holds

    @invariant()
    def every_report_is_in_one_round_at_most(self) -> None:
        named = [name for _, names in self.counted.values() for name in names]
        assert len(named) == len(set(named))
        assert sum(records for records, _ in self.counted.values()) == sum(self.reports[name] for name in named)

    @invariant()
    def a_round_is_closed_by_its_deadline(self) -> None:
        view = self.store.view(self.now)
        if view.opened is not None and view.open == view.merged + 1:
            assert self.now <= view.opened + RULES.patience * self.replica.state.dsync

    @invariant()
    def the_books_of_each_agent_agree_with_its_rows(self) -> None:
        for shadow in self.living.values():
            learner = shadow.agent.learner
            rows, slots = learner.rows, learner._slots()
            assert rows.books[kernels.OTHERS] == rows.loads.sum()
            assert (rows.loads >= 0).all()
            for row in slots:
                there = (rows.used[row] != kernels.NEVER) | (rows.away[row] != 0)
                values, entry = rows.values[row], rows.entry[row]
                assert entry[kernels.HELD] == there.sum()
                assert entry[kernels.TRIED] == (values != UNTRIED).sum()
                assert values[entry[kernels.BEST]] == values.max()
                assert entry[kernels.UNTIL] != kernels.NEVER or entry[kernels.TRIED] == 0

    # -- at the end

    def teardown(self) -> None:
        if not hasattr(self, "living"):
            return
        self._settle()
        for shadow in (*self.living.values(), *self.buried):
            again = Agent(shadow.agent.settings)
            for event, now in shadow.log:
                again.handle(event, now)
            assert canonical(again) == canonical(shadow.agent)
        for view, state, now, step in self.decisions:
            assert next_step(view, state, now) == step

    def _settle(self) -> None:
        """No message is lost any more and no tuple comes: all live agents agree, on the last epoch and its values."""
        if not self.living:
            return
        first = self.store.rounds.merged
        for _ in range(QUIET):
            self.time_passes(1.0)
            self._bring_all()
            if self.store.rounds.merged > first + 3 and not any(one.agent.awaiting for one in self.living.values()):
                break
        else:
            raise AssertionError("no agreement")
        assert self.store.newest is not None
        answer = self.store.newest.answer
        for shadow in self.living.values():
            assert shadow.agent.version[1] == self.store.rounds.merged == answer.epoch
            assert shadow.agent.dsync == answer.dsync
            table: QTable = shadow.agent.learner.table().take(answer.table.hashes)
            assert table.hashes.tolist() == answer.table.hashes.tolist()
            assert table.values.tolist() == answer.table.values.tolist()


def dose(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, derandomize=examples < 1_000,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


def test_agents_and_reducer_agree_whatever_the_network_does():
    run_state_machine_as_test(Cooperation, settings=dose(60, 40))


@pytest.mark.long
def test_agents_and_reducer_agree_whatever_the_network_does_in_full():
    run_state_machine_as_test(Cooperation, settings=dose(2_000, 80))
