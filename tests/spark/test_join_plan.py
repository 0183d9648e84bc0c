"""Joins that plan by themselves, what is left to Spark, and what is refused before any job."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from tests.doses import some_of
from tests.join_rows import HASHES, rows_of
from tests.spark.frames import no_job, setting
from tests.spark.test_join import multiset
from unskew.core.errors import ConfigError, KeyTypeError, PlanError
from unskew.core.operators.join_plan import Bounds, join_plan
from unskew.spark import Unskew
from unskew.spark.frame.keys import spread_of
from unskew.spark.operators.joins import Join, JoinWarning

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    """Half of the rows have one key, a twentieth none."""
    return spark.range(0, 20_000, 1, 2).selectExpr(
        "id", "if(id % 20 = 7, null, if(id % 2 = 0, 0, cast(id % 900 as int))) sku", "id % 3 side"
    )


@pytest.fixture(scope="module")
def dim(spark: SparkSession) -> DataFrame:
    return spark.range(0, 900, 1, 2).selectExpr("id sku", "concat('n', id) name")


@pytest.fixture
def unbroadcast(spark: SparkSession) -> Iterator[None]:
    with setting(spark, spark__sql__autoBroadcastJoinThreshold=-1):
        yield


@pytest.mark.parametrize("how", some_of(["left", "inner"], "left"))
@pytest.mark.usefixtures("unbroadcast")
def test_the_operator_plans_by_itself(spark: SparkSession, events: DataFrame, dim: DataFrame, how: str) -> None:
    """Half of the rows in one key: even partitions, a few copies, Spark's rows. The plan may be used again."""
    with Unskew(spark, stream="sales", partitions=8) as sk:
        plan = sk.plan_join(events, dim, "sku", how)
        assert (plan.side, plan.plan.key_types, plan.plan.info.stream) == ("left", ("bigint",), "sales")
        assert plan.right == 900
        assert plan.output == pytest.approx(plan.left, rel=0.01)
        assert 1 <= plan.replicated <= 7
        joined = sk.join(events, dim, "sku", how, plan=plan, spread="id")
        loads = [row["count"] for row in joined.groupBy(F.spark_partition_id()).count().collect()]
        assert len(loads) == 8
        assert max(loads) < 1.15 * sum(loads) / 8
        assert multiset(joined) == multiset(events.join(dim, "sku", how))
        assert sk.join(dim, events, "sku", "inner", plan=plan.plan, side="right").count() == 19_000
        assert sk.plan_join(dim, events, "sku", "inner").side == "right"
        assert sk.plan_join(dim, events, "sku", "inner", spread="id").side == "right"


@pytest.mark.usefixtures("unbroadcast")
def test_rows_that_nothing_tells_apart_stay_together_and_it_says_so(spark: SparkSession, dim: DataFrame) -> None:
    """Words only: no split and a warning; the result is right all the same."""
    words = spark.range(0, 9_000, 1, 2).selectExpr("if(id % 2 = 0, 0, id % 50) sku")
    with Unskew(spark, stream="words", partitions=6) as sk:
        with pytest.warns(JoinWarning, match="1 keys have more work .* Give spread= columns") as warned:
            plan = sk.plan_join(words, dim, "sku")
        assert warned[0].filename == __file__, "at the user's line"
        assert plan.whole == 1
        assert "too few distinct spread values" in plan.reason
        assert HASHES[0] not in plan.plan.hot.split_hashes
        assert multiset(sk.join(words, dim, "sku", plan=plan)) == multiset(words.join(dim, "sku"))


@pytest.mark.usefixtures("unbroadcast")
def test_rows_without_a_key_are_spread(spark: SparkSession, dim: DataFrame) -> None:
    """Nine of ten have a NULL key: kept and scattered by a left join, with the plan that counted them."""
    rows = spark.range(0, 10_000, 1, 2).selectExpr("if(id % 10 = 0, id % 900, null) sku", "id")
    with Unskew(spark, stream="s", partitions=8) as sk:
        joined = sk.join(rows, dim, "sku", "left_anti")
        loads = [row["count"] for row in joined.groupBy(F.spark_partition_id()).count().collect()]
    assert sum(loads) == 9_000
    assert max(loads) < 1.2 * 9_000 / 8


def test_a_side_that_spark_broadcasts_is_left_to_it(spark: SparkSession, events: DataFrame, dim: DataFrame) -> None:
    """Said with the reason, and no job; unless a plan is given."""
    with Unskew(spark, stream="s", partitions=8) as sk:
        with no_job(spark), pytest.warns(JoinWarning, match="left to Spark: Spark broadcasts the right side") as warned:
            joined = sk.join(events, dim, "sku")
        assert warned[0].filename == __file__, "at the user's line"
        assert joined.columns == ["sku", "id", "side", "name"]
        plan = sk.plan_join(events, dim, "sku")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            placed = sk.join(events, dim, "sku", plan=plan)
        loads = [row["count"] for row in placed.groupBy(F.spark_partition_id()).count().collect()]
        assert len(loads) == 8
        assert max(loads) < 1.15 * sum(loads) / 8


def test_bad_use_is_refused_before_any_job(spark: SparkSession, events: DataFrame, dim: DataFrame) -> None:
    """By name, with what is allowed."""
    sk = Unskew(spark, stream="s", partitions=4)
    split = join_plan(rows_of([5_000] + [1] * 5, [9] + [1] * 5), "left", 4, Bounds())
    assert split.plan.splits
    with no_job(spark):
        with pytest.raises(ConfigError, match=r"how: 'cross' is not allowed; use DataFrame\.crossJoin"):
            sk.join(events, dim, "sku", "cross")
        with pytest.raises(ConfigError, match="how: 'sideways' is not allowed; use one of inner, left"):
            sk.join(events, dim, "sku", "sideways")
        with pytest.raises(
            ConfigError, match="on: 'user' is not allowed; use columns of the left frame: id, sku, side"
        ):
            sk.join(events, dim, "user")
        with pytest.raises(ConfigError, match="on: 'id' is not allowed; use columns of the right frame: sku, name"):
            sk.join(events, dim, ["sku", "id"])
        for on in ([], F.col("sku"), [("sku",)], ["sku", ("id", "sku")], 7):
            with pytest.raises(ConfigError, match=r"on: .* the name of a column that both sides have"):
                sk.join(events, dim, on)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="a name that the left frame has once; it has sku, SKU"):
            sk.join(events.withColumn("n", F.lit(1)).toDF("id", "sku", "SKU", "n"), dim, "sku")
        with pytest.raises(ConfigError, match="side: 'right' is not allowed; use left for a left join"):
            sk.join(events, dim, "sku", "left", side="right")
        with pytest.raises(ConfigError, match="side: 'left' is not allowed; use no side: a full outer join"):
            sk.join(events, dim, "sku", "outer", side="left")
        with pytest.raises(ConfigError, match="spread: 'event'"):
            sk.join(events, dim, "sku", spread="event")
        with pytest.raises(PlanError, match="a full outer join cannot split keys"):
            sk.join(events, dim, "sku", "full_outer", plan=split.plan)
        with pytest.raises(PlanError, match="the plan splits the left side and a right join may not"):
            replace(Join.of(events, dim, "sku", "right", partitions=4), side=None).run(split)
        with pytest.raises(PlanError, match="the plan is for 4 partitions and this join for 5"):
            Unskew(spark, stream="s", partitions=5).join(events, dim, "sku", plan=split)
        with pytest.raises(ConfigError, match="replication: -1"):
            Bounds(replication=-1)
        with pytest.raises(ConfigError, match="work: nan"):
            Bounds(work=float("nan"))


@pytest.mark.parametrize(
    ("left", "right", "match"),
    [
        ("'x' collate UTF8_LCASE", "'x'", "key column k: key type .*collation calls equal"),
        ("map(1, 2)", "map(1, 2)", "Spark itself does not hash maps"),
        ("id", "date'2024-01-01'", "on k = k: Spark does not compare bigint with date: cast one side"),
        ("id % 2 = 0", "id", "Spark does not compare boolean with bigint"),
    ],
)
def test_key_types_that_cannot_meet_are_refused(spark: SparkSession, left: str, right: str, match: str) -> None:
    """With the columns and what to do."""
    sk = Unskew(spark, stream="s", partitions=4)
    with no_job(spark), pytest.raises(KeyTypeError, match=match):
        sk.join(spark.range(3).selectExpr(f"{left} k"), spark.range(3).selectExpr(f"{right} k"), "k")


def test_a_plan_for_other_key_types_is_refused(spark: SparkSession, events: DataFrame, dim: DataFrame) -> None:
    """The types after the cast are what counts: int meets bigint as bigint."""
    asked = Join.of(events, dim, "sku", partitions=4)
    made = join_plan(rows_of([9] * 6, [1] * 6), "left", 4, Bounds()).plan
    for types, fits in ((("bigint",), True), (("int",), False)):
        plan = type(made)(made.partitions, made.tail, made.hot, types, made.info)
        with no_job(spark):
            if fits:
                asked.run(plan)
            else:
                with pytest.raises(PlanError, match=r"keys of type \(int\) and the key columns are of \(bigint\)"):
                    asked.run(plan)


def test_without_ansi_mode_only_pairs_that_both_modes_compare_alike_are_taken(spark: SparkSession) -> None:
    """A string and an int meet as another type there."""
    frames = [spark.range(9).selectExpr(f"{sql} k", "id") for sql in ("cast(id as int)", "id", "cast(id as string)")]
    with setting(spark, spark__sql__ansi__enabled="false"), no_job(spark):
        Join.of(frames[0], frames[1], "k", partitions=4)
        Join.of(frames[2], frames[2], "k", partitions=4)
        with pytest.raises(
            ConfigError, match=r"ansi.enabled: 'false' is not allowed; use true, or cast k \(int\) or k"
        ):
            Join.of(frames[0], frames[2], "k", partitions=4)


def test_fixed_length_strings_of_two_lengths_are_refused(spark: SparkSession) -> None:
    """Spark pads them where it compares and not where it hashes: their rows would be lost."""
    try:
        spark.sql("create table short (k char(3)) using parquet")
        spark.sql("create table long (k char(5)) using parquet")
        short, longer = spark.table("short"), spark.table("long")
        with (
            no_job(spark),
            pytest.raises(KeyTypeError, match=r"char\(3\) and char\(5\) are equal to Spark when padded"),
        ):
            Join.of(short, longer, "k", partitions=4)
        Join.of(short, short, "k", partitions=4)
    finally:
        spark.sql("drop table if exists short")
        spark.sql("drop table if exists long")


def test_auto_spread_takes_no_columns_that_are_equal_with_other_bytes(spark: SparkSession) -> None:
    """Strings with a collation, and names that are there twice."""
    rows = spark.range(3).selectExpr("id", "'a' collate UTF8_LCASE c", "array('a' collate UTF8_LCASE) d", "1 x", "2 X")
    told = spread_of(rows)
    assert (told.names, told.left_out) == (("id",), ("c", "d", "x", "X"))
    assert spread_of(rows, "c").names == ("c",)
