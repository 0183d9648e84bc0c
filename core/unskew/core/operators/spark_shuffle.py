"""How long Spark's own shuffle would take: as the session is set, and with the one setting that helps most.

By hash Spark makes ``spark.sql.shuffle.partitions`` partitions. Adaptive query execution then merges neighbours until a
task has enough *bytes*: rows that are small and dear end up in one or a few tasks, however even they are. Turning that
off, or asking for as many partitions as a plan would have, may be all that a job needs.

Times are in rows (or any cost that adds up), by list scheduling on the slots that there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.core.arrays.types import I64
from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram
from unskew.core.planners import make_planner
from unskew.core.quality.measures import makespan

__all__ = ["PARTITIONS", "Coalescing", "Job", "SparkTimes", "spark_times"]

COALESCE, PARTITIONS = "spark.sql.adaptive.coalescePartitions.enabled", "spark.sql.shuffle.partitions"


@dataclass(frozen=True)
class Coalescing:
    """How adaptive execution merges partitions: ``size`` bytes in all, ``least`` and ``most`` for a task, and how many
    ``tasks`` it tries to keep."""

    size: int
    least: int = 1 << 20
    most: int = 64 << 20
    tasks: int = 1

    def merged(self, loads: I64, rows: I64 | None = None) -> I64:
        """What the tasks have. A partition's bytes are in proportion to its ``rows``, by default to its load.

        >>> Coalescing(size=4 << 20, tasks=2).merged(np.full(8, 100)).tolist()
        [400, 400]
        """
        weights = loads if rows is None else rows
        target = max(self.least, min(self.most, -(-self.size // max(self.tasks, 1))))
        sizes = weights * (self.size / max(int(weights.sum()), 1))
        tasks, filled = [0], 0.0
        for load, size in zip(loads.tolist(), sizes.tolist(), strict=True):
            if filled and filled + size > target:
                tasks.append(0)
                filled = 0.0
            tasks[-1] += load
            filled += size
        return np.array(tasks, np.int64)


@dataclass(frozen=True)
class Job:
    """What the driver knows of the run: partitions of the plan; tasks at a time; partitions that Spark would shuffle
    into, and the setting that says so; input splits; and how it merges those partitions (None: it does not)."""

    partitions: int
    slots: int
    shuffle_partitions: int = 200
    inputs: int = 1
    coalescing: Coalescing | None = None
    setting: str = PARTITIONS

    def __post_init__(self) -> None:
        for name in ("partitions", "slots", "shuffle_partitions", "inputs"):
            if getattr(self, name) < 1:
                raise ConfigError(name, getattr(self, name), "1 or more")


@dataclass(frozen=True)
class SparkTimes:
    """The time as Spark is set, and the shortest with one setting changed: ``setting`` says to what."""

    as_set: float
    changed: float
    setting: str


def spark_times(costs: Histogram, job: Job, rows: Histogram | None = None) -> SparkTimes:
    """Of keys that cost so much each; ``rows``: how many they have, where a row is no unit of cost."""
    by_hash = {n: _hashed(costs, rows, n) for n in (job.shuffle_partitions, job.partitions)}
    merge = job.coalescing

    def time(n: int, *, merged: bool) -> float:
        loads, counts = by_hash[n]
        return makespan(merge.merged(loads, counts) if merged and merge is not None else loads, job.slots)

    changes = {f"{job.setting}={job.partitions}": time(job.partitions, merged=True)}
    if merge is not None:
        changes[f"{COALESCE}=false"] = time(job.shuffle_partitions, merged=False)
    setting = min(changes, key=changes.__getitem__)
    return SparkTimes(time(job.shuffle_partitions, merged=True), changes[setting], setting)


def _hashed(costs: Histogram, rows: Histogram | None, n: int) -> tuple[I64, I64 | None]:
    plan = make_planner("hash", n).plan(costs)
    return plan.loads(costs), None if rows is None else plan.loads(rows)
