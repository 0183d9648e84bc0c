"""The two arms as streaming queries over files that are added batch by batch.

Each has its own folder, checkpoint and handler. A batch is added for one arm, and for the other when the first has
finished it: two queries at a time on two cores would slow each other. The files of a batch appear with one rename of
their folder, so that they are one micro-batch.
"""

from __future__ import annotations

import os
import queue
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from unskew.core.errors import UnskewError
from unskew.spark.demo.stream import SCHEMA, folder_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Query", "StalledError", "checkpoint_of"]

_TRIGGER = "100 milliseconds"  # listing files takes processor time
_LONGEST = 600.0
_KEPT = 8
"""Batches that stay in the folder. Spark would run a job to list more than 32 folders, at each trigger."""


class StalledError(UnskewError):
    """A query did not finish a batch."""


class Query:
    """One arm's query. ``work`` gets each batch and its number."""

    def __init__(self, spark: SparkSession, home: Path, work: Callable[[DataFrame, int], None]) -> None:
        self._landing = home / "landing"
        self._landing.mkdir(parents=True)
        self._work, self._done = work, queue.SimpleQueue[float]()
        files = spark.readStream.schema(SCHEMA).parquet(f"{self._landing}/batch=*")
        writer = files.writeStream.foreachBatch(self._timed).trigger(processingTime=_TRIGGER)
        self._query = writer.option("checkpointLocation", str(checkpoint_of(home))).start()

    def run(self, source: Path, number: int) -> float:
        """Add this batch and wait until it is done; how many seconds its handler took."""
        hidden = self._landing / f"_{number}"
        shutil.copytree(folder_of(source, number), hidden, copy_function=os.link)  # an interrupt leaves no file open
        hidden.rename(folder_of(self._landing, number))
        until = time.monotonic() + _LONGEST
        while time.monotonic() < until:
            try:
                seconds = self._done.get(timeout=1.0)
            except queue.Empty:
                if not self._query.isActive:
                    raise StalledError(f"the query ended in batch {number}: {self._query.exception()}") from None
            else:
                shutil.rmtree(folder_of(self._landing, number - _KEPT), ignore_errors=True)  # the first ones have none
                return seconds
        raise StalledError(f"batch {number} has not come out of its query in {_LONGEST:.0f} s")

    def _timed(self, df: DataFrame, number: int) -> None:
        began = time.perf_counter()
        self._work(df, number)
        self._done.put(time.perf_counter() - began)

    def __enter__(self) -> Query:
        return self

    def __exit__(self, *_: object) -> None:
        self._query.stop()


def checkpoint_of(home: Path) -> Path:
    return home / "checkpoint"
