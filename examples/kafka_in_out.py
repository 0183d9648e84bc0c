"""Clicks from Kafka, scored, and back to Kafka, where one user has a third of them: each batch before and after.

spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION examples/kafka_in_out.py HOST:PORT [clicks]

VERSION is that of Spark. It makes two topics on the broker, with names of their own for each run.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from tempfile import TemporaryDirectory

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from unskew.spark import Unskew

PARTITIONS, BATCHES = 8, 5
SOURCE = ["topic", "partition", "offset"]  # identify a click, also beside others of the same user


def session() -> SparkSession:
    return (
        SparkSession.builder.master("local[2]")
        .appName("kafka-in-out")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(PARTITIONS))
        .getOrCreate()
    )


def produce(spark: SparkSession, broker: str, topic: str, clicks: int) -> None:
    """Kafka, too, puts all clicks of a user into one partition of the topic."""
    rows = spark.range(clicks).selectExpr(
        "if(id % 3 = 0, 'user-0', concat('user-', pmod(hash(id), 5000))) key", "cast(id as string) value"
    )
    rows.write.format("kafka").option("kafka.bootstrap.servers", broker).option("topic", topic).save()


def fullest(batch: DataFrame, task: Column, tasks: int) -> float:
    """The rows of the fullest task over the mean."""
    counts = [row["count"] for row in batch.groupBy(task).count().collect()]
    return max(counts) * tasks / sum(counts)


def scored(broker: str, topic: str) -> Callable[[DataFrame, int], None]:
    """The handler of each batch. A batch that runs again is written again, and Kafka keeps both copies: a reader
    recognizes them by the click's origin (header ``from``)."""

    def handle(batch: DataFrame, number: int) -> None:
        by_hash = fullest(batch, sf.pmod(sf.hash("user"), sf.lit(PARTITIONS)), PARTITIONS)
        by_plan = fullest(batch, sf.spark_partition_id(), PARTITIONS)
        print(f"batch {number}: the fullest task has {by_hash:.2f} times the mean by hash, {by_plan:.2f} by unskew")
        origin = sf.concat_ws("-", *SOURCE).cast("binary")
        out = batch.select(
            sf.col("user").alias("key"),
            sf.sha2("click", 256).alias("value"),
            sf.array(sf.struct(sf.lit("from").alias("key"), origin.alias("value"))).alias("headers"),
        )
        out.write.format("kafka").option("kafka.bootstrap.servers", broker).option("topic", topic).save()

    return handle


def run(spark: SparkSession, broker: str, source: str, sink: str, clicks: int) -> None:
    stream = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", broker)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", clicks // BATCHES)
        .load()
        .selectExpr("cast(key as string) user", "cast(value as string) click", *SOURCE)
    )
    # A query that is to go on after this run has its checkpoint in a folder that stays.
    with Unskew(spark, stream="clicks", partitions=PARTITIONS, policy="balanced") as sk, TemporaryDirectory() as folder:
        handle = sk.for_each_batch(
            scored(broker, sink), key="user", spread=SOURCE, checkpoint=folder, name="scores", persist=True
        )
        query = stream.writeStream.foreachBatch(handle).option("checkpointLocation", folder)
        query.trigger(availableNow=True).start().awaitTermination()
        handle.close()


def main(broker: str, clicks: int = 100_000) -> None:
    spark = session()
    source, sink = (f"unskew-{word}-{uuid.uuid4().hex[:8]}" for word in ("clicks", "scores"))
    produce(spark, broker, source, clicks)
    run(spark, broker, source, sink, clicks)

    read = spark.read.format("kafka").option("kafka.bootstrap.servers", broker).option("includeHeaders", "true")
    scores = read.option("subscribe", sink).load().selectExpr("headers[0].value origin").dropDuplicates()
    print(f"\nscores in {sink}: {scores.count():,} of {clicks:,} clicks, each once")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
