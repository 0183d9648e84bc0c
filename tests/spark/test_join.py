"""``join`` gives what Spark's own join gives, row for row, whatever is split, in two native shuffles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from tests.doses import diagonal, some_of
from tests.spark.frames import as_spark_4_0, hashes_in, plan_over, python_workers, setting, shuffles
from unskew.core.operators.join_plan import HOWS, LEFT
from unskew.core.plan.plan import Plan
from unskew.spark import Unskew
from unskew.spark.frame.jvm import physical_text
from unskew.spark.frame.physical import nodes
from unskew.spark.operators.join_keys import On
from unskew.spark.operators.joins import Join
from unskew.spark.place.native import table_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

N = 5


@pytest.fixture(autouse=True)
def no_broadcast(spark: SparkSession) -> Iterator[None]:
    """Frames as small as a test's would be broadcast."""
    with setting(spark, spark__sql__autoBroadcastJoinThreshold=-1, spark__sql__adaptive__enabled="false"):
        yield


def skewed(spark: SparkSession, key: str, rows: int, other: str = "v") -> DataFrame:
    """A key ``k`` made by SQL from ``n``, which is 0 in half of the rows and NULL in one of eleven."""
    n = "if(id % 11 = 3, null, if(id % 2 = 0, 0, id % 40))"
    return spark.range(0, rows, 1, 2).selectExpr("id", f"{n} n").selectExpr(f"{key} k", f"id {other}")


def plan_for(asked: Join, side: str) -> Plan:
    """A plan by the rows of one side that splits all it may."""
    hashes = hashes_in(asked._matching(side).select(asked._hash(side).alias("h")).toArrow(), "h")
    whole = not HOWS[asked.how]
    made = plan_over(hashes, "kip" if whole else "prompt", N)
    assert made.splits != whole
    return Plan(made.partitions, made.tail, made.hot, asked.keys.types, made.info)


def multiset(df: DataFrame) -> Counter[str]:
    """Rows by what they print: NaN equals NaN, and -0.0 is not 0.0."""
    return Counter(map(str, df.collect()))


def same(left: DataFrame, right: DataFrame, on: On, how: str, side: str | None = None) -> None:
    asked = Join.of(left, right, on, how, partitions=N, side=side)
    ours, theirs = asked.run(plan_for(asked, side or asked.side or LEFT)), asked.by_spark()
    assert ours.schema == theirs.schema
    found, expected = multiset(ours), multiset(theirs)
    assert found == expected
    assert found


PAIRS = {
    "int and bigint": ("cast(n as int)", "n"),
    "tinyint and decimal": ("cast(n as tinyint)", "cast(n as decimal(12,3))"),
    "two scales": ("cast(n / 4 as decimal(9,2))", "cast(n / 4 as decimal(12,5))"),
    "date and timestamp": ("date_add(date'2024-02-27', cast(n as int))", "timestamp'2024-02-27' + n * interval 1 day"),
    "timestamp_ntz and date": ("cast(date_add(date'1969-12-31', cast(n as int)) as timestamp_ntz)",
                               "date_add(date'1969-12-31', cast(n as int))"),
    "floats": ("if(n = 0, float('-0.0'), if(n = 1, float('NaN'), cast(n / 2 as float)))",
               "if(n = 0, 0d, if(n = 1, double('NaN'), n / 2))"),
    "NaN is the hot key": ("if(n = 0, double('NaN'), n / 7)", "if(n = 0, double('NaN'), n / 7)"),
    "strings": ("concat('schlüssel-', n)", "concat('schlüssel-', n)"),
    "string and int": ("concat(' ', n)", "cast(n as int)"),
    "string and decimal": ("concat(n, '.50')", "cast(n + 0.5 as decimal(10,1))"),
    "int and float": ("cast(n as int)", "cast(n as float)"),
    "binary": ("cast(concat('b', n) as binary)", "cast(concat('b', n) as binary)"),
    "boolean": ("n = 0", "n = 0"),
}  # fmt: skip


IN_FLIGHT = ("two scales", "date and timestamp", "string and int")
"""``test_join_in_flight`` has these in its small dose."""


@pytest.mark.parametrize(
    ("at", "name"), some_of(list(enumerate(PAIRS)), *(pair for pair in enumerate(PAIRS) if pair[1] not in IN_FLIGHT))
)
def test_keys_of_two_types_meet_where_spark_compares_them(spark: SparkSession, at: int, name: str) -> None:
    """Hot on both sides, NULLs on both; one of the join types for each pair, all of them in the long run."""
    one, other = PAIRS[name]
    left, right = skewed(spark, one, 260), skewed(spark, other, 60, "w")
    same(left, right, "k", list(HOWS)[at % 6])


@pytest.mark.long
@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("name", PAIRS)
def test_every_pair_of_types_by_every_join(spark: SparkSession, name: str, how: str, adaptive: str) -> None:
    """The whole grid, each side split where it may be."""
    one, other = PAIRS[name]
    with setting(spark, spark__sql__adaptive__enabled=adaptive):
        for side in HOWS[how] or (None,):
            same(skewed(spark, one, 260), skewed(spark, other, 60, "w"), "k", how, side)


@pytest.mark.parametrize("how", some_of(HOWS, "full"))
def test_every_join_of_composite_keys_with_nulls_in_parts(spark: SparkSession, how: str) -> None:
    """By names and by pairs; a part that is NULL matches nothing. What both frames call ``v`` stays twice."""
    left = skewed(spark, "n", 300).selectExpr("v", "cast(k as int) a", "if(v % 9 = 0, null, 'x') `b.c`")
    right = skewed(spark, "n", 70).selectExpr("'x' `b.c`", "if(v % 8 = 1, null, k) A", "v", "'r' side")
    same(left, right, ["a", "b.c"], how)
    same(left, right.withColumnRenamed("A", "z"), [("a", "z"), ("b.c", "b.c")], how)


@pytest.mark.parametrize("side", ["left", "right"])
def test_an_inner_join_may_split_either_side(spark: SparkSession, side: str) -> None:
    """The other side's rows are copied, and meet each row once."""
    same(skewed(spark, "n", 200), skewed(spark, "n", 150, "w"), "k", "inner", side)


@pytest.mark.parametrize("how", some_of(["inner", "full", "left_anti"], "full"))
def test_a_frame_may_be_joined_with_itself(spark: SparkSession, how: str) -> None:
    """By name, and by a pair of its columns."""
    rows = skewed(spark, "n", 120)
    same(rows, rows.where("v > 20"), "k", how)
    same(rows, rows, [("k", "v")], how)


@pytest.mark.parametrize("how", some_of(HOWS, "inner"))
def test_sides_without_rows(spark: SparkSession, how: str) -> None:
    """Both, either; a plan is made of nothing as well."""
    rows = skewed(spark, "n", 60)
    none = rows.where("v < 0")
    with Unskew(spark, stream="s", partitions=N) as sk:
        for left, right in ((none, rows), (rows, none)):
            assert multiset(sk.join(left, right, "k", how)) == multiset(left.join(right, "k", how))


def test_columns_and_aliases_are_those_of_sparks_own_join(spark: SparkSession) -> None:
    """Also where only the alias tells two columns apart, and where case does."""
    left = skewed(spark, "n", 100).withColumn("v.x", F.lit(1)).alias("e")
    right = skewed(spark, "n", 50).alias("d")
    asked = Join.of(left, right, "K", "left", partitions=N)
    joined = asked.run(plan_for(asked, LEFT))
    assert joined.columns == ["k", "v", "v.x", "v"]
    wanted = ["k", F.col("e.v").alias("a"), F.col("d.v").alias("b"), "`v.x`"]
    assert multiset(joined.select(*wanted)) == multiset(left.join(right, "k", "left").select(*wanted))
    with setting(spark, spark__sql__caseSensitive="true"):
        both = skewed(spark, "n", 100).selectExpr("k", "v", "v % 3 K")
        same(both, skewed(spark, "n", 30, "w"), "k", "inner")


@pytest.mark.parametrize("how", some_of(HOWS, "left"))
def test_the_way_of_spark_4_0_gives_the_same_rows(spark: SparkSession, how: str) -> None:
    """By a salt after the key: two key columns of two types each, NULLs in both, split and whole."""
    left = skewed(spark, "n", 300).selectExpr("v", "cast(k as int) a", "if(v % 9 = 0, null, 'x') b")
    right = skewed(spark, "n", 70).selectExpr("'x' b", "cast(if(v % 8 = 1, null, k) as decimal(9,1)) a", "v")
    with as_spark_4_0():
        same(left, right, ["a", "b"], how)
        same(left, right.withColumnRenamed("a", "z"), [("a", "z"), ("b", "b")], how)


@pytest.mark.parametrize(("how", "older", "adaptive"), diagonal(HOWS, [False, True], ["true", "false"]))
def test_two_shuffles_and_no_python(spark: SparkSession, how: str, older: bool, adaptive: str) -> None:
    """Both ours, before the query runs and after; rows with a NULL key are not shuffled where the join drops them."""
    left, right = skewed(spark, "cast(n as int)", 200), skewed(spark, "n", 50, "w")
    asked = Join.of(left, right, "k", how, partitions=N)
    with as_spark_4_0(older=older), setting(spark, spark__sql__adaptive__enabled=adaptive):
        plan = plan_for(asked, asked.side or LEFT)
        joined = asked.run(plan)
        assert physical_text(joined).count(f"[{table_text(plan.tail)}]") == 2  # on each side, and in no filter
        for run in (False, True):
            if run:
                joined.collect()
            found = shuffles(joined)
            assert len(found) == 2
            assert all(f", {N}), REPARTITION_BY_NUM" in node.text for node in found)
            assert python_workers(joined) == []
            assert not [node for node in nodes(physical_text(joined)) if node.name == "AQEShuffleRead"]
        assert joined.rdd.getNumPartitions() == N


@pytest.mark.parametrize("older", [False, True])
def test_rows_meet_in_the_partitions_of_the_plan(spark: SparkSession, older: bool) -> None:
    """The hot key is in as many partitions as it has fragments, and none has much more than its part."""
    left, right = skewed(spark, "n", 4_000), skewed(spark, "n", 40, "w")
    asked = Join.of(left, right, "k", "left", partitions=N)
    with as_spark_4_0(older=older):
        joined = asked.run(plan_for(asked, LEFT))
    loads = joined.groupBy(F.spark_partition_id().alias("p")).count().collect()
    one = asked.by_spark().repartition(N, "k").groupBy(F.spark_partition_id().alias("p")).count().collect()
    total = sum(row["count"] for row in loads)
    assert len(loads) == N
    assert max(row["count"] for row in loads) < 1.6 * total / N
    assert max(row["count"] for row in one) > 3 * total / N
