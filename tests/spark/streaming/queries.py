"""Small streaming queries for tests: a file a batch, every row's partition noted, a sink that keeps what it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from tests.spark.streaming.job import NAME, SCHEMA
from tests.spark.streaming.lives import ROWS, ids_of, routed_by
from unskew.spark.streaming.pin_log import pin_folder
from unskew.wire import StoredPin, pinned_from_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from unskew.spark import Unskew

__all__ = ["Notes", "batches", "firsts", "pin_at", "placed", "run", "settled", "start"]


def start(
    spark: SparkSession, folder: Path, handle: Callable[[DataFrame, int], object], checkpoint: Path
) -> StreamingQuery:
    """The query over ``folder/in``, which ends by itself when all files are read."""
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    query = rows.writeStream.foreachBatch(handle).option("checkpointLocation", str(checkpoint))
    return query.trigger(availableNow=True).start()


def run(
    spark: SparkSession, folder: Path, handle: Callable[[DataFrame, int], object], checkpoint: Path | None = None
) -> None:
    """The same, to its end or to its failure."""
    start(spark, folder, handle, checkpoint or folder / "cp").awaitTermination()


def placed(df: DataFrame, batch: int) -> NDArray[np.int64]:
    """By row the partition that it is in; -1 where it is nowhere."""
    where = np.full(ROWS, -1)
    rows = df.select("id", F.spark_partition_id().alias("p")).toArrow()
    ids = rows.column("id").to_numpy() - batch * ROWS
    assert len(np.unique(ids)) == len(ids)
    where[ids] = rows.column("p").to_numpy()
    return where


@dataclass
class Notes:
    """A handler that notes where rows are in each run of a batch. It fails once in each batch of ``fails``, when half
    of the partitions are written; its sink keeps what is there, as one that is careful to write nothing twice."""

    fails: set[int] = field(default_factory=set)
    runs: dict[int, list[NDArray[np.int64]]] = field(default_factory=dict)
    sink: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def __call__(self, df: DataFrame, batch: int) -> None:
        where = placed(df, batch)
        self.runs.setdefault(batch, []).append(where)
        partitions = int(where.max()) + 1
        for partition in range(partitions):
            if batch in self.fails and partition == partitions // 2:
                self.fails.remove(batch)
                raise RuntimeError("the handler fails")
            self.sink.setdefault((batch, partition), ids_of(batch)[where == partition].tolist())

    def wrong(self, batches: int) -> int:
        """Rows of the input that the sink does not have exactly once."""
        found: Counter[int] = Counter()
        for ids in self.sink.values():
            found.update(ids)
        return sum(found[int(one)] != 1 for batch in range(batches) for one in ids_of(batch))

    def moved(self) -> int:
        """Rows that were not in one partition in all runs of their batch."""
        return sum(int((np.stack(runs).min(axis=0) != np.stack(runs).max(axis=0)).sum()) for runs in self.runs.values())

    def strayed(self, checkpoint: Path, name: str = NAME) -> int:
        """Rows that were elsewhere than the pin says."""
        known = firsts(checkpoint, name)
        strayed = 0
        for batch, runs in self.runs.items():
            wanted = routed_by(pin_at(checkpoint, max(one for one in known if one <= batch), name), batch)
            strayed += sum(int((one != wanted).sum()) for one in runs)
        return strayed


def firsts(checkpoint: Path, name: str = NAME) -> list[int]:
    """The batches that have a pin of their own."""
    return sorted(int(one.removesuffix(".pb")) for one in pin_folder(str(checkpoint), name).names())


def pin_at(checkpoint: Path, batch: int, name: str = NAME) -> StoredPin:
    data = pin_folder(str(checkpoint), name).read(f"{batch}.pb")
    assert data is not None
    return pinned_from_bytes(data)


def settled(handle: Any) -> Callable[[DataFrame, int], None]:
    """The next batch finds the plan that this one leads to."""

    def each(df: DataFrame, batch: int) -> None:
        handle(df, batch)
        assert handle.settle(60.0)

    return each


def batches(sk: Unskew, handle: Callable[[DataFrame, int], object], folder: Path, **settings: Any) -> Any:
    """The handler for Spark, with what most tests give."""
    given = {"checkpoint": str(folder / "cp"), "name": NAME, "spread": "id", "threshold": 0, "fresh": "previous"}
    return sk.for_each_batch(handle, "user", **{**given, **settings})
