"""Which columns are the same when a task runs again: what the spread hash may be of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from tests.spark.frames import no_job, plan_over, setting
from unskew.core import hash_keys
from unskew.core.errors import ConfigError, PlanError
from unskew.spark import Unskew
from unskew.spark.frame.keys import spread_of
from unskew.spark.frame.lineage import DRAWN, ORDERED, SAME, unsteady

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.range(10).selectExpr("id", "id % 3 k", "id * 1.5d x")


def levels(df: DataFrame) -> dict[str, int]:
    found = unsteady(df)
    assert found is not None
    return dict(zip(df.columns, found, strict=True))


def test_what_is_drawn_stays_drawn_whatever_is_made_of_it(spark: SparkSession, rows: DataFrame) -> None:
    """Through expressions, filters, unions, generators, distinct, joins and common table expressions; and only that."""
    drawn = rows.withColumn("r", F.rand())
    assert levels(drawn) == {"id": SAME, "k": SAME, "x": SAME, "r": DRAWN}
    derived = drawn.withColumn("q", F.concat("k", F.col("r") * 2)).where("q > '0'").drop("r")
    assert levels(derived.distinct()) == {"id": SAME, "k": SAME, "x": SAME, "q": DRAWN}
    assert levels(rows.union(rows.withColumn("x", F.rand()))) == {"id": SAME, "k": SAME, "x": DRAWN}
    assert levels(rows.withColumn("e", F.explode(F.array(F.rand()))))["e"] == DRAWN
    assert levels(rows.withColumn("m", F.monotonically_increasing_id()).cache())["m"] == DRAWN
    assert levels(rows.join(drawn.select("id", "r"), "id"))["r"] == DRAWN
    named = spark.sql("with a as (select id, rand() r from range(5)) select a.id, b.r q from a join a b on a.id = b.id")
    assert levels(named) == {"id": SAME, "q": DRAWN}
    assert set(levels(rows.where(F.rand() > 0.5)).values()) == {SAME}


def test_what_depends_on_the_order_of_rows_is_told(rows: DataFrame) -> None:
    """Any one of several rows, sums of fractions, what a window numbers; not counts, extremes and sums of integers."""
    grouped = rows.groupBy("k").agg(
        F.count("*").alias("n"), F.max("x").alias("most"), (F.sum("id") + 1).alias("ids"), F.first("id").alias("one"),
        F.collect_list("id").alias("all"), F.sum("x").alias("rounded"), F.avg("id").alias("mean"),
    )  # fmt: skip
    assert [name for name, level in levels(grouped).items() if level == ORDERED] == ["one", "all", "rounded", "mean"]
    assert levels(rows.dropDuplicates(["k"])) == {"id": ORDERED, "k": SAME, "x": ORDERED}
    ranked = rows.withColumn("rank", F.row_number().over(Window.partitionBy("k").orderBy("x")))
    assert levels(ranked) == {"id": SAME, "k": SAME, "x": SAME, "rank": ORDERED}


def test_the_spread_is_of_steady_columns(rows: DataFrame) -> None:
    """By itself it leaves the others out; what is drawn cannot be asked for; an order may be, if it is a total one."""
    drawn = rows.withColumn("r", F.rand())
    assert (spread_of(drawn).names, spread_of(drawn).left_out) == (("id", "k", "x"), ("r",))
    assert spread_of(rows.dropDuplicates(["id"])).names == ("id",)
    for spread in ("r", ["id", "r"], F.col("r") + 1, F.rand()):
        with pytest.raises(ConfigError, match="an expression that gives a row the same value each time"):
            spread_of(drawn, spread)
    ranked = rows.withColumn("rank", F.row_number().over(Window.partitionBy("k").orderBy("id")))
    assert spread_of(ranked, "rank").names == ("rank",)
    with pytest.raises(ConfigError, match="spread: 'auto' is not allowed; use columns that Spark can hash and that"):
        spread_of(drawn.select("r"))


def test_a_join_does_not_spread_rows_by_what_is_drawn(spark: SparkSession, rows: DataFrame) -> None:
    """Asked for it is refused before any job; not asked for it is left out."""
    drawn = rows.withColumn("r", F.rand())
    with Unskew(spark, stream="s", partitions=3) as sk, no_job(spark):
        with pytest.raises(ConfigError, match="rows would be lost or doubled"):
            sk.join(drawn, rows.select("k"), "k", spread="r")
        with pytest.raises(ConfigError, match="rows would be lost or doubled"):
            sk.plan_join(rows.select("k"), drawn, "k", "right", spread="r")


def test_a_side_without_a_steady_column_stays_together(spark: SparkSession, rows: DataFrame) -> None:
    """It is joined all the same; a plan that would split it is refused."""
    drawn = rows.select(F.expr("if(rand(3) < 0.5, null, id % 2) k"))
    with setting(spark, spark__sql__autoBroadcastJoinThreshold=-1), Unskew(spark, stream="s", partitions=3) as sk:
        for how in ("left", "inner"):
            ours, theirs = (
                joined.groupBy("k", "x").count()
                for joined in (sk.join(drawn, rows, "k", how), drawn.join(rows, "k", how))
            )
            assert sorted(map(str, ours.collect())) == sorted(map(str, theirs.collect()))
        plan = plan_over(np.repeat(hash_keys([0, 1]), [900, 100]), "prompt", 3)
        with no_job(spark), pytest.raises(PlanError, match="each row needs a spread hash"):
            sk.join(drawn, rows, "k", "left", plan=plan)


def test_streams_are_not_joined_as_frames(spark: SparkSession, rows: DataFrame) -> None:
    """They cannot be counted; a batch of one can."""
    stream = spark.readStream.format("rate").load().selectExpr("value k")
    sk = Unskew(spark, stream="s", partitions=3)
    match = "right: 'a streaming frame' is not allowed; use frames that can be counted"
    with no_job(spark), pytest.raises(ConfigError, match=match):
        sk.join(rows, stream, "k")
