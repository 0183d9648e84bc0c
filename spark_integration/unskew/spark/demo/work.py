"""The job of each arm and how it is measured: the same code for both, only the placement of rows differs.

The job counts events by key, with the sums of their amounts and ids: state that can be merged. A task holds its keys'
state in Python and waits for each row; then Spark merges the tasks' states. The sum of ids is for the proof: counts
would not show that one row was lost and another one doubled.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, Observation
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["MeasuredRun", "counted", "job"]

_PARTIAL = "word string, n bigint, amount bigint, ids bigint, task int, seconds double"


@dataclass(frozen=True)
class MeasuredRun:
    """A batch by one arm. ``seconds``: from its start until its result is written; ``loads``: rows by partition;
    ``tasks``: seconds that each partition worked; ``states``: states of keys, summed over partitions."""

    seconds: float
    loads: tuple[int, ...]
    tasks: tuple[float, ...]
    states: int

    @property
    def imbalance(self) -> float:
        """The fullest partition over its fair share."""
        return max(self.loads) * len(self.loads) / max(sum(self.loads), 1)

    @property
    def longest(self) -> float:
        return max(self.tasks)


def counted(wait: float, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The task: waits for each row, then gives the state of each of its keys."""
    began = time.perf_counter()
    received = []
    for batch in batches:
        time.sleep(batch.num_rows * wait)
        received.append(batch)
    if not received:
        return
    sums = (
        pa.Table.from_batches(received).group_by("word").aggregate([("id", "count"), ("amount", "sum"), ("id", "sum")])
    )
    context = TaskContext.get()
    task = np.full(len(sums), 0 if context is None else context.partitionId(), np.int32)
    took = np.full(len(sums), time.perf_counter() - began)
    columns = [sums["word"], sums["id_count"], sums["amount_sum"], sums["id_sum"], pa.array(task), pa.array(took)]
    yield from pa.table(columns, names=["word", "n", "amount", "ids", "task", "seconds"]).to_batches()


def job(placed: DataFrame, partitions: int, wait: float, out: Path) -> tuple[tuple[int, ...], tuple[float, ...], int]:
    """Run the job on placed rows and write its result; rows and seconds of each partition, and the states."""
    observation = Observation()
    partials = placed.mapInArrow(partial(counted, wait), _PARTIAL).observe(observation, *_metrics(partitions))
    merged = partials.groupBy("word").agg(
        F.sum("n").alias("n"), F.sum("amount").alias("amount"), F.sum("ids").alias("ids")
    )
    merged.write.parquet(str(out))
    metrics = observation.get
    loads = tuple(int(metrics[f"n{task}"] or 0) for task in range(partitions))
    tasks = tuple(float(metrics[f"s{task}"] or 0.0) for task in range(partitions))
    return loads, tasks, int(metrics["states"])


def _metrics(partitions: int) -> list[Column]:
    """What Spark counts while the job runs."""
    metrics = [F.count(F.lit(1)).alias("states")]
    for task in range(partitions):
        here = F.col("task") == task
        metrics += [F.sum(F.when(here, F.col("n"))).alias(f"n{task}")]
        metrics += [F.max(F.when(here, F.col("seconds"))).alias(f"s{task}")]
    return metrics
