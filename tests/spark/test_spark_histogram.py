"""The histogram that Spark counts: exact for listed keys and hosts, close for distinct keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from tests.spark.frames import hashes_in
from unskew.core import Histogram, hash_keys, make_planner
from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import fold_hosts, host_of
from unskew.spark.frame.histogram import Sampling, histogram_of, sampling_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def truth(rows: DataFrame, key: str) -> Histogram:
    return Histogram.from_hashes(hashes_in(rows.select(F.xxhash64(key).alias("h")).toArrow(), "h"))


def assert_exact(found: Histogram, true: Histogram) -> None:
    """Listed keys have their rows, and each host all the rest."""
    assert found.total == true.total
    assert (true.count(found.hashes) == found.counts).all()
    assert found.tail is not None
    bits = found.tail.bits
    listed = np.bincount(host_of(found.hashes, bits), found.counts, 1 << bits)
    every = np.bincount(host_of(true.hashes, bits), true.counts, 1 << bits)
    assert (found.tail.rows + listed == every).all()
    assert (fold_hosts(found.tail.rows, 0) == true.total - found.listed).all()


@pytest.mark.parametrize("key", ["skewed", "distinct", "few"])
def test_a_frame_is_counted_exactly(spark: SparkSession, key: str) -> None:
    """Skewed, all distinct, and a handful of keys; the heaviest are listed; distinct keys within 15 %."""
    rows = spark.range(0, 400_000, 1, 2).selectExpr(
        "id",
        "cast(floor(exp(pmod(hash(id), 100000) / 1e5 * ln(100000))) as int) skewed",
        "concat('k', id) distinct",
        "id % 7 few",
    )
    found, true = histogram_of(rows, key, 16, "id"), truth(rows, key)
    assert_exact(found, true)
    heavy, _ = true.top(64 if key == "skewed" else 7)
    if key != "distinct":
        assert (found.count(heavy) > 0).all()
    assert found.keys == pytest.approx(true.keys, rel=0.15)
    plans = [make_planner("balanced", 16).plan(histogram) for histogram in (found, true)]
    assert max(plans[0].loads(true)) <= 1.02 * max(plans[1].loads(true))


def test_keys_of_identical_rows_are_not_split(spark: SparkSession) -> None:
    """A words-only frame has one spread value a key, so no plan cuts it up; with an id to tell rows apart it does."""
    rows = spark.range(30_000).selectExpr("id", "if(id % 2 = 0, 'a', concat('w', id)) word")
    words = rows.select("word")
    alike, apart = histogram_of(words, "word", 8, "auto"), histogram_of(rows, "word", 8, "id")
    key = hash_keys(["a"])
    assert alike.spread is not None
    assert alike.spread[alike.hashes == key].tolist() == [1]
    assert apart.spread is not None
    assert apart.spread[apart.hashes == key][0] > 10_000
    assert not make_planner("balanced", 8).plan(alike).splits
    assert make_planner("balanced", 8).plan(apart).splits


@pytest.mark.parametrize("rows", [0, 1, 500])
def test_small_and_empty_frames(spark: SparkSession, rows: int) -> None:
    """Everything is looked at; every key with more than one row is listed."""
    frame = spark.range(rows).selectExpr("id % 100 k", "id")
    found = histogram_of(frame, "k", 4, "id")
    assert_exact(found, truth(frame, "k"))
    assert len(found.hashes) == (100 if rows == 500 else 0)


def test_a_composite_key_with_nulls(spark: SparkSession) -> None:
    """NULL is a key as any other; without a spread none is counted."""
    frame = spark.range(3_000).selectExpr("if(id % 3 = 0, null, id % 5) a", "if(id % 2 = 0, null, 'x') b")
    found = histogram_of(frame, ["a", F.upper("b")], 4)
    assert found.spread is None
    assert found.total == 3_000
    assert len(found.hashes) == frame.distinct().count()


def test_a_fraction_is_a_share() -> None:
    with pytest.raises(ConfigError, match=r"fraction: 0.0 is not allowed; use more than 0, at most 1"):
        Sampling(fraction=0.0)


def test_a_frame_of_about_as_many_rows_as_a_sample_is_looked_at_whole() -> None:
    """So its keys are counted in one job. Of a larger one as much as a sample needs; of an unknown one the least."""
    least = Sampling(fraction=0.01, seed=3)
    assert sampling_for(0, 16, least) is least
    assert sampling_for(120_000, 16, least) == Sampling(1.0, 3)
    assert sampling_for(1_000_000, 16, least).fraction == pytest.approx(0.125)
    assert sampling_for(10**9, 16, least) == least


def test_a_small_frame_is_counted_in_one_job(spark: SparkSession) -> None:
    df = spark.range(20_000).select((F.col("id") % 7).alias("k"))
    tracker, group = spark.sparkContext.statusTracker(), "counts-in-one-job"
    spark.sparkContext.setJobGroup(group, "")
    try:
        found = histogram_of(df, "k", 4, None, sampling_for(20_000, 4, Sampling()))
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert_exact(found, truth(df, "k"))
    assert len(tracker.getJobIdsForGroup(group)) == 1
