"""Prompt's Fig. 12 on Spark: rate and keys go up by a fifth at a time and down again, and partitions follow.

W is a batch's time, trigger to commit, over the interval. What Spark itself takes for a batch of this kind, near a
second on two cores, is a quarter of the interval: partitions do not help against it. Marks: W is back below the
threshold within 3 d batches of each step up; no change is taken back within d batches of it (no flapping); the rows
that come out are those that went in, each once.

Run: ``JAVA_HOME=$(bash tools/java.sh) python -m benchmarks.streaming_elastic [--d N] [--increment N]``.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.streaming_arms import arm, bench, keys_of, write_batch
from unskew.spark import Elastic

INTERVAL = 4.0
WAIT = 5e-4
UP = ((16_000, 2_000), (19_000, 4_000), (23_000, 8_000), (28_000, 12_000), (34_000, 16_000))  # rows and keys of a batch
STEPS = (*UP, *UP[-2::-1])
THRESHOLD = 0.9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--d", type=int, default=2)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--increment", type=int, default=1)
    asked = parser.parse_args()
    elastic = Elastic(4, 16, d=asked.d, increment=asked.increment)
    with bench() as (spark, folder):
        w, partitions = run(spark, folder, elastic, asked.batches)
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


def run(spark: SparkSession, folder: Path, elastic: Elastic, batches: int) -> tuple[list[float], list[int]]:
    w, partitions, number, rows_in = [], [], 0, 0
    with arm(spark, folder, "unskew", wait=WAIT, partitions=elastic.least, elastic=elastic, interval=INTERVAL) as one:
        for rows, keys in STEPS:
            for _ in range(batches):
                write_batch(one.source, number, keys_of(number, rows, 0.8, keys=keys), (1.0,) * 4)
                w.append(one.run(number, settled=True) / INTERVAL)
                bound = one.bound
                partitions.append(bound)
                print(f"batch {number:3}: {rows:,} rows, {bound} partitions, W {w[-1]:.2f}", flush=True)
                rows_in, number = rows_in + rows, number + 1
        out = spark.read.parquet(f"{one.out}/*").agg(F.sum("n")).head()
    print(f"rows in {rows_in:,}, counted {out[0] if out else 0:,}")
    return w, partitions


if __name__ == "__main__":
    main()
