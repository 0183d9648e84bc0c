"""Parquet files of even size from rows that are not: by hash of the key, and by a plan.

Files written after a shuffle by key are as uneven as the keys: one task writes for minutes, and readers wait for the
large file. ``sk.repartition`` splits the few heavy keys over files and keeps all others whole, so a filter on
the key still reads few files.

    python examples/even_parquet.py [rows]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from unskew.spark import Unskew

FILES = 12


def events_of(spark: SparkSession, rows: int) -> DataFrame:
    """Events of two thousand devices; one sends a third of them."""
    return spark.range(0, rows, 1, 4).selectExpr(
        "id event",
        "if(id % 3 = 0, 0, pmod(hash(id), 2000)) device",
        "sha2(cast(id as string), 256) message",
    )


def write(name: str, events: DataFrame, folder: Path) -> DataFrame:
    """Write the events, print the sizes of the files, and read them again."""
    events.write.parquet(str(folder))
    sizes = sorted((file.stat().st_size for file in folder.glob("*.parquet")), reverse=True)
    mean = sum(sizes) / len(sizes)
    print(f"\n{name}: {len(sizes)} files, the largest has {sizes[0] / mean:.2f} times the mean")
    for size in sizes:
        print(f"  {size / 2**20:7.2f} MiB  {'#' * round(12 * size / mean)}")
    written = events.sparkSession.read.parquet(str(folder))
    pieces = written.select("device", sf.input_file_name()).distinct().count()
    print(f"  files that a device is in, on average: {pieces / written.select('device').distinct().count():.3f}")
    return written


def main(rows: int = 600_000) -> None:
    builder = SparkSession.builder.master("local[2]").appName("even parquet")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    events = events_of(spark, rows)
    with tempfile.TemporaryDirectory() as name, Unskew(spark, stream="files", partitions=FILES) as sk:
        before = write("before, by hash of the key", events.repartition(FILES, "device"), Path(name, "before"))
        sk.plan(events, key="device", spread="event")
        after = write("after, by the plan", sk.repartition(events, key="device"), Path(name, "after"))
        print("\nsame rows:", before.exceptAll(after).isEmpty() and after.exceptAll(before).isEmpty())
    spark.stop()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
