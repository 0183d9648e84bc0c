"""What ``advise`` takes for the cost of a task, a row, a group and a plan, measured on this machine by differences.

Each figure is a slope between two runs that differ in one thing, in processor seconds of this process and all that it
has started (Java, Python workers), which other work on the machine hardly changes; the least of some repeats. Beside it
the default in ``core/operators/job_seconds.py``. Mark: within a factor of 3, for no more is needed to say which of
three ways is the fastest.

Run: ``JAVA_HOME=$(bash tools/java.sh) python -m benchmarks.advice_costs [--repeats 3]`` (4 minutes)
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.advice_jobs import summed, write_frame
from benchmarks.spark_join import AQE, session
from unskew.core.operators.job_seconds import MOVE, STATE, costs_of
from unskew.spark import Unskew

SMALL, LARGE = 20_000, 1_000_000
SCHEMA = "k long, n long"
FACTOR = 3.0


def processor_seconds() -> float:
    """Of this process and all that descend from it, those that have ended included."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        stats[int(path.parent.name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    mine = {os.getpid()}
    while more := {pid for pid, (parent, _) in stats.items() if parent in mine} - mine:
        mine |= more
    return sum(stats[pid][1] for pid in mine) / os.sysconf("SC_CLK_TCK")


class Costs:
    """The frames that are run, and how."""

    def __init__(self, spark: SparkSession, folder: Path, repeats: int) -> None:
        self.spark, self.folder, self.repeats = spark, folder, repeats
        self.small, self.large = self.frame(SMALL, 400), self.frame(LARGE, 400)
        self.groups, self.each, self.wide = self.frame(SMALL, 4_000), self.frame(SMALL, SMALL), self.frame(LARGE, LARGE)
        self.right = self.frame(4_000, 400).select("k", F.col("id").alias("other"))
        self.sk = Unskew(spark, stream="costs", partitions=8)

    def frame(self, rows: int, keys: int) -> DataFrame:
        rng = np.random.default_rng(rows + keys)
        return write_frame(self.spark, self.folder / f"{rows}-{keys}", pa.array(rng.integers(0, keys, rows)), rng)

    def least(self, run: Callable[[], object]) -> float:
        """The first run, in which Java is slow, does not count."""
        times = []
        for _ in range(self.repeats + 1):
            start = processor_seconds()
            run()
            times.append(processor_seconds() - start)
        return min(times[1:])

    def took(self, df: DataFrame, partitions: int = 8) -> float:
        self.spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        return self.least(lambda: df.write.format("noop").mode("overwrite").save())

    def written(self, df: DataFrame) -> float:
        return self.least(lambda: df.write.mode("overwrite").parquet(str(self.folder / "out")))

    def figures(self) -> Iterator[tuple[str, float, float | None]]:
        """The name, what was measured, and the default."""
        group, join, sql = costs_of("group_apply"), costs_of("join"), costs_of("sql")
        rows = LARGE - SMALL
        yield "SQL task", (self.took(summed(self.small), 208) - self.took(summed(self.small))) / 200, sql.task
        python = (self.took(mapped(self.small, 68)) - self.took(mapped(self.small))) / 60
        yield "Python task", python, group.task
        files = (self.written(by_key(self.small, 108)) - self.written(by_key(self.small))) / 100
        yield "task that writes Parquet", files, join.task
        base = self.took(by_pandas(self.small))
        yield "pandas group", (self.took(by_pandas(self.groups)) - base) / 3_600, group.key
        yield "pandas row", (self.took(by_pandas(self.large)) - base) / rows, group.row
        yield "arrow group", (self.took(by_arrow(self.groups)) - self.took(by_arrow(self.small))) / 3_600, None
        moved = (self.took(by_key(self.large)) - self.took(by_key(self.small))) / rows
        yield "row that is shuffled", moved, MOVE
        yield "row that is combined", (self.took(summed(self.large)) - self.took(summed(self.small))) / rows, sql.row
        yield "state", (self.took(summed(self.wide)) - self.took(summed(self.each))) / rows, STATE
        whole, part = self.large.join(self.right, "k"), self.large.where("id % 10 = 0").join(self.right, "k")
        yield "row that a join writes", (self.written(whole) - self.written(part)) / (9 * LARGE), join.out
        self.spark.conf.set(AQE, "true")
        for name, df in (("20 k", self.small), ("1 M", self.large)):
            yield f"plan of {name} rows", self.least(lambda df=df: self.sk.plan(df, "k", spread="id")), None
            yield f"plan_join of {name} rows", self.least(lambda df=df: self.sk.plan_join(df, self.right, "k")), None


def by_key(df: DataFrame, n: int = 8) -> DataFrame:
    return df.repartition(n, "k")


def mapped(df: DataFrame, n: int = 8) -> DataFrame:
    return by_key(df, n).mapInArrow(lambda batches: batches, df.schema)


def by_pandas(df: DataFrame) -> DataFrame:
    first = lambda rows: rows.head(1)[["k", "id"]].set_axis(["k", "n"], axis=1)  # noqa: E731 - workers unpickle no module
    return df.groupBy("k").applyInPandas(first, SCHEMA)


def by_arrow(df: DataFrame) -> DataFrame:
    first = lambda rows: rows.slice(0, 1).select(["k", "id"]).rename_columns(["k", "n"])  # noqa: E731 - as above
    return df.groupBy("k").applyInArrow(first, SCHEMA)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    spark = session(2)
    spark.conf.set(AQE, "false")
    held = True
    try:
        with tempfile.TemporaryDirectory(prefix="unskew-costs-") as name:
            for what, seconds, default in Costs(spark, Path(name), given.repeats).figures():
                words = ""
                if default is not None:
                    near = default / FACTOR <= seconds <= default * FACTOR
                    held = held and near
                    words = f"default {default * 1e6:12.3f} us  {'held' if near else 'MISSED'}"
                print(f"{what:26} {seconds * 1e6:12.3f} us  {words}", flush=True)
    finally:
        spark.stop()
    return 0 if held else 1


if __name__ == "__main__":
    raise SystemExit(main())
