"""Keys counted while the batch's own job runs: what is noted, how much of it, and that rows are not touched."""

from __future__ import annotations

import time
from threading import Thread

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from unskew.core.histogram.histogram import Histogram
from unskew.core.histogram.sampling import sample_for
from unskew.core.keys.hashing import hash_keys
from unskew.spark.frame.histogram import weight_of
from unskew.spark.frame.row_sampling import every_for, near_for
from unskew.spark.streaming.batch_sampling import BatchSample, sampled

pytestmark = pytest.mark.xdist_group("spark")


def run(df: DataFrame, every: int, *, split: bool = True, weight: str | None = None) -> BatchSample:
    spread = F.xxhash64(F.lit(1), "id") if split else None
    weights = None if weight is None else weight_of(df, weight)
    noted, watch = sampled(df, F.xxhash64("user"), spread, 8, every, weight=weights)
    assert watch.sample(0.0) is None, "no job has run yet"
    assert noted.columns == df.columns
    noted.write.format("noop").mode("overwrite").save()
    found = watch.sample()
    assert found is not None
    return found


@pytest.fixture(scope="module")
def clicks(spark: SparkSession) -> DataFrame:
    """A third of the rows have the key "hot"."""
    user = F.when(F.col("id") % 3 == 0, "hot").otherwise(F.concat(F.lit("u"), F.col("id") % 5000))
    return spark.range(0, 120_000, 1, 4).select(user.alias("user"), "id")


def test_every_row_noted_is_the_exact_histogram(clicks: DataFrame) -> None:
    few = clicks.where("id < 9000")
    found = run(few, every=1)

    exact = Histogram.from_hashes(hash_keys([row.user for row in few.collect()]))
    assert (found.rows, found.sampled) == (9000, 9000)
    assert found.histogram.total == 9000
    assert dict(zip(*map(np.ndarray.tolist, found.histogram.top(1)), strict=True)) == dict(
        zip(*map(np.ndarray.tolist, exact.top(1)), strict=True)
    )


def test_a_share_of_the_rows_tells_of_all(clicks: DataFrame) -> None:
    found = run(clicks, every=8)

    hot = hash_keys(["hot"])
    assert found.rows == 120_000
    assert found.sampled == pytest.approx(15_000, rel=0.1)
    assert found.histogram.total == pytest.approx(120_000, rel=0.01)
    assert int(found.histogram.count(hot)[0]) == pytest.approx(40_000, rel=0.05)
    at = int(np.searchsorted(found.histogram.hashes, hot[0]))
    assert found.histogram.spread is not None
    assert found.histogram.spread[at] > 4000, "its rows differ in their spread, so it may be split"


@pytest.mark.parametrize("split", [True, False])
def test_a_key_is_estimated_by_what_its_rows_weigh(clicks: DataFrame, split: bool) -> None:
    """A tiny weight and a huge one; without a weight, and below 0, rows weigh nothing."""
    weight = "case when user = 'u7' then 1e15 when user = 'u8' then 5e14 when user = 'hot' then null else -1 end"
    few = clicks.where("id < 30000")
    found, rows = run(few, 1, split=split, weight=weight), few.groupBy("user").count()
    sevens, eights = (rows.where(F.col("user") == user).head()["count"] for user in ("u7", "u8"))
    seven, eight = found.histogram.count(hash_keys(["u7", "u8"])).tolist()
    assert (found.rows, seven + eight, len(found.histogram.hashes)) == (30_000, 30_000, 2)
    assert seven == pytest.approx(30_000 * sevens / (sevens + eights / 2), abs=2)


@pytest.mark.parametrize("weight", ["double('nan')", "1e308 * 10", "0"])
def test_a_batch_whose_weights_say_nothing_is_estimated_by_rows(
    clicks: DataFrame, weight: str, caplog: pytest.LogCaptureFixture
) -> None:
    found = run(clicks.where("id < 3000"), 1, weight=weight)
    assert int(found.histogram.count(hash_keys(["hot"]))[0]) == 1_000
    assert "counted by rows" in caplog.text


def test_rows_that_are_all_equal_are_sampled_like_others(spark: SparkSession) -> None:
    same = spark.range(0, 40_000, 1, 2).select(F.lit("x").alias("user"), F.lit(7).alias("id"))
    found = run(same, every=4)

    assert found.sampled == pytest.approx(10_000, rel=0.1)
    assert found.histogram.spread is not None
    assert found.histogram.spread.tolist() == [1], "nothing tells its rows apart"


def test_a_batch_far_larger_than_expected_sends_a_bounded_sample(spark: SparkSession) -> None:
    large = spark.range(0, 2_000_000, 1, 2).select(F.col("id").cast("string").alias("user"), "id")
    found = run(large, every=1, split=False)

    assert found.rows == 2_000_000
    assert found.sampled < 120_000
    assert found.histogram.total == pytest.approx(2_000_000, rel=0.01)


def test_a_batch_without_rows_is_a_batch(spark: SparkSession) -> None:
    found = run(spark.createDataFrame([], "user string, id bigint"), every=1)

    assert (found.rows, found.sampled, found.histogram.total) == (0, 0, 0)


def test_spark_may_tell_a_moment_later(clicks: DataFrame) -> None:
    """Its thread of listeners is behind: whoever plans waits for it, but not for ever."""
    noted, watch = sampled(clicks, F.xxhash64("user"), None, 8, 8)
    began = time.monotonic()
    assert watch.sample(0.3) is None
    assert 0.3 <= time.monotonic() - began < 25.0
    later = Thread(target=lambda: (time.sleep(0.2), noted.write.format("noop").mode("overwrite").save()))
    later.start()
    found = watch.sample(30.0)
    later.join()
    assert found is not None
    assert found.rows == 120_000


def test_so_many_rows_are_looked_at_as_planning_needs() -> None:
    assert [every_for(rows, sample_for(16)) for rows in (0, 1000, 100_000, 200_000, 1_000_000)] == [1, 1, 1, 2, 8]


@pytest.mark.parametrize(("tasks", "rows"), [(4, 10**6), (200, 10**8), (1_000, 10**9), (10_000, 10**9)])
def test_a_first_batch_of_any_size_gives_the_driver_a_bounded_number(tasks: int, rows: int) -> None:
    """Nothing is known of its rows: each task notes fewer and fewer of what it reads (as ``_chosen`` has it)."""
    each, near, noted = rows // tasks, near_for(tasks, sample_for(16)), 0.0
    for level in range(7):
        start, end = near * 8 ** (level - 1) if level else 0, near * 8**level if level < 6 else each
        noted += max(min(end, each) - start, 0) / 8**level
    assert 0.1 * sample_for(16) <= noted * tasks <= 32 * sample_for(16)


def test_what_comes_far_into_a_task_is_noted_seldom(clicks: DataFrame) -> None:
    """Four tasks of 30,000 rows: 64 of each, then one in eight up to 512, one in 64 up to 4,096, one in 512."""
    noted, watch = sampled(clicks, F.xxhash64("user"), None, 8, 1, 64)
    noted.write.format("noop").mode("overwrite").save()
    found = watch.sample()
    assert found is not None
    assert found.rows == 120_000
    assert found.sampled == pytest.approx(4 * (64 + 56 + 56 + 50), rel=0.25)
