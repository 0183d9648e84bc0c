"""Which way the next batch goes: scores of the batches so far, the plans of each way, and what they cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from unskew.core.errors import ConfigError
from unskew.core.freshness.batch_price import BatchPrice, CountingTime, FlightTime
from unskew.core.freshness.stream_planner import StreamPlanner
from unskew.core.freshness.way_scores import WayScores
from unskew.core.freshness.ways import Ways
from unskew.core.histogram.histogram import Histogram
from unskew.core.planners import make_planner
from unskew.core.planners.plan_cost import PlanCost, chance_excess
from unskew.core.quality.measures import LinearCost
from unskew.core.stream_spec import StreamSpec
from unskew.simulate.key_streams import zipf_keys

N = 16


def histogram_of(hot: int, rows: int = 20_000, exponent: float = 1.5) -> Histogram:
    """Zipf, with other keys for each ``hot``; another draw for each call would be another seed."""
    keys = zipf_keys(np.random.default_rng(hot), rows, 50_000, exponent).astype(np.uint64)
    return Histogram.from_hashes((keys + np.uint64(1_000_003 * hot)) * np.uint64(0x9E3779B97F4A7C15))


def ways(policy: str = "auto", **parameters: object) -> Ways:
    return Ways(StreamPlanner("clicks", StreamSpec(N, policy, parameters)))


def follow(machine: Ways, histograms: list[Histogram]) -> list[str]:
    """The way of each batch."""
    taken = []
    for number, histogram in enumerate(histograms):
        taken.append(machine.next.way)
        machine.score(histogram, number)
        machine.plan_ahead(number)
    return taken


def test_the_way_with_the_least_decayed_sum_is_named_with_the_runner_up() -> None:
    scores = WayScores(decay=0.5).after({"hash": 1.0, "same": 4.0}).after({"hash": 4.0, "same": 1.0})
    choice = scores.choice()
    assert (choice.way, choice.runner_up) == ("same", "hash")
    assert choice.reason == "same would have cost 2 a batch over the last 2 batches, hash 3"


def test_equal_costs_rank_in_the_order_of_the_ways() -> None:
    assert WayScores().after({"hash": 1.0, "previous": 1.0}).choice().way == "hash"
    assert WayScores().after({"only": 1.0}).choice().runner_up == "only"


def test_a_way_that_can_be_scored_for_the_first_time_begins_the_sums_anew() -> None:
    """Sums over unlike numbers of batches are not to be compared."""
    scores = WayScores().after({"hash": 100.0}).after({"hash": 1.0, "same": 2.0})
    assert (scores.batches, scores.choice().way) == (1, "hash")


def test_without_a_batch_there_is_no_choice_and_a_decay_is_a_share() -> None:
    with pytest.raises(ConfigError, match="call after"):
        WayScores().choice()
    with pytest.raises(ConfigError, match="up to 1"):
        WayScores(decay=0.0)


def test_the_first_batch_is_counted_and_a_calm_stream_then_goes_by_the_batches_before() -> None:
    taken = follow(ways(), [histogram_of(1)] * 20)
    assert taken[:2] == ["same", "same"], "no other way has been scored"
    assert set(taken[-5:]) <= {"previous", "last"}


def test_a_change_that_has_not_come_yet_is_expected_the_less_the_longer_it_does_not_come() -> None:
    """A young stream is counted where a change would be dear: its first one then costs nothing."""
    machine = ways()
    follow(machine, [histogram_of(1)] * 3)
    assert machine.next.way == "same"
    mild = ways()
    follow(mild, [histogram_of(1, exponent=0.9)] * 3)
    assert mild.next.way in ("previous", "last"), "a change would cost little more than a count"


def test_a_stream_with_other_keys_in_every_batch_is_counted_throughout() -> None:
    assert set(follow(ways(), [histogram_of(hot) for hot in range(6)])) == {"same"}


def test_an_even_stream_of_few_rows_stays_on_plain_hash_and_no_plan_is_made() -> None:
    """156 rows a partition: what the fullest has too many is chance, and the next batch's is another one."""
    machine = Ways(StreamPlanner("clicks", StreamSpec(64)))
    batches = [histogram_of(hot, 10_000, exponent=0.0) for hot in range(8)]
    assert follow(machine, batches)[1:] == ["hash"] * 7
    assert {plan.digest for plan in machine.plans.values()} == {machine.plans["hash"].digest}
    assert len(machine.plan_counted(batches[0], 8).hot) == 0


@pytest.mark.parametrize("fresh", ["previous", "same"])
def test_a_user_who_names_the_freshness_gets_no_other(fresh: str) -> None:
    machine = Ways(StreamPlanner("clicks", StreamSpec(N)), fresh)  # type: ignore[arg-type]
    taken = follow(machine, [histogram_of(hot) for hot in range(6)])
    assert ("same" in taken) == (fresh == "same")
    assert len(set(taken)) == 1 or fresh == "previous"


def test_a_service_s_plan_stands_for_the_one_from_the_record() -> None:
    machine, histogram = ways(), histogram_of(1)
    given = make_planner("balanced", N).plan(histogram)
    machine.score(histogram, 0)
    machine.plan_ahead(0, given)
    assert machine.plans["previous"] is given


def test_another_number_of_partitions_keeps_the_record_and_drops_the_plans() -> None:
    machine, histogram = ways(), histogram_of(1)
    follow(machine, [histogram] * 3)
    machine.plan_by(StreamPlanner("clicks", StreamSpec(N + 8)))
    assert {plan.partitions for plan in machine.plans.values()} == {N + 8}
    assert len(machine.record.batches) == 3
    machine.plan_ahead(3)
    assert machine.plans["previous"].partitions == N + 8


def test_a_plan_of_a_service_for_another_number_of_partitions_is_not_taken() -> None:
    machine, histogram = ways(), histogram_of(1)
    machine.score(histogram, 0)
    machine.plan_ahead(0, make_planner("balanced", N + 1).plan(histogram))
    assert machine.plans["previous"].partitions == N


def test_sums_begin_anew_where_the_currency_changes() -> None:
    """Shares of a batch and seconds are not to be added up."""
    machine, histogram = ways(), histogram_of(1)
    machine.score(histogram, 0)
    machine.plan_ahead(0)
    machine.score(histogram, 1, BatchPrice(1e-6, 0.1, timed=True))
    assert "over the last batch" in machine.next.reason


def test_a_batch_is_scored_by_the_plans_that_were_there_when_it_began() -> None:
    """Planning may be later than the next trigger: newer plans say nothing of what the batch could have had."""
    late, prompt = ways(), ways()
    for machine in (late, prompt):
        follow(machine, [histogram_of(1)] * 2)
    there = dict(late.plans)
    late.plan_ahead(1, make_planner("balanced", N).plan(histogram_of(2)))
    late.score(histogram_of(2), 2, plans=there)
    prompt.score(histogram_of(2), 2)
    assert late.next == prompt.next


def test_a_query_on_plain_hash_counts_nothing() -> None:
    assert set(follow(ways("hash"), [histogram_of(1)] * 3)) == {"previous"}


@pytest.mark.parametrize("policy", ["auto", "balanced", "kip"])
def test_a_machine_goes_on_where_another_one_ended(policy: str) -> None:
    """Whether one machine lives through all batches or each batch has another one, the choices are the same."""
    batches = [histogram_of(hot) for hot in (1, 1, 1, 2, 3, 3, 3)]
    whole, part = ways(policy), ways(policy)
    for number, histogram in enumerate(batches):
        for machine in (whole, part):
            machine.score(histogram, number)
            machine.plan_ahead(number)
        assert part.next == whole.next
        assert {way: plan.digest for way, plan in part.plans.items()} == {
            way: plan.digest for way, plan in whole.plans.items()
        }
        part = Ways(part.planner, state=part.state)


def test_a_machine_that_goes_on_with_other_partitions_has_no_plans_of_before() -> None:
    machine = ways()
    follow(machine, [histogram_of(1)] * 3)
    resized = Ways(StreamPlanner("clicks", StreamSpec(N + 8)), state=machine.state)
    assert set(resized.plans) == {"hash"}
    resized.plan_ahead(2)
    resized.score(histogram_of(1), 3)
    assert "the last 3 batches" in resized.next.reason, "those in which all ways could be scored"


def test_the_plan_of_the_last_batch_is_the_one_that_was_made_to_score_counting() -> None:
    """It is made once."""
    machine = ways()
    follow(machine, [histogram_of(1), histogram_of(2)])
    assert machine.plans["last"] is machine.counted


# -- seconds


def test_counting_costs_its_seconds_a_row_less_the_read_that_it_saves() -> None:
    """A source that is dear to read is read once either way: the rows of a counted batch are persisted."""
    times = CountingTime()
    assert times.seconds(1_000, default=0.3) == 0.3
    times = times.after(1_000, 0.2, 5.0)
    assert times.seconds(1_000, default=0.3) == pytest.approx(5.0), "no other batch was read yet"
    read = times.after(1_000, 4.0, None)
    assert read.seconds(2_000, default=0.3) == pytest.approx(0.85 * 2.4 + 0.15 * 0.3)


def test_a_slow_first_count_is_not_held_against_counting() -> None:
    """The last one or the median, whichever is less; and the longer none was, the less they say."""
    times = CountingTime().after(1_000, 0.0, 3.0).after(1_000, 0.0, 3.0).after(1_000, 0.0, 0.1)
    assert times.seconds(1_000, default=0.2) == pytest.approx(0.1)
    assert times.after(1_000, 0.0, 0.5).seconds(1_000, default=0.2) == pytest.approx(0.5)
    dear = CountingTime().after(1_000, 0.0, 3.0)
    for _ in range(30):
        dear = dear.after(1_000, 0.0, None)
    assert dear.seconds(1_000, default=0.2) < 0.23


def test_rows_are_persisted_or_read_again_by_what_was_the_quicker() -> None:
    """Each is tried twice, a slow first time is not held against it; then the quicker, the other now and then."""

    def follow(costs: dict[bool, float], batches: int) -> list[bool]:
        times, ways = CountingTime().after(1_000, 0.0, 9.0, persisted=True), [True]
        for _ in range(batches - 1):
            ways.append(times.persists)
            times = times.after(1_000, 0.1, costs[ways[-1]], persisted=ways[-1])
        return ways

    assert follow({True: 0.2, False: 0.5}, 10) == [True, False, False, True, *[True] * 6]
    again = follow({True: 0.5, False: 0.2}, 40)
    assert again[:4] == [True, False, False, True]
    assert [at for at, persisted in enumerate(again) if persisted and at > 3] == [32]


def test_where_rows_cannot_be_read_again_counting_costs_what_it_costs_persisted() -> None:
    times = CountingTime().after(1_000, 0.0, 0.4).after(1_000, 0.0, 0.4).after(1_000, 0.0, 0.4)
    assert not times.persists, "it may be asked for, and persisted all the same"
    assert times.seconds(1_000, default=9.0) == pytest.approx(0.4)


# -- the cost of a plan


def test_a_batch_costs_its_slowest_partition_and_its_cuts() -> None:
    """By hand: key 1 has six rows in two halves, keys 2 and 3 one row each."""
    rows = Histogram.from_counts(np.array([1 << 61, 3 << 61, 5 << 61], np.uint64), [6, 1, 1])
    cost = PlanCost.of(make_planner("balanced", 2).algorithm.common, LinearCost(1.0, 1.0, 2.0))
    plan = make_planner("balanced", 2).plan(rows)
    keys = plan.cardinalities(rows)
    slowest = int((plan.loads(rows) + keys).max())
    assert cost.batch(plan, rows) == slowest + 2.0 * (int(keys.sum()) - 3) / 2
    assert cost.even(rows) == (8 + 3) / 2


def test_with_fewer_slots_than_partitions_the_last_wave_counts() -> None:
    rows = histogram_of(1, exponent=0.0)
    plan, cost = make_planner("hash", N).plan(rows), PlanCost.of(make_planner("hash", N).algorithm.common)
    waves = replace(cost, slots=N // 4)
    assert waves.batch(plan, rows) > 3 * cost.batch(plan, rows)
    assert waves.even(rows) == 4 * cost.even(rows)
    assert waves.share(plan, rows) < cost.share(plan, rows)


def test_chance_is_what_an_even_draw_has_above_the_mean() -> None:
    """The bound holds in the mean over many draws, and is not far off."""
    rng = np.random.default_rng(3)
    worst = [rng.multinomial(10_000, np.full(64, 1 / 64)).max() * 64 / 10_000 - 1.0 for _ in range(200)]
    assert 0.75 * chance_excess(10_000, 64) < float(np.mean(worst)) <= chance_excess(10_000, 64)
    assert chance_excess(0, 64) == chance_excess(100, 1) == 0.0


# -- in flight -------------------------------------------------------------------------------------------------


def flying(machine: Ways, batches: int, flight: float, *, flies: bool = True) -> list[str]:
    """The way of each batch of a stream with other keys in each, counting at a tenth of an even share."""
    taken = []
    for number in range(batches):
        taken.append(machine.next.way)
        histogram = histogram_of(number)
        price = BatchPrice(1.0 / machine.cost.even(histogram), 0.1, flight=flight)
        machine.score(histogram, number, price, flies=flies)
        machine.plan_ahead(number)
    return taken


def test_a_batch_goes_in_flight_where_that_is_cheaper_than_a_count_and_can_be_had() -> None:
    assert flying(ways(), 4, 0.05) == ["same", "inflight", "inflight", "inflight"]
    assert set(flying(ways(), 4, 0.2)) == {"same"}
    assert set(flying(ways(), 4, 0.05, flies=False)) == {"same"}


def test_every_batch_goes_in_flight_where_the_user_says_so_and_by_plain_hash_with_that_policy() -> None:
    assert set(flying(Ways(StreamPlanner("clicks", StreamSpec(N)), "inflight"), 4, 9.0)) == {"inflight"}
    assert set(flying(Ways(StreamPlanner("clicks", StreamSpec(N, "hash")), "inflight"), 4, 0.0)) == {"previous"}


def test_what_a_flight_takes_on_top_is_measured_and_fades() -> None:
    """By default a few percent of an even share and a start, which makes it the worst way for tiny batches."""
    unknown = FlightTime()
    assert unknown.seconds(1_000, 0.01, 1e-6) > 0.1
    assert unknown.after(0, 5.0) is unknown
    known = unknown.after(1_000, 3.0).after(1_000, 1.5)
    assert known.seconds(1_000, 100.0, 1e-3) == pytest.approx(0.5)
    assert known.seconds(2_000, 100.0, 1e-3) == pytest.approx(1.0)
    assert known.seconds(1_000, 100.0, 9.0) == 0.0, "reading it takes as long anyway"
    for _ in range(60):
        known = known.after(1_000, None)
    assert known.seconds(1_000, 100.0, 1e-3) == pytest.approx(unknown.seconds(1_000, 100.0, 1e-3), rel=0.01)


def test_a_count_fades_while_batches_go_in_flight_and_what_reading_took_stays() -> None:
    counting = CountingTime().after(1_000, 1.0, 2.0)
    assert (counting.older.reading, counting.older.age) == (1e-3, 1)
    assert counting.older.seconds(1_000, 0.0) == pytest.approx(0.85 * counting.seconds(1_000, 0.0))
