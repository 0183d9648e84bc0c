"""``for_each_batch`` under Spark Connect.

``python -m tests.spark.streaming.connect_job FOLDER CONNECT SERVICE RUN ...``, where a run is ``service`` or ``alone``.

A client of a Connect server, so handlers are pickled and run in another process. Each prints a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.spark.connect_server import started
from tests.spark.streaming.job import NAME, PARTITIONS, SCHEMA, STREAM
from unskew.core.errors import ConfigError
from unskew.spark import Unskew

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unskew.core.freshness.ways import Fresh

FAILS = 1


def noting(folder: str) -> Callable[[DataFrame, int], None]:
    """A handler that keeps where rows are in each run of a batch, and fails in its first run of one batch."""

    def handle(df: DataFrame, batch: int) -> None:
        from tests.spark.streaming.queries import placed

        where = placed(df, batch)
        runs = Path(folder) / "runs"
        runs.mkdir(exist_ok=True)
        number = len(list(runs.glob(f"{batch}-*")))
        np.save(runs / f"{batch}-{number}", where)
        if batch == FAILS and number == 0:
            raise RuntimeError("the handler fails")

    return handle


def say(name: str, what: object) -> None:
    sys.stdout.write(json.dumps([name, what]) + "\n")
    sys.stdout.flush()


def refused(ask: Callable[[], object]) -> str:
    try:
        ask()
    except ConfigError as why:
        return str(why)
    return ""


def run(spark: SparkSession, source: str, folder: str, sk: Unskew, fresh: Fresh = "auto") -> str:
    """A query to its end, started again after it has failed; what it said then."""
    checkpoint, said = f"{folder}/cp", ""
    for _ in range(2):
        handle = sk.for_each_batch(noting(folder), "user", checkpoint, NAME, spread="id", fresh=fresh, threshold=0)
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(source)
        query = rows.writeStream.foreachBatch(handle).option("checkpointLocation", checkpoint)
        try:
            started(query.trigger(availableNow=True)).awaitTermination()
        except StreamingQueryException as why:
            said = str(why)
    return said


def main(folder: str, connect: str, service: str, *runs: str) -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.remote(connect).getOrCreate()
    try:
        spark.conf.set("spark.sql.shuffle.partitions", "4")
        lock = threading.Lock()
        with Unskew(spark, stream=STREAM, partitions=PARTITIONS, policy="balanced") as sk:
            say("type", type(spark).__module__)
            say(
                "unpicklable",
                refused(lambda: sk.for_each_batch(lambda _df, _batch: lock.locked(), "user", f"{folder}/cp", NAME)),
            )
            if "alone" in runs:
                say("alone", run(spark, f"{folder}/in", f"{folder}/alone", sk))
        with Unskew(spark, stream=STREAM, partitions=PARTITIONS, policy="balanced", service=service) as sk:
            say("service", run(spark, f"{folder}/in", f"{folder}/service", sk, "inflight"))
        with Unskew(spark, stream=STREAM, partitions=PARTITIONS, service="embedded") as sk:
            say("embedded", refused(lambda: sk.for_each_batch(noting(folder), "user", f"{folder}/cp", NAME)))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
