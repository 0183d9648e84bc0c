"""Clicks joined with the views of the same ad in the ten minutes before, where one ad has a third of everything.

By Spark alone, both streams' rows of that ad are in one partition's state, and one task makes nearly all pairs.
``sk.salted_join`` spreads its clicks over the partitions that a plan gives it, and copies its views there.

    python examples/streaming_join.py [views]
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from unskew.spark import Unskew

PARTITIONS = 4
FILES = 2
JUST_BEFORE = "clicked between viewed and viewed + interval 10 minutes"


def views_of(spark: SparkSession, rows: int) -> DataFrame:
    """A third of them of ad 0; half an hour of them a file."""
    return spark.range(rows).selectExpr(
        "id view",
        "if(id % 3 = 0, 0, cast(pmod(hash(id), 400) as bigint)) ad",
        f"timestamp_seconds(1704067200 + cast(id * {FILES * 1800} / {rows} as bigint)) viewed",
    )


def clicks_of(views: DataFrame) -> DataFrame:
    """One view in twenty is clicked on, soon."""
    return views.where("view % 20 = 9").selectExpr(
        "view click", "ad", "viewed + make_interval(0, 0, 0, 0, 0, 0, pmod(hash(view), 300)) clicked"
    )


class Handler:
    """What comes out: pairs by ad, and by partition."""

    def __init__(self) -> None:
        self.pairs: Counter[tuple[int, int]] = Counter()
        self.loads: Counter[int] = Counter()

    def __call__(self, batch: DataFrame, _: int) -> None:
        columns = (sf.spark_partition_id().alias("at"), "ad")
        for row in batch.groupBy(*columns).agg(sf.count("*").alias("n"), sf.sum(sf.hash("click", "view"))).collect():
            self.loads[row[0]] += row[2]
            self.pairs[row[1], 0] += row[2]
            self.pairs[row[1], 1] += row[3]  # which pairs, not only how many


def run(title: str, joined: DataFrame, checkpoint: Path) -> Handler:
    handler = Handler()
    writer = joined.where(JUST_BEFORE).writeStream.option("checkpointLocation", str(checkpoint))
    writer.foreachBatch(handler).trigger(availableNow=True).start().awaitTermination()
    most = max(handler.loads.values()) * PARTITIONS / handler.loads.total()
    print(f"{title}: the fullest partition has {most:.2f} times the mean")
    return handler


def main(rows: int = 20_000) -> None:
    builder = SparkSession.builder.master("local[2]").appName("streaming join")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.sql.shuffle.partitions", str(PARTITIONS)).getOrCreate()
    with TemporaryDirectory() as folder, Unskew(spark, stream="ads", partitions=PARTITIONS, policy="balanced") as sk:
        home = Path(folder)
        views_of(spark, rows).repartitionByRange(FILES, "view").write.parquet(str(home / "views"))
        past = spark.read.parquet(str(home / "views"))
        clicks_of(past).repartitionByRange(FILES, "click").write.parquet(str(home / "clicks"))
        plan = sk.plan(clicks_of(past), key="ad", spread="click")  # of the side that is spread

        def stream(name: str, at: str) -> DataFrame:
            where = str(home / name)
            reader = spark.readStream.schema(spark.read.parquet(where).schema).option("maxFilesPerTrigger", 1)
            return reader.parquet(where).withWatermark(at, "5 minutes")

        clicks, views = stream("clicks", "clicked"), stream("views", "viewed")
        alone = run("by Spark alone", clicks.join(views, "ad"), home / "alone")
        salted = sk.salted_join(clicks, views, "ad", plan, spread="click", checkpoint=str(home / "salted"), name="ads")
        ours = run("with salts", salted, home / "salted")
        print(f"{ours.loads.total():,} pairs; the same: {ours.pairs == alone.pairs}")
    spark.stop()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
