"""What placing rows by Python tasks costs, beside an identity ``mapInArrow`` and Spark's ``repartition(n, key)`` of the
same rows in one run.

Mark: the executor face at most 1.5x of that. Rows go through Python either way; ours carry two hash columns there and a
partition number back, are counted, and with a split plan or learning are told apart one by one.

Runs are interleaved, and the median of the paired ratios counts; the CPU time is the JVM's and leaves the Python
workers out. Default 2 M rows and 7 pairs; in full: 10 M and 15.

Run: ``JAVA_HOME=$(bash tools/java.sh) python -m benchmarks.spark_executor [rows] [pairs] [key ...]``
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks.spark_native import N, paired, session, sink, sixty_four
from unskew.client import Client, testing
from unskew.core.dalton.qtable import QTable
from unskew.core.rounds.partition_agent import RoutingChoice, decide, distinct_hashes
from unskew.spark.place.by_tasks import place
from unskew.spark.place.task_pin import TaskPin

MARK = 1.5


def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def frame(spark: SparkSession, rows: int) -> DataFrame:
    """Zipf 1.0 over a million keys, as a long and as a string, and an id; cached. Drawn by hashing the id: where tasks
    learn, a key that comes from ``rand()`` is refused."""
    uniform = "pmod(hash(id), 1000003) / 1000003"
    drawn = spark.range(0, rows, 1, 4).selectExpr("id", f"cast(floor(exp({uniform} * ln(1e6))) as bigint) long")
    made = drawn.selectExpr("id", "long", "concat('user-', long) string").cache()
    made.count()
    return made


def works(rows: DataFrame, key: str, target: str) -> dict[str, Any]:
    plans = sixty_four(rows, key)
    bounds = {name: RoutingChoice(N, plan) for name, plan in plans.items()}
    pins = {name: TaskPin("s", bound, "bench") for name, bound in bounds.items()}
    learn = TaskPin("s", RoutingChoice(N, table=QTable.empty(N)), "bench")
    told = replace(learn, service=target, sync=True)
    return {
        "identity": sink(rows.mapInArrow(identity, rows.schema).repartition(N, key)),
        "whole keys": sink(place(rows, pins["whole"], key)),
        "split, spread=id": sink(place(rows, pins["split"], key, "id")),
        "split, spread=auto": sink(place(rows, pins["split"], key)),
        "whole keys, reported": sink(place(rows, replace(pins["whole"], service=target), key)),
        "learning": sink(place(rows, learn, key)),
        "learning, reported": sink(place(rows, told, key)),
    }


def machine(rows: int) -> None:
    """The decision alone, for one partition."""
    rng = np.random.default_rng(1)
    keys = np.unique(rng.integers(0, 2**64, 1_000_100, dtype=np.uint64))
    drawn = keys[np.floor(np.exp(rng.random(rows) * np.log(1e6))).astype(np.int64)]
    spread = rng.integers(0, 2**64, rows, dtype=np.uint64)
    bound = RoutingChoice(N, table=QTable.empty(N), alike=True)
    decide(bound, drawn[:10_000], spread[:10_000])
    for name, work in {
        "told apart": lambda: distinct_hashes(spread),
        "all alike": lambda: distinct_hashes(np.zeros(rows, np.uint64)),
        "learned and routed": lambda: decide(bound, drawn, spread),
    }.items():
        took = []
        for _ in range(5):
            start = time.perf_counter()
            work()
            took.append(time.perf_counter() - start)
        print(f"  {name:20} {np.median(took) / rows * 1e9:6.1f} ns a row", flush=True)


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    print(f"one partition of {rows // 4:,} rows", flush=True)
    machine(rows // 4)
    spark = session()
    df = frame(spark, rows)
    print(f"{rows:,} rows into {N}, beside identity mapInArrow + repartition (mark {MARK}x)", flush=True)
    with testing.embedded() as service, Client(service.target) as client:
        client.put_stream("s", partitions=N, policy="kip")
        for key in sys.argv[3:] or ("long", "string"):
            doing = works(df.select("id", key), key, service.target)
            for name, line in paired(spark, doing, "identity", pairs).items():
                print(f"  {key:8} {name:20} {line}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
