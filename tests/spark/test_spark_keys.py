"""Which columns may be keys, and when a wrong one is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from tests.spark.frames import no_job, plan_over
from unskew.core import hash_keys
from unskew.core.errors import ConfigError, KeyTypeError, PlanError
from unskew.core.plan.plan import Plan
from unskew.spark.frame.jvm import physical_text
from unskew.spark.frame.keys import key_of, key_without_frame, spread_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def typed(*names: str) -> Plan:
    made = plan_over(hash_keys([1, 2, 3]), "kip", 4)
    return Plan(made.partitions, made.tail, made.hot, names)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("map('a', 1)", "Spark itself does not hash maps"),
        ("parse_json('1')", "Spark itself does not hash variants"),
        ("named_struct('a', 1)", "give the struct's fields as separate key columns"),
        ("array(1)", "cast it to string"),
        ("'x' collate UTF8_LCASE", "lower\\(col collate UTF8_BINARY\\)"),
        ("interval 1 day", "cast it to string"),
    ],
)
def test_types_that_are_no_keys_are_refused_by_name(spark: SparkSession, sql: str, reason: str) -> None:
    """With the column's name and what to do, and no job."""
    rows = spark.range(3).selectExpr(f"{sql} k")
    with no_job(spark), pytest.raises(KeyTypeError, match=rf"key column k: .*{reason}"):
        key_of(rows, "k")


def test_a_plan_for_keys_of_another_type_is_refused(spark: SparkSession) -> None:
    """An int key routed by a bigint plan would go elsewhere than its bigint twin; cast to it, it may."""
    rows = spark.range(3).selectExpr("cast(id as int) i", "id")
    with no_job(spark):
        with pytest.raises(PlanError, match=r"keys of type \(bigint\) and the key columns are of \(int\)"):
            key_of(rows, "i", plan=typed("bigint"))
        assert key_of(rows, F.col("i").cast("bigint"), plan=typed("bigint")).types == ("bigint",)
        assert key_of(rows, ["id", F.col("i")], plan=typed("bigint", "int")).types == ("bigint", "int")
    both = rows.select(key_of(rows, F.col("i").cast("bigint")).hash.alias("a"), F.xxhash64("id").alias("b")).collect()
    assert all(row.a == row.b for row in both)


def test_without_a_frame_the_types_are_compared_when_spark_plans(spark: SparkSession) -> None:
    """Nothing is left of the check where they agree; rows of another type raise and are not routed."""
    rows = spark.range(3).selectExpr("cast(id as int) i", "id")
    right = rows.select(key_without_frame("id", typed("bigint")).alias("h"))
    assert "typeof" not in physical_text(right)
    assert "raise_error" not in physical_text(right)
    with pytest.raises(PySparkException, match=r"the plan is for keys of type \(bigint\)"):
        rows.select(key_without_frame("i", typed("bigint"))).collect()
    with pytest.raises(PlanError, match=r"are of \(\?, \?\)"):
        key_without_frame(["i", "id"], typed("bigint"))


@pytest.mark.parametrize("key", [[], 7, ["id", 7], "*", F.rand])
def test_what_is_no_column_is_no_key(spark: SparkSession, key: object) -> None:
    """Told with what is allowed."""
    rows = spark.range(3).selectExpr("id", "id b")
    with no_job(spark), pytest.raises((ConfigError, TypeError)):
        key_of(rows, key)  # type: ignore[arg-type]


def test_the_spread_of_a_whole_frame_leaves_out_what_has_no_hash(spark: SparkSession) -> None:
    """Maps and variants, also inside other types; column names are taken as they stand."""
    rows = spark.range(3).selectExpr(
        "id", "map(1, id) m", "array(parse_json('1')) v", "struct(map(1, 2) q) s", "id `a.b`"
    )
    told = spread_of(rows)
    assert told.names == ("id", "a.b")
    assert told.left_out == ("m", "v", "s")
    assert rows.select(told.hash).distinct().count() == 3
    with no_job(spark):
        with pytest.raises(ConfigError, match="of the frame's, m, none is"):
            spread_of(rows.select("m"))
        with pytest.raises(ConfigError, match="without map and variant"):
            spread_of(rows, ["id", "m"])


def test_the_spread_hash_is_another_one_than_the_key_hash(spark: SparkSession) -> None:
    """Also over the same columns."""
    rows = spark.range(50)
    same = rows.where(spread_of(rows, "id").hash == key_of(rows, "id").hash)
    assert same.count() == 0


@pytest.mark.parametrize("spread", ["rand()", "uuid()", "monotonically_increasing_id()"])
def test_a_spread_that_changes_from_run_to_run_is_refused(spark: SparkSession, spread: str) -> None:
    """A task that runs again would send its rows elsewhere."""
    rows = spark.range(3)
    with no_job(spark), pytest.raises(ConfigError, match="the same value each time"):
        spread_of(rows, F.expr(spread))
