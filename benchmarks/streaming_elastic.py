"""Prompt's Fig. 12 on Spark: rate and keys go up, by a fifth three times and once by a half, and down again, and
partitions follow.

A batch lands every interval, or when the one before is done. W is its time from trigger to commit, as Spark tells it,
over the interval. What Spark itself takes for a batch of this kind, over a second on two cores, is a sixth of the
interval: partitions do not help against it. Two cores that others use, too, shake a batch by 0.1 to 0.2 s: with eight
seconds between batches that is well below Zone 2's width, with four (``--interval 4``) as wide. Marks: W is back below
the threshold within 3 d batches of each step up; no change is taken back within d batches of it (no flapping); each row
comes out once, by key.

Run: ``JAVA_HOME=$(bash tools/java.sh) python -m benchmarks.streaming_elastic [--d N] [--interval S]``.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.streaming_arms import I64, arm, bench, keys_of, write_batch
from unskew.spark import Elastic

WAIT = 1.9e-4  # seconds a row, for each second of the interval
UP = ((16_000, 2_000), (19_500, 4_000), (24_000, 8_000), (29_000, 12_000), (43_500, 16_000))  # rows and keys of a batch
STEPS = (*UP, *UP[-2::-1])
THRESHOLD = 0.9
_COMMIT = 0.3  # seconds after a handler's end in which Spark commits, and says so


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--d", type=int, default=Elastic.d)
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--interval", type=float, default=8.0)
    asked = parser.parse_args()
    elastic = Elastic(4, 16, d=asked.d)
    with bench() as (spark, folder):
        w, partitions = run(spark, folder, elastic, asked.interval, asked.batches)
    for step in range(1, len(STEPS)):
        part = w[step * asked.batches : (step + 1) * asked.batches]
        over = max((at for at, value in enumerate(part) if value > THRESHOLD), default=-1) + 1
        mark = f" (mark {3 * asked.d})" if STEPS[step] > STEPS[step - 1] else ""
        print(f"step to {STEPS[step][0]:,} rows: W below {THRESHOLD} from batch {over} on{mark}, then {part[-1]:.2f}")
    changes = [(at, b - a) for at, (a, b) in enumerate(itertools.pairwise(partitions)) if b != a]
    flaps = [
        at for (at, one), (later, other) in itertools.pairwise(changes) if one * other < 0 and later - at <= asked.d
    ]
    print(f"partitions: {' '.join(map(str, partitions))}; taken back within d batches: {len(flaps)} (mark 0)")


def run(
    spark: SparkSession, folder: Path, elastic: Elastic, interval: float, batches: int
) -> tuple[list[float], list[int]]:
    """W of each batch, and its partitions."""
    took: dict[int, float] = {}
    partitions, given = [], []
    wait = WAIT * interval
    with arm(spark, folder, "unskew", wait=wait, partitions=elastic.least, elastic=elastic, interval=interval) as one:
        for number, (rows, keys) in enumerate(step for step in STEPS for _ in range(batches)):
            given.append(keys_of(number, rows, 0.8, keys=keys))
            write_batch(one.source, number, given[-1], (1.0,) * 4)
            until = time.monotonic() + interval
            one.run(number)
            time.sleep(max(until - time.monotonic(), _COMMIT))
            took |= _told(spark)
            partitions.append(one.bound)
            print(
                f"batch {number:3}: {rows:,} rows, {one.bound} partitions, W {took[number] / interval:.2f}", flush=True
            )
        print(f"{sum(map(len, given)):,} rows in, {_wrong(spark, one.out, given)} keys with another count (mark 0)")
    return [took[number] / interval for number in range(len(given))], partitions


def _told(spark: SparkSession) -> dict[int, float]:
    """Seconds of the last batches, from trigger to commit."""
    last = spark.streams.active[0].recentProgress
    return {one.batchId: one.durationMs["triggerExecution"] / 1000.0 for one in last if one.numInputRows}


def _wrong(spark: SparkSession, out: Path, given: list[I64]) -> int:
    """Keys whose rows are not all there once. Each row's id is another one, and their sum by key is compared too."""
    ids = [np.arange(len(keys), dtype=np.int64) + (number << 32) for number, keys in enumerate(given)]
    went_in = pa.table({"word": pa.array(np.concatenate(given)).cast(pa.string()), "id": np.concatenate(ids)})
    sums = went_in.group_by("word").aggregate([("id", "count"), ("id", "sum")]).to_pylist()
    wanted = {row["word"]: (row["id_count"], row["id_sum"]) for row in sums}
    found = spark.read.parquet(f"{out}/*").groupBy("word").agg(F.sum("n"), F.sum("ids")).collect()
    came_out = {row[0]: (row[1], row[2]) for row in found}
    return sum(wanted.get(key) != came_out.get(key) for key in wanted.keys() | came_out.keys())


if __name__ == "__main__":
    main()
