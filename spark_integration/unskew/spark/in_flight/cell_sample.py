"""The frame that a map stage writes into cells, its rows sampled as they pass; and what the sample says.

Rows are counted by a sample, not by the sizes of the shuffle's blocks: rows of one key compress better than others (a
key with 39 % of the rows had 8 % of the bytes), and above 2,000 cells Spark keeps averages only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from unskew.core.arrays.types import U64
from unskew.core.histogram.histogram import Histogram
from unskew.core.histogram.sampling import sample_histogram
from unskew.core.in_flight.cell_loads import LEVEL_SHIFT, MAP_SHIFT, CellLoads, unpacked_cells
from unskew.spark.frame.row_sampling import (
    FEWER,
    every_for,
    first_of,
    level_column,
    logarithm_of,
    near_for,
    observed_rows,
    weights_in,
    words_in,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unskew.spark.in_flight.map_stage import MapStage

__all__ = ["METRICS", "CellSample", "SampledCells"]

METRICS = "unskew cells"  # the name of what the frame observes
_ASSUMED_TASKS = 8  # that read the frame, where nobody says how many
_STRETCHES = 4  # of rows sampled ever more seldom, that a task comes to where nobody knows how many it has
_LEAST_NEAR = 8  # rows of a task: ten thousand tasks bring some hundred thousand


@dataclass(frozen=True, eq=False)
class CellSample:
    """What passed: ``rows``, how many of them each cell has, the histogram of their keys, and the hash of the key of
    each sampled row."""

    rows: int
    loads: CellLoads
    histogram: Histogram
    keys: U64


@dataclass(frozen=True, eq=False)
class SampledCells:
    """``df``, to be written into so many ``cells`` by the hash of ``keys``. ``key`` is what the histogram counts by;
    about ``rows`` rows are expected (0: unknown) in about ``tasks`` tasks, for so many ``partitions``. With a
    ``weight`` rows are weighed."""

    df: DataFrame
    keys: Sequence[Column]
    key: Column
    cells: int
    partitions: int
    rows: int = 0
    weight: Column | None = None
    tasks: int = _ASSUMED_TASKS

    @property
    def rate(self) -> tuple[int, int]:
        """One in how many rows is sampled, and how many rows of a task before fewer are."""
        tasks = self.tasks if self.rows else _STRETCHES * self.tasks
        return every_for(self.rows, self.partitions), near_for(tasks, self.partitions, least=_LEAST_NEAR)

    @property
    def frame(self) -> DataFrame:
        """The frame whose map stage is to run."""
        every, near = self.rate
        cell = F.pmod(F.hash(*self.keys), F.lit(self.cells)).cast("bigint")
        task = F.shiftleft(F.spark_partition_id().cast("bigint"), MAP_SHIFT)
        word = F.shiftleft(level_column(self.df, every, near, wary=True), LEVEL_SHIFT).bitwiseOR(task).bitwiseOR(cell)
        parts = [self.key, word, *([] if self.weight is None else [logarithm_of(self.weight)])]
        sampled = observed_rows(self.df, parts, every, near, METRICS, wary=True)
        return sampled.repartition(self.cells, *self.keys)

    def of(self, stage: MapStage) -> CellSample:
        """What the stage's sample says."""
        total, sample = int(stage.metrics[0] or 0), stage.metrics[1]
        keys, words, *logarithms = words_in(None if sample is None else bytes(sample), 2 + (self.weight is not None))
        cells, maps, stands_for = unpacked_cells(words, first_of(self.rate[0], wary=True), FEWER)
        own = weights_in(logarithms[0]) if logarithms else None
        weights = stands_for if own is None else stands_for * own
        whole = float(weights.sum())
        loads = CellLoads(cells, maps, weights * (total / whole if whole else 0.0), self.cells, stage.tasks)
        even = len(weights) == 0 or weights.min() == weights.max()
        histogram = sample_histogram(keys, None, total, self.partitions, None if even or not whole else weights)
        return CellSample(total, loads, histogram, keys)
