"""Micro-batches that are placed in flight: whether a query's can be, and the map stage of one.

A batch is bound to its cells after its map stage and before a handler sees it. Its rows are in a shuffle of Spark's by
then, so a handler that reads them twice does not read the source twice.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unskew.core.freshness.stream_planner import StreamPlanner
from unskew.spark.frame.histogram import weight_of
from unskew.spark.in_flight.place import PlacedBatch, ReadBatch, place_by_content, say_once
from unskew.spark.streaming.batch_sampling import BatchSample

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from unskew.core.in_flight.cell_table import CellTable
    from unskew.spark.streaming.settings import StreamingSettings

__all__ = ["BatchFlight", "FlownBatch"]


@dataclass(frozen=True, eq=False)
class FlownBatch:
    """A batch that was placed in flight, and the ``seconds`` that it took to read it and to place it."""

    placed: PlacedBatch
    seconds: float

    @property
    def table(self) -> CellTable:
        """What the batch is bound to."""
        return self.placed.table

    @property
    def sample(self) -> BatchSample:
        """What its rows were, as estimated while they passed."""
        sample = self.placed.sample
        return BatchSample(sample.rows, sample.sampled, sample.histogram)


class BatchFlight:
    """Of one run of a query. What has failed once is not tried again: it would cost each batch another read."""

    def __init__(self, settings: StreamingSettings) -> None:
        self._settings, self._failed = settings, False

    def flies(self, df: DataFrame, planner: StreamPlanner) -> bool:
        """Whether the query's batches can be placed in flight; where its user asked for that, a line says why not."""
        why = self._why_not(df, planner)
        if why and self._settings.fresh == "inflight":
            say_once(
                f"stream {planner.stream}: batches are counted before they are placed, not placed in flight: {why}"
            )
        return not why

    def _why_not(self, df: DataFrame, planner: StreamPlanner) -> str:
        if not hasattr(df, "_jdf") or df.isStreaming:
            return "Spark Connect does not show how a frame is run"
        if self._settings.elastic is not None:
            return "with elastic= batches have as many partitions as were decided before them"
        if len(set(planner.spec.weights)) > 1:
            return "partitions have different weights"
        return "it could not be done before" if self._failed else ""

    def place(
        self, df: DataFrame, key: Column, spread: Column | None, planner: StreamPlanner, rows: int
    ) -> FlownBatch | None:
        """Run the map stage of a batch of about so many rows; None where this Spark does not let it be done."""
        began, settings, spec = time.monotonic(), self._settings, planner.spec
        weight = None if settings.weight is None else weight_of(df, settings.weight)
        read = ReadBatch(
            df, key, spec.key_types, spread if planner.cuts else None, spec.partitions, rows, weight, settings.column
        )
        placed = place_by_content(read)
        self._failed = placed is None
        return None if placed is None else FlownBatch(placed, time.monotonic() - began)
