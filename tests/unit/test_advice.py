"""Advice says when Spark's own way is as good, when a setting will do, and when a plan pays: one test a regime."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram
from unskew.core.operators.advice import OPERATORS, Advice, Job, states
from unskew.core.operators.advice import advise as advise_by
from unskew.core.operators.job_seconds import costs_of
from unskew.core.operators.spark_shuffle import Coalescing, HeavyKeys
from unskew.core.operators.sql_advice import BYPASS, advise_sql
from unskew.core.planners import make_planner

JOB = Job(partitions=48, slots=16, inputs=16)
KEYS = 20_000
FEW_TASKS = replace(JOB, shuffle_partitions=48)
DEAR = 1e-3  # seconds that a row takes: most of what a job costs


def advise(operator: str, histogram: Histogram, job: Job, row_seconds: float = DEAR) -> Advice:
    return advise_by(operator, histogram, job, costs_of(operator, row_seconds))


def hashes(count: int, seed: int = 3) -> NDArray[np.uint64]:
    return np.unique(np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64))


def zipf(exponent: float, rows: int = 1_000_000, keys: int = KEYS) -> Histogram:
    share = np.arange(1, keys + 1, dtype=float) ** -exponent
    counts = np.maximum(np.random.default_rng(1).permutation(share / share.sum()) * rows, 1).astype(np.int64)
    return Histogram(hashes(keys), counts)


@pytest.mark.parametrize("operator", ["group_apply", "aggregate", "repartition"])
def test_uniform_keys_are_left_to_spark(operator: str) -> None:
    """Fifty rows a key: hashing is even, and a plan only costs."""
    advice = advise(operator, zipf(0.0), JOB)
    assert advice.choice == "spark"
    assert "even enough" in advice.reason
    assert str(advice).startswith("leave it to Spark")


@pytest.mark.parametrize("operator", ["aggregate", "repartition"])
def test_heavy_keys_want_a_plan(operator: str) -> None:
    """At Zipf 1.5 one key has 38 % of the rows; by hash a task has it whole."""
    advice = advise(operator, zipf(1.5), JOB)
    assert advice.choice == "unskew"
    assert advice.by_plan is not None
    assert advice.by_spark is not None
    assert advice.by_spark > 3 * advice.by_plan
    assert advice.by_plan < 1.15
    assert str(advice).startswith(f"use sk.{operator}: by hash it takes")


def test_groups_of_middling_skew_want_a_plan() -> None:
    """At Zipf 1.0 no group is the whole of the work, but hashing joins heavy ones and starts them late."""
    advice = advise("group_apply", zipf(1.0), JOB)
    assert advice.choice == "unskew"
    assert advice.by_plan is not None
    assert advice.by_plan < 1.15


@pytest.mark.parametrize("operator", ["group_apply", "aggregate"])
def test_even_keys_that_spark_merges_into_few_tasks_want_a_setting(operator: str) -> None:
    """4 MB of rows: adaptive execution makes four tasks of them, on sixteen slots. The setting is all that it takes."""
    merging = replace(JOB, coalescing=Coalescing(4 << 20, tasks=16))
    advice = advise(operator, zipf(0.0), merging)
    assert (advice.choice, advice.setting) == ("spark", "spark.sql.adaptive.coalescePartitions.enabled=false")
    assert str(advice).startswith("leave it to Spark, with spark.sql.adaptive.coalescePartitions.enabled=false: ")
    assert advice.spark_seconds is not None
    assert advice.setting_seconds is not None
    assert advice.spark_seconds > 3.0 * advice.setting_seconds
    assert advice.by_spark is not None
    assert advice.by_setting is not None
    assert advice.by_spark > 3.5
    assert advice.by_setting < 1.2
    large = replace(JOB, coalescing=Coalescing(16 << 30, tasks=16))
    assert advise(operator, zipf(0.0), large).setting is None


def test_heavy_keys_want_a_plan_whatever_is_set() -> None:
    """No setting divides a key."""
    merging = replace(JOB, coalescing=Coalescing(4 << 20, tasks=16))
    advice = advise("aggregate", zipf(1.5), merging)
    assert (advice.choice, advice.setting) == ("unskew", None)


def test_more_partitions_may_be_all_that_is_needed() -> None:
    """Four shuffle partitions on sixteen slots."""
    advice = advise("group_apply", zipf(0.0), replace(JOB, shuffle_partitions=4))
    assert (advice.choice, advice.setting) == ("spark", "spark.sql.shuffle.partitions=48")


def test_partitions_are_merged_by_their_bytes() -> None:
    """Neighbours, until the next one would be too much; rows that are dear are as small as others."""
    merging = Coalescing(size=8 << 20, least=1, most=3 << 20, tasks=2)
    assert merging.merged(np.ones(8), np.ones(8)).tolist() == [3, 3, 2]
    assert merging.merged(np.array([5.0, 1, 1, 1]), np.array([5.0, 1, 1, 1])).tolist() == [5, 3]
    assert merging.merged(np.array([90.0, 1, 1, 1]), np.full(4, 2.0)).tolist() == [90, 1, 1, 1]
    assert merging.merged(np.zeros(4), np.zeros(4)).tolist() == [0]


def test_groups_on_a_cluster_with_more_slots_than_a_plan_has_partitions() -> None:
    """Three partitions a slot would be more than there may be."""
    assert advise("group_apply", zipf(1.0), Job(partitions=48, slots=4_000)).by_plan is not None


def test_one_group_that_outlasts_everything_is_said_by_its_share() -> None:
    """Half of the rows in one opaque group: no placement ends before it."""
    counts = np.full(KEYS, 50)
    counts[7] = KEYS * 50
    advice = advise("group_apply", Histogram(hashes(KEYS), counts), JOB)
    assert advice.choice == "spark"
    assert "one group has 50% of the rows" in advice.reason


def test_few_keys_are_better_combined_at_the_input() -> None:
    """Forty keys and a million rows: sixteen splits make 640 states at most, and a plan would move all the rows."""
    counts = np.sort(zipf(1.5, keys=40).counts)[::-1]
    advice = advise("aggregate", Histogram(hashes(40), counts), JOB)
    assert advice.choice == "input"
    assert 'at="input"' in str(advice)
    assert advice.states is not None
    assert not advice.states.plan_pays


def test_few_input_splits_leave_slots_idle() -> None:
    """Two splits on sixteen slots: partial states there would take eight times the least possible."""
    assert advise("aggregate", zipf(1.5, keys=40), Job(48, 16, inputs=2)).choice == "unskew"


def test_combinable_aggregates_are_left_to_spark_however_skewed() -> None:
    advice = advise_sql(1_000_000, FEW_TASKS)
    assert (advice.choice, advice.setting, "before it shuffles" in advice.reason) == ("spark", None, True)


def test_aggregates_that_spark_does_not_combine_want_it_to() -> None:
    """Without partial aggregation every row moves, and a key with 38 % of them is one task's."""
    advice = advise_sql(0, JOB, zipf(1.5, rows=100_000_000))
    assert (advice.choice, advice.setting) == ("spark", f"{BYPASS}=false")
    each_its_own = Histogram(hashes(1_000_000), np.ones(len(hashes(1_000_000)), np.int64))
    assert advise_sql(0, FEW_TASKS, each_its_own).setting is None


def test_many_short_tasks_want_aqe() -> None:
    """Without AQE 2,000 tasks of next to no work take ten seconds of processor time, with it a few do."""
    unmerged = Job(
        partitions=8, slots=4, shuffle_partitions=2_000, unused=("spark.sql.adaptive.enabled", Coalescing(1))
    )
    advice = advise_sql(10_000, unmerged)
    assert advice.setting == "spark.sql.adaptive.enabled=true"
    assert advice.setting_seconds is not None
    assert advice.setting_seconds < 0.5


def test_few_rows_are_left_to_spark() -> None:
    """Unless a row is known to be dear: 4,000 of them take 40 s at 10 ms each."""
    few = zipf(1.5, rows=5_000, keys=50)
    assert "too few" in advise_by("aggregate", few, JOB).reason
    assert advise("repartition", few, JOB, 10e-3).choice == "unskew"


def test_skew_that_costs_less_than_a_plan_is_left_to_spark() -> None:
    """At Zipf 1.5 a task has 38 % of the rows; at half a microsecond each that is less than counting them takes."""
    cheap = advise_by("repartition", zipf(1.5), JOB)
    assert (cheap.choice, "too little work" in cheap.reason) == ("spark", True)
    text = cheap.reason.rpartition("where a row costs ")[2]
    from_seconds = float(text.split()[0]) * 1e-6
    assert advise("repartition", zipf(1.5), JOB, 0.8 * from_seconds).choice == "spark"
    assert advise("repartition", zipf(1.5), JOB, 1.2 * from_seconds).choice == "unskew"


def test_counting_that_takes_long_is_weighed() -> None:
    """What counting has taken is known: a minute of it pays for no plan that saves half a minute."""
    costs = costs_of("repartition", 1e-3)
    assert advise_by("repartition", zipf(1.5), JOB, costs).choice == "unskew"
    assert advise_by("repartition", zipf(1.5), JOB, replace(costs, count=1000.0)).choice == "spark"


def test_heavy_keys_are_where_spark_puts_them() -> None:
    """Four groups on four slots: Spark's own hash, and not ours, says whether two of them meet in a partition."""
    four = Histogram(hashes(4), np.full(4, 25_000))
    apart = HeavyKeys(four.hashes, np.array([0, 1, -2, 3]))
    together = HeavyKeys(four.hashes, np.array([0, 4, 1, 9]))
    job = Job(partitions=4, slots=4, shuffle_partitions=4)
    assert advise("group_apply", four, replace(job, heavy=apart)).by_spark == pytest.approx(1.0, rel=1e-3)
    assert advise("group_apply", four, replace(job, heavy=together)).by_spark == pytest.approx(2.0, rel=1e-3)
    assert advise("group_apply", four, replace(job, heavy=together)).choice == "unskew"


def test_slots_that_share_processors_make_many_tasks_dear() -> None:
    """Eight slots on two cores: starting 400 Python tasks keeps both busy for eight seconds."""
    job = Job(partitions=16, slots=8, shuffle_partitions=400)
    alone, shared = (advise("group_apply", zipf(0.0), one, 1e-6) for one in (job, replace(job, cores=2)))
    assert alone.spark_seconds is not None
    assert shared.spark_seconds is not None
    assert shared.spark_seconds > 8.0
    assert shared.spark_seconds > 2.0 * alone.spark_seconds


def test_advice_explains_its_seconds() -> None:
    """The time of each way, and where the cost of a row comes from."""
    text = advise("repartition", zipf(1.5), JOB).explain()
    assert "Spark as it is set: " in text
    assert "sk.repartition: " in text
    assert "1e+03 us, a task 40 ms (as given)" in text
    assert "give row_seconds=" in advise_by("repartition", zipf(1.5), JOB).explain()


def test_states_are_those_that_chance_gives() -> None:
    """Rows dealt to splits at random: about so many (key, split) pairs; and a plan ships its split keys only."""
    histogram = zipf(1.2, rows=200_000, keys=5_000)
    plan = make_planner("balanced", 48).plan(histogram)
    keys = np.repeat(np.arange(5_000), histogram.counts)
    pairs = np.unique(keys * 16 + np.random.default_rng(2).integers(0, 16, len(keys)))
    found = states(histogram, plan, 16)
    assert found.input_shipped == pytest.approx(len(pairs), rel=0.02)
    assert found.plan_shipped == plan.hot.slots.fragments
    assert found.plan_held == plan.cardinalities(histogram).max()
    assert found.plan_pays
    assert states(histogram, plan, 1).input_shipped == 5_000


def test_what_is_asked_for_must_exist() -> None:
    with pytest.raises(ConfigError, match="operator: 'sort'"):
        advise_by("sort", zipf(0.0), JOB)
    with pytest.raises(ConfigError, match="advise_join, which looks at both sides"):
        advise_by("join", zipf(0.0), JOB)
    with pytest.raises(ConfigError, match="advise_sql, which knows"):
        advise_by("sql", zipf(0.0), JOB)
    with pytest.raises(ConfigError, match="row_seconds: -1"):
        costs_of("sql", -1.0)
    with pytest.raises(ConfigError, match=r"key_seconds: 0\.1 .*None for join"):
        costs_of("join", key_seconds=0.1)
    with pytest.raises(ConfigError, match="slots: 0"):
        Job(8, 0)
    assert set(OPERATORS) == {"group_apply", "aggregate", "join", "repartition", "sql"}
