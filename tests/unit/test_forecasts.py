"""From what batches showed to the plan of a later one: with a service and without, and while the stream drifts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from unskew.client import testing
from unskew.core.freshness.trust import TrustRules
from unskew.core.histogram.histogram import Histogram
from unskew.core.planners import make_planner
from unskew.core.quality.measures import load_imbalance
from unskew.simulate.key_streams import zipf_keys
from unskew.spark.planning import Plans, spec_of
from unskew.spark.streaming.batch_sampling import BatchSample
from unskew.spark.streaming.forecasts import BatchRun, Forecasts

N, ROWS, TYPES = 8, 40_000, ("bigint",)


def histogram(hot: int, rows: int = ROWS) -> Histogram:
    """Zipf 1.5, with other hot keys for each ``hot``."""
    keys = zipf_keys(np.random.default_rng(hot), rows, 5_000, 1.5)
    mixed = (keys.astype(np.uint64) + np.uint64(1_000_000 * hot)) * np.uint64(0x9E3779B97F4A7C15)
    found = Histogram.from_hashes(mixed)
    return Histogram(found.hashes, found.counts, None, found.counts)


class Batches:
    """Batches of a query, each bound to what the one before has left."""

    def __init__(self, service: str | None, threshold: int = 0, misses: int = 2) -> None:
        nobody: Any = None  # Spark is asked for nothing here
        self.plans = Plans(nobody, "clicks", spec_of(N, "balanced", None, (), 7), service, timeout=2.0)
        self.forecasts = Forecasts(self.plans, "app/q", TYPES, self.plans.by_hash(TYPES), TrustRules(misses), threshold)
        self.number = 0

    def run(self, hot: int, rows: int = ROWS) -> float:
        """The imbalance that the batch had."""
        found = histogram(hot, rows)
        plan = self.forecasts.next.plan
        if self.forecasts.next.mode == "same":
            plan = self.forecasts.count(found, self.number)
        ran = BatchRun(self.number, plan, BatchSample(rows, rows, found))
        self.forecasts.learn(lambda: ran)
        assert self.forecasts.settle(30.0)
        self.number += 1
        return load_imbalance(plan.loads(found))

    def close(self) -> None:
        self.forecasts.close()
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


def test_a_change_is_met_one_batch_after_it_shows(batches: Batches) -> None:
    before = [batches.run(1) for _ in range(6)]
    changed = [batches.run(2) for _ in range(3)]

    assert max(before[1:]) < 1.05
    assert changed[0] > 1.5
    assert max(changed[1:]) < 1.05, "the batches before the change are forgotten"


def test_a_stream_that_changes_with_every_batch_is_counted_first_and_trusted_again(batches: Batches) -> None:
    modes = []
    for hot in (1, 2, 3, 4, 5, 5, 5, 5, 5):
        batches.run(hot)
        modes.append(batches.forecasts.next.mode)

    assert "same" in modes[:5]
    assert modes[-1] == "previous"
    assert batches.run(5) < 1.05


def test_where_even_counted_batches_miss_rows_go_by_hash_until_plans_are_right() -> None:
    batches = Batches(None)
    try:
        wrong = make_planner("balanced", N).plan(histogram(99))
        for number in range(4):  # what was counted is not what came
            found = histogram(number)
            by = wrong if number < 4 else batches.forecasts.next.plan
            ran = BatchRun(number, by, BatchSample(ROWS, ROWS, found))
            batches.forecasts.learn(lambda ran=ran: ran)  # type: ignore[misc]
            assert batches.forecasts.settle(30.0)
        assert batches.forecasts.next.mode == "hash"
        assert batches.forecasts.next.plan.info.policy == "hash"
        for _ in range(3):
            batches.run(7)
        assert batches.forecasts.next.mode == "previous"
    finally:
        batches.close()


def test_a_query_on_hash_follows_another_one_s_number_of_partitions_and_is_judged_on() -> None:
    batches = Batches(None)
    try:
        wrong = make_planner("balanced", N).plan(histogram(99))
        for number in range(4):
            ran = BatchRun(number, wrong, BatchSample(ROWS, ROWS, histogram(number)))
            batches.forecasts.learn(lambda ran=ran: ran)  # type: ignore[misc]
            assert batches.forecasts.settle(30.0)
        assert batches.forecasts.next.mode == "hash"
        batches.plans.resize(N + 4)
        for _ in range(5):
            batches.run(7)
        assert batches.forecasts.next.plan.partitions == N + 4
        assert batches.forecasts.next.mode == "previous"
    finally:
        batches.close()


def test_settling_after_the_end_is_told_and_does_not_raise() -> None:
    """Of what was given up; and of what is not done in time."""
    batches, go = Batches(None), threading.Event()
    batches.forecasts.learn(lambda: go.wait(30.0) and None)  # type: ignore[arg-type,return-value]
    assert batches.forecasts.settle(0.05) is False
    batches.forecasts.rescale(lambda: 0)
    batches.close()
    go.set()
    assert batches.forecasts.settle(30.0)


def test_a_small_batch_is_not_planned_from() -> None:
    batches = Batches(None, threshold=10_000)
    try:
        batches.run(1, rows=9_000)
        assert batches.forecasts.next.plan.info.rows == 0, "still the first one"
        batches.run(1, rows=10_000)
        assert batches.forecasts.next.plan.info.rows == 10_000
    finally:
        batches.close()


def test_a_service_that_goes_and_comes_back_costs_plans_nothing() -> None:
    with testing.embedded() as first:
        batches = Batches(first.target)
        batches.run(1)
        named = batches.forecasts.next.plan.version
    try:
        assert named.incarnation, "made by the service"
        assert batches.run(1) < 1.05, "the last plan of a service that is gone"
        assert batches.run(2) > 1.5
        assert batches.run(2) < 1.05, "made here"
    finally:
        batches.close()


def test_what_goes_wrong_in_the_thread_leaves_the_plan(caplog: pytest.LogCaptureFixture) -> None:
    batches = Batches(None)
    try:
        batches.run(1)
        plan = batches.forecasts.next.plan

        def broken() -> BatchRun:
            raise ZeroDivisionError("of a test")

        batches.forecasts.learn(broken)
        with pytest.raises(ZeroDivisionError):
            batches.forecasts.settle(30.0)
        assert "fault of unskew" in caplog.text
        assert batches.forecasts.next.plan == plan
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
            elastic.plans.resize(N)
            elastic.run(1)
            assert elastic.forecasts.next.plan.version.incarnation, "made by the service"
            assert client.get_stream("clicks").spec.partitions == N
        finally:
            elastic.close()


def test_where_planning_is_slower_than_the_batches_those_between_are_passed_over(batches: Batches) -> None:
    """The newest one is planned from, whatever has waited before it."""
    gate, seen = threading.Event(), []

    def ran(number: int) -> BatchRun | None:
        assert gate.wait(30.0)
        seen.append(number)
        return None

    for number in range(6):
        batches.forecasts.learn(lambda number=number: ran(number))
        while number == 0 and batches.forecasts._newest is not None:
            time.sleep(0.001)
    gate.set()
    assert batches.forecasts.settle(30.0)
    assert seen == [0, 5]
