"""``sk.advise`` on real frames: each regime where something else wins, and each where an operator does."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as sf

from tests.spark.frames import no_job, setting
from unskew.core.errors import ConfigError
from unskew.core.operators.spark_shuffle import Coalescing
from unskew.spark import Unskew
from unskew.spark.operators.advising import job_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

ROWS = 40_000
UNMERGED = partial(setting, spark__sql__adaptive__coalescePartitions__enabled="false")


@pytest.fixture(scope="module")
def sk(spark: SparkSession) -> Unskew:
    return Unskew(spark, stream="advice", partitions=8)


def frame(spark: SparkSession, key: str, splits: int = 2, rows: int = ROWS) -> DataFrame:
    return spark.range(0, rows, 1, splits).selectExpr("id", f"cast({key} as bigint) k")


@pytest.mark.parametrize("operator", ["group_apply", "aggregate", "repartition"])
def test_even_keys_are_left_to_spark(spark: SparkSession, sk: Unskew, operator: str) -> None:
    with UNMERGED(spark):
        advice = sk.advise(frame(spark, "id % 4000"), "k", operator)
    assert (advice.operator, advice.choice, advice.setting) == (operator, "spark", None)
    assert "even enough" in advice.reason


@pytest.mark.parametrize("operator", ["group_apply", "aggregate"])
def test_even_keys_that_spark_merges_into_one_task_want_a_setting(
    spark: SparkSession, sk: Unskew, operator: str
) -> None:
    """Less than a megabyte: adaptive execution makes one task of it, and the other slot idles."""
    advice = sk.advise(frame(spark, "id % 4000"), "k", operator)
    assert (advice.choice, advice.by_spark) == ("spark", 2.0)
    assert advice.setting == "spark.sql.adaptive.coalescePartitions.enabled=false"


@pytest.mark.parametrize("operator", ["aggregate", "repartition"])
def test_a_hot_key_among_many_wants_a_plan(spark: SparkSession, sk: Unskew, operator: str) -> None:
    """Nine rows in ten have one key, and hashing gives it one task."""
    advice = sk.advise(frame(spark, "if(id % 10 < 9, -1, id)"), "k", operator)
    assert advice.choice == "unskew"
    assert advice.by_spark is not None
    assert advice.by_plan is not None
    assert advice.by_spark > 1.5 * advice.by_plan


def test_heavy_groups_that_hashing_puts_together_want_a_plan(spark: SparkSession) -> None:
    """Four groups of a quarter each on two slots: a hash into two partitions is rarely two and two."""
    sk = Unskew(spark, stream="advice", partitions=2)
    with setting(spark, spark__sql__shuffle__partitions="2"):
        three = next(
            base
            for base in range(100)
            if spark.range(base, base + 4).select(sf.sum(sf.pmod(sf.xxhash64("id"), sf.lit(2)))).head()[0] in (0, 4)  # type: ignore[index]
        )
        advice = sk.advise(frame(spark, f"{three} + id % 4"), "k", "group_apply")
    assert advice.choice == "unskew"


def test_one_group_that_outlasts_the_rest_is_said_so(spark: SparkSession, sk: Unskew) -> None:
    with UNMERGED(spark):
        advice = sk.advise(frame(spark, "if(id % 10 < 9, -1, id)"), "k", "group_apply")
    assert advice.choice == "spark"
    assert "one group has 90% of the rows" in advice.reason


def test_few_keys_are_better_combined_at_the_input(spark: SparkSession, sk: Unskew) -> None:
    """Twenty keys in four splits: eighty states at most, where a plan would move every row."""
    advice = sk.advise(frame(spark, "if(id % 10 < 9, -1, id % 20)", splits=4), "k", "aggregate")
    assert advice.choice == "input"
    assert advice.states is not None
    assert advice.states.input_shipped <= 80


def test_sums_and_counts_are_left_to_spark_without_a_job(spark: SparkSession, sk: Unskew) -> None:
    with no_job(spark):
        advice = sk.advise(frame(spark, "0"), "k", "sql")
    assert advice.choice == "spark"
    assert "before it shuffles" in advice.reason


def test_few_rows_are_left_to_spark(spark: SparkSession, sk: Unskew) -> None:
    assert "too few" in sk.advise(frame(spark, "0", rows=500), "k", "aggregate").reason


def test_what_cannot_be_advised_on_is_refused_before_any_job(spark: SparkSession, sk: Unskew) -> None:
    rows = frame(spark, "id")
    with no_job(spark):
        with pytest.raises(ConfigError, match="operator: 'sort'"):
            sk.advise(rows, "k", "sort")
        with pytest.raises(ConfigError, match="key: "):
            sk.advise(rows, "nothing", "aggregate")
        with pytest.raises(ConfigError, match="other: None"):
            sk.advise(rows, "k", "join")
        with pytest.raises(ConfigError, match=r"key: .* names of columns that both sides have"):
            sk.advise(rows, rows["k"], "join", other=rows)


def test_the_run_is_as_the_session_is_set_up(spark: SparkSession) -> None:
    with setting(spark, spark__sql__shuffle__partitions="31"):
        job = job_of(frame(spark, "id", splits=5), 8, 1 << 20)
    assert (job.partitions, job.slots, job.shuffle_partitions, job.inputs) == (8, 2, 31, 5)
    with setting(spark, spark__sql__adaptive__coalescePartitions__initialPartitionNum="10000"):
        most = job_of(frame(spark, "id"), 8, 1 << 20)
    assert (most.shuffle_partitions, most.setting.rpartition(".")[2]) == (8192, "initialPartitionNum")
    assert job.coalescing == Coalescing(1 << 20, 1 << 20, 64 << 20, 2)
    with setting(spark, spark__sql__adaptive__coalescePartitions__enabled="false"):
        assert job_of(frame(spark, "id"), 8, 1 << 20).coalescing is None
