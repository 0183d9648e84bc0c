"""An existing job, and the same job with three lines changed.

The job finds sessions in click logs: all clicks of a host, in order, cut where an hour passes. That needs a whole host
at a time, so one busy host is one long task, and hashing puts other hosts into the same task.

    python examples/before_and_after.py [rows]
"""

from __future__ import annotations

import os
import sys
import time

import pandas as pd
from pyspark.sql import DataFrame, SparkSession

from unskew.spark import Unskew

SCHEMA = "host string, sessions long, clicks long"
HOUR = 3600
SLOTS = 8


def sessions(clicks: pd.DataFrame) -> pd.DataFrame:
    """The sessions of one host. It asks another service about the host, which takes a while for each click."""
    time.sleep(len(clicks) * 2e-4)  # the other service
    gaps = clicks["second"].sort_values().diff() > HOUR
    return pd.DataFrame({"host": [clicks["host"].iloc[0]], "sessions": [int(gaps.sum()) + 1], "clicks": [len(clicks)]})


def before(clicks: DataFrame) -> DataFrame:
    return clicks.groupBy("host").applyInPandas(sessions, SCHEMA)


def after(clicks: DataFrame) -> DataFrame:
    sk = Unskew(clicks.sparkSession, stream="sessions", partitions=3 * SLOTS)
    print(sk.advise(clicks, key="host", operator="group_apply", row_seconds=2e-4))
    return sk.group_apply(clicks, key="host", fn=sessions, schema=SCHEMA)


def logs(spark: SparkSession, rows: int) -> DataFrame:
    """Clicks whose hosts are skewed: the busiest has a tenth of them."""
    return spark.range(0, rows, 1, SLOTS).selectExpr(
        "concat('host-', cast(floor(pow(3000, pmod(hash(id), 100000) / 100000)) as int)) host",
        "pmod(hash(id, 1), 1000000) second",
    )


def main(rows: int = 120_000) -> None:
    builder = SparkSession.builder.master(f"local[{SLOTS}]").appName("before and after")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    clicks = logs(spark, rows).persist()
    clicks.count()
    results = []
    for name, job in (("before", before), ("after", after)):
        start = time.perf_counter()
        results.append(sorted(map(tuple, job(clicks).collect())))
        print(f"{name}: {time.perf_counter() - start:.1f} s")
    print("same result:", results[0] == results[1])
    spark.stop()


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # tasks run in this Python too
    main(*map(int, sys.argv[1:]))
