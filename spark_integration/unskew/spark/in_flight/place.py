"""Rows placed in flight: what verbs call that are given no plan, and micro-batches.

Where it cannot be done the answer is None, and the caller counts first: under Spark Connect, which shows no plan; for
keys of floats, which Spark compares in another form than it hashes; where so few tasks read a frame that a heavy key
could not be cut by them; and where Spark is other than expected, which is logged once.

A verb's rows are cut by map tasks, and Spark is told that whole keys are clustered. A micro-batch may run again after
the driver's death, with other map tasks: its rows are placed by their content alone (``place_by_content``), and the
table of cells is all that it needs then (``table_column``).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from unskew.core.arrays.frozen import derived
from unskew.core.histogram.histogram import Histogram
from unskew.core.in_flight.assign import TaskRanges, assign
from unskew.core.in_flight.assign_content import assign_content
from unskew.core.in_flight.cell_table import CellTable
from unskew.core.in_flight.layout import content_cells, enough_sampled
from unskew.spark.frame.histogram import Weight, weight_of
from unskew.spark.frame.jvm import expected_rows, input_partitions, shuffle_partitions, slots_of
from unskew.spark.frame.keys import Columns, check_new, key_columns, key_of
from unskew.spark.in_flight.cell_sample import METRICS, CellSample, ContentCells, KeyCells, SampledCells
from unskew.spark.in_flight.map_stage import MapStage, NotAsExpectedError, run_map_stage
from unskew.spark.place.native import table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "PlacedBatch",
    "PlacedRows",
    "Placing",
    "ReadBatch",
    "cuts_finely",
    "may_place",
    "place_by_content",
    "place_in_flight",
    "say_once",
    "say_why_not",
    "shows_plan",
    "table_column",
]

_log = logging.getLogger("unskew.spark")
_logged: set[str] = set()
_NORMAL_FORM = ("float", "double")
_SHOWN = 5
_COUNTED = "rows are counted before they are placed, as this Spark does not let them be placed in flight: {}"


@dataclass(frozen=True)
class Placing:
    """How rows are to be placed: into about ``partitions`` tasks, by so many ``cells``. ``cut``: the rows of a key may
    be in several tasks. ``most``: tasks, as ``assign`` takes it. ``column``: added, the number of the task."""

    partitions: int
    cells: int
    cut: bool
    most: int | None = None
    column: str | None = None


@dataclass(frozen=True, eq=False)
class PlacedRows:
    """What was decided about rows that were placed in flight, and by which ``histogram``. Print it for the reasons. It
    does not hold the frame: shuffle files are freed with that."""

    rows: int
    ranges: TaskRanges
    histogram: Histogram
    key_types: tuple[str, ...]
    slots: int

    @derived
    def loads(self) -> tuple[int, ...]:
        """The estimated rows of each task, in the order in which they start."""
        return tuple(round(load) for load in self.ranges.loads)

    def __str__(self) -> str:
        ranges, tasks = self.ranges, len(self.ranges.ranges)
        cut = int(ranges.cut_tasks.sum())
        even = self.rows / tasks if tasks else 0.0
        heaviest = max(self.loads, default=0) / even if even else 1.0
        lines = [
            f"{self.rows:,} rows in {tasks} tasks, placed in flight: the heaviest has {heaviest:.2f} times the mean",
            f"  {cut} tasks have parts of {len({one.first for one in ranges.ranges if one.maps})} heavy cells, "
            f"the others whole cells of {ranges.cells:,}",
        ]
        heavy = np.argsort(-self.histogram.counts, kind="stable")[:_SHOWN]
        for at in heavy.tolist():
            share = self.histogram.counts[at] / max(self.rows, 1)
            lines.append(f"  key {int(self.histogram.hashes[at]):#018x}: {share:.1%} of the rows")
        return "\n".join(lines)


def place_in_flight(
    df: DataFrame, key: Columns, how: Placing, *, what: str, weight: Weight | None = None
) -> tuple[DataFrame, PlacedRows] | None:
    """Run the map stage of ``df`` and decide what each task reads: even in rows, or in ``weight``. The frame, and what
    was decided. ``what`` names the verb in Spark's UI."""
    hashed = key_of(df, key)
    if not may_place(df, hashed.types):
        return None
    splits, slots = input_partitions(df), slots_of(df.sparkSession) or how.partitions
    if how.cut and not cuts_finely(splits, how.partitions, slots):
        return None
    columns = key_columns(df, key)
    weights = None if weight is None else weight_of(df, weight)
    by_key = KeyCells(columns, how.cells)
    rows, enough = expected_rows(df), enough_sampled(how.partitions)
    tasks = splits or shuffle_partitions(df.sparkSession)
    cells = SampledCells(df, by_key, hashed.hash, how.partitions, rows, weights, tasks=tasks, sample=enough)
    try:
        stage, sample = _written(cells, what)
        ranges = assign(sample.loads, how.partitions, slots, cut=how.cut, most=how.most)
        placed = stage.frame(ranges.ranges, whole=not how.cut, column=how.column)
    except NotAsExpectedError as why:
        say_why_not(why)
        return None
    made = PlacedRows(sample.rows, ranges, sample.histogram, hashed.types, slots)
    _log.info("%s", made)
    return placed, made


def may_place(df: DataFrame, types: Sequence[str]) -> bool:
    """Whether rows of this frame can be placed in flight. No job runs."""
    return shows_plan(df) and not df.isStreaming and not any(kind in _NORMAL_FORM for kind in types)


def cuts_finely(tasks: int | None, partitions: int, slots: int) -> bool:
    """Whether so many tasks that read a frame are enough for a heavy cell to be cut by them: half as many as are to run
    at once. Where it is not known before it runs (None), as after a shuffle, it is taken to be so."""
    return tasks is None or 2 * tasks >= min(partitions, slots)


def shows_plan(df: DataFrame) -> bool:
    """Whether Spark shows the plan of a frame, as it does but for Spark Connect."""
    return hasattr(df, "_jdf")


@dataclass(frozen=True, eq=False)
class ReadBatch:
    """The rows of a micro-batch, about ``rows`` (0: unknown): the hashes of their ``key``, of the types ``key_types``,
    and of what tells the rows of one key apart, where keys may be cut; to be placed into at most so many
    ``partitions``. ``column``: added, the number of the task."""

    df: DataFrame
    key: Column
    key_types: tuple[str, ...]
    spread: Column | None
    partitions: int
    rows: int = 0
    weight: Column | None = None
    column: str | None = None


@dataclass(frozen=True, eq=False)
class PlacedBatch:
    """A micro-batch that was placed in flight, as ``df``, by ``table``; and what the sample says of it."""

    df: DataFrame
    table: CellTable
    sample: CellSample


def place_by_content(batch: ReadBatch) -> PlacedBatch | None:
    """Run the map stage of a micro-batch and decide which task each cell goes to. Nothing reads the rows before the
    frame is used. None where this Spark does not let it be done."""
    df, n, cut = batch.df, batch.partitions, batch.spread is not None
    if batch.column is not None:
        check_new(df, batch.column)
    layout = content_cells(n, batch.rows, cut=cut)
    by_content = ContentCells(layout, batch.key, batch.spread)
    cells = SampledCells(df, by_content, batch.key, n, batch.rows, batch.weight, batch.spread)
    try:
        stage, sample = _written(cells, "micro-batch")
        ranges = assign_content(sample.loads, n, slots_of(df.sparkSession) or n, layout.pieces, cut=cut)
        placed = stage.frame(ranges.ranges, column=batch.column)
    except NotAsExpectedError as why:
        say_why_not(why)
        return None
    made = PlacedBatch(placed, CellTable.of(ranges, layout, batch.key_types), sample)
    heaviest, mean = (float(ranges.loads.max()), float(ranges.loads.mean())) if sample.rows else (1.0, 1.0)
    said = "%s rows in %d tasks, placed in flight: the heaviest has %.2f times the mean"
    _log.info(said, f"{sample.rows:,}", made.table.partitions, heaviest / mean)
    return made


def table_column(cells: CellTable, key: Column, spread: Column | None) -> Column:
    """The task of each row by a table of cells, an int: where the row was when the batch was placed in flight."""
    return F.get(table(cells.task_of_cell, "int"), ContentCells(cells.layout, key, spread).cell)


def _written(cells: SampledCells, what: str) -> tuple[MapStage, CellSample]:
    """The map stage, run, and what passed."""
    count = cells.cells.count
    stage = run_map_stage(cells.frame, count, f"unskew {what}: rows into {count:,} cells", METRICS)
    return stage, cells.of(stage)


def say_why_not(why: NotAsExpectedError) -> None:
    """Say once why rows cannot be placed in flight here."""
    say_once(_COUNTED.format(why))


def say_once(text: str) -> None:
    """Log a warning, the first time that it is to be said."""
    if text not in _logged:
        _logged.add(text)
        _log.warning("%s", text)
