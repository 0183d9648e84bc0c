"""Consistent Grouping's delegation under lost, repeated, late signals, workers that come and go, and restarts."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from papers.grouping import Grouping
from papers.grouping_events import (
    Action,
    Event,
    GroupingRules,
    GroupingTick,
    Ignored,
    Moved,
    WorkerJoined,
    WorkerLeft,
)
from unskew.core.grouping.signals import SignalRules, sense

WORKERS, ALPHA = 4, 5


class Network(RuleBasedStateMachine):
    """Workers send through a network that loses, repeats and reorders; the machine may die and be restored."""

    def __init__(self) -> None:
        super().__init__()
        self.rules = GroupingRules(slot=1.0, patience=2, aggregate=7.0)
        self.machine = Grouping(WORKERS, ALPHA, self.rules)
        self.now = 0.0
        self.under_way: list[Event] = []
        self.log: list[tuple[Event, float, tuple[Action, ...]]] = []
        self.owners = self.machine.owners().tolist()
        self.merged: list[float] = []

    @rule(worker=st.integers(0, 6), load=st.floats(0.0, 5.0), binary=st.booleans(), skew=st.floats(0.0, 3.0))
    def signals(self, worker: int, load: float, binary: bool, skew: float) -> None:
        """Each by its own clock, which may be ahead."""
        rules = SignalRules(as_published=binary)
        self.under_way.append(sense(rules, worker, load, self.now + skew * (worker % 2)))

    @rule(worker=st.integers(0, 6))
    def joins(self, worker: int) -> None:
        self.under_way.append(WorkerJoined(worker, self.now))

    @rule(worker=st.integers(0, 6))
    def leaves(self, worker: int) -> None:
        self.under_way.append(WorkerLeft(worker, self.now))

    @rule(seconds=st.floats(0.01, 4.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.take(GroupingTick())

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), keep=st.booleans())
    def arrives(self, data: st.DataObject, keep: bool) -> None:
        """Any of those under way, perhaps not for the last time."""
        place = data.draw(st.integers(0, len(self.under_way) - 1))
        self.take(self.under_way[place] if keep else self.under_way.pop(place))

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def is_lost(self, data: st.DataObject) -> None:
        self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))

    @rule()
    def restarts(self) -> None:
        """The state goes through JSON; nothing else is remembered."""
        fields = json.loads(json.dumps(self.machine.to_fields(), allow_nan=False))
        self.machine = Grouping.from_fields(fields)

    def take(self, event: Event) -> None:
        """Moves are followed by hand: from who owns them, in versions that rise by one."""
        before = self.machine.version
        actions = self.machine.handle(event, self.now)
        self.log.append((event, self.now, actions))
        for action in actions:
            if isinstance(action, Moved):
                assert action.version == before + 1
                assert action.virtual
                assert {self.owners[one] for one in action.virtual} == {action.giver}
                before = action.version
                for one in action.virtual:
                    self.owners[one] = action.taker
        assert before == self.machine.version
        if any(isinstance(action, Ignored) for action in actions):
            assert not any(isinstance(action, Moved) for action in actions)

    @invariant()
    def every_virtual_worker_has_one_owner_that_is_there(self) -> None:
        assert self.machine.owners().tolist() == self.owners
        assert set(self.owners) == set(self.machine.workers)

    @invariant()
    def nobody_waits_twice(self) -> None:
        busy, idle = self.machine.waiting()
        assert len({*busy, *idle}) == len(busy) + len(idle)
        assert not (busy and idle)
        assert {*busy, *idle} <= set(self.machine.workers)

    def teardown(self) -> None:
        """Replaying the log gives the same actions and the same state."""
        again = Grouping(WORKERS, ALPHA, self.rules)
        assert [again.handle(event, now) for event, now, _ in self.log] == [actions for _, _, actions in self.log]
        assert again.to_fields() == self.machine.to_fields()


TestNetwork = Network.TestCase
TestNetwork.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@settings(max_examples=40, deadline=None)
@given(
    capacities=st.lists(st.floats(1.0, 8.0), min_size=3, max_size=12),
    change=st.permutations(range(12)),
    loss=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, 100),
)
def test_any_capacities_are_found_and_found_again(
    capacities: list[float], change: list[int], loss: float, seed: int
) -> None:
    """At 80 % load, each virtual worker an equal share: whatever the capacities are, and though every fifth signal is
    lost and some arrive twice, no worker is over the busy threshold after 40 slots and none is left with a queue. The
    same holds 40 slots after they have changed places."""
    rng, alpha = np.random.default_rng(seed), 100
    size = np.array(capacities)
    n = len(size)
    size *= n / size.sum()
    machine, queue, slot = Grouping(n, alpha), np.zeros(n), 0
    for phase in (size, size[[one for one in change if one < n]]):
        for _ in range(40):
            slot += 1
            used = (queue + 0.8 * np.bincount(machine.owners(), minlength=n) / alpha) / phase
            queue = np.maximum(used - 1.0, 0.0) * phase
            for worker in rng.permutation(n).tolist():
                for _ in range(int(rng.random() >= loss) + int(rng.random() < loss)):
                    machine.handle(sense(machine.rules.signals, worker, float(used[worker]), float(slot)), float(slot))
        assert used.max() <= machine.rules.signals.busy + 1e-9
        assert queue.max() == 0.0
