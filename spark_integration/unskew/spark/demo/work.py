"""The job of each arm, how it is measured, and the proof that both results are equal.

The job is the same code for both arms, only the placement of rows differs. It counts events by key, with the sums of
their amounts and ids: state that can be merged. A task holds its keys' state in Python and waits for each row; then
Spark merges the tasks' states. The sum of ids is for the proof: counts would not show that one row was lost and another
one doubled.

The proof compares both results with each other and with the stream, by Spark, from the files that the arms wrote: as
multisets of every key of every batch, each minus the other; and as a SHA-256 over the sorted lines of the final merge,
one a key, beside that of a plain ``groupBy`` over the events, independent of both arms.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, Observation
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from unskew.spark.demo.stream import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Digest", "MeasuredRun", "Proof", "counted", "job", "prove"]

_RESULT = "word string, n bigint, amount bigint, ids bigint"
_PARTIAL = f"{_RESULT}, task int, seconds double"


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
    _merged(partials).write.parquet(str(out))
    metrics = observation.get
    loads = tuple(int(metrics[f"n{task}"] or 0) for task in range(partitions))
    tasks = tuple(float(metrics[f"s{task}"] or 0.0) for task in range(partitions))
    return loads, tasks, int(metrics["states"])


def _metrics(partitions: int) -> list[Column]:
    metrics = [F.count(F.lit(1)).alias("states")]
    for task in range(partitions):
        here = F.col("task") == task
        metrics += [F.sum(F.when(here, F.col("n"))).alias(f"n{task}")]
        metrics += [F.max(F.when(here, F.col("seconds"))).alias(f"s{task}")]
    return metrics


def _merged(states: DataFrame) -> DataFrame:
    """One state for each key."""
    return states.groupBy("word").agg(*(F.sum(name).alias(name) for name in ("n", "amount", "ids")))


@dataclass(frozen=True)
class Digest:
    """The keys and rows of a result, and the SHA-256 of its sorted lines."""

    keys: int
    rows: int
    sha256: str


@dataclass(frozen=True)
class Proof:
    """``digests`` by name (``stream``, ``hash``, ``unskew``); how many results only one arm has."""

    digests: Mapping[str, Digest]
    only_hash: int
    only_unskew: int

    @property
    def equal(self) -> bool:
        return len(set(self.digests.values())) == 1 and self.only_hash == self.only_unskew == 0


def prove(spark: SparkSession, stream: Path, hashed: Path, planned: Path) -> Proof:
    events = spark.read.schema(f"{SCHEMA}, batch int").parquet(str(stream))
    truth = events.groupBy("batch", "word").agg(
        F.count(F.lit(1)).alias("n"), F.sum("amount").alias("amount"), F.sum("id").alias("ids")
    )
    one, other = (spark.read.schema(f"{_RESULT}, batch int").parquet(str(arm)) for arm in (hashed, planned))
    digests = {"stream": _digest(truth), "hash": _digest(one), "unskew": _digest(other)}
    return Proof(digests, one.exceptAll(other).count(), other.exceptAll(one).count())


def _digest(results: DataFrame) -> Digest:
    """Of the final merge: the state of each key over all batches."""
    line = F.concat_ws("\t", "word", "n", "amount", "ids")
    lines = F.concat_ws("\n", F.array_sort(F.collect_list(line)))
    row = _merged(results).agg(F.count(F.lit(1)), F.sum("n"), F.sha2(lines, 256)).head()
    assert row is not None  # an aggregate without keys has one row
    return Digest(int(row[0]), int(row[1] or 0), str(row[2]))
