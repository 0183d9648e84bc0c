"""Shared by the streaming benchmarks: batches as files, the ways to work on them, and queries that run them.

The work is the demo's: a row costs a fixed wait in a Python task, then Spark merges the keys' states. Ways:

- ``aqe``: ``repartition(key)``, of which AQE makes as few partitions as there are bytes for, mostly one;
- ``hash``: ``repartition(n, key)``, AQE on, as a user writes it who knows that the work is more than its bytes;
- ``sliced``: blocks as they come, one for each slice of the interval (time-based blocks in Prompt), states merged;
- ``unskew``: ``Unskew.for_each_batch`` by the given freshness, counting included.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

from unskew.core.freshness.ways import Fresh
from unskew.simulate.key_streams import drifting
from unskew.spark import Elastic, Unskew
from unskew.spark.demo.local import QUICK, local_spark
from unskew.spark.demo.queries import Query, checkpoint_of
from unskew.spark.demo.stream import folder_of
from unskew.spark.demo.work import job
from unskew.spark.streaming.foreach import ForEachBatch

SLOTS = 16
KEYS = 40_000
I64 = NDArray[np.int64]


@contextmanager
def bench(slots: int = SLOTS, java: str = QUICK) -> Iterator[tuple[SparkSession, Path]]:
    """A local Spark with so many slots, and a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory() as name, local_spark(slots, Path(name), java) as spark:
        yield spark, Path(name)


def write_batch(folder: Path, number: int, keys: I64, slices: Sequence[float] = (1.0,) * SLOTS) -> None:
    """A batch as files, one a slice of its interval; ``slices`` are their shares of the rows."""
    home = folder_of(folder, number)
    home.mkdir(parents=True)
    ends = np.rint(np.cumsum(slices) / sum(slices) * len(keys)).astype(int)
    ids = np.arange(len(keys), dtype=np.int64) + (number << 32)
    table = pa.table({"id": ids, "word": pa.array(keys).cast(pa.string()), "amount": ids % 97})
    for at, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        pq.write_table(table.slice(start, end - start), home / f"part-{at:03}.parquet")


def keys_of(seed: int, rows: int, exponent: float, change: int | None = None, keys: int = KEYS) -> I64:
    """Keys by Zipf's law; after every ``change`` rows others are hot."""
    return drifting(np.random.default_rng(seed), rows, keys, exponent, change or rows, 100)


@dataclass(eq=False)
class Arm:
    """One way as a streaming query. ``run`` works one batch off and tells its seconds, counting of its keys included
    where ``settled``."""

    query: Query
    source: Path
    out: Path
    planned: ForEachBatch | None = None
    bound: int = 0  # partitions of the last batch's plan
    took: list[float] = field(default_factory=list)
    longest: list[float] = field(default_factory=list)  # seconds of each batch's longest task
    imbalance: list[float] = field(default_factory=list)

    def worked(self, loads: Sequence[int], tasks: Sequence[float]) -> None:
        self.longest.append(max(tasks))
        self.imbalance.append(max(loads) * len(loads) / max(sum(loads), 1))

    def run(self, number: int, *, settled: bool = False) -> float:
        began = time.perf_counter()
        seconds = self.query.run(self.source, number)
        if settled and self.planned is not None:
            self.planned.settle(60.0)
            seconds = time.perf_counter() - began
        self.took.append(seconds)
        return seconds


@contextmanager
def arm(
    spark: SparkSession,
    folder: Path,
    way: str,
    *,
    wait: float,
    service: str | None = None,
    partitions: int = SLOTS,
    elastic: Elastic | None = None,
    interval: float | None = None,
    fresh: Fresh = "auto",
) -> Iterator[Arm]:
    """The way as a query, with a source folder of its own name under ``folder``."""
    home = Path(tempfile.mkdtemp(prefix=f"{way}-", dir=folder))

    with ExitStack() as stack:
        planned = None
        if way == "unskew":

            def work(df: DataFrame, number: int) -> None:
                here = sk.plans.context.batch
                one.bound = 0 if here is None or here.plan is None else here.plan.partitions
                one.worked(*job(df, partitions if elastic is None else elastic.most, wait, one.out / str(number))[:2])

            name = f"bench-{home.name}"
            sk = stack.enter_context(Unskew(spark, stream=name, partitions=partitions, service=service))
            checkpoint = str(checkpoint_of(home))
            planned = sk.for_each_batch(
                work,
                "word",
                checkpoint,
                "q",
                spread="id",
                fresh=fresh,
                threshold=1,
                elastic=elastic,
                interval=interval,
            )
            stack.callback(planned.close)
        else:

            def plain(df: DataFrame, number: int) -> None:
                placed = df if way == "sliced" else df.repartition(*([partitions] if way == "hash" else []), "word")
                one.worked(*job(placed, partitions, wait, one.out / str(number))[:2])

        query = stack.enter_context(Query(spark, home, planned or plain))
        one = Arm(query, folder / "source", home / "out", planned)
        yield one


def median(values: Sequence[float]) -> float:
    return float(np.median(values))
