"""``sk.advise`` on real frames: each regime where something else wins, and each where an operator does."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as sf

from tests.doses import some_of
from tests.spark.frames import no_job, setting
from unskew.core.errors import ConfigError
from unskew.core.operators.join_advice import SkewJoin
from unskew.core.operators.spark_shuffle import Coalescing
from unskew.spark import Unskew
from unskew.spark.frame.jvm import spark_version
from unskew.spark.operators.advising import job_of, skew_join_of
from unskew.spark.operators.joins import Join

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

ROWS = 40_000
DEAR = 1e-3  # seconds a row: what the tests below are about would else cost less than counting
UNMERGED = partial(setting, spark__sql__adaptive__coalescePartitions__enabled="false")


@pytest.fixture(scope="module")
def sk(spark: SparkSession) -> Unskew:
    return Unskew(spark, stream="advice", partitions=8)


def frame(spark: SparkSession, key: str, splits: int = 2, rows: int = ROWS) -> DataFrame:
    return spark.range(0, rows, 1, splits).selectExpr("id", f"cast({key} as bigint) k")


@pytest.mark.parametrize("operator", some_of(["group_apply", "aggregate", "repartition"], "repartition"))
def test_even_keys_are_left_to_spark(spark: SparkSession, sk: Unskew, operator: str) -> None:
    with UNMERGED(spark):
        advice = sk.advise(frame(spark, "id % 4000"), "k", operator, row_seconds=DEAR)
    assert (advice.operator, advice.choice, advice.setting) == (operator, "spark", None)
    assert "even enough" in advice.reason


@pytest.mark.parametrize("operator", some_of(["group_apply", "aggregate"], "group_apply"))
def test_even_keys_that_spark_merges_into_one_task_want_a_setting(
    spark: SparkSession, sk: Unskew, operator: str
) -> None:
    """Less than a megabyte: adaptive execution makes one task of it, and the other slot idles."""
    advice = sk.advise(frame(spark, "id % 4000"), "k", operator, row_seconds=DEAR)
    assert (advice.choice, advice.by_spark) == ("spark", pytest.approx(2.0))
    assert advice.setting is not None
    assert advice.setting.startswith("spark.sql.adaptive.coalescePartitions.")


@pytest.mark.parametrize("operator", some_of(["aggregate", "repartition"], "aggregate"))
def test_a_hot_key_among_many_wants_a_plan(spark: SparkSession, sk: Unskew, operator: str) -> None:
    """Nine rows in ten have one key, and hashing gives it one task."""
    advice = sk.advise(frame(spark, "if(id % 10 < 9, -1, id)"), "k", operator, row_seconds=DEAR)
    assert advice.choice == "unskew"
    assert advice.by_spark is not None
    assert advice.by_plan is not None
    assert advice.by_spark > 1.5 * advice.by_plan


def test_heavy_groups_that_hashing_puts_together_want_a_plan(spark: SparkSession) -> None:
    """Four groups of a quarter each on two slots: a hash into two partitions is rarely two and two."""
    sk = Unskew(spark, stream="advice", partitions=2)
    with setting(spark, spark__sql__shuffle__partitions="2"):
        together = next(
            base
            for base in range(100)
            if spark.range(base, base + 4).select(sf.sum(sf.pmod(sf.hash("id"), sf.lit(2)))).head()[0] in (0, 4)  # type: ignore[index]
        )
        advice = sk.advise(frame(spark, f"{together} + id % 4"), "k", "group_apply", row_seconds=DEAR)
    assert advice.choice == "unskew"
    assert advice.by_spark == pytest.approx(2.0, rel=0.01)


def test_one_group_that_outlasts_the_rest_is_said_so(spark: SparkSession, sk: Unskew) -> None:
    with UNMERGED(spark):
        advice = sk.advise(frame(spark, "if(id % 10 < 9, -1, id)"), "k", "group_apply", row_seconds=DEAR)
    assert advice.choice == "spark"
    assert "one group has 90% of the rows" in advice.reason


def test_few_keys_are_better_combined_at_the_input(spark: SparkSession, sk: Unskew) -> None:
    """Twenty keys in four splits: eighty states at most, where a plan would move every row."""
    advice = sk.advise(frame(spark, "if(id % 10 < 9, -1, id % 20)", splits=4), "k", "aggregate", row_seconds=DEAR)
    assert advice.choice == "input"
    assert advice.states is not None
    assert advice.states.input_shipped <= 80


def test_sums_and_counts_are_left_to_spark_without_a_job(spark: SparkSession, sk: Unskew) -> None:
    with no_job(spark):
        advice = sk.advise(frame(spark, "0"), "k", "sql")
    assert advice.choice == "spark"
    assert "before it shuffles" in advice.reason


def test_sums_that_spark_does_not_combine_want_it_to(spark: SparkSession, sk: Unskew) -> None:
    """Spark 4.3 can be set to move every row: nine in ten of these to one task."""
    rows = frame(spark, "if(id % 10 < 9, -1, id)", rows=1_000_000)
    with setting(spark, spark__sql__execution__bypassPartialAggregation="true"):
        advice = sk.advise(rows, "k", "sql")
    if spark_version(rows) >= (4, 3):
        assert advice.setting == "spark.sql.execution.bypassPartialAggregation=false"
    else:
        assert advice.setting is None


def test_a_join_that_keeps_rows_with_null_keys_wants_them_spread(spark: SparkSession, sk: Unskew) -> None:
    """Nine rows in ten have no key and are kept: Spark puts them into one partition, and from 4.3 on spreads them if it
    is set to."""
    left = frame(spark, "if(id % 10 < 9, null, id)")
    unbroadcast = setting(spark, spark__sql__autoBroadcastJoinThreshold="-1", spark__sql__adaptive__enabled="false")
    with unbroadcast:
        advice = sk.advise(left, "k", "join", other=frame(spark, "id"), how="left", row_seconds=DEAR)
    if spark_version(left) >= (4, 3):
        assert advice.setting == "spark.sql.shuffle.spreadNullJoinKeys.enabled=true"
    else:
        assert advice.choice == "unskew"


def test_few_rows_are_left_to_spark(spark: SparkSession, sk: Unskew) -> None:
    assert "too few" in sk.advise(frame(spark, "0", rows=500), "k", "aggregate").reason


def test_what_cannot_be_advised_on_is_refused_before_any_job(spark: SparkSession, sk: Unskew) -> None:
    rows = frame(spark, "id")
    with no_job(spark):
        with pytest.raises(ConfigError, match="operator: 'sort'"):
            sk.advise(rows, "k", "sort")
        with pytest.raises(ConfigError, match="key: "):
            sk.advise(rows, "nothing", "aggregate")
        with pytest.raises(ConfigError, match="row_seconds: -1"):
            sk.advise(rows, "k", "aggregate", row_seconds=-1.0)
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
    assert job.unused is None
    with setting(spark, spark__sql__adaptive__coalescePartitions__enabled="false"):
        off = job_of(frame(spark, "id"), 8, 1 << 20)
    assert off.coalescing is None
    assert off.unused == ("spark.sql.adaptive.coalescePartitions.enabled", job.coalescing)


def test_the_skew_join_is_as_the_session_is_set_up(spark: SparkSession) -> None:
    """Of the sides that this kind of join may divide; no job."""
    rows, sizes = frame(spark, "id"), {"left": 1 << 20, "right": 1 << 10}
    threshold = "spark__sql__adaptive__skewJoin__skewedPartitionThresholdInBytes"
    with no_job(spark), setting(spark, **{threshold: "1k"}):
        kept = skew_join_of(Join.of(rows, rows, "k", "left", partitions=4), sizes)
        assert kept == SkewJoin({"left": 1 << 20}, threshold=1024)
        full = skew_join_of(Join.of(rows, rows, "k", "full", partitions=4), sizes)
        assert full == SkewJoin({}, threshold=1024)
        inner = Join.of(rows, rows, "k", partitions=4)
        with setting(spark, spark__sql__adaptive__skewJoin__enabled="false"):
            assert skew_join_of(inner, sizes) == SkewJoin(sizes, enabled=False, threshold=1024)
        with setting(spark, spark__sql__adaptive__enabled="false"):
            assert skew_join_of(inner, sizes) is None
