"""``repartition`` puts rows where the plan says, in one native shuffle; and tells when something undid it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from tests.spark.frames import as_spark_4_0, hashes_in, no_job, plan_over, python_workers, setting, shuffles
from unskew.core.errors import ConfigError
from unskew.core.plan.plan import Plan
from unskew.spark import Unskew, dropped_exchange
from unskew.spark.place.repartition import repartition, routed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

WAYS = [pytest.param(False, id="as this Spark has it"), pytest.param(True, id="pre-image")]


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.range(0, 20_000, 1, 3).selectExpr(
        "id", "cast(floor(exp(pmod(hash(id), 1000) / 1000 * ln(300))) as bigint) k", "concat('w', id % 50) w"
    )


@pytest.fixture(scope="module")
def plan(rows: DataFrame) -> Plan:
    made = plan_over(hashes_in(rows.select(F.xxhash64("k").alias("h")).toArrow(), "h"), "prompt", 7)
    assert made.splits
    return made


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize("older", WAYS)
def test_rows_land_where_the_plan_puts_them(
    spark: SparkSession, rows: DataFrame, plan: Plan, older: bool, adaptive: str
) -> None:
    """Every row, both ways, AQE on and off; one exchange, no Python worker, all partitions there."""
    with as_spark_4_0(older=older), setting(spark, spark__sql__adaptive__enabled=adaptive):
        placed = repartition(rows, plan, "k", "id")
        there = placed.select(F.spark_partition_id().alias("there"), routed(rows, plan, "k", "id").alias("planned"))
        found = there.groupBy("there", "planned").count().collect()
        assert placed.rdd.getNumPartitions() == plan.partitions
        assert len(shuffles(placed)) == 1
        assert python_workers(placed) == []
        assert dropped_exchange(placed, plan) is None
    assert {row.there for row in found} == set(range(7))
    assert all(row.there == row.planned for row in found)
    assert sum(row["count"] for row in found) == 20_000


@pytest.mark.parametrize("older", WAYS)
def test_what_groups_by_the_column_and_the_key_shuffles_no_more(
    spark: SparkSession, rows: DataFrame, plan: Plan, older: bool
) -> None:
    """``column=`` is what the exchange is by, so Spark knows that the groups are together."""
    with as_spark_4_0(older=older):
        placed = repartition(rows, plan, "k", "id", column="at.p")
    counted = placed.groupBy("`at.p`", "k").count()
    with setting(spark, spark__sql__adaptive__enabled="true"):
        assert len(shuffles(counted)) == 1
        assert dropped_exchange(counted, plan) is None
    assert counted.agg(F.sum("count")).head()[0] == 20_000
    assert "shuffled again" in str(dropped_exchange(placed.groupBy("k").count(), plan))


def test_what_undoes_the_placement_is_told(spark: SparkSession, rows: DataFrame, plan: Plan) -> None:
    """Another repartition, a coalesce, a shuffle on top; and nothing where the rows stay."""
    placed = repartition(rows, plan, "k", "id")
    assert "no exchange by plan" in str(dropped_exchange(placed.repartition(8), plan))
    assert "no exchange by plan" in str(dropped_exchange(rows, plan))
    assert "joined or cut" in str(dropped_exchange(placed.coalesce(2), plan))
    assert "shuffled again" in str(dropped_exchange(placed.groupBy("w").count(), plan))
    assert "no exchange by plan" in str(dropped_exchange(repartition(rows, plan, "k", column="p").repartition(8), plan))
    assert dropped_exchange(placed.where("k > 3").withColumn("x", F.lit(1)), plan) is None
    other = plan_over(hashes_in(rows.select(F.xxhash64("k").alias("h")).toArrow(), "h"), "prompt", 5)
    assert "no exchange by plan" in str(dropped_exchange(placed, other))


def test_of_a_frame_that_ran_the_final_plan_is_read(spark: SparkSession, rows: DataFrame, plan: Plan) -> None:
    """AQE leaves the exchange and its number of partitions alone."""
    with setting(spark, spark__sql__adaptive__enabled="true"):
        placed = repartition(rows, plan, "k", "id")
        placed.collect()
        assert dropped_exchange(placed, plan) is None
        assert len(shuffles(placed)) == 1


def test_identical_rows_stay_together_and_are_all_there(spark: SparkSession, plan: Plan) -> None:
    """Exact even where the spread tells nothing: same multiset in and out."""
    words = spark.range(5_000).selectExpr("1L k")
    assert repartition(words, plan, "k").count() == 5_000


def test_bad_use_is_refused_before_any_job(spark: SparkSession, rows: DataFrame, plan: Plan) -> None:
    """A missing column, a column that is there already, a plan for another number of partitions."""
    session = Unskew(spark, stream="s", partitions=8)
    with no_job(spark):
        with pytest.raises(ConfigError, match=r"key: 'user' is not allowed; use columns of the frame, id, k, w"):
            repartition(rows, plan, "user")
        with pytest.raises(ConfigError, match="spread: 'event'"):
            repartition(rows, plan, "k", "event")
        for taken in ("w", "W"):
            with pytest.raises(ConfigError, match=f"column: '{taken}'"):
                repartition(rows, plan, "k", column=taken)
        with pytest.raises(ValueError, match="the plan is for 7 partitions and this session for 8"):
            session.repartition(rows, "k", plan)
        with pytest.raises(ConfigError, match="column: 'w'"):
            session.repartition(rows, "k", column="w")
