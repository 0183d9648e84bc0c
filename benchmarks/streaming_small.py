"""Micro-batches of 1,000 rows: what ``for_each_batch`` adds to a batch that is too small to plan.

Mark: at most 1.1x of the same query with ``repartition(n, key)`` in its handler. In turns, in one Spark; the first
batches of each query are left out.

Run: ``JAVA_HOME=$(bash tools/java.sh) python -m benchmarks.streaming_small [--rows N] [--batches N] [--turns N]``.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.streaming_arms import SLOTS, bench, keys_of, median, write_batch
from unskew.spark import Unskew
from unskew.spark.demo.stream import SCHEMA

_LEFT_OUT = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--turns", type=int, default=6)
    asked = parser.parse_args()
    took: dict[str, list[float]] = {"plain": [], "unskew": []}
    with bench(2) as (spark, folder):
        for number in range(asked.batches):
            write_batch(folder / "source", number, keys_of(number, asked.rows, 1.2), (1.0,))
        with Unskew(spark, stream="small", partitions=SLOTS, policy="balanced") as sk:
            for turn in range(asked.turns):
                for way, handle in (("plain", _plain), ("unskew", None)):
                    home = Path(tempfile.mkdtemp(dir=folder))
                    planned = handle or sk.for_each_batch(_work, "word", str(home), "q", spread="id")
                    seconds = _trigger_seconds(spark, folder / "source", home, planned)
                    if turn:
                        took[way].append(median(seconds))
                    print(f"{way:7} {median(seconds) * 1000:.0f} ms", "" if turn else "(cold)", flush=True)
    ratio = median(took["unskew"]) / median(took["plain"])
    print(f"trigger to commit: {ratio:.2f}x of plain (mark 1.1)")


def _work(df: DataFrame, _number: int) -> None:
    df.write.format("noop").mode("overwrite").save()


def _plain(df: DataFrame, number: int) -> None:
    _work(df.repartition(SLOTS, "word"), number)


def _trigger_seconds(
    spark: SparkSession, source: Path, home: Path, handle: Callable[[Any, int], object]
) -> list[float]:
    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"{source}/batch=*")
    writer = files.writeStream.foreachBatch(handle).option("checkpointLocation", str(home))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    told = [one for one in query.recentProgress if one["numInputRows"] > 0]
    return [one["durationMs"]["triggerExecution"] / 1000.0 for one in told[_LEFT_OUT:]]


if __name__ == "__main__":
    main()
