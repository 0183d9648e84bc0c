"""A handler's frame shows rows and not what made them: columns that another run would make otherwise are found all the
same, in the plan of the query's batch."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from tests.doses import some_of
from tests.spark.streaming.job import SCHEMA
from tests.spark.streaming.queries import batches, pin_at, settled
from unskew.spark import Unskew
from unskew.spark.frame.lineage import DRAWN, ORDERED, SAME, read_from_files, unsteady

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-streams")]

Make = Callable[["DataFrame"], "DataFrame"]


def drawn() -> Column:
    return F.udf(lambda user: f"{user}-{random.random()}", "string").asNondeterministic()("user")


def with_event(rows: DataFrame) -> DataFrame:
    """An event id that Python draws, as a user would write it."""
    return rows.withColumn("event", drawn())


def listed(rows: DataFrame) -> DataFrame:
    """A windowed aggregate: what is listed, and a sum of fractions, go by the order in which rows come."""
    timed = rows.withColumn("at", F.timestamp_seconds(F.col("id") % 60)).withWatermark("at", "1 hour")
    grouped = timed.groupBy(F.window("at", "10 seconds"), "user")
    return grouped.agg(F.collect_list("id").alias("ids"), F.sum(F.col("id") / 3).alias("part"), F.count("*").alias("n"))


def run(spark: SparkSession, folder: Path, make: Make, handle: Callable[[DataFrame, int], object]) -> None:
    rows = make(spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "in")))
    query = rows.writeStream.foreachBatch(handle).option("checkpointLocation", str(folder / "cp"))
    query.outputMode("update").trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        pytest.param(lambda rows: rows, {"user": SAME, "id": SAME}, marks=pytest.mark.long),
        (with_event, {"user": SAME, "id": SAME, "event": DRAWN}),
        (listed, {"window": SAME, "user": SAME, "ids": ORDERED, "part": ORDERED, "n": SAME}),
    ],
    ids=["as read", "drawn", "by order"],
)
def test_levels_are_those_of_the_stream(spark: SparkSession, short: Path, make: Make, wanted: dict[str, int]) -> None:
    """In the frame, and in what a handler makes of it."""
    seen: list[dict[str, int]] = []

    def handle(df: DataFrame, _: int) -> None:
        for frame in (df, df.where("user is not null"), df.alias("a").join(df.select("user").limit(0), "user", "left")):
            levels = unsteady(frame.select(*df.columns))
            assert levels is not None
            seen.append(dict(zip(df.columns, levels, strict=True)))
        df.count()

    run(spark, short, make, handle)
    assert len(seen) >= 6
    assert all(one == wanted for one in seen), seen


@pytest.mark.parametrize(
    ("make", "files"),
    [
        (lambda rows: rows.withColumn("more", F.col("id") + 1).where("more > 3"), True),
        (with_event, False),
        pytest.param(lambda rows: rows.withColumn("more", F.rand(3)), False, marks=pytest.mark.long),
        (lambda rows: rows.mapInArrow(lambda batches: batches, SCHEMA), False),
        pytest.param(listed, False, marks=pytest.mark.long),
        (lambda rows: rows.dropDuplicates(["user"]), False),
    ],
    ids=["expressions", "python", "drawn", "opaque", "aggregate", "state"],
)
def test_only_files_that_spark_alone_reads_may_be_read_twice(
    spark: SparkSession, short: Path, make: Make, files: bool
) -> None:
    """Whatever the handler is given of it; a frame that no query made is not one of its batches."""
    seen: list[bool] = []

    def handle(df: DataFrame, _: int) -> None:
        seen.extend((read_from_files(df), read_from_files(df.where("user is not null"))))
        seen.append(read_from_files(df.sparkSession.range(3).toDF("user")) or files)
        df.count()

    run(spark, short, make, handle)
    assert seen == [files] * len(seen)
    assert len(seen) >= 6


@pytest.mark.parametrize(
    ("make", "told"),
    some_of([(with_event, ("user", "id")), (listed, ("window", "user", "n"))], (listed, ("window", "user", "n"))),
)
def test_auto_stands_for_columns_that_are_the_same_each_time(
    spark: SparkSession, sk: Unskew, short: Path, make: Make, told: tuple[str, ...]
) -> None:
    run(spark, short, make, settled(batches(sk, lambda df, _: df.count(), short, spread="auto")))
    assert pin_at(short / "cp", 0).spread_columns == told


@pytest.mark.parametrize(
    ("settings", "match"),
    [({"spread": "event"}, "spread: 'event' is not allowed"), ({"learn": True, "interval": 1.0}, "key: 'user' is not")],
    ids=["spread", "key"],
)
def test_what_is_drawn_anew_neither_tells_rows_apart_nor_is_learned_by(
    spark: SparkSession, sk: Unskew, short: Path, settings: dict[str, object], match: str
) -> None:
    def make(rows: DataFrame) -> DataFrame:
        return with_event(rows) if "spread" in settings else rows.withColumn("user", drawn())

    made = batches(sk, lambda df, _: df.count(), short, **settings)
    with pytest.raises(StreamingQueryException, match=match):
        run(spark, short, make, made)
    made.close()
