"""``aggregate`` without a plan: rows are placed in flight, and states are made and merged where they are then.

Keys of a cut cell have a state in each of its tasks. All states go through one shuffle: those of cut cells to the
bucket that merges them, those of whole keys to cells that are only read. So the tasks of whole keys and the parts of
cut cells are one stage, which is run at once, each state is made once, and the result reads what that stage has
written, however often. Nothing is persisted: the shuffle's files go with the frame.

Each of these tasks writes one cell, so its states have one reader. Where an executor is lost they are made again, of
the same rows in another order perhaps, and a sum of floats or a sketch is not the same bits then: to that one reader
this is no harm, so Spark does not compare the two (``compared=False``) and fail the job.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from unskew.core.arrays.types import I32
from unskew.core.in_flight.assign import CellRange, TaskRanges
from unskew.core.in_flight.layout import fine_cells
from unskew.spark.frame.keys import helper, quoted
from unskew.spark.in_flight.map_stage import MapStage, NotAsExpectedError, run_map_stage
from unskew.spark.in_flight.place import PlacedRows, Placing, say_why_not
from unskew.spark.operators.aggregation import Aggregation, MergeBuckets, grouped, states_of_pieces
from unskew.spark.operators.groups import applied
from unskew.spark.operators.user_functions import whole
from unskew.spark.place.native import table
from unskew.spark.place.repartition import move_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["StateCells", "aggregation_placing", "at_placed"]


@dataclass(frozen=True, eq=False)
class StateCells:
    """Where the states of tasks go that were placed in flight. Those of whole keys are final: they are in the first
    ``final_cells`` cells, and only read. Those of cut cells follow, a bucket a cell, and are merged."""

    by_task: I32
    final_cells: int
    count: int

    @classmethod
    def of(cls, ranges: TaskRanges, partitions: int, slots: int) -> StateCells:
        """Final states in as many cells as partitions are wanted, if there are as many tasks; as many buckets as
        slots, if there are as many cut cells."""
        cut = ranges.cut_tasks
        final = min(int((~cut).sum()), partitions)
        cells, numbers, parts = np.unique(ranges.cut_cells, return_inverse=True, return_counts=True)
        merge = MergeBuckets.of(cells.astype(np.uint64), parts, slots)
        by_task = np.zeros(len(cut), np.int32)
        by_task[~cut] = np.arange(int((~cut).sum())) % max(final, 1)
        by_task[cut] = final + merge.bucket[numbers]
        return cls(by_task, final, final + merge.buckets)

    @property
    def final(self) -> list[CellRange]:
        """What the tasks read that have final states, one cell each."""
        return [CellRange(at, at + 1) for at in range(self.final_cells)]

    @property
    def merged(self) -> list[CellRange]:
        """What the tasks read that merge states, one bucket each."""
        return [CellRange(at, at + 1) for at in range(self.final_cells, self.count)]


def aggregation_placing(call: Aggregation, partitions: int) -> Placing:
    """How rows are placed in flight: by fine cells, so that few keys but the heavy ones are cut."""
    return Placing(partitions, fine_cells(partitions), cut=True, column=helper(call.df.columns, "task"))


def at_placed(call: Aggregation, df: DataFrame, placed: PlacedRows, partitions: int) -> DataFrame | None:
    """The result, in about so many partitions, of rows that were placed by ``aggregation_placing``. Where nothing is
    cut no job runs yet. None where this Spark does not let it be done."""
    at, mark = df.columns[-1], helper(call.df.columns, "split")
    if not placed.ranges.cuts:
        own = whole(call.partial, call.form, columns=1, in_key=1)
        return applied(grouped(df, call.key, at), own, call.schema, call.form)
    cells = StateCells.of(placed.ranges, partitions, placed.slots)
    states = states_of_pieces(call, df.withColumn(mark, F.get(table(cells.by_task, "int"), df[at])), at)
    moved, tasks = move_rows(states, F.col(quoted(states.columns[-1])), cells.count), len(cells.by_task)
    try:
        stage = run_map_stage(moved, cells.count, f"unskew aggregate: states of {tasks} tasks", compared=False)
        merged = _merged(call, stage, cells)
        final = stage.frame(cells.final).select(*map(quoted, call.schema.names)) if cells.final else None
    except NotAsExpectedError as why:
        say_why_not(why)
        return None
    return merged if final is None else final.unionAll(merged)


def _merged(call: Aggregation, stage: MapStage, cells: StateCells) -> DataFrame:
    """The keys of cut cells, each merged in its bucket."""
    bucket = helper(call.schema.names, "bucket")
    moved = stage.frame(cells.merged, column=bucket).select(*map(quoted, (*call.schema.names, bucket)))
    own = whole(call.merge, call.form, columns=1, in_key=1)
    return applied(grouped(moved, [quoted(name) for name in call.names], bucket), own, call.schema, call.form)
