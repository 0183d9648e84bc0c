"""The executor face, task side: what runs in Python workers (DESIGN section 7). It imports little and asks nobody.

A task gets a ``Pin`` in its closure: the plan, or the Q-table that it learns from, and where reports go. Key hashes and
spread hashes come as columns that Spark made; what is decided is in ``core.partition_agent``. Other columns are never
looked at: their Arrow buffers go out as they came in.

A batch that can be routed row by row streams. Where the whole partition has to be seen first its Arrow batches are held
in memory, from ``HELD`` bytes on in a temporary file.

Reports go out when the last row has: a task that fails or is not read to its end has reported nothing, and one that
runs again reports the same part again. They are best effort. A service that is down or hangs costs a worker process
one wait of ``PATIENCE`` seconds, then a breaker keeps it from asking for minutes. A row's place never depends on it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unskew.core.errors import PlanError, UnskewError
from unskew.core.histogram import Histogram
from unskew.core.partition_agent import Bound, Decided, bounded, decide, report_of
from unskew.core.plan import Plan
from unskew.core.qtable import QTable

if TYPE_CHECKING:
    import pyarrow as pa

    from unskew.client import Breaker, Client

__all__ = ["HELD", "PATIENCE", "UNKNOWN_PARTS", "Pin", "Placing"]

_log = logging.getLogger("unskew.spark")

HELD = 256 << 20
PATIENCE = 1.0
UNKNOWN_PARTS = 1_000_000  # the most that a report may name

_COOLDOWN, _LONGEST = 60.0, 900.0
_MOST_LINES, _IDLE = 4, 120.0


@dataclass(frozen=True, eq=False)
class Pin:
    """What a batch is bound to before its first task starts. Immutable; pickles to what it holds.

    With a ``plan`` rows go by it; without one each task learns from the Q-table in ``bound``. ``service`` is where
    reports go (None: nowhere), ``access`` how a client shows who it is. ``sync``: whether tasks report what they
    learned. ``session`` numbers the driver's lives, ``parts`` are the tasks of the batch, where that is known.
    One pin is for one frame: a second frame's reports would take the place of the first one's.
    """

    stream: str
    bound: Bound
    source: str
    service: str | None = None
    access: Mapping[str, Any] = field(default_factory=dict, repr=False)
    sync: bool = False
    session: int = 1
    dsync: float = 20.0
    parts: int = UNKNOWN_PARTS

    def __repr__(self) -> str:
        by = f"plan {self.plan.version}" if self.plan is not None else f"Q-table {self.version[0]}.{self.version[1]}"
        to = f", service={self.service!r}" if self.service else ""
        return f"Pin({self.stream!r}, batch={self.batch}, partitions={self.partitions}, {by}{to})"

    @property
    def plan(self) -> Plan | None:
        return self.bound.plan

    @property
    def table(self) -> QTable | None:
        return self.bound.table

    @property
    def version(self) -> tuple[int, int]:
        """Of the round whose Q-table this is: (incarnation, epoch)."""
        return self.bound.version

    @property
    def learn(self) -> bool:
        return self.bound.plan is None

    @property
    def partitions(self) -> int:
        return self.bound.partitions

    @property
    def batch(self) -> int:
        return self.bound.batch


@dataclass(frozen=True, eq=False)
class Placing:
    """The function that ``mapInArrow`` runs: takes frames whose last columns are the key hash and, with ``spread``,
    the spread hash; gives them without those and with the partition, mapped by ``values`` where Spark 4.0 needs it."""

    pin: Pin
    column: str
    spread: bool
    values: NDArray[np.int32] | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise PlanError("this runs inside a Spark task only")
        return self.placed(batches, context.partitionId())

    def placed(self, batches: Iterable[pa.RecordBatch], partition: int) -> Iterator[pa.RecordBatch]:
        """The same for a partition by its number."""
        return self._as_it_comes(batches, partition) if self.pin.bound.streams else self._whole(batches, partition)

    def _as_it_comes(self, batches: Iterable[pa.RecordBatch], partition: int) -> Iterator[pa.RecordBatch]:
        plan, seen = self.pin.plan, []
        if plan is None:
            raise PlanError("only a plan routes row by row")
        for batch in batches:
            keys, spread = self._hashes(batch)
            if self.pin.service is not None:
                seen.append(keys)
            yield self._with(batch, plan.route(keys, spread if plan.splits else None))
        if self.pin.service is not None:
            keys = np.concatenate(seen) if seen else np.zeros(0, np.uint64)
            tell(self.pin, partition, Decided(np.zeros(0, np.int32), Histogram.from_hashes(keys)))

    def _whole(self, batches: Iterable[pa.RecordBatch], partition: int) -> Iterator[pa.RecordBatch]:
        keys, spreads = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
        with _Held() as held:
            for batch in batches:
                key, spread = self._hashes(batch)
                keys.append(key)
                spreads.extend([] if spread is None else [spread])
                held.add(self._bare(batch))
            told = np.concatenate(spreads) if self.spread else None
            decided = decide(self.pin.bound, partition, np.concatenate(keys), told)
            del keys, spreads, told
            start = 0
            for batch in held:
                yield self._with(batch, decided.partitions[start : start + batch.num_rows], bare=True)
                start += batch.num_rows
        if self.pin.service is not None:
            tell(self.pin, partition, decided)

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


class _Held:
    """Arrow batches kept for a second look: in memory, and what is over ``HELD`` bytes in a file that is gone with
    this. In the order in which they were added."""

    def __init__(self) -> None:
        self._here: list[pa.RecordBatch] = []
        self._bytes = 0
        self._open = contextlib.ExitStack()
        self._path = ""
        self._writer: Any = None  # made when memory is full

    def __enter__(self) -> _Held:
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

        handle, self._path = tempfile.mkstemp(prefix="unskew-", suffix=".arrow")
        os.close(handle)
        self._open.callback(os.unlink, self._path)
        sink = self._open.enter_context(pa.OSFile(self._path, "wb"))
        self._writer = pa.ipc.new_stream(sink, schema)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        yield from self._here
        if self._writer is not None:
            self._writer.close()
            with pa.OSFile(self._path, "rb") as source, pa.ipc.open_stream(source) as reader:
                yield from reader


# -- reports -------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Line:
    """A client of one service and whether it is worth asking. One a process and target: workers are used again."""

    client: Client
    breaker: Breaker
    used: float


_LINES: dict[tuple[int, str, str], _Line] = {}


def tell(pin: Pin, partition: int, decided: Decided) -> None:
    """Report this partition, once: the histogram as a part of the batch, and what was learned where that is due.
    Never fails, and never waits longer than ``PATIENCE``."""
    try:
        line = _line(pin)
        if not line.breaker.allow(time.monotonic()):
            return
        try:
            _send(pin, partition, decided, line.client, time.monotonic() + PATIENCE)
        except UnskewError as why:
            _failed(line, why)
        else:
            line.breaker.success()
    except Exception as why:  # noqa: BLE001 - rows are routed already: no report may fail a task
        _log.warning("stream %s: no report of batch %s. %s: %s", pin.stream, pin.batch, type(why).__name__, why)


def _failed(line: _Line, why: UnskewError) -> None:
    """A service that says no has answered; it is asked again by the next task."""
    from unskew.client import NoAnswerError

    if isinstance(why, NoAnswerError):
        line.breaker.failure(time.monotonic())
    else:
        line.breaker.success()
    _log.warning("a report did not get through; the batch goes on. %s", why)


def _send(pin: Pin, partition: int, decided: Decided, client: Client, until: float) -> None:
    from unskew.core.stream import Part

    if partition < pin.parts:
        part = Part(pin.source, pin.batch, 0, partition, pin.parts)
        client.report_histogram(pin.stream, part, bounded(decided.histogram, pin.partitions), timeout=_left(until))
    if pin.sync and decided.table is not None:
        agent = f"{pin.source}/{partition}"
        report = report_of(pin.bound, decided, agent=agent, session=pin.session, seq=pin.batch + 1, dsync=pin.dsync)
        client.sync(pin.stream, report, timeout=_left(until))


def _left(until: float) -> float:
    return max(until - time.monotonic(), 0.05)


def _line(pin: Pin) -> _Line:
    from unskew.client import Breaker, Client

    now, key = time.monotonic(), (os.getpid(), pin.service or "", repr(sorted(pin.access.items())))
    line = _LINES.get(key)
    if line is None:
        _let_go(now)
        client = Client(pin.service or "", **{"timeout": PATIENCE, **pin.access})
        line = _LINES[key] = _Line(client, Breaker(failures=1, cooldown=_COOLDOWN, longest=_LONGEST), now)
    line.used = now
    return line


def _let_go(now: float) -> None:
    """Close what was not used for long, and the oldest where there are many; what came over a fork is the parent's."""
    mine = os.getpid()
    for key in [key for key in _LINES if key[0] != mine]:
        del _LINES[key]
    by_age = sorted(_LINES, key=lambda key: _LINES[key].used)
    for at, key in enumerate(by_age):
        if _LINES[key].used < now - _IDLE or at <= len(by_age) - _MOST_LINES:
            _LINES.pop(key).client.close()
