"""A Spark of three attempts, in which each task of the executor face fails once, after it reported.

``python -m tests.spark.executor_retry TARGET`` prints a line of JSON: what came out, and what the service counted.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from tests.spark.conftest import SETTINGS
from unskew.spark import Unskew
from unskew.spark.place import by_tasks
from unskew.spark.place.executor import TaskPlacement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, PARTS = 6_000, 3


@dataclass(frozen=True, eq=False)
class FailsOnce(TaskPlacement):
    """The first attempt ends with its last row out and its report sent."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from super().__call__(batches)
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            raise RuntimeError("as if this executor were lost")


def main(target: str) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2, 3]").appName("unskew-retry")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    by_tasks.TaskPlacement = FailsOnce  # type: ignore[misc]  # the task that ``place`` sends
    told = {kind: run(spark, target, kind) for kind in ("plan", "learn")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        spark.stop()
    sys.stdout.write(json.dumps(told) + "\n")


def run(spark: SparkSession, target: str, kind: str) -> dict[str, int]:
    rows = spark.range(0, ROWS, 1, PARTS).selectExpr("id", "if(id % 2 = 0, 0, id % 90) k")
    with Unskew(spark, stream=f"retry-{kind}", partitions=5, policy="prompt", service=target, required=True) as sk:
        if kind == "plan":
            sk.plan(rows, "k")
        pin = replace(sk.pin(learn=kind == "learn", batch=40), patience=60.0)
        spark.sparkContext.setJobGroup(kind, kind)
        placed = sk.place(rows, "k", pin=pin).select("id", F.spark_partition_id().alias("p"))
        out = placed.toArrow()
        tries = attempts(spark, kind)
        assert sk.client is not None
        counted = sk.client.build_plan(sk.stream, pin.number, fresh=True).plan.info.rows
        if kind == "learn":
            assert sk.pin(learn=True, batch=41).bound.records == counted
    return {
        "rows": out.num_rows,
        "distinct": len(set(out["id"].to_pylist())),
        "counted": counted,
        "attempts": tries,
    }


def attempts(spark: SparkSession, group: str) -> int:
    """How often each task of the first stage ran."""
    context = spark.sparkContext
    jobs = [context.statusTracker().getJobInfo(job) for job in context.statusTracker().getJobIdsForGroup(group)]
    stages = sorted({stage for job in jobs if job is not None for stage in job.stageIds})
    found = [context.statusTracker().getStageInfo(stage) for stage in stages]
    failed = sum(info.numFailedTasks for info in found if info is not None)
    return 1 + failed // PARTS


if __name__ == "__main__":
    main(sys.argv[1])
