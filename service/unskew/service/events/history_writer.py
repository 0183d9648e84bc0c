"""Writes the history of streams to the store, so that every replica shows the same, also after a restart.

An observer. It only puts events into a bounded queue; one task writes them, one after another. No call waits for that
or fails because of it: what does not fit, or what the store refuses, is reported as skipped and is a gap in a picture.
Each replica writes what it did itself: the plans that it made, the rounds that it merged, the batches that were
reported to it. A batch in several parts is written when a plan is made from all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from unskew.core.stream_spec import BatchWork
from unskew.service.concurrency import detached_task, finish
from unskew.service.errors import NotFoundError
from unskew.service.events import events, history
from unskew.service.lru_cache import LruCache
from unskew.service.stores.ports import Store

__all__ = ["HistoryWriter"]

_MAX_QUEUE = 1000  # entries; more are skipped
_STREAMS = 10_000
_FLUSH = 1.0  # seconds to write what is left at the end
N = TypeVar("N", bound=history.AnyNote)


class HistoryWriter:
    """``observer``: for what was skipped."""

    def __init__(self, store: Store, observer: events.Observer) -> None:
        self._store, self._observer = store, observer
        self._waiting: asyncio.Queue[tuple[str, int, history.AnyNote]] = asyncio.Queue(_MAX_QUEUE)
        self._count = 0  # entries so far
        self._void: dict[str, int] = {}  # of streams that were deleted: the number of the last entry that is void
        self._whole: LruCache[str, int] = LruCache(_STREAMS)  # the last batch that was written as a whole
        self._task: asyncio.Task[None] | None = None
        self._on: dict[type, Callable[[Any], None]] = {
            events.PlanBuilt: self._plan_built,
            events.RoundMerged: self._round_merged,
            events.BatchSeen: self._batch_seen,
            events.WorkSeen: self._work_seen,
            events.StreamChanged: self._stream_changed,
        }

    def start(self) -> None:
        self._task = detached_task(self._write())

    async def close(self) -> None:
        """Write what is in the queue, if that does not take long."""
        if self._task is not None:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._waiting.join(), _FLUSH)
            await finish(self._task)

    async def of(self, stream: str, kind: type[N], last: int | None = None) -> list[N]:
        """The entries of this kind, the earliest first."""
        return history.read(kind, await self._store.notes(stream, kind.kind, last or kind.keep))

    # -- events

    def __call__(self, event: events.Event, /) -> None:
        on = self._on.get(type(event))
        if on is not None:
            on(event)

    def _put(self, stream: str, *notes: history.AnyNote) -> None:
        for note in notes:
            try:
                self._waiting.put_nowait((stream, self._count + 1, note))
                self._count += 1
            except asyncio.QueueFull:
                self._observer(events.Skipped(stream, "note", f"{_MAX_QUEUE} are waiting to be written"))

    def _stream_changed(self, event: events.StreamChanged) -> None:
        """What is in the queue belongs to the incarnation that ended, not to the next one."""
        if event.what in ("deleted", "restored"):
            self._whole.pop(event.stream, None)
            if not self._waiting.empty():
                self._void[event.stream] = self._count

    def _plan_built(self, event: events.PlanBuilt) -> None:
        info = event.info
        if event.outcome not in ("new", "kept"):
            return
        by_plan, by_hash = history.imbalance_of(event.by_plan), history.imbalance_of(event.by_hash)
        expected = history.Expected(
            digest=event.digest,
            by_plan=list(event.by_plan),
            by_hash=list(event.by_hash),
            plan_imbalance=by_plan,
            hash_imbalance=by_hash,
        )
        note = history.PlanNote(
            version=str(info.version),
            batch=info.batch,
            outcome=event.outcome,
            reason=history.clipped(event.reason),
            imbalance=by_plan,
            by_hash=by_hash,
            moved_rows=info.moved_rows if event.outcome == "new" else 0.0,
            hot_keys=event.hot_keys,
            way=event.advice.way if event.advice else "",
            way_reason=history.clipped(event.advice.reason) if event.advice else "",
        )
        self._put(event.stream, expected, note)

    def _round_merged(self, event: events.RoundMerged) -> None:
        if event.outcome == "repeated":
            return
        note = history.RoundNote(
            epoch=event.epoch,
            reports=event.reports,
            outcome=event.outcome,
            seconds=round(event.seconds, 6),
            dsync_seconds=event.dsync,
        )
        self._put(event.stream, note)

    def _batch_seen(self, event: events.BatchSeen) -> None:
        if event.part.parts == 1:
            self._whole.put(event.stream, event.part.batch)
            self._batch(event.stream, event.part.batch, event.part.source, event.batch, event.partitions)

    def _work_seen(self, event: events.WorkSeen) -> None:
        if self._whole.find(event.stream) != event.number:
            self._whole.put(event.stream, event.number)
            self._batch(event.stream, event.number, "", event.batch, event.partitions)

    def _batch(self, stream: str, number: int, source: str, batch: BatchWork, partitions: int) -> None:
        loads = events.loads_of(events.rows_of(batch), partitions)
        version = None if batch.version is None else str(batch.version)
        about = {"batch": number, "source": source, "version": version, "imbalance": history.imbalance_of(loads)}
        note = history.BatchNote.model_validate({**about, "rows": sum(loads), "seconds": batch.processing})
        self._put(stream, note, history.Observed.model_validate({**about, "loads": loads}))

    # -- writing

    async def _write(self) -> None:
        while True:
            stream, number, note = await self._waiting.get()
            try:
                if number > self._void.get(stream, 0):
                    await self._store.note(stream, note.kind, note.data(), note.keep)
            except NotFoundError:
                pass  # the stream was deleted meanwhile, with its history
            except Exception as why:  # noqa: BLE001 - whatever it is, the next entry is written
                self._observer(events.Skipped(stream, "note", f"{type(why).__name__}: {why}"))
            finally:
                self._waiting.task_done()
                if self._waiting.empty():
                    self._void.clear()
