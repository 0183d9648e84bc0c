"""One attempt of a stage as it ran: its tasks that succeeded, and the slots that they had."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.core.arrays.types import F64, I64

__all__ = ["StageRun", "TaskColumns"]


@dataclass(frozen=True, eq=False)
class TaskColumns:
    """Of each successful task, in order of their index: seconds it ran, of these in garbage collection and waiting for
    shuffled rows, records and bytes that it read, records that it wrote, bytes that it spilled, and its host."""

    seconds: F64
    gc: F64
    fetch: F64
    records: F64
    bytes: F64
    written: F64
    spilled: F64
    host: I64

    @classmethod
    def of(cls, seconds: object, records: object, host: object | None = None, **others: object) -> TaskColumns:
        """Columns of these; what is left out is 0 for every task.

        >>> TaskColumns.of([1.0, 2.0], [10, 20]).gc.tolist()
        [0.0, 0.0]
        """
        measured = np.asarray(seconds, np.float64)
        none = np.zeros(len(measured))
        rest = {name: np.asarray(others.get(name, none), np.float64) for name in _OTHERS}
        hosts = np.asarray(none if host is None else host).astype(np.int64)
        return cls(seconds=measured, records=np.asarray(records, np.float64), host=hosts, **rest)

    def __len__(self) -> int:
        return len(self.seconds)


@dataclass(frozen=True, eq=False)
class StageRun:
    """``slots``: how many tasks could run at once. ``count``: the tasks that the stage has, done or not. Times are in
    seconds since the epoch; ``completed`` is None for a stage that had not ended when the log did. ``verbs``: the call
    sites of the shuffles that it reads, for stages without SQL."""

    stage: int
    attempt: int
    name: str
    count: int
    tasks: TaskColumns
    slots: int
    submitted: float
    completed: float | None
    failed: int = 0
    verbs: tuple[str, ...] = ()
    reads_shuffle: bool = False


_OTHERS = ("gc", "fetch", "bytes", "written", "spilled")
