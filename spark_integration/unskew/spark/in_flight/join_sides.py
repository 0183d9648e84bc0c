"""Both sides of a join, placed in flight: two map stages, one decision, two frames that are joined as they are.

The stages run at the same time, the right one in a thread that has the caller's job group and description. Both frames
have a column with the task's number: joined by that column and the key, a row that several tasks have read meets each
row of the other side once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark import InheritableThread
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from unskew.core.arrays.frozen import derived
from unskew.core.histogram.histogram import Histogram
from unskew.core.in_flight.assign import TaskRanges
from unskew.core.operators.join_cells import JoinCells, SideRows, join_cells
from unskew.core.operators.join_plan import LEFT, RIGHT, Bounds
from unskew.spark.frame.jvm import slots_of
from unskew.spark.in_flight.cell_sample import METRICS, SampledCells
from unskew.spark.in_flight.map_stage import MapStage, NotAsExpectedError, run_map_stage
from unskew.spark.in_flight.place import say_why_not

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["JoinPlacing", "PlacedJoin", "PlacedSides", "place_sides"]

_SHOWN = 5


@dataclass(frozen=True)
class JoinPlacing:
    """How a join is to be placed: its type by Spark's name, the side to cut where that is asked for, about how many
    tasks, what may be copied, and the column with the task's number."""

    how: str
    side: str | None
    partitions: int
    bounds: Bounds
    column: str


@dataclass(frozen=True, eq=False)
class PlacedSides:
    """Both frames as they were placed, what was decided, and the left side's histogram."""

    frames: dict[str, DataFrame]
    cells: JoinCells
    histogram: Histogram
    slots: int


@dataclass(frozen=True, eq=False)
class PlacedJoin:
    """What was decided about a join that was placed in flight, and the left side's ``histogram``. Print it for the
    reasons. It does not hold the frames."""

    cells: JoinCells
    histogram: Histogram
    key_types: tuple[str, ...]
    slots: int

    @property
    def ranges(self) -> TaskRanges:
        """What each task reads."""
        return self.cells.ranges

    @property
    def rows(self) -> int:
        """The left side's rows."""
        return self.cells.left

    @derived
    def loads(self) -> tuple[int, ...]:
        """The estimated cost of each task, in rows in and out, in the order in which they start."""
        return tuple(round(load) for load in self.ranges.loads)

    def __str__(self) -> str:
        counts, lines = self.histogram.counts, [str(self.cells)]
        for at in np.argsort(-counts, kind="stable")[:_SHOWN].tolist():
            share = counts[at] / max(self.rows, 1)
            lines.append(f"  key {int(self.histogram.hashes[at]):#018x}: {share:.1%} of the left side's rows")
        return "\n".join(lines)


def place_sides(sides: dict[str, SampledCells], how: JoinPlacing) -> PlacedSides | None:
    """Run the map stages of both sides and decide what each task reads; None where this Spark does not let us."""
    spark = sides[LEFT].df.sparkSession
    slots = slots_of(spark) or how.partitions
    try:
        stages = _both({side: _stage_of(side, cells) for side, cells in sides.items()}, spark)
        samples = {side: cells.of(stages[side]) for side, cells in sides.items()}
        left, right = (SideRows(one.rows, one.keys, one.loads) for one in (samples[LEFT], samples[RIGHT]))
        cells = join_cells(how.how, left, right, how.partitions, slots, how.bounds, how.side)
        frames = {
            side: stage.frame(cells.ranges.ranges, copied=side != cells.side).withColumn(
                how.column, F.spark_partition_id()
            )
            for side, stage in stages.items()
        }
    except NotAsExpectedError as why:
        say_why_not(why)
        return None
    return PlacedSides(frames, cells, samples[LEFT].histogram, slots)


def _stage_of(side: str, cells: SampledCells) -> Callable[[], MapStage]:
    count = cells.cells.count
    text = f"unskew join: {side} rows into {count:,} cells"
    return lambda: run_map_stage(cells.frame, count, text, METRICS)


def _both(runs: dict[str, Callable[[], MapStage]], spark: Any) -> dict[str, MapStage]:
    """Both map stages, the right one in a thread of its own; both have ended when this returns, or raises."""
    done: dict[str, MapStage] = {}
    failed: list[BaseException] = []

    def right() -> None:
        try:
            spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
            done[RIGHT] = runs[RIGHT]()
        except BaseException as why:  # noqa: BLE001 - raised again by the caller's thread
            failed.append(why)

    thread = InheritableThread(right, name="unskew right side", session=spark, daemon=True)
    thread.start()
    try:
        done[LEFT] = runs[LEFT]()
    finally:
        thread.join()
    if failed:
        raise failed[0]
    return done
