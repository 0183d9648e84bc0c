"""Where tasks stand still until the test has done its harm: files in a folder that tasks and test both see.

Tasks decide here by their attempt, which no route may do: that is the point. A gate only says when a task goes on, or
that it fails; the rows it passes on are those it got.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Arrival", "Gate"]

_PATIENCE = 180.0
_POLL = 0.02


@dataclass(frozen=True)
class Arrival:
    """A task at the gate: its partition, how many came for it before, and its executor's process."""

    partition: int
    before: int
    executor: int


@dataclass(frozen=True)
class Gate:
    """``held``: the partitions whose first tasks wait here. ``fail``: those whose first task raises after its rows.
    ``slow``: those whose first attempt sleeps so long that Spark starts a twin."""

    folder: str
    held: tuple[int, ...] = ()
    fail: tuple[int, ...] = ()
    slow: tuple[int, ...] = ()

    def passing(self) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """For ``mapInArrow``: the same rows, later or never."""

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            context = TaskContext.get()
            assert context is not None
            me = context.partitionId()
            first = self._arrive(me) == 0
            if first and me in self.held:
                self._wait()
            if first and me in self.slow:
                time.sleep(5.0)
            yield from batches
            if first and me in self.fail:
                raise RuntimeError(f"partition {me} fails once, after all its rows")

        return task

    def _arrive(self, partition: int) -> int:
        """How many tasks of this partition came before: attempts of the stage and of the task, and twins."""
        before = 0
        while True:
            try:
                (Path(self.folder) / f"at-{partition}-{before}").touch(exist_ok=False)
            except FileExistsError:
                before += 1
                continue
            (Path(self.folder) / f"by-{partition}-{before}-{_executor()}").touch()
            return before

    def _wait(self) -> None:
        until = time.monotonic() + _PATIENCE
        while not (Path(self.folder) / "open").exists():
            if time.monotonic() > until:
                raise TimeoutError(f"nobody opened the gate in {self.folder}")
            time.sleep(_POLL)

    def arrivals(self) -> list[Arrival]:
        """Who has come so far."""
        names = [entry.name for entry in Path(self.folder).iterdir() if entry.name.startswith("by-")]
        return sorted((Arrival(*map(int, name.split("-")[1:])) for name in names), key=lambda one: one.partition)

    def await_held(self) -> list[Arrival]:
        """The held tasks, once all are at the gate."""
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            there = [one for one in self.arrivals() if one.partition in self.held]
            if {one.partition for one in there} == set(self.held):
                return there
            time.sleep(_POLL)
        raise TimeoutError(f"of {self.held} only {self.arrivals()} came to the gate")

    def open(self) -> None:
        (Path(self.folder) / "open").touch()


def _executor() -> int:
    """The process id of the executor above this Python worker, whose parent is a daemon of it."""
    daemon = os.getppid()
    status = Path(f"/proc/{daemon}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:")))
