"""How Spark's own shuffle divides the work among tasks: as the session is set, and with one setting changed.

By hash Spark makes ``spark.sql.shuffle.partitions`` partitions. Adaptive query execution then merges neighbours until a
task has enough *bytes*: rows that are small and dear end up in one or a few tasks, however even they are. Turning that
off, letting it make smaller tasks, or asking for as many partitions as a plan would have, may be all that a job needs.
Where it is off, many short tasks may be what takes the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from unskew.core.arrays.types import F64, I64, U64
from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Plan

__all__ = ["AQE", "COALESCE", "PARTITIONS", "Coalescing", "HashedRows", "HeavyKeys", "Job", "spark_tasks"]

AQE = "spark.sql.adaptive.enabled"
COALESCE, PARTITIONS = "spark.sql.adaptive.coalescePartitions.enabled", "spark.sql.shuffle.partitions"
_LEAST = "spark.sql.adaptive.coalescePartitions.minPartitionSize"
_TASKS = "spark.sql.adaptive.coalescePartitions.minPartitionNum"
_PER_SLOT = 3  # tasks: so the last ones to end are about a third of a slot's share


@dataclass(frozen=True)
class Coalescing:
    """How adaptive execution merges partitions: ``size`` bytes in all, ``least`` and ``most`` for a task, and how many
    ``tasks`` it tries to keep."""

    size: int
    least: int = 1 << 20
    most: int = 64 << 20
    tasks: int = 1

    @property
    def target(self) -> int:
        """Bytes up to which neighbours are merged."""
        return max(self.least, min(self.most, -(-self.size // max(self.tasks, 1))))

    def starts(self, rows: F64) -> I64:
        """The first partition of each task. A partition's bytes are in proportion to its ``rows``."""
        sizes = rows * (self.size / max(float(rows.sum()), 1.0))
        starts, filled = [0], 0.0
        for at, size in enumerate(sizes.tolist()):
            if filled and filled + size > self.target:
                starts.append(at)
                filled = 0.0
            filled += size
        return np.array(starts, np.int64)

    def merged(self, work: F64, rows: F64) -> F64:
        """The work of each task.

        >>> Coalescing(size=4 << 20, tasks=2).merged(np.ones(8), np.full(8, 100.0)).tolist()
        [4.0, 4.0]
        """
        return np.asarray(np.add.reduceat(work, self.starts(rows)), np.float64) if len(work) else work

    def changes(self, slots: int) -> Iterator[tuple[str, Coalescing]]:
        """Settings that make it merge less, and how it merges then."""
        share = self.size // max(self.tasks, 1)
        if self.tasks > 1 and share < self.least:
            yield f"{_LEAST}={max(share >> 10, 1)}k", replace(self, least=max(share >> 10, 1) << 10)
        if self.tasks < _PER_SLOT * slots and self.size > self.tasks * self.least:
            yield f"{_TASKS}={_PER_SLOT * slots}", replace(self, tasks=_PER_SLOT * slots)


@dataclass(frozen=True, eq=False)
class HeavyKeys:
    """Spark's own hash of some keys, by their key hash: it says in which partition Spark puts them."""

    hashes: U64
    spark: I64

    def loads(self, by_hash: Plan, histogram: Histogram) -> F64:
        """The loads of a plan of the policy ``hash``, with these keys where Spark has them."""
        loads = by_hash.loads(histogram).astype(np.float64)
        rows = histogram.count(self.hashes).astype(np.float64)
        np.subtract.at(loads, by_hash.place(self.hashes), rows)
        np.add.at(loads, self.spark % len(loads), rows)
        return np.maximum(loads, 0.0)


_NONE = HeavyKeys(np.zeros(0, np.uint64), np.zeros(0, np.int64))


@dataclass(frozen=True)
class Job:
    """What the driver knows of the run: partitions of the plan; tasks at a time; partitions that Spark would shuffle
    into, and the setting that says so; input splits; and how it merges those partitions (None: it does not).
    ``unused`` is how it would merge them if the setting of that name were true. ``cores``: processors, where slots
    share them (a local master). ``heavy``: keys whose place by Spark's own hash is known."""

    partitions: int
    slots: int
    shuffle_partitions: int = 200
    inputs: int = 1
    coalescing: Coalescing | None = None
    setting: str = PARTITIONS
    unused: tuple[str, Coalescing] | None = None
    cores: int | None = None
    heavy: HeavyKeys = field(default=_NONE, compare=False)

    def __post_init__(self) -> None:
        for name in ("partitions", "slots", "shuffle_partitions", "inputs"):
            if getattr(self, name) < 1:
                raise ConfigError(name, getattr(self, name), "1 or more")


@dataclass(frozen=True, eq=False)
class HashedRows:
    """Rows by hash: each partition's work in seconds, and its rows; ``pieces``: the work of tasks that have a part of a
    partition each, which AQE does not merge."""

    work: F64
    rows: F64
    pieces: F64 = field(default_factory=lambda: np.zeros(0))

    def tasks(self, merge: Coalescing | None) -> F64:
        work = self.work if merge is None else merge.merged(self.work, self.rows)
        return np.concatenate([work, self.pieces])


def spark_tasks(job: Job, hashed: Callable[[int], HashedRows]) -> dict[str, F64]:
    """The work of each task: as Spark is set (by the name ``""``), and with each setting that may help.

    ``hashed`` gives the rows in so many partitions.
    """
    as_set, merge = hashed(job.shuffle_partitions), job.coalescing
    tasks = {"": as_set.tasks(merge)}
    if job.partitions != job.shuffle_partitions:
        tasks[f"{job.setting}={job.partitions}"] = hashed(job.partitions).tasks(merge)
    if merge is not None:
        tasks[f"{COALESCE}=false"] = as_set.tasks(None)
        tasks |= {setting: as_set.tasks(changed) for setting, changed in merge.changes(job.slots)}
    elif job.unused is not None:
        tasks[f"{job.unused[0]}=true"] = as_set.tasks(job.unused[1])
    return tasks
