"""Advice says when Spark's own way is as good, and when a plan pays: one test a regime."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram
from unskew.core.operators.advice import OPERATORS, Job, advise, states
from unskew.core.operators.spark_shuffle import Coalescing
from unskew.core.planners import make_planner

JOB = Job(partitions=48, slots=16, inputs=16)
KEYS = 20_000


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
    assert merging.merged(np.array([1, 1, 1, 1, 1, 1, 1, 1])).tolist() == [3, 3, 2]
    assert merging.merged(np.array([5, 1, 1, 1])).tolist() == [5, 3]
    assert merging.merged(np.array([90, 1, 1, 1]), np.array([2, 2, 2, 2])).tolist() == [90, 1, 1, 1]
    assert merging.merged(np.zeros(4, np.int64)).tolist() == [0]


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
    advice = advise("sql", zipf(1.5), JOB)
    assert (advice.choice, "before it shuffles" in advice.reason) == ("spark", True)


def test_few_rows_are_left_to_spark() -> None:
    assert "too few" in advise("aggregate", zipf(1.5, rows=5_000, keys=50), JOB).reason


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
        advise("sort", zipf(0.0), JOB)
    with pytest.raises(ConfigError, match="advise_join, which looks at both sides"):
        advise("join", zipf(0.0), JOB)
    with pytest.raises(ConfigError, match="slots: 0"):
        Job(8, 0)
    assert set(OPERATORS) == {"group_apply", "aggregate", "join", "repartition", "sql"}
