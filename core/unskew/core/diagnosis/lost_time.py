"""How long a stage's tasks take on their slots, and how long they would take if they were even.

Times are those of a list schedule, not of the clock on the wall: what else ran at the time does not count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.core.arrays.types import F64
from unskew.core.diagnosis.stage_run import StageRun, TaskColumns
from unskew.core.quality.measures import makespan

__all__ = ["LostTime", "lost_time", "volume_seconds"]


@dataclass(frozen=True)
class LostTime:
    """Seconds of a stage. ``taken``: its tasks on its slots; ``even``: as many tasks, all alike; ``ideal``: the same
    work shared out over all slots. ``by_volume``: what it lost if a record (or a byte, whichever tells more) cost the
    same in each task."""

    taken: float
    even: float
    ideal: float
    by_volume: float

    @property
    def total(self) -> float:
        """What even tasks, enough of them, would have saved."""
        return max(self.taken - self.ideal, 0.0)

    @property
    def uneven(self) -> float:
        """The part of it that is because the tasks are unlike; the rest is because they are few."""
        return max(self.taken - self.even, 0.0)

    @property
    def explained(self) -> float:
        """The part of ``uneven`` that what the tasks read explains, 0 to 1."""
        return min(self.by_volume / self.uneven, 1.0) if self.uneven > 0.0 else 0.0

    @property
    def gain(self) -> float:
        """The seconds that are lost to rows that are unevenly placed: no more than what was measured."""
        return min(self.total, self.by_volume + self.total - self.uneven)


def lost_time(run: StageRun) -> LostTime:
    """What the stage lost.

    >>> tasks = TaskColumns.of([9.0, 1.0, 1.0, 1.0], [90, 10, 10, 10])
    >>> lost = lost_time(StageRun(0, 0, "", 4, tasks, 2, 0.0, 9.0))
    >>> lost.taken, lost.ideal, lost.gain
    (9.0, 6.0, 3.0)
    """
    seconds = run.tasks.seconds
    even, ideal = _even(seconds, run.slots)
    by_volume = max((_lost(volume, run.slots) for volume in volume_seconds(run.tasks)), default=0.0)
    return LostTime(makespan(seconds, run.slots), even, ideal, by_volume)


def volume_seconds(tasks: TaskColumns) -> list[F64]:
    """The seconds of the tasks if each record took the median time of a record, and the same for bytes."""
    found = []
    for volume in (tasks.records, tasks.bytes):
        some = volume > 0
        if some.any():
            found.append(volume * float(np.median(tasks.seconds[some] / volume[some])))
    return found


def _even(seconds: F64, slots: int) -> tuple[float, float]:
    total, count = float(seconds.sum()), max(len(seconds), 1)
    return -(-count // slots) * total / count, total / slots


def _lost(seconds: F64, slots: int) -> float:
    return max(makespan(seconds, slots) - _even(seconds, slots)[0], 0.0)
