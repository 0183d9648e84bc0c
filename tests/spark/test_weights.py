"""Plans that even out what rows weigh: ``weight=``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from unskew.core import hash_keys
from unskew.core.errors import ConfigError
from unskew.core.quality.measures import makespan
from unskew.spark import Unskew

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

ROWS, KEYS, N = 20_000, 2_000, 8
WEIGHT = "if(k % 200 = 7, 60, 1)"
"""Ten keys of ten rows each, whose rows weigh sixty times as much: a quarter of the whole."""


@pytest.fixture
def sk(spark: SparkSession) -> Unskew:
    return Unskew(spark, stream="weights", partitions=N, policy="balanced")


def frame(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 3).selectExpr("id", f"id % {KEYS} k").selectExpr("*", f"{WEIGHT} w")


def heaviest(df: DataFrame, what: str) -> float:
    """The fullest partition over the mean, by rows or by weight."""
    sums = df.groupBy(F.spark_partition_id()).agg(F.sum(F.expr(what)).alias("s")).toArrow().column("s").to_numpy()
    return float(sums.max() * N / sums.sum())


@pytest.mark.parametrize("fraction", [1.0, 0.3])
def test_a_key_counts_for_what_its_rows_weigh(spark: SparkSession, sk: Unskew, fraction: float) -> None:
    """In rows of the mean weight, sampled or not, by name or by an expression; the sum is that of the rows."""
    rows = frame(spark).where(F.rand(3) < fraction).persist()
    for weight in ("w", WEIGHT, F.col("w").cast("float") / 2):
        found = sk.histogram(rows, "k", weight=weight)
        assert found.total == pytest.approx(rows.count(), abs=1)
        heavy = hash_keys(np.arange(KEYS)[np.arange(KEYS) % 200 == 7])
        mean = rows.agg(F.avg("w")).head()[0]  # type: ignore[index]  # there is a row
        assert found.count(heavy).sum() == pytest.approx(rows.where("w > 1").count() * 60 / mean, abs=20)
    rows.unpersist()


def test_a_plan_evens_out_weight_and_not_rows(spark: SparkSession, sk: Unskew) -> None:
    rows = frame(spark)
    sk.plan(rows, "k", spread="id")
    by_rows = sk.repartition(rows, "k")
    sk.plan(rows, "k", spread="id", weight="w")
    by_weight = sk.repartition(rows, "k")
    assert by_weight.count() == ROWS
    assert heaviest(by_rows, "1") < 1.05
    assert heaviest(by_weight, "w") < 1.05 < heaviest(by_rows, "w")


def test_groups_and_aggregates_are_planned_by_weight(spark: SparkSession, sk: Unskew) -> None:
    """The heavy groups are in tasks of their own; results are those of a plain job."""

    def sizes(rows: pa.Table) -> pa.Table:
        return rows.select(["k"]).slice(0, 1).append_column("n", [[len(rows)]])

    def merge(states: pa.Table) -> pa.Table:
        return states.select(["k"]).slice(0, 1).append_column("n", [[sum(states["n"].to_pylist())]])

    rows, schema = frame(spark), "k bigint, n bigint"
    expected = sorted(map(tuple, rows.groupBy("k").count().collect()))
    assert sorted(map(tuple, sk.group_apply(rows, "k", sizes, schema, form="arrow", weight="w").collect())) == expected
    found = sk.aggregate(rows, "k", sizes, merge, schema, form="arrow", spread="id", weight="w")
    assert sorted(map(tuple, found.collect())) == expected
    assert sk.placed is not None
    assert makespan(sk.placed.ranges.loads, 2) < 1.1 * sk.placed.ranges.loads.sum() / 2
    plan = sk.plan(rows, "k", spread="id", weight="w")
    found = sk.aggregate(rows, "k", sizes, merge, schema, plan, form="arrow")
    assert sorted(map(tuple, found.collect())) == expected
    weights = np.where(np.arange(KEYS) % 200 == 7, 60, 1) * (ROWS // KEYS)
    loads = np.bincount(plan.place(hash_keys(np.arange(KEYS))).clip(0), weights, N)
    assert loads.max() < 1.3 * loads.mean()


def test_rows_without_a_weight_weigh_nothing(spark: SparkSession, sk: Unskew) -> None:
    rows = frame(spark).selectExpr("*", "case when k = 3 then 5.0 when k < 1000 then null else -1.0 end some")
    found = sk.histogram(rows, "k", weight="some")
    assert found.count(hash_keys(np.array([3])))[0] == found.total == ROWS


def test_one_row_may_weigh_more_than_all_others(spark: SparkSession, sk: Unskew) -> None:
    """Beside it keys weigh next to nothing, and are left out."""
    rows = frame(spark).selectExpr("*", "if(id = 777, 1e12, 1.0) some")
    found = sk.histogram(rows, "k", weight="some")
    assert found.count(hash_keys(np.array([777])))[0] == found.total == ROWS


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ("cast(id as string)", "weight: .* a number for each row, not string"),
        ("nothing_such", "weight: .* a column, or an expression of columns"),
        ("0", "weight: .*0 in all.* above 0 for some rows"),
        ("double('nan')", "weight: .*nan in all.* finite numbers"),
    ],
)
def test_what_is_no_weight_is_refused(spark: SparkSession, sk: Unskew, weight: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sk.plan(frame(spark), "k", weight=weight)


def test_a_weight_that_would_change_nothing_is_refused(spark: SparkSession, sk: Unskew) -> None:
    rows = frame(spark)
    plan = sk.plan(rows, "k", spread="id")
    with pytest.raises(ConfigError, match=r"weight: .*give it to sk\.plan"):
        sk.aggregate(rows, "k", len, len, "k bigint, n bigint", plan, weight="w")
    with pytest.raises(ConfigError, match=r"weight: .*None for a join"):
        sk.advise(rows, "k", "join", other=rows, weight="w")
