"""What one task of a stateful batch does: its partition's rows in, new state and output in files of its own.

It gets everything beforehand: where the state of each partition lies, by which plan, and by which plan its rows have
come. It reads the blocks that its keys are in, and of other partitions those of keys that have moved here, calls the
function, and writes one file of state and one of output under names that no other attempt has. It reports to the
driver what it did; until the driver lists its files they are garbage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unskew.core.errors import PlanError
from unskew.core.histogram.histogram import Histogram
from unskew.core.operators.keyed_plan import LISTED, keys_added, shortened
from unskew.spark.place.executor import this_partition
from unskew.spark.stateful.batch import OUTPUT, StatefulBatch, file_name
from unskew.spark.stateful.calls import KeyedRows, call
from unskew.spark.stateful.grouping import key_codes
from unskew.spark.stateful.store import LoadedStates, Store, at, instants
from unskew.wire.manifests import Figures, TaskResult, task_result_to_bytes

__all__ = ["Task"]


@dataclass(frozen=True, eq=False)
class Task:
    """The function that ``mapInArrow`` runs. ``empty``: the batch has no rows, and what comes in is none of it."""

    batch: StatefulBatch
    empty: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = [batch for batch in batches if not self.empty]
        done = self.done(this_partition(), own)
        yield pa.record_batch([pa.array([task_result_to_bytes(done)], pa.binary())], ["done"])

    def done(self, partition: int, batches: Iterable[pa.RecordBatch]) -> TaskResult:
        """The same for a partition by its number."""
        return _Run(self.batch, partition).run([batch for batch in batches if batch.num_rows])


@dataclass(eq=False)
class _Run:
    """One attempt."""

    batch: StatefulBatch
    partition: int
    output: list[pa.Table] = field(default_factory=list)
    figures: Figures = field(default_factory=Figures)

    def run(self, batches: list[pa.RecordBatch]) -> TaskResult:
        rows, hashes, code = self._rows(batches)
        groups = np.unique(code, return_index=True)[1] if len(code) else code
        store = Store(self.batch, self.partition)
        held = store.load(hashes[groups])
        before = held.hashes
        if self.batch.clock is not None:
            held = self._expire(held, self.batch.clock)
        held = self._update(held, rows, hashes, code, groups)
        part, written = store.save(held)
        output = self._put_output()
        figures = self.figures.plus(
            Figures(
                rows=len(hashes),
                moved=store.moved,
                bytes_read=store.read,
                bytes_written=written,
                bytes_rows=sum(batch.nbytes for batch in batches),
            )
        )
        counted = shortened(Histogram.from_hashes(hashes), LISTED)
        return TaskResult(
            self.partition, part, output, figures, counted, keys_added(before, held.hashes), self._latest(rows)
        )

    def _rows(self, batches: list[pa.RecordBatch]) -> tuple[pa.Table, NDArray[np.uint64], NDArray[np.int64]]:
        """The rows, key after key, the hash of each and the number of its key."""
        job = self.batch.job
        if not batches:
            return job.frame.empty_table(), np.zeros(0, np.uint64), np.zeros(0, np.int64)
        whole = pa.Table.from_batches(batches)
        hashes = whole.column(whole.num_columns - 1).to_numpy().view(np.uint64)
        rows = pa.Table.from_arrays(whole.columns[:-1], names=job.frame.names)
        if (self.batch.plan.place(hashes) != self.partition).any():
            raise PlanError(
                f"partition {self.partition} got rows of other partitions: something has moved them after the plan "
                "placed them. Is spark.sql.adaptive set to change a given number of partitions?"
            )
        code = key_codes(hashes, [rows.column(name) for name in job.key])
        order = np.argsort(code, kind="stable")
        return rows.take(pa.array(order)).combine_chunks(), hashes[order], code[order]

    def _expire(self, held: LoadedStates, clock: int) -> LoadedStates:
        """Call the function for what has expired, without rows."""
        due = np.flatnonzero(held.expiry <= clock)
        if not len(due):
            return held
        keyed = KeyedRows(
            at(held.keys, due),
            self.batch.job.frame.empty_table(),
            np.zeros(len(due) + 1, np.int64),
            at(held.states, due),
            np.ones(len(due), np.bool_),
        )
        return self._called(held, keyed, held.hashes[due], due, expired=len(due))

    def _update(
        self,
        held: LoadedStates,
        rows: pa.Table,
        hashes: NDArray[np.uint64],
        code: NDArray[np.int64],
        groups: NDArray[np.int64],
    ) -> LoadedStates:
        """Call the function for the keys that have rows."""
        if not len(groups):
            return held
        shapes = self.batch.job.shapes
        keys = at(rows.select(self.batch.job.key), groups).cast(shapes.key)
        own = held.find(hashes[groups], keys)
        keyed = KeyedRows(keys, rows, np.append(groups, len(code)), at(held.states, own, own >= 0), own >= 0)
        return self._called(held, keyed, hashes[groups], own)

    def _called(
        self, held: LoadedStates, keyed: KeyedRows, hashes: NDArray[np.uint64], own: NDArray[np.int64], expired: int = 0
    ) -> LoadedStates:
        """``own`` is where each key's state is held, below 0 where it has none."""
        job = self.batch.job
        answer = call(job.fn, job.form, job.shapes, keyed)
        if answer.output.num_rows:
            self.output.append(answer.output)
        had = own >= 0
        stays = np.zeros(len(own), np.bool_)
        stays[answer.which] = True
        created, forgotten = int((stays & ~had).sum()), int((had & ~stays).sum())
        figures = Figures(keys=len(own), created=created, forgotten=forgotten, expired=expired)
        self.figures = self.figures.plus(figures)
        return held.replaced(own[had], hashes[answer.which], at(keyed.keys, answer.which), answer.states)

    def _put_output(self) -> str:
        """The output rows as a file that Spark reads; its name, empty where there are none."""
        if not self.output:
            return ""
        sink = pa.BufferOutputStream()
        pq.write_table(pa.concat_tables(self.output), sink, compression="zstd")
        data = sink.getvalue().to_pybytes()
        name = f"{file_name(self.batch.number, self.partition)}.parquet"
        self.batch.job.folder.put(f"{OUTPUT}/{name}", data)
        self.figures = self.figures.plus(Figures(bytes_output=len(data)))
        return name

    def _latest(self, rows: pa.Table) -> int | None:
        time = self.batch.job.time
        if time is None or not rows.num_rows:
            return None
        times = instants(rows.column(time)).drop_null().to_numpy()
        return int(times.max()) if len(times) else None
