"""From what batches showed to what the next one is bound to: the machine, and the thread around it, with a service and
without, while the stream drifts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from unskew.client import testing
from unskew.core.errors import PlanError
from unskew.core.freshness.plan_ahead import (
    BatchFacts,
    NextBatch,
    Partitions,
    PlanAhead,
    PlanRequest,
)
from unskew.core.freshness.stream_planner import StreamPlanner
from unskew.core.freshness.ways import Fresh
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Plan
from unskew.core.planners import make_planner
from unskew.core.quality.cost_fit import COST_BATCHES, TaskTimes
from unskew.core.quality.measures import LinearCost, load_imbalance
from unskew.core.scaling.elastic import Decider, Elastic, StageTimes
from unskew.core.stream_spec import StreamSpec
from unskew.simulate.key_streams import zipf_keys
from unskew.spark.planning import Plans
from unskew.spark.session_stream import spec_of
from unskew.spark.streaming.plan_ahead_thread import PlanAheadThread

N, ROWS, TYPES = 8, 40_000, ("bigint",)


def histogram_of(hot: int, rows: int = ROWS) -> Histogram:
    """Zipf 1.5, with other hot keys for each ``hot``."""
    keys = zipf_keys(np.random.default_rng(hot), rows, 5_000, 1.5)
    mixed = (keys.astype(np.uint64) + np.uint64(1_000_000 * hot)) * np.uint64(0x9E3779B97F4A7C15)
    found = Histogram.from_hashes(mixed)
    return Histogram(found.hashes, found.counts, None, found.counts)


def facts_of(number: int, plan: Plan, histogram: Histogram, rows: int = ROWS) -> BatchFacts:
    return BatchFacts(number, number, plan, rows, rows, histogram)


@dataclass
class Ran:
    """A finished batch whose facts are read as the test says."""

    facts: Callable[[], BatchFacts | None]


class Batches:
    """Batches of a query, each bound to what the one before has left."""

    def __init__(self, service: str | None, threshold: int = 0, fresh: Fresh = "previous") -> None:
        nobody: Any = None  # Spark is asked for nothing here
        self.plans = Plans.open(nobody, "clicks", spec_of(N, "balanced", None, (), 7), service, timeout=2.0)
        planner = self.plans.planner(TYPES)
        machine = PlanAhead(planner, planner.by_hash(), fresh, threshold=threshold)
        self.ahead = PlanAheadThread(self.plans, "app/q", TYPES, machine)
        self.number = 0

    @property
    def next(self) -> NextBatch:
        return self.ahead.next

    def ran(self, number: int, plan: Plan, histogram: Histogram, rows: int = ROWS) -> None:
        self.ahead.finished(Ran(lambda: facts_of(number, plan, histogram, rows)))
        assert self.ahead.settle(30.0)

    def run(self, hot: int, rows: int = ROWS) -> float:
        """The imbalance that the batch had."""
        histogram = histogram_of(hot, rows)
        plan = self.next.plan
        if self.next.way == "same":
            plan = self.plans.planner(TYPES).after(plan, histogram, self.number)
        self.ran(self.number, plan, histogram, rows)
        self.number += 1
        return load_imbalance(plan.loads(histogram))

    def close(self) -> None:
        self.ahead.end(give_up=True)
        self.plans.close()


@pytest.fixture(params=[None, "embedded"])
def batches(request: pytest.FixtureRequest) -> Iterator[Batches]:
    made = Batches(request.param)
    yield made
    made.close()


def test_the_batch_after_the_first_is_even(batches: Batches) -> None:
    first, second = batches.run(1), batches.run(1)

    assert first > 2.0
    assert second < 1.05


def test_a_change_is_followed_by_the_last_batch_s_plan_or_by_a_count() -> None:
    """``auto``: the record still has the batches before the change; the batch after it does not go by the record."""
    batches = Batches(None, fresh="auto")
    try:
        before = [batches.run(1) for _ in range(6)]
        changed = [batches.run(2) for _ in range(3)]
        assert max(before) < 1.05, "the first one is counted"
        assert changed[0] > 1.5
        assert max(changed[1:]) < 1.05
    finally:
        batches.close()


def test_a_stream_that_changes_with_every_batch_is_counted_throughout() -> None:
    batches = Batches(None, fresh="auto")
    try:
        assert max(batches.run(hot) for hot in range(8)) < 1.05
        assert batches.next.way == "same"
        assert "same would have cost" in batches.next.reason
    finally:
        batches.close()


def drive(batches: int, hot: Callable[[int], int], counting: Callable[[int], float], rows: int = ROWS) -> list[str]:
    """The way of each batch where a row takes 50 us, and a batch's count these seconds."""
    ahead, session, taken = machine(fresh="auto"), Partitions(SPEC), []
    for number in range(batches):
        histogram, was = histogram_of(hot(number), rows), ahead.next
        plan = ahead.planner.after(was.plan, histogram, number) if was.way == "same" else was.plan
        taken.append(was.way)
        stages = StageTimes(0.1, 5e-5 * float(plan.loads(histogram).max()), 4, 5e-5 * rows)
        facts = replace(
            facts_of(number, plan, histogram, rows), stages=stages, plans=was.plans,
            counting=counting(taken.count("same")) if was.way == "same" else None,
        )  # fmt: skip
        if isinstance(ahead.after(facts, session), PlanRequest):
            ahead.answered(None)
    return taken


def test_where_a_count_costs_more_than_a_miss_the_plan_of_before_is_taken() -> None:
    """Seconds decide: counting takes ten times as long as the whole reduce stage."""
    taken = drive(8, hot=lambda number: number, counting=lambda _: 20.0)
    assert taken.count("same") <= 3


def test_a_count_that_was_slow_at_first_is_tried_again() -> None:
    """Java is slow at first. What the first count took is not what counting costs."""
    taken = drive(40, hot=lambda number: number, counting=lambda counts: 10.0 if counts == 1 else 0.05)
    assert taken[-10:] == ["same"] * 10


def test_a_batch_that_spark_did_not_time_is_priced_by_those_before() -> None:
    """And one whose number of partitions was another one, too: a unit is worth what it was."""
    ahead, session, histogram = machine(fresh="auto"), Partitions(SPEC), histogram_of(1)
    for number in range(6):
        work = 0.0 if number % 2 else 2.0
        facts = replace(
            facts_of(number, ahead.next.plan, histogram), stages=StageTimes(0.1, 0.5, 4, work), plans=ahead.next.plans
        )
        assert isinstance(ahead.after(facts, session), PlanRequest)
        ahead.answered(None)
    assert "over the last" in ahead.next.reason
    assert "5 batches" in ahead.next.reason, "one currency since the second batch, in which all ways had a plan"


def test_small_batches_between_large_ones_do_not_end_the_counting() -> None:
    """One small batch says nothing of the next; three in a row do."""
    ahead, session = machine(fresh="auto", threshold=10_000), Partitions(SPEC)
    ways = []
    for number, rows in enumerate((ROWS, 5_000, ROWS, 5_000, ROWS, 5_000, 5_000, 5_000)):
        facts = facts_of(number, ahead.next.plan, histogram_of(number, rows), rows)
        if isinstance(ahead.after(facts, session), PlanRequest):
            ahead.answered(None)
        ways.append(ahead.next.way)
    assert ways == ["same"] * 7 + ["previous"]


def test_a_query_follows_another_one_s_number_of_partitions() -> None:
    batches = Batches(None, fresh="auto")
    try:
        for _ in range(3):
            batches.run(7)
        batches.plans.stream.resize(N + 4)
        for _ in range(4):
            batches.run(7)
        assert batches.next.plan.partitions == N + 4
        assert batches.run(7) < 1.05
    finally:
        batches.close()


def test_settling_after_the_end_is_told_and_does_not_raise() -> None:
    """Of what was given up; and of what is not done in time."""
    batches, go = Batches(None), threading.Event()

    def late() -> None:
        assert go.wait(30.0)

    batches.ahead.finished(Ran(late))
    assert batches.ahead.settle(0.05) is False
    batches.ahead.took(0, 1.0)
    batches.close()
    go.set()
    assert batches.ahead.settle(30.0)


def test_a_small_batch_is_not_planned_from() -> None:
    batches = Batches(None, threshold=10_000)
    try:
        batches.run(1, rows=9_000)
        assert batches.next.plan.info.rows == 0, "still the first one"
        batches.run(1, rows=10_000)
        assert batches.next.plan.info.rows == 10_000
    finally:
        batches.close()


def test_a_service_that_goes_and_comes_back_costs_plans_nothing() -> None:
    with testing.embedded() as first:
        batches = Batches(first.target)
        batches.run(1)
        named = batches.next.plan.version
    try:
        assert named.incarnation, "made by the service"
        assert batches.run(1) < 1.05, "the last plan of a service that is gone"
        assert batches.run(2) > 1.5
        assert min(batches.run(2) for _ in range(3)) < 1.05, "made here"
    finally:
        batches.close()


def test_what_goes_wrong_in_the_thread_leaves_the_plan(caplog: pytest.LogCaptureFixture) -> None:
    batches = Batches(None)
    try:
        batches.run(1)
        plan = batches.next.plan

        def broken() -> BatchFacts:
            raise ZeroDivisionError("of a test")

        batches.ahead.finished(Ran(broken))
        with pytest.raises(ZeroDivisionError):
            batches.ahead.settle(30.0)
        assert "fault of unskew" in caplog.text
        assert batches.next.plan == plan
        assert batches.run(1) < 1.05
    finally:
        batches.close()


def test_the_number_of_partitions_that_a_stream_has_is_changed_only_by_who_decides_on_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with testing.embedded() as service, service.client() as client:
        client.put_stream("clicks", partitions=4, policy="balanced", key_types=TYPES)
        batches = Batches(service.target)
        try:
            batches.run(1)
            assert batches.run(1) < 1.05, "by the driver's own plans"
            assert client.get_stream("clicks").spec.partitions == 4, "somebody else's"
            assert "made in the driver" in caplog.text
        finally:
            batches.close()
        elastic = Batches(service.target)
        try:
            elastic.plans.stream.resize(N)
            elastic.run(1)
            assert elastic.next.plan.version.incarnation, "made by the service"
            assert client.get_stream("clicks").spec.partitions == N
        finally:
            elastic.close()


def test_where_planning_is_slower_than_the_batches_those_between_are_passed_over(batches: Batches) -> None:
    """The newest one is planned from, whatever has waited before it."""
    gate, read = threading.Event(), list[int]()

    def ran(number: int) -> None:
        assert gate.wait(30.0)
        read.append(number)

    for number in range(6):
        batches.ahead.finished(Ran(lambda number=number: ran(number)))  # type: ignore[misc]
        while number == 0 and batches.ahead._waiting is not None:
            time.sleep(0.001)
    gate.set()
    assert batches.ahead.settle(30.0)
    assert read == [0, 5]


# -- the machine alone


SPEC = StreamSpec(N, "balanced", key_types=TYPES)


def machine(**more: Any) -> PlanAhead:
    planner = StreamPlanner("clicks", SPEC)
    return PlanAhead(planner, planner.by_hash(), more.pop("fresh", "previous"), **more)


def test_a_batch_asks_for_a_plan_and_goes_by_the_service_s_or_by_its_own() -> None:
    """Passive: the same facts and answers give the same plan, whoever made it."""
    ahead, session = machine(), Partitions(SPEC)
    request = ahead.after(facts_of(3, ahead.next.plan, histogram_of(1)), session)
    assert isinstance(request, PlanRequest)
    assert (request.facts.number, ahead.next.rows) == (3, ROWS)
    own = ahead.answered(None)
    assert (own.way, own.plan.info.batch) == ("previous", 3)
    ahead.after(facts_of(4, own.plan, histogram_of(1)), session)
    given = make_planner("balanced", N).plan(histogram_of(5))
    assert ahead.answered(given).plan is given


def test_an_answer_that_nobody_asked_for_is_refused() -> None:
    with pytest.raises(PlanError, match="no plan was asked for"):
        machine().answered(None)


def test_the_owner_of_the_number_changes_it_and_who_takes_over_begins_with_what_is_there() -> None:
    """Facts and times come in either order; a query that does not own the number decides nothing."""
    ahead = machine(decider=Decider(Elastic(2, 16, d=1), 1.0, N), threshold=10**9)
    mine, others = Partitions(SPEC, owner=True), Partitions(StreamSpec(6, "balanced", key_types=TYPES))
    assert ahead.add_seconds(0, 9.0, mine).plan.partitions == N, "nothing is known of its rows yet"
    grown = ahead.after(facts_of(0, ahead.next.plan, histogram_of(1)), mine)
    assert isinstance(grown, NextBatch)
    assert (grown.plan.partitions, grown.reason) == (16, "another number of partitions; fresh='previous'")
    assert ahead.decision is not None
    assert ahead.planner.spec.partitions == 16
    assert ahead.add_seconds(1, 9.0, others).plan.partitions == 16
    taken_over = Partitions(others.spec, owner=True)
    assert ahead.add_seconds(2, 9.0, taken_over).plan.partitions == 16
    assert ahead.add_seconds(3, 9.0, taken_over).plan.partitions == 6


# -- what rows and keys cost --------------------------------------------------------------------------------

DEAR = LinearCost(per_key=50.0)


def timed(number: int, plan: Plan, histogram: Histogram, seconds: float = 1e-5) -> BatchFacts:
    """A batch whose keys cost fifty rows each."""
    rows, keys = plan.loads(histogram), plan.cardinalities(histogram)
    times = TaskTimes(rows, keys, seconds * DEAR.tasks(rows, keys))
    return replace(facts_of(number, plan, histogram), times=times)


def test_the_machine_compares_ways_in_the_fitted_seconds() -> None:
    """Also where no stage was timed; the times of the last batches go with what the next batch is bound to."""
    nobody: Any = None
    planner = Plans.open(nobody, "clicks", spec_of(N, "auto", {"splits": False}, (), 7)).planner(TYPES)
    machine, session = PlanAhead(planner, planner.by_hash(), "auto"), Partitions(planner.spec)
    assert machine.fit.tasks == 0
    for number in range(COST_BATCHES + 3):
        machine.after(timed(number, machine.next.plan, histogram_of(1)), session)
        step = machine.answered(None)
    assert machine.fit.tells_keys
    assert machine.fit.seconds_per_key == pytest.approx(50e-5, rel=0.1)
    assert len(step.feedback.times) == COST_BATCHES
    histogram = histogram_of(1)
    even = 1e-5 * float(DEAR.tasks(histogram.total, histogram.keys)) / N
    cost = float(step.reason.partition("have cost ")[2].partition(" a batch")[0])
    assert even * 0.9 < cost < even * 4.0


def test_a_batch_in_flight_is_priced_by_its_own_seconds() -> None:
    """They fall short of a count's, so the next batch goes so again; a source whose read is dear is read once."""
    nobody: Any = None
    planner = Plans.open(nobody, "clicks", spec_of(N, "balanced", None, (), 7)).planner(TYPES)
    machine, session = PlanAhead(planner, planner.by_hash(), "auto"), Partitions(planner.spec)
    stages = StageTimes(map_time=2.0, reduce_work=8.0)
    taken = []
    for number in range(4):
        taken.append(machine.next.way)
        facts = facts_of(number, machine.next.plan, histogram_of(number))
        own = {"in_flight": 2.3} if taken[-1] == "inflight" else {"counting": 2.1}
        machine.after(replace(facts, stages=stages, flies=True, **own), session)
        machine.answered(None)
    assert taken == ["same", "inflight", "inflight", "inflight"]
    machine.after(replace(facts_of(4, machine.next.plan, histogram_of(4)), in_flight=2.3), session)
    assert machine.answered(None).way == "same", "where it cannot be had any more"


def test_the_service_makes_the_driver_s_plans_of_the_same_times() -> None:
    """One record: what a batch is reported with gives the fit that the driver has."""
    digests: dict[str | None, list[str]] = {None: [], "embedded": []}
    for service, made in digests.items():
        nobody: Any = None
        plans = Plans.open(nobody, "clicks", spec_of(N, "auto", {"splits": False}, (), 7), service, timeout=5.0)
        planner = plans.planner(TYPES)
        ahead = PlanAheadThread(plans, "app/q", TYPES, PlanAhead(planner, planner.by_hash(), "previous"))
        try:
            for number in range(4):
                facts = timed(number, ahead.next.plan, histogram_of(number))
                ahead.finished(Ran(lambda facts=facts: facts))  # type: ignore[misc]
                assert ahead.settle(30.0)
                made.append(ahead.next.plans["previous"].digest)
                assert ("a key" in ahead.next.plans["previous"].info.reason) or "plan in force" in ahead.next.reason
            assert plans.stream.cost is not None
            assert plans.stream.cost.tells_keys
        finally:
            ahead.end(give_up=True)
            plans.close()
    assert digests[None] == digests["embedded"]
