"""A job that is started for one batch at a time (``availableNow`` on a schedule): each run a query and a session of
its own, one key with 39 % of the rows, another one in every run.

Arms, run by run in turn on one Spark: ``for_each_batch`` as it comes, ``repartition(n, key)`` on the same rows (hash),
and the same on rows whose keys are even (balanced). A row costs a fixed wait. Mark: from the second run on unskew takes
at most 1.1 times what the balanced rows take, by the sum of the runs. Every row comes out once.

Run: ``JAVA_HOME=$(bash tools/java.sh) python -m benchmarks.streaming_scheduled`` (5 minutes; ``--runs``, ``--wait``)
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

from benchmarks.streaming_arms import KEYS, SLOTS, bench, write_batch
from unskew.spark import Unskew
from unskew.spark.demo.work import job

SHARE, MARK = 0.39, 1.1
SCHEMA = "id bigint, word string, amount bigint"


def keys_of(number: int, rows: int, *, even: bool) -> NDArray[np.int64]:
    rng = np.random.default_rng(number)
    keys = rng.integers(0, KEYS, rows)
    return keys if even else np.where(rng.random(rows) < SHARE, KEYS + number, keys)


@dataclass
class Scheduled:
    """One arm: its source, where its results go, and what its runs took."""

    home: Path
    wait: float
    took: list[float] = field(default_factory=list)

    def work(self, df: DataFrame, number: int) -> None:
        job(df, SLOTS, self.wait, self.home / "out" / str(number))

    def run(self, spark: SparkSession, handler: Callable[[DataFrame, int], object]) -> None:
        rows = spark.readStream.schema(SCHEMA).option("recursiveFileLookup", "true").parquet(str(self.home / "in"))
        query = rows.writeStream.foreachBatch(handler).option("checkpointLocation", str(self.home / "cp"))
        began = time.perf_counter()
        query.trigger(availableNow=True).start().awaitTermination()
        self.took.append(time.perf_counter() - began)

    def counted(self) -> int:
        """Rows in all results."""
        return sum(int(np.sum(pq.read_table(folder)["n"].to_numpy())) for folder in (self.home / "out").iterdir())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--rows", type=int, default=120_000)
    parser.add_argument("--wait", type=float, default=1e-3, help="seconds a row")
    given = parser.parse_args()
    with bench() as (spark, folder):
        arms = {name: Scheduled(folder / name, given.wait) for name in ("unskew", "hash", "balanced")}
        for number in range(given.runs):
            for name, one in list(arms.items())[:: 1 if number % 2 else -1]:
                write_batch(one.home / "in", number, keys_of(number, given.rows, even=name == "balanced"), (1.0,) * 4)
                if name != "unskew":
                    one.run(spark, lambda df, at, one=one: one.work(df.repartition(SLOTS, "word"), at))
                    continue
                with Unskew(spark, stream="scheduled", partitions=SLOTS) as sk:
                    one.run(spark, sk.for_each_batch(one.work, "word", str(one.home / "cp"), "q", spread="id"))
        return judge(arms, given.runs * given.rows)


def judge(arms: dict[str, Scheduled], rows: int) -> int:
    """Print the figures and the mark; 0 where it is met."""
    for name, one in arms.items():
        print(f"{name:<9}" + " ".join(f"{took:6.2f}" for took in one.took))
    sums = {name: sum(one.took[1:]) for name, one in arms.items()}
    ratio, exact = sums["unskew"] / sums["balanced"], arms["unskew"].counted() == rows
    print(f"from the second run on: unskew / balanced {ratio:.2f} (mark {MARK}), hash / unskew "
          f"{sums['hash'] / sums['unskew']:.1f}; every row once: {'yes' if exact else 'NO'}")  # fmt: skip
    return 0 if ratio <= MARK and exact else 1


if __name__ == "__main__":
    raise SystemExit(main())
