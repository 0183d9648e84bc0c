"""A partition's state while its task runs: the blocks that the batch touches, and the file that takes their place."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.core.operators.keyed_state import (
    NEVER,
    Blocks,
    Spans,
    StateFile,
    StatePart,
    expired,
    holding,
    in_use,
    moved_away,
    no_blocks,
    overlapping,
    runs,
    to_empty,
)
from unskew.spark.stateful.batch import DATA, StatefulBatch, file_name
from unskew.spark.stateful.blocks import EXPIRES, HASH, Reader, Writer, micros
from unskew.spark.stateful.calls import Shapes
from unskew.spark.stateful.grouping import key_codes

__all__ = ["EXPIRY", "LoadedStates", "Store", "at", "instants", "stored_schema"]

EXPIRY = "expires"  # the column of the state that says when

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]


def stored_schema(shapes: Shapes, *, expires: bool) -> pa.Schema:
    """How a table of states is kept: by position, so that no name of the user's meets one of ours."""
    keys = [pa.field(f"k{i}", one.type) for i, one in enumerate(shapes.key)]
    states = [pa.field(f"s{i}", one.type) for i, one in enumerate(shapes.state)]
    last = [pa.field(EXPIRES, pa.int64())] if expires else []
    return pa.schema([pa.field(HASH, pa.uint64()), *keys, *states, *last])


def at(table: pa.Table, index: I64, there: NDArray[np.bool_] | None = None) -> pa.Table:
    """These rows; all NULL where it is not ``there``."""
    return table.take(pa.array(index, mask=None if there is None else ~there))


def instants(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Microseconds since 1970, of a timestamp or of a bigint of milliseconds."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return pc.multiply_checked(column.cast(pa.int64()), 1000)


@dataclass(frozen=True, eq=False)
class LoadedStates:
    """States in memory; when loaded, in the order of ``hashes``. ``expiry``: ``NEVER`` where there is none."""

    hashes: U64
    keys: pa.Table
    states: pa.Table
    expiry: I64

    def find(self, hashes: U64, keys: pa.Table) -> I64:
        """Where the state of each of these keys is, -1 where there is none. Each key is asked for once."""
        own = np.full(len(hashes), -1, np.int64)
        near = np.flatnonzero(np.isin(self.hashes, hashes))
        if not len(near):
            return own
        both = pa.concat_tables([keys, at(self.keys, near)])
        code = key_codes(np.concatenate([hashes, self.hashes[near]]), both.columns)
        where = np.full(int(code.max()) + 1, -1, np.int64)
        where[code[len(hashes) :]] = near
        own[:] = where[code[: len(hashes)]]
        return own

    def replaced(self, gone: I64, hashes: U64, keys: pa.Table, states: pa.Table) -> LoadedStates:
        """Without the states that were at ``gone``, and with these."""
        stays = np.ones(len(self.hashes), np.bool_)
        stays[gone] = False
        kept = pa.array(stays)
        expiry = np.full(states.num_rows, NEVER, np.int64)
        if EXPIRY in states.column_names:
            expiry = micros(instants(states.column(EXPIRY)))
        return LoadedStates(
            np.concatenate([self.hashes[stays], hashes]),
            pa.concat_tables([self.keys.filter(kept), keys]),
            pa.concat_tables([self.states.filter(kept), states]),
            np.concatenate([self.expiry[stays], expiry]),
        )


@dataclass(eq=False)
class Store:
    """What ``load`` has read, ``save`` puts in its place."""

    batch: StatefulBatch
    partition: int
    moved: int = field(default=0, init=False)
    _index: Blocks = field(default_factory=no_blocks, init=False)
    _touched: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_), init=False)
    _idle: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        job = self.batch.job
        self._shapes = job.shapes
        self._schema = stored_schema(job.shapes, expires=job.time is not None)
        self._part = self.batch.part(self.partition)
        self._reader = Reader(job.folder.sub(DATA), self._schema)

    @property
    def read(self) -> int:
        return self._reader.read

    # -- before -----------------------------------------------------------------------------------------------

    def load(self, hashes: U64) -> LoadedStates:
        """The states in the blocks of these keys, those in blocks with a key that has expired, and those that come from
        other partitions: what the plan puts here, and nothing else."""
        coming = self.batch.moved(self.partition)
        clock = self.batch.clock
        due = clock is not None and self._part.least <= clock
        self._idle = not len(hashes) and not coming and not due
        if self._idle:
            return self._held(self._schema.empty_table())
        self._index = self._reader.index(self._part)
        touched = holding(self._index, hashes)
        if clock is not None:
            touched |= expired(self._index, clock)
        for spans in coming.values():
            touched |= overlapping(self._index, spans)
        self._touched = touched
        own = self._here(self._reader.table(self._part, self._index[touched]), self.partition)
        return self._held(pa.concat_tables([own, *(self._arriving(old, spans) for old, spans in coming.items())]))

    def _arriving(self, old: int, spans: Spans) -> pa.Table:
        part = self.batch.part(old)
        index = self._reader.index(part)
        states = self._here(self._reader.table(part, index[overlapping(index, spans)]), old)
        self.moved += states.num_rows
        return states

    def _here(self, table: pa.Table, old: int) -> pa.Table:
        """Of what lies at ``old``: what was there to be found, and is to be here now."""
        hashes = table.column(HASH).to_numpy()
        here = self.batch.plan.place(hashes) == self.partition
        if self.batch.placed is not None:
            here &= self.batch.placed.place(hashes) == old
        return table if here.all() else table.filter(pa.array(here))

    def _held(self, table: pa.Table) -> LoadedStates:
        keys, states = len(self._shapes.key), len(self._shapes.state)
        expires = self._schema.names[-1] == EXPIRES
        return LoadedStates(
            table.column(HASH).to_numpy(),
            pa.Table.from_arrays(table.columns[1 : 1 + keys], schema=self._shapes.key),
            pa.Table.from_arrays(table.columns[1 + keys : 1 + keys + states], schema=self._shapes.state),
            micros(table.column(EXPIRES)) if expires else np.full(table.num_rows, NEVER, np.int64),
        )

    # -- after ------------------------------------------------------------------------------------------------

    def save(self, held: LoadedStates) -> tuple[StatePart, int]:
        """The partition's state with ``held`` in place of what was loaded, and how many bytes that took."""
        if self._idle or not (len(held.hashes) or self._touched.any()):
            return self._part, 0
        writer = Writer(len(self._part.files))
        index = self._woven(held, writer)
        index = self._emptied(index, writer)
        if not len(index):
            return StatePart(), 0
        return self._written(index, writer)

    def _table(self, held: LoadedStates) -> tuple[pa.Table, U64]:
        """In the order of hashes."""
        order = np.argsort(held.hashes, kind="stable")
        columns = [pa.array(held.hashes), *held.keys.columns, *held.states.columns]
        if self._schema.names[-1] == EXPIRES:
            columns.append(pa.array(held.expiry, mask=held.expiry == NEVER))
        table = pa.Table.from_arrays(columns, schema=self._schema).take(pa.array(order))
        return table.combine_chunks(), held.hashes[order]

    def _woven(self, held: LoadedStates, writer: Writer) -> Blocks:
        """The index, with new blocks for each run of those that were touched."""
        table, hashes = self._table(held)
        if not len(self._index):
            return writer.add(table, self.batch.job.block)
        stays = self._index[~self._touched & ~moved_away(self._index, self.batch.plan, self.partition)]
        pieces = [stays]
        for start, stop in runs(self._touched):
            low = 0 if start == 0 else int(np.searchsorted(hashes, self._index["first"][start]))
            high = len(hashes) if stop == len(self._index) else int(np.searchsorted(hashes, self._index["first"][stop]))
            pieces.append(writer.add(table.slice(low, high - low), self.batch.job.block))
        whole = np.concatenate(pieces)
        return whole[np.argsort(whole["first"])]

    def _emptied(self, index: Blocks, writer: Writer) -> Blocks:
        """With the blocks of files that are not worth keeping copied into the new one."""
        files = self._part.files
        live = in_use(index, len(files) + 1)[:-1]
        size = np.array([file.size for file in files], np.int64)
        empty = np.append(to_empty(live, size, writer.size), False)
        chosen = np.flatnonzero(empty[index["file"]])
        if len(chosen):
            index = index.copy()
            index[chosen] = writer.copy(self._reader.raw(self._part, index[chosen]), index[chosen])
        return index

    def _written(self, index: Blocks, writer: Writer) -> tuple[StatePart, int]:
        files = self._part.files
        used = np.unique(np.append(index["file"], len(files)))  # the new file is there for the index alone too
        renumbered = index.copy()
        renumbered["file"] = np.searchsorted(used, index["file"])
        data, index_bytes, digest = writer.finish(renumbered)
        name = f"{file_name(self.batch.number, self.partition)}.state"
        self.batch.job.folder.put(f"{DATA}/{name}", data)
        listed = [*files, StateFile(name, len(data), 0)]
        part = StatePart(tuple(listed[i] for i in used.tolist()), index_bytes, digest, int(index["least"].min()))
        return part.using(in_use(renumbered, len(used))), len(data)
