"""A stateful query without Spark: tasks are called one after another on rows that numpy routes, by any plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.core import hash_keys
from unskew.core.operators.keyed_plan import HOSTS
from unskew.core.operators.keyed_state import StatePart
from unskew.core.plan.build import Placement, build_plan
from unskew.core.plan.plan import Plan, PlanInfo
from unskew.spark.folders import Folder
from unskew.spark.stateful.batch import DATA, OUTPUT, StatefulBatch, StatefulJob
from unskew.spark.stateful.blocks import HASH, Reader
from unskew.spark.stateful.calls import Shapes
from unskew.spark.stateful.store import stored_schema
from unskew.spark.stateful.task import Task
from unskew.wire.manifests import Figures, TaskResult, task_result_from_bytes, task_result_to_bytes

__all__ = ["COUNTS", "Alone", "count", "random_plan", "rows_of"]

COUNTS = Shapes(
    pa.schema([("user", pa.string())]),
    pa.schema([("n", pa.int64())]),
    pa.schema([("user", pa.string()), ("n", pa.int64())]),
)
FRAME = pa.schema([("user", pa.string()), ("v", pa.int64())])


def count(key: tuple[Any, ...], rows: pa.Table, state: Mapping[str, Any] | None) -> tuple[Any, Any]:
    """Adds up ``v``; a key with a row of 0 is forgotten."""
    values = rows.column("v").to_pylist()
    n = (state["n"] if state else 0) + sum(values)
    return [(key[0], n)], None if 0 in values else (n,)


def random_plan(
    rng: np.random.Generator, partitions: int, hashes: NDArray[np.uint64], like: Plan | None = None
) -> Plan:
    """Any plan that keeps keys whole: some hosts elsewhere than in ``like``, and some keys listed."""
    old = rng.integers(0, partitions, 4096).astype(np.int32)
    tail = old
    if like is not None and like.partitions == partitions:
        tail = np.where(rng.random(4096) < 0.1, old, like.tail_at(12))
    listed = np.unique(rng.permutation(hashes)[: rng.integers(0, 6)])
    home = rng.integers(0, partitions, len(listed)).astype(np.int32)
    rows, reason = np.ones(len(listed), np.int64), np.zeros(len(listed), np.uint8)
    return build_plan(
        Placement.whole(tail.astype(np.int32), listed, home, rows, ("any",), reason), partitions, PlanInfo()
    )


@dataclass(eq=False)
class Alone:
    """Batch after batch. ``attempts``: each task runs so often, and its last attempt is the one that counts."""

    folder: Path
    fn: Callable[..., Any] = count
    form: str = "arrow"
    shapes: Shapes = COUNTS
    frame: pa.Schema = FRAME
    time: str | None = None
    block: int = 4
    key: tuple[str, ...] = ("user",)
    number: int = -1
    placed: Plan | None = None
    parts: tuple[StatePart, ...] = ()
    keys: NDArray[np.int64] = field(default_factory=lambda: np.zeros(HOSTS, np.int64))
    done: list[TaskResult] = field(default_factory=list)

    def run(self, rows: pa.Table, plan: Plan, clock: int | None = None, attempts: int = 1) -> Figures:
        """One batch, committed."""
        self.number += 1
        job = StatefulJob(
            Folder(self.folder), self.fn, self.form, self.key, self.shapes, self.frame, self.time, self.block
        )
        task = Task(StatefulBatch(job, self.number, self.placed, self.parts, plan, clock))
        hashes = hash_keys(*(rows.column(name).combine_chunks() for name in self.key))
        hashed = rows.append_column("hash", pa.array(hashes.view(np.int64)))
        place = plan.route(hashes)
        self.done = []
        for partition in range(plan.partitions):
            batches = hashed.filter(pa.array(place == partition)).to_batches(max_chunksize=7)
            for _ in range(attempts):
                done = task.done(partition, batches)
            self.done.append(task_result_from_bytes(task_result_to_bytes(done)))
        self.placed, self.parts = plan, tuple(done.part for done in self.done)
        figures = Figures()
        for done in self.done:
            self.keys += done.keys_added
            figures = figures.plus(done.figures)
        return figures

    def states(self) -> list[dict[str, Any]]:
        """All that the plan in force finds, read from the files as they are."""
        assert self.placed is not None
        found = []
        for partition, table in enumerate(self._tables()):
            here = self.placed.place(table.column(HASH).to_numpy()) == partition
            own = table.filter(pa.array(here))
            names = [*self.shapes.key.names, *self.shapes.state.names]
            found += own.drop_columns([HASH]).select(range(len(names))).rename_columns(names).to_pylist()
        return found

    def counts(self) -> dict[str, int]:
        found = self.states()
        made = {row["user"]: row["n"] for row in found}
        assert len(made) == len(found), "a key has two states"
        return made

    def outputs(self) -> list[dict[str, Any]]:
        import pyarrow.parquet as pq

        names = [done.output for done in self.done if done.output]
        return [row for name in names for row in pq.read_table(self.folder / OUTPUT / name).to_pylist()]

    def _tables(self) -> list[pa.Table]:
        reader = Reader(Folder(self.folder).sub(DATA), stored_schema(self.shapes, expires=self.time is not None))
        return [reader.table(part, reader.index(part)) for part in self.parts]


def rows_of(users: Sequence[str | None], values: Sequence[int]) -> pa.Table:
    return pa.table({"user": users, "v": values}, schema=FRAME)
