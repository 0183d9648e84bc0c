"""``for_each_batch`` under Spark Connect: ``python -m tests.spark.streaming.connect_job FOLDER SERVICE``.

A Connect server, and a client of it, so handlers are pickled and run in another process. Each prints a line of JSON.
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
from pyspark.errors.exceptions.connect import SparkConnectException
from pyspark.sql import SparkSession

from tests.spark.streaming.job import NAME, PARTITIONS, SCHEMA, STREAM
from unskew.core.errors import ConfigError
from unskew.spark import Unskew

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

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


def run(spark: SparkSession, source: str, folder: str, sk: Unskew) -> str:
    """A query to its end, started again after it has failed; what it said then."""
    checkpoint, said = f"{folder}/cp", ""
    for _ in range(2):
        handle = sk.for_each_batch(noting(folder), "user", checkpoint, NAME, spread="id", threshold=0)
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(source)
        query = rows.writeStream.foreachBatch(handle).option("checkpointLocation", checkpoint)
        try:
            started(query.trigger(availableNow=True)).awaitTermination()
        except StreamingQueryException as why:
            said = str(why)
    return said


def started(query: DataStreamWriter) -> StreamingQuery:
    """Spark gives the process of a handler ten seconds to start, which no setting changes: where the machine is busy
    with other work, once more."""
    for _ in range(20):
        try:
            return query.start()
        except SparkConnectException as why:
            if "failed to connect back" not in str(why):
                raise
    return query.start()


def main(folder: str, service: str) -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    try:
        spark.conf.set("spark.sql.shuffle.partitions", "4")
        lock = threading.Lock()
        with Unskew(spark, stream=STREAM, partitions=PARTITIONS, policy="balanced") as sk:
            say("type", type(spark).__module__)
            say(
                "unpicklable",
                refused(lambda: sk.for_each_batch(lambda _df, _batch: lock.locked(), "user", f"{folder}/cp", NAME)),
            )
            say("alone", run(spark, f"{folder}/in", f"{folder}/alone", sk))
        with Unskew(spark, stream=STREAM, partitions=PARTITIONS, policy="balanced", service=service) as sk:
            say("service", run(spark, f"{folder}/in", f"{folder}/service", sk))
        with Unskew(spark, stream=STREAM, partitions=PARTITIONS, service="embedded") as sk:
            say("embedded", refused(lambda: sk.for_each_batch(noting(folder), "user", f"{folder}/cp", NAME)))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
