"""Rows placed in flight: what verbs call that are given no plan.

Where it cannot be done the answer is None, and the caller counts first: under Spark Connect, which shows no plan; for
keys of floats, which Spark compares in another form than it hashes; and where Spark is other than expected, which is
logged once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unskew.core.arrays.frozen import derived
from unskew.core.histogram.histogram import Histogram
from unskew.core.in_flight.assign import TaskRanges, assign
from unskew.spark.frame.histogram import Weight, weight_of
from unskew.spark.frame.jvm import expected_rows, input_splits, slots_of
from unskew.spark.frame.keys import Columns, key_columns, key_of
from unskew.spark.in_flight.cell_sample import METRICS, SampledCells
from unskew.spark.in_flight.map_stage import NotAsExpectedError, run_map_stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["PlacedRows", "Placing", "may_place", "place_in_flight", "say_why_not", "shows_plan"]

_log = logging.getLogger("unskew.spark")
_logged: set[str] = set()
_NORMAL_FORM = ("float", "double")
_SHOWN = 5


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
    """Rows that were placed in flight, as ``df``; what was decided, and by which ``histogram``. Print it for the
    reasons.

    >>> placed = sk.placed  # doctest: +SKIP
    """

    df: DataFrame
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
) -> PlacedRows | None:
    """Run the map stage of ``df`` and decide what each task reads: even in rows, or in ``weight``. ``what`` names the
    verb in Spark's UI."""
    hashed = key_of(df, key)
    if not may_place(df, hashed.types):
        return None
    columns = key_columns(df, key)
    weights = None if weight is None else weight_of(df, weight)
    expected = expected_rows(df), weights, input_splits(df)
    cells = SampledCells(df, columns, hashed.hash, how.cells, how.partitions, *expected)
    slots = slots_of(df.sparkSession) or how.partitions
    try:
        stage = run_map_stage(cells.frame, how.cells, METRICS, f"unskew {what}: rows into {how.cells:,} cells")
        sample = cells.of(stage)
        ranges = assign(sample.loads, how.partitions, slots, cut=how.cut, most=how.most)
        placed = stage.frame(ranges, whole=not how.cut, column=how.column)
    except NotAsExpectedError as why:
        say_why_not(why)
        return None
    made = PlacedRows(placed, sample.rows, ranges, sample.histogram, hashed.types, slots)
    _log.info("%s", made)
    return made


def may_place(df: DataFrame, types: Sequence[str]) -> bool:
    """Whether rows of this frame can be placed in flight. No job runs."""
    return shows_plan(df) and not df.isStreaming and not any(kind in _NORMAL_FORM for kind in types)


def shows_plan(df: DataFrame) -> bool:
    """Whether Spark shows the plan of a frame, as it does but for Spark Connect."""
    return hasattr(df, "_jdf")


def say_why_not(why: NotAsExpectedError) -> None:
    """Say once why rows cannot be placed in flight here."""
    text = f"rows are counted before they are placed, as this Spark does not let them be placed in flight: {why}"
    if text not in _logged:
        _logged.add(text)
        _log.warning("%s", text)
