"""Placement by tasks: what runs in Python workers (DESIGN section 7). It imports little.

A task gets a ``TaskPin`` in its closure. Key hashes and spread hashes come as columns that Spark made; what is decided
is in ``core.rounds.partition_agent``. Other columns are never looked at: their Arrow buffers go out as they came in.

A batch that can be routed row by row streams. Where the whole partition has to be seen first its Arrow batches are held
in memory, from ``HELD`` bytes on in a file without a name in Spark's own scratch folder: it is gone with the worker,
however that ends. What tasks ask and report, and what that costs at most, is in ``task_reports``.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unskew.core.errors import PlanError
from unskew.core.histogram.histogram import Histogram
from unskew.core.rounds.partition_agent import PartitionRouting, decide
from unskew.spark.place.task_pin import TaskPin
from unskew.spark.place.task_reports import plan_for, report

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["HELD", "TaskPlacement", "this_partition"]

HELD = 64 << 20  # a worker: as many as the executor has cores share what Spark leaves them beside the heap


@dataclass(frozen=True, eq=False)
class TaskPlacement:
    """The function that ``mapInArrow`` runs: takes frames whose last columns are the key hash and, with ``spread``,
    the spread hash; gives them without those and with the partition, mapped by ``values`` where Spark 4.0 needs it."""

    pin: TaskPin
    column: str
    spread: bool
    values: NDArray[np.int32] | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.placed(batches, this_partition())

    def placed(self, batches: Iterable[pa.RecordBatch], partition: int) -> Iterator[pa.RecordBatch]:
        """The same for a partition by its number."""
        return self._as_it_comes(batches, partition) if self.pin.bound.streams else self._whole(batches, partition)

    def _as_it_comes(self, batches: Iterable[pa.RecordBatch], partition: int) -> Iterator[pa.RecordBatch]:
        plan, seen_keys = plan_for(self.pin), []
        if plan is None:
            raise PlanError("only a plan routes row by row")
        for batch in batches:
            keys, spread = self._hashes(batch)
            if self.pin.service is not None:
                seen_keys.append(keys)
            yield self._with(batch, plan.route(keys, spread if plan.splits else None))
        if self.pin.service is not None:
            keys = np.concatenate(seen_keys) if seen_keys else np.zeros(0, np.uint64)
            report(self.pin, partition, PartitionRouting(np.zeros(0, np.int32), Histogram.from_hashes(keys)))

    def _whole(self, batches: Iterable[pa.RecordBatch], partition: int) -> Iterator[pa.RecordBatch]:
        keys, spreads = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
        with _SpillingBatches() as held:
            for batch in batches:
                key, spread = self._hashes(batch)
                keys.append(key)
                spreads.extend([] if spread is None else [spread])
                held.add(self._bare(batch))
            spread_hashes = np.concatenate(spreads) if self.spread else None
            choice = replace(self.pin.bound, plan=plan_for(self.pin))
            routing = decide(choice, np.concatenate(keys), spread_hashes)
            del keys, spreads, spread_hashes
            start = 0
            for batch in held:
                yield self._with(batch, routing.partitions[start : start + batch.num_rows], bare=True)
                start += batch.num_rows
        if self.pin.service is not None:
            report(self.pin, partition, routing)

    def _hashes(self, batch: pa.RecordBatch) -> tuple[NDArray[np.uint64], NDArray[np.uint64] | None]:
        """Views of Spark's bigints, in place."""
        last = batch.num_columns - 1
        if not self.spread:
            return batch.column(last).to_numpy().view(np.uint64), None
        return batch.column(last - 1).to_numpy().view(np.uint64), batch.column(last).to_numpy().view(np.uint64)

    def _bare(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Without the hashes."""
        kept = batch.num_columns - (2 if self.spread else 1)
        return batch.select(list(range(kept)))

    def _with(self, batch: pa.RecordBatch, partitions: NDArray[np.int32], *, bare: bool = False) -> pa.RecordBatch:
        """The frame's own columns and where each row goes."""
        import pyarrow as pa

        own = batch if bare else self._bare(batch)
        target = partitions if self.values is None else self.values.take(partitions)
        schema = own.schema.append(pa.field(self.column, pa.int32()))
        return pa.RecordBatch.from_arrays([*own.columns, pa.array(target)], schema=schema)


def this_partition() -> int:
    """The number of the partition that this task has: the same for each of its attempts and twins."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise PlanError("this runs inside a Spark task only")
    return context.partitionId()


class _SpillingBatches:
    """Arrow batches kept, in their order, for a second look: in memory, and what is over ``HELD`` bytes in a file."""

    def __init__(self) -> None:
        self._here: list[pa.RecordBatch] = []
        self._bytes = 0
        self._open = contextlib.ExitStack()
        self._file: Any = None  # made when memory is full
        self._writer: Any = None

    def __enter__(self) -> _SpillingBatches:
        return self

    def __exit__(self, *_: object) -> None:
        self._here = []
        self._open.close()

    def add(self, batch: pa.RecordBatch) -> None:
        self._bytes += batch.nbytes
        if self._bytes <= HELD and self._writer is None:
            self._here.append(batch)
            return
        if self._writer is None:
            self._spill(batch.schema)
        self._writer.write_batch(batch)

    def _spill(self, schema: pa.Schema) -> None:
        import pyarrow as pa

        file = tempfile.TemporaryFile(prefix="unskew-", dir=_scratch())  # noqa: SIM115 - the stack closes it
        self._file = self._open.enter_context(file)
        self._writer = pa.ipc.new_stream(self._file, schema)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        yield from self._here
        if self._writer is not None:
            self._writer.close()
            self._file.seek(0)
            with pa.ipc.open_stream(self._file) as reader:
                yield from reader


def _scratch() -> str | None:
    """A folder of the executor's for what is in the way for a while; None, the system's, outside of Spark. Workers
    share them out by their number, as Spark's own do."""
    folders = [one for one in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if one and Path(one).is_dir()]
    return folders[os.getpid() % len(folders)] if folders else None
