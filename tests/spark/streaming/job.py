"""One life of a driver: ``python -m tests.spark.streaming.job FOLDER ORDERS``, which may say when it is to die.

The query reads ``FOLDER/in``, a file a batch. Its handler's tasks note where each row is (``tries``), and write what a
careful sink would: a file a batch and partition, and what is there already is left as it is (``out``). So rows that are
elsewhere when a batch runs again are lost or doubled in the output, whatever else is right.

Death is a SIGKILL of the whole process group, JVM and all. It comes from here: nothing of unskew knows of it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from unskew.client import Client
from unskew.spark import Unskew
from unskew.spark.folders import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from unskew.core.freshness.ways import Fresh

__all__ = ["NAME", "PARTITIONS", "STREAM", "Orders"]

STREAM, NAME, PARTITIONS = "clicks", "q", 4
SCHEMA = "user string, id bigint"


@dataclass(frozen=True)
class Orders:
    """``life``: its number. ``kill``: at which step of ``batch`` the driver dies; one of before-pin, after-pin,
    in-batch, before-commit. ``pinned``: or else what nobody should write, the service's newest plan for each batch.
    ``fresh``: as ``for_each_batch`` takes it."""

    life: int = 0
    kill: str = ""
    batch: int = -1
    pinned: bool = True
    service: str | None = None
    shuffles: int = 4
    partitions: int = PARTITIONS
    policy: str = "balanced"
    fresh: Fresh = "previous"


def die(group: int) -> None:
    os.killpg(group, signal.SIGKILL)


def session(shuffles: int) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("unskew-lives")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.python.daemon.module": "unskew.spark.demo.daemon",  # for a short life
        "spark.sql.shuffle.partitions": str(shuffles),
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def die_at_pin(orders: Orders, group: int) -> None:
    create = Folder.create

    def dying(self: Folder, name: str, data: bytes) -> bool:
        here = name == f"{orders.batch}.pb"
        if here and orders.kill == "before-pin":
            die(group)
        made = create(self, name, data)
        if here and orders.kill == "after-pin":
            die(group)
        return made

    Folder.create = dying  # type: ignore[method-assign]


def writer(folder: str, batch: int, orders: Orders, group: int) -> Callable[[Iterator[pa.RecordBatch]], object]:
    """What a task does with its partition."""
    life, dies = orders.life, orders.kill == "in-batch" and orders.batch == batch
    middle = 2  # two tasks run at once and they start in order: one of the first two is done by then

    def write(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import numpy as np
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        parts = [one.column("id").to_numpy(zero_copy_only=False) for one in rows]
        ids = np.concatenate([np.zeros(0, np.int64), *parts])
        if dies and number >= middle:
            die(group)
            os._exit(1)  # workers have a group of their own
        for name in (f"tries/{batch}/{life}/{number}", f"out/{batch}/{number}"):
            at = Path(folder, name)
            at.parent.mkdir(parents=True, exist_ok=True)
            if not at.exists():
                half = at.with_name(f".{number}-{context.taskAttemptId()}")
                half.write_bytes(ids.tobytes())
                half.rename(at)
        yield pa.RecordBatch.from_pydict({"n": [len(ids)]})

    return write


def run(folder: str, orders: Orders) -> None:
    group = os.getpgrp()
    spark = session(orders.shuffles)
    client = None if orders.service is None else Client(orders.service)
    die_at_pin(orders, group)
    checkpoint = f"{folder}/cp"
    sk = Unskew(spark, stream=STREAM, partitions=orders.partitions, policy=orders.policy, service=orders.service)

    def handle(df: DataFrame, batch: int) -> None:
        write = writer(folder, batch, orders, group)
        df.mapInArrow(write, "n bigint").groupBy().sum("n").collect()  # type: ignore[arg-type]

    pinned = sk.for_each_batch(handle, "user", checkpoint, NAME, spread="id", fresh=orders.fresh, threshold=0)

    def each(df: DataFrame, batch: int) -> None:
        if orders.pinned:
            pinned(df, batch)
            assert pinned.settle(60.0)  # the next batch's plan is ready: each has a pin of its own to die at
        else:
            assert client is not None
            handle(sk.repartition(df, "user", client.get_plan(STREAM).plan, "id"), batch)
        if orders.kill == "before-commit" and batch == orders.batch:
            die(group)

    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"{folder}/in")
    query = rows.writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    run(sys.argv[1], Orders(**json.loads(sys.argv[2])))
