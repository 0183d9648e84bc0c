"""The conformance files are what this machine's Spark answers, and placement salts land where they should."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from tests.conformance.vectors import column, load
from tests.doses import some_of
from tests.spark_hash import placement_salt, spark_hash
from unskew.core.keys.hashing import hash_keys
from unskew.core.keys.types import common_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.mark.parametrize(
    "name", some_of(["hashes.json", "common_types.json", "collations.json"], "common_types.json", "collations.json")
)
def test_a_live_spark_writes_the_same_conformance_file(spark: SparkSession, name: str) -> None:
    """Made anew with the kept script, in two time zones, each file is equal to the committed one.
    The dear one, of hashes, is long: it changes with Spark's version only; ``test_native_route`` has columns of
    every type, and the tests below have literals."""
    from tools.make_conformance import FILES

    kept, made = load(name), FILES[name](spark)
    assert {**made, "spark": None} == {**kept, "spark": None}


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("-0.0d", [0.0]),
        ("double('NaN')", [float("nan")]),
        ("'日本語'", ["日本語"]),
        ("x'00ff80'", [b"\x00\xff\x80"]),
        ("date'1883-11-18'", np.array(["1883-11-18"], "datetime64[D]")),
        ("timestamp_ntz'1883-11-18 12:03:58.5'", np.array(["1883-11-18T12:03:58.500"], "datetime64[ms]")),
        ("9223372036854775807", [2**63 - 1]),
        ("7Y", np.array([7], np.int8)),
        ("cast(null as string)", pa.nulls(1, pa.string())),
    ],
)
def test_sql_literals_hash_as_the_same_python_values(spark: SparkSession, literal: str, value: object) -> None:
    """Literals that never passed through Arrow give the hash of the value written in Python."""
    row = spark.sql(f"select xxhash64({literal}), hash({literal})").head()
    assert row is not None
    assert hash_keys(value).view(np.int64).tolist() == [row[0]]
    assert spark_hash(value).tolist() == [row[1]]


@pytest.mark.parametrize("partitions", [1, 2, 7, 64])
def test_salted_rows_land_in_the_wanted_partition(spark: SparkSession, partitions: int) -> None:
    """``repartition(P, key..., salt)`` puts every row where its salt was computed for, NULL keys too."""
    rows = 400
    words = [None if i % 17 == 0 else f"key-{i % 23}" for i in range(rows)]
    numbers = pa.array([None if i % 5 == 0 else i * 7 for i in range(rows)], pa.int32())
    wanted = (np.arange(rows) * 31 % partitions).astype(np.int32)
    salts = placement_salt(spark_hash(words, numbers), wanted, partitions)
    table = pa.table({"word": pa.array(words, pa.string()), "n": numbers, "salt": salts, "wanted": wanted})
    placed = spark.createDataFrame(table).repartition(partitions, "word", "n", "salt")
    found = placed.selectExpr("wanted", "spark_partition_id() as part", f"pmod(hash(word, n, salt), {partitions}) p")
    answers = found.collect()
    assert len(answers) == rows
    assert all(row.wanted == row.part == row.p for row in answers)


def test_a_join_hashed_in_the_common_type_meets_on_both_sides(spark: SparkSession) -> None:
    """An int key and a decimal key that Spark calls equal have one hash once both are in the common type."""
    whole, parts = "int", "decimal(10,2)"
    common = common_type(whole, parts)
    query = f"select * from values (7, 7.00BD) as t(a, b) where cast(a as {whole}) = cast(b as {parts})"
    assert spark.sql(query).count() == 1
    left = hash_keys(column(whole, ["7"]), types=[common])
    assert left.tolist() == hash_keys(column(parts, ["700"]), types=[common]).tolist()
    assert left.tolist() != hash_keys(column(whole, ["7"])).tolist()


def test_columns_arriving_in_arrow_batches_hash_as_in_sql(spark: SparkSession) -> None:
    """What a Python worker computes on its Arrow batches equals the SQL function, row by row."""
    frame = spark.range(3_000).selectExpr(
        "cast(id as int) i",
        "concat('u', id % 50) s",
        "cast(id as decimal(20,3)) d",
        "timestamp_seconds(id) t",
        "cast(timestamp_seconds(id) as timestamp_ntz) n",
        "cast(date_add(date'1960-01-01', cast(id as int)) as date) a",
    )
    answers = frame.selectExpr("*", "xxhash64(i, s, d, t, n, a) x").toArrow().combine_chunks()
    columns = [answers[name] for name in ("i", "s", "d", "t", "n", "a")]
    assert hash_keys(*columns).view(np.int64).tolist() == answers["x"].to_pylist()
