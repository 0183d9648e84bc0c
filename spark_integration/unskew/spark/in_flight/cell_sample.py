"""The frame that a map stage writes into cells, its rows sampled as they pass; and what the sample says.

Rows are counted by a sample, not by the sizes of the shuffle's blocks: rows of one key compress better than others (a
key with 39 % of the rows had 8 % of the bytes), and above 2,000 cells Spark keeps averages only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from unskew.core.arrays.types import U64
from unskew.core.histogram.histogram import Histogram
from unskew.core.histogram.sampling import sample_for, sample_histogram
from unskew.core.in_flight.cell_loads import LEVEL_SHIFT, MAP_SHIFT, CellLoads, unpacked_cells
from unskew.core.in_flight.layout import ContentLayout
from unskew.spark.frame.row_sampling import (
    FEWER,
    every_for,
    first_of,
    level_text,
    logarithm_of,
    near_for,
    observed_rows,
    weights_in,
    words_in,
)
from unskew.spark.place.repartition import move_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unskew.spark.in_flight.map_stage import MapStage

__all__ = ["METRICS", "CellSample", "Cells", "ContentCells", "KeyCells", "SampledCells"]

METRICS = "unskew cells"  # the name of what the frame observes
_ASSUMED_TASKS = 8  # that read the frame, where nobody says how many
_STRETCHES = 4  # of rows sampled ever more seldom, that a task comes to where nobody knows how many it has
_LEAST_NEAR = 8  # rows of a task: ten thousand tasks bring some hundred thousand


class Cells(Protocol):
    """Which cell each row is written into."""

    @property
    def count(self) -> int:
        """How many there are."""

    @property
    def cell(self) -> Column:
        """The cell of a row, an int."""

    def written(self, df: DataFrame) -> DataFrame:
        """``df`` with a shuffle on top that writes each row into its cell."""


@dataclass(frozen=True, eq=False)
class KeyCells:
    """By Spark's own hash of the key: of the frame Spark can be told that it is clustered by the key."""

    keys: Sequence[Column]
    count: int

    @property
    def cell(self) -> Column:
        return F.pmod(F.hash(*self.keys), F.lit(self.count))

    def written(self, df: DataFrame) -> DataFrame:
        return df.repartition(self.count, *self.keys)


@dataclass(frozen=True, eq=False)
class ContentCells:
    """By the top bits of the hash of the key, and where keys may be cut of the spread hash: as ``CellTable`` has it."""

    layout: ContentLayout
    key: Column
    spread: Column | None = None

    @property
    def count(self) -> int:
        return self.layout.cells

    @property
    def cell(self) -> Column:
        host = _top_bits(self.key, self.layout.hosts) * self.layout.pieces
        piece = self.layout.pieces > 1 and self.spread is not None
        return (host + _top_bits(self.spread, self.layout.pieces) if piece else host).cast("int")

    def written(self, df: DataFrame) -> DataFrame:
        return move_rows(df, self.cell, self.count)


def _top_bits(hashed: Column | None, of: int) -> Column:
    """Which of so many, a power of two, by the top bits of a hash: a bigint."""
    if hashed is None or of == 1:
        return F.lit(0).cast("bigint")
    return F.shiftrightunsigned(hashed, 64 - (of.bit_length() - 1))


@dataclass(frozen=True, eq=False)
class CellSample:
    """What passed: ``rows``, how many of them each cell has, the histogram of their keys, and the hash of the key of
    each sampled row."""

    rows: int
    loads: CellLoads
    histogram: Histogram
    keys: U64

    @property
    def sampled(self) -> int:
        """How many rows were sampled."""
        return len(self.keys)


@dataclass(frozen=True, eq=False)
class SampledCells:
    """``df``, to be written into ``cells``. ``key`` is what the histogram counts by, and with ``spread`` how many
    values tell the rows of a key apart; about ``rows`` rows are expected (0: unknown) in about ``tasks`` tasks, for so
    many ``partitions``. With a ``weight`` rows are weighed. ``sample``: rows that are enough; by default as many as a
    plan of these rows would ask for."""

    df: DataFrame
    cells: Cells
    key: Column
    partitions: int
    rows: int = 0
    weight: Column | None = None
    spread: Column | None = None
    tasks: int = _ASSUMED_TASKS
    sample: int | None = None

    @property
    def rate(self) -> tuple[int, int]:
        """One in how many rows is sampled, and how many rows of a task before fewer are."""
        tasks = self.tasks if self.rows else _STRETCHES * self.tasks
        enough = self.sample or sample_for(self.partitions)
        return every_for(self.rows, enough), near_for(tasks, enough, least=_LEAST_NEAR)

    @property
    def frame(self) -> DataFrame:
        """The frame whose map stage is to run."""
        every, near = self.rate
        level = level_text(self.df, every, near, wary=True)
        seldom = f"shiftleft({level}, {LEVEL_SHIFT}) | shiftleft(bigint(spark_partition_id()), {MAP_SHIFT})"
        word = F.expr(seldom).bitwiseOR(self.cells.cell)
        logarithm = None if self.weight is None else logarithm_of(self.weight)
        parts = [one for one in (self.key, word, self.spread, logarithm) if one is not None]
        return self.cells.written(observed_rows(self.df, parts, every, near, METRICS, wary=True))

    def of(self, stage: MapStage) -> CellSample:
        """What the stage's sample says."""
        total, sample = int(stage.metrics[0] or 0), stage.metrics[1]
        split, weighed = self.spread is not None, self.weight is not None
        words = words_in(sample, 2 + split + weighed)
        cells, maps, stands_for = unpacked_cells(words[1], first_of(self.rate[0], wary=True), FEWER)
        own = weights_in(words[-1]) if weighed else None
        weights = stands_for if own is None else stands_for * own
        whole = float(weights.sum())
        loads = CellLoads(cells, maps, weights * (total / whole if whole else 0.0), self.cells.count, stage.tasks)
        even = len(weights) == 0 or weights.min() == weights.max()
        spread = words[2] if split else None
        histogram = sample_histogram(words[0], spread, total, self.partitions, None if even or not whole else weights)
        return CellSample(total, loads, histogram, words[0])
