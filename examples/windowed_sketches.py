"""How many visitors each page has, in windows of ten minutes, where one page has a third of all views.

Spark makes one sketch per window and page, so all views of the hot page in a window are one task's. With a salt beside
the grouping columns its sketch is in fragments, in the partitions that a plan gives it. The fragments of a window come
out in one batch, where they are merged.

    python examples/windowed_sketches.py [views]
"""

from __future__ import annotations

import sys
from collections import Counter
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from unskew.spark import Unskew

PARTITIONS = 4
FILES = 2


def views_of(spark: SparkSession, rows: int) -> DataFrame:
    """A third of them of page 0; fifteen minutes of them a file."""
    return spark.range(rows).selectExpr(
        "id view",
        "if(id % 3 = 0, 0, cast(pmod(hash(id), 500) as bigint)) page",
        "pmod(hash(id, 1), 20000) visitor",
        f"timestamp_seconds(1704067200 + cast(id * {FILES * 900} / {rows} as bigint)) at",
    )


class Handler:
    """What comes out, window by window: visitors of each page, and the views behind each partition's sketches."""

    def __init__(self) -> None:
        self.visitors: dict[tuple[datetime, int], int] = {}
        self.loads: Counter[int] = Counter()

    def __call__(self, batch: DataFrame, _: int) -> None:
        for row in batch.groupBy(sf.spark_partition_id().alias("at")).agg(sf.sum("views").alias("views")).collect():
            self.loads[row["at"]] += row["views"]
        fragments = Unskew.unsalted(batch) if "salt" in batch.columns else batch
        merged = fragments.groupBy("window.start", "page").agg(sf.hll_union_agg("sketch").alias("sketch"))
        for row in merged.select("start", "page", sf.hll_sketch_estimate("sketch").alias("visitors")).collect():
            self.visitors[row["start"], row["page"]] = row["visitors"]


def run(title: str, views: DataFrame, by: list[str], checkpoint: Path) -> Handler:
    sketches = views.groupBy(*by).agg(sf.hll_sketch_agg("visitor").alias("sketch"), sf.count("*").alias("views"))
    handler = Handler()
    writer = sketches.writeStream.outputMode("append").option("checkpointLocation", str(checkpoint))
    writer.foreachBatch(handler).trigger(availableNow=True).start().awaitTermination()
    most = max(handler.loads.values()) * PARTITIONS / handler.loads.total()
    print(f"{title}: the fullest partition has {most:.2f} times the mean")
    return handler


def main(rows: int = 200_000) -> None:
    builder = SparkSession.builder.master("local[2]").appName("windowed sketches")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.sql.shuffle.partitions", str(PARTITIONS)).getOrCreate()
    with TemporaryDirectory() as folder, Unskew(spark, stream="pages", partitions=PARTITIONS, policy="balanced") as sk:
        home = Path(folder)
        views_of(spark, rows).repartitionByRange(FILES, "view").write.parquet(str(home / "views"))
        past = spark.read.parquet(str(home / "views"))
        plan = sk.plan(past, key="page", spread="view")  # from yesterday's views, say

        stream = spark.readStream.schema(past.schema).option("maxFilesPerTrigger", 1).parquet(str(home / "views"))
        views = stream.withWatermark("at", "1 minute").select("*", sf.window("at", "10 minutes"))
        alone = run("by Spark alone", views, ["window", "page"], home / "alone")
        salted = views.select("*", sk.salt(views, "page", plan, by=["window", "page"], mode="append", spread="view"))
        ours = run("with salts", salted, ["window", "page", "salt"], home / "salted")

        print(
            f"{len(ours.visitors):,} windows of a page; the same ones: {ours.visitors.keys() == alone.visitors.keys()}"
        )
        worst = max(abs(ours.visitors[one] / count - 1) for one, count in alone.visitors.items())
        print(f"estimates differ by {100 * worst:.1f} % at most")  # a union of sketches is another estimate
    spark.stop()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
