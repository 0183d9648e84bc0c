"""How the tests run Java: many short lives on few cores.

``python -m tests.jvm`` (``make test`` calls it) runs a small Spark job once and keeps the classes that it loaded, in an
archive beside the venv's own files (class data sharing). With it a Spark starts and does three small jobs in 11 s and
not in 19; the optimising compiler, which no test lives long enough to gain from, would make that 22. Java itself sees
whether the archive fits its version and its jars, and goes on without it where it does not.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

__all__ = ["OPTIONS", "use"]

_ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
_SHORT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
_LONGEST = 120.0
OPTIONS = "JDK_JAVA_OPTIONS"  # read by every java from 9 on


def use() -> None:
    """For every Java that is started from here on, unless somebody has said otherwise."""
    shared = f' -Xlog:disable -XX:SharedArchiveFile="{_ARCHIVE}"' if _ARCHIVE.exists() else ""
    os.environ.setdefault(OPTIONS, _SHORT + shared)


def main() -> None:
    """Make the archive anew, of the last Java to end: Spark's own."""
    from unskew.spark.frame.jvm import end_gateway

    with tempfile.TemporaryDirectory(dir=_ARCHIVE.parent) as folder:
        made = Path(folder) / _ARCHIVE.name
        os.environ[OPTIONS] = f'{_SHORT} -Xlog:disable -XX:ArchiveClassesAtExit="{made}"'
        os.environ["PYSPARK_PYTHON"] = sys.executable
        _work(Path(folder))
        end_gateway(_LONGEST)  # with its end Java writes the archive
        made.replace(_ARCHIVE)


def _work(folder: Path) -> None:
    """Something of all that the tests do with Spark."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

    builder = SparkSession.builder.master("local[2]").config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(name, "false")
    spark = builder.config("spark.log.level", "OFF").getOrCreate()
    rows = spark.range(1000).selectExpr("id", "cast(id % 7 as string) AS word", "xxhash64(id) AS hash")
    rows.repartition(3, "word").write.parquet(str(folder / "rows"))
    rows.write.json(str(folder / "json"))
    stream = spark.readStream.schema(rows.schema).parquet(str(folder / "rows"))
    query = stream.writeStream.foreachBatch(
        lambda df, _: df.repartitionById(2, F.lit(0)).groupBy("word").count().collect()
    )
    query.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
    joined = spark.read.json(str(folder / "json")).join(rows.select("id", "hash"), "id")
    joined.groupBy("word").agg(F.sum("id"), F.count("word")).orderBy("word").collect()
    rows.mapInArrow(lambda batches: batches, rows.schema).groupBy("word").applyInPandas(_same, rows.schema).collect()
    rows.rdd.map(len).count()
    spark.stop()


def _same(rows):  # type: ignore[no-untyped-def]  # pandas is not imported where it is not needed
    return rows


if __name__ == "__main__":
    main()
