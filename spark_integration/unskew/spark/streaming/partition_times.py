"""How long each partition of a batch took, from the tasks of the stages that read its routed shuffle.

Task k of such a stage is partition k where there are as many tasks as partitions and each has read about as many
records as the plan has rows there. Where Spark has put partitions together, or the stage reads something else besides,
nothing is reported: a time that belongs to other rows is worse than none. A stage that writes a shuffle of its own is
the last that counts: what reads that one may have as many tasks, and as many rows in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from unskew.core.quality.cost_fit import TaskTimes
from unskew.spark.frame.jvm import StageTime, TaskTime, task_times

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unskew.core.arrays.types import F64
    from unskew.core.histogram.histogram import Histogram
    from unskew.core.in_flight.cell_table import CellTable
    from unskew.core.plan.plan import Plan

__all__ = ["by_partition", "partition_times"]

_MOST_TASKS = 1024  # some 0.2 ms each in the driver's JVM
_MOST_STAGES = 4
_ALIKE = 0.25  # of all rows: by so many records may be other than the sample has it


def partition_times(
    df: DataFrame, stages: Sequence[StageTime], plan: Plan | CellTable, histogram: Histogram
) -> TaskTimes | None:
    """Rows, keys and seconds of each partition of a batch that was placed by ``plan``. A batch that its handler has
    read several times took the sum. None where Spark does not say, and for more than 1,024 partitions."""
    loads = plan.loads(histogram).astype(np.float64)
    if plan.partitions > _MOST_TASKS:
        return None
    reads = [by_partition(task_times(df, one), loads) for one in _readers(stages, plan.partitions, float(loads.sum()))]
    fit = [one for one in reads if one is not None]
    if not fit:
        return None
    seconds = np.sum([seconds for _, seconds in fit], axis=0)
    return TaskTimes(fit[0][0], plan.cardinalities(histogram).astype(np.float64), seconds)


def _readers(stages: Sequence[StageTime], partitions: int, rows: float) -> list[StageTime]:
    """The stages that may have read the routed shuffle, in the order in which they ran."""
    likely = [one for one in stages if one.tasks == partitions and _alike(one.records, rows, rows)][:_MOST_STAGES]
    writes = [one.writes_shuffle for one in likely]
    return likely[: writes.index(True) + 1] if True in writes else likely


def by_partition(tasks: Sequence[TaskTime], loads: F64) -> tuple[F64, F64] | None:
    """Records and seconds of the partitions that have these ``loads`` by a plan; None where tasks are not
    partitions."""
    if sorted(task.index for task in tasks) != list(range(len(loads))):
        return None
    ordered = sorted(tasks, key=lambda task: task.index)
    records = np.array([task.records for task in ordered], np.float64)
    if not _alike(np.abs(records - loads).sum(), 0.0, loads.sum()):
        return None
    return records, np.array([task.seconds for task in ordered])


def _alike(one: float, other: float, whole: float) -> bool:
    return bool(abs(one - other) <= _ALIKE * whole)
