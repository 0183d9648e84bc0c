"""What each arm does with its rows, and how that is measured: the same code for both, only the placement differs.

The job counts events by key, with the sum of their amounts and of their ids: state that can be merged. A task holds its
keys' state in Python and pays the wait of each row; then Spark merges what the tasks have. The sum of ids is there for
the proof: a row lost and another one doubled would not show in counts.
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
    """A batch by one arm. ``seconds``: from asking for it until its result is written; ``loads``: rows by partition;
    ``tasks``: seconds that each partition worked; ``states``: keys' states held, over all partitions."""

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
    """The task: each row's wait, then the state of each key that came here."""
    began = time.perf_counter()
    seen = []
    for batch in batches:
        time.sleep(batch.num_rows * wait)
        seen.append(batch)
    if not seen:
        return
    sums = pa.Table.from_batches(seen).group_by("word").aggregate([("id", "count"), ("amount", "sum"), ("id", "sum")])
    context = TaskContext.get()
    task = np.full(len(sums), 0 if context is None else context.partitionId(), np.int32)
    took = np.full(len(sums), time.perf_counter() - began)
    columns = [sums["word"], sums["id_count"], sums["amount_sum"], sums["id_sum"], pa.array(task), pa.array(took)]
    yield from pa.table(columns, names=["word", "n", "amount", "ids", "task", "seconds"]).to_batches()


def job(placed: DataFrame, partitions: int, wait: float, out: Path) -> tuple[tuple[int, ...], tuple[float, ...], int]:
    """Run the job on placed rows and write its result: rows and seconds of each partition, and states held."""
    seen = Observation()
    partials = placed.mapInArrow(partial(counted, wait), _PARTIAL).observe(seen, *_watched(partitions))
    merged = partials.groupBy("word").agg(
        F.sum("n").alias("n"), F.sum("amount").alias("amount"), F.sum("ids").alias("ids")
    )
    merged.write.parquet(str(out))
    found = seen.get
    loads = tuple(int(found[f"n{task}"] or 0) for task in range(partitions))
    tasks = tuple(float(found[f"s{task}"] or 0.0) for task in range(partitions))
    return loads, tasks, int(found["states"])


def _watched(partitions: int) -> list[Column]:
    """What Spark is to note while the job runs, at no job of its own."""
    watched = [F.count(F.lit(1)).alias("states")]
    for task in range(partitions):
        here = F.col("task") == task
        watched += [F.sum(F.when(here, F.col("n"))).alias(f"n{task}")]
        watched += [F.max(F.when(here, F.col("seconds"))).alias(f"s{task}")]
    return watched
