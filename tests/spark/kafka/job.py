"""A query from Kafka to files and back to Kafka: ``python -m tests.spark.kafka.job FOLDER ADDRESS JARS FRESH STOP ...``

Each batch of a number ``STOP`` stands still in its second action, at a gate that nobody opens: there the test kills
this whole process. Started once more it goes on where its checkpoint says. Through with all, it prints a line of JSON.

Each batch is written to a folder of its own, which a second run of the batch overwrites; and to the topic ``out``,
where a second run leaves its messages beside those of the first.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from tests.spark.conftest import SETTINGS
from tests.spark.failures.gates import Gate
from unskew.spark import Unskew

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from unskew.core.freshness.ways import Fresh

MESSAGES, BATCHES = 48_000, 4
PARTITIONS = 8
HELD = PARTITIONS - 1  # the last to start: other tasks of the batch have written by then

# A topic is there a while before each of its partitions has a leader, and on a busy machine that while is long.
READS = {"fetchOffset.numRetries": 120, "fetchOffset.retryIntervalMs": 500}
WRITES = {"kafka.max.block.ms": 180_000, "kafka.delivery.timeout.ms": 180_000}


@dataclass(frozen=True)
class Handler:
    """Two actions on one batch; both are to see each row in the same partition."""

    folder: Path
    address: str
    stops: tuple[int, ...]

    def __call__(self, batch: DataFrame, number: int) -> None:
        placed = batch.withColumn("place", F.spark_partition_id())
        placed.write.mode("overwrite").parquet(str(self.folder / "files" / str(number)))
        if number in self.stops:
            placed = placed.mapInArrow(gate(self.folder, number).passing(), placed.schema)
        out = placed.selectExpr("user key", "concat(partition, '-', offset) value")
        out.write.format("kafka").options(**WRITES, **{"kafka.bootstrap.servers": self.address, "topic": "out"}).save()


def gate(folder: Path, batch: int) -> Gate:
    where = folder / "gates" / str(batch)
    where.mkdir(parents=True, exist_ok=True)
    return Gate(str(where), held=(HELD,))


def main(folder: Path, address: str, jars: str, fresh: Fresh, *stops: str) -> None:
    spark = session(folder, jars)
    at: dict[str, Any] = {"kafka.bootstrap.servers": address}
    checkpoint = folder / "checkpoint"
    if not checkpoint.exists():
        produce(spark, at)
    # So many a batch, or a few less: Spark rounds down in each partition of the topic.
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": MESSAGES // BATCHES}
    rows = spark.readStream.format("kafka").options(**at, **limits, **READS, subscribe="in").load()
    rows = rows.selectExpr("cast(key as string) user", "cast(value as string) number", "topic", "partition", "offset")
    with Unskew(spark, stream="messages", partitions=PARTITIONS, policy="balanced") as sk:
        handle = sk.for_each_batch(
            Handler(folder, address, tuple(map(int, stops))),
            key="user",
            spread=["topic", "partition", "offset"],
            checkpoint=str(checkpoint),
            name="copy",
            fresh=fresh,
        )
        started = rows.writeStream.foreachBatch(handle).option("checkpointLocation", str(checkpoint))
        started.trigger(availableNow=True).start().awaitTermination()
        handle.close()
    came = (
        spark.read.format("kafka").options(**at, **READS, subscribe="out").load().selectExpr("cast(value as string) id")
    )
    ids = came.toArrow()["id"].to_pylist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        spark.stop()
    sys.stdout.write(json.dumps({"out": len(ids), "distinct": len(set(ids))}) + "\n")


def produce(spark: SparkSession, at: dict[str, Any]) -> None:
    """Half of the messages are of one user, and so in one partition of the topic; the others are of 500."""
    rows = spark.range(MESSAGES).selectExpr(
        "if(id % 2 = 0, 'hot', concat('user-', id % 500)) key", "cast(id as string) value"
    )
    rows.write.format("kafka").options(**at, **WRITES, topic="in").save()


def session(folder: Path, jars: str) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    builder = SparkSession.builder.master("local[2]").appName("unskew-kafka")
    own = {"spark.jars": jars, "spark.sql.warehouse.dir": str(folder / "warehouse")}
    for name, value in {**SETTINGS, "spark.ui.showConsoleProgress": "false", **own}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    _, into, broker, of_spark, how, *numbers = sys.argv
    main(Path(into), broker, of_spark, "same" if how == "same" else "previous", *numbers)
