"""One life of a driver whose tasks learn: ``python -m tests.spark.streaming_learning.job FOLDER ORDERS``.

As ``tests.spark.streaming.job``, whose ways to die and whose sink these are.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.streaming.job import NAME, PARTITIONS, STREAM, Orders, die, die_at_pin, session, writer
from unskew.spark import Unskew
from unskew.spark.streaming.learning_placer import LearningPlacer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def wait_for_rounds() -> None:
    """What a batch has taught is known when the next one begins, so that each batch has a pin of its own to die at."""
    finished = LearningPlacer.finished

    def settled(self: LearningPlacer, *given: Any) -> None:
        finished(self, *given)
        assert self.settle(60.0)

    LearningPlacer.finished = settled  # type: ignore[method-assign]


def run(folder: str, orders: Orders) -> None:
    group = os.getpgrp()
    spark = session(orders.shuffles)
    wait_for_rounds()
    die_at_pin(orders, group)
    sk = Unskew(spark, stream=STREAM, partitions=PARTITIONS, service=orders.service)

    def handle(df: DataFrame, batch: int) -> None:
        write = writer(folder, batch, orders, group)
        df.mapInArrow(write, "n bigint").groupBy().sum("n").collect()  # type: ignore[arg-type]

    pinned = sk.for_each_batch(handle, "user", f"{folder}/cp", NAME, learn=True, interval=0.1, deadline=5.0)

    def each(df: DataFrame, batch: int) -> None:
        pinned(df, batch)
        if orders.kill == "before-commit" and batch == orders.batch:
            die(group)

    rows = spark.readStream.schema("user string, id bigint").option("maxFilesPerTrigger", 1).parquet(f"{folder}/in")
    query = rows.writeStream.foreachBatch(each).option("checkpointLocation", f"{folder}/cp")
    query.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    run(str(Path(sys.argv[1])), Orders(**json.loads(sys.argv[2])))
