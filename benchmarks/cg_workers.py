"""The two kinds of process of ``cg_processes``: a source that routes rows and sends them, a worker that works on them.

A row is the moment at which it was due, eight bytes in the worker's pipe; its key stays with the source, for the work
does not depend on it. Nothing waits for anybody: a source whose pipe is full keeps the rows (an open loop).
With a ``window`` it is a closed one, as with Storm's acknowledgements: at most so many rows are under way at a time,
and a row is due when it is sent. Sources and workers count their rows in memory that all of them share.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.cpu_limits import share_of
from unskew.client import PlanAgent, Reporter
from unskew.core import make_router
from unskew.core.stream_spec import BatchWork, Work

__all__ = ["Done", "Sent", "SlotSeen", "Task", "source", "worker"]

F64 = NDArray[np.float64]
U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]

_STEP = 8  # rows worked on between two looks at the pipe
_TICK = 0.01  # seconds between two sendings of a source
_ATOMIC = 512  # rows in one write: 4096 bytes, which a pipe takes whole or not at all
_SWITCH = 0.0005  # seconds after which working lets the reporting thread go on: with 5 ms a report takes a slot
_PLANNED = {"CG": "cg"}  # what routes by the service's plans; the others are routers at the source
_ROUTERS = {"KG": "hash", "PKG": "pk2", "SG": "shuffle"}


@dataclass(frozen=True)
class Task:
    """A run: ``start`` on the monotonic clock, all sources together send ``rate`` rows a second; or, with a ``window``,
    as many as that lets through."""

    scheme: str
    stream: str
    target: str
    workers: int
    start: float
    rate: float
    slot: float
    cost: float
    sources: int
    window: int = 0


@dataclass(frozen=True)
class SlotSeen:
    """What a worker saw of a slot: number by the wall's clock, seconds since the last one ended, rows, utilisation;
    ``got`` of its share of the processor, which is little where it had little to do, or where others took it."""

    number: int
    seconds: float
    arrived: int
    done: int
    queue: int
    utilisation: float
    got: float


@dataclass(frozen=True)
class Done:
    """A worker's run. ``due`` and ``finished`` of each row; ``left`` are the dues of rows that were not finished."""

    slots: tuple[SlotSeen, ...]
    due: F64
    finished: F64
    left: F64
    reports: tuple[int, int, str]


@dataclass(frozen=True)
class Sent:
    """A source's run: rows, distinct (key, worker) pairs, rows that no pipe took, versions of plans in force."""

    rows: int
    pairs: I64
    left: int
    plans: int
    error: str


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: also while it is stopped


# -- worker -------------------------------------------------------------------------------------------------


def worker(number: int, control: Connection, rows: int, counts: I64) -> None:
    """Serve one task after another, until None comes. ``rows`` is the pipe's end; ``counts`` are rows that the workers
    have done, then rows that the sources have sent."""
    _die_with_parent()
    sys.setswitchinterval(_SWITCH)
    os.set_blocking(rows, False)
    limit_file = control.recv()
    while (task := control.recv()) is not None:
        _empty(rows)  # of the run before
        control.send("ready")
        control.send(_Serving(number, task, limit_file, rows, control, counts).run())


def _empty(pipe: int) -> None:
    with suppress(BlockingIOError):
        while True:
            os.read(pipe, 1 << 16)


@dataclass
class _Serving:
    number: int
    task: Task
    limit_file: str
    rows: int
    control: Connection
    counts: I64
    queue: deque[F64] = field(default_factory=deque)
    waiting: int = 0
    due: list[F64] = field(default_factory=list)
    finished: list[F64] = field(default_factory=list)
    slots: list[SlotSeen] = field(default_factory=list)
    arrived: int = 0
    done: int = 0

    def run(self) -> Done:
        task = self.task
        poll = select.poll()
        for end in (self.rows, self.control.fileno()):
            poll.register(end, select.POLLIN)
        self.cpu = self.slot_cpu = time.process_time()
        self.slot, self.slot_began = int(time.time() / task.slot), time.monotonic()
        with Reporter(task.stream, task.target, source="workers", part=self.number, parts=task.workers) as reporter:
            while True:
                pause = 0 if self.waiting else 1000 * (task.slot - time.time() % task.slot) + 1
                ready = {end for end, _ in poll.poll(pause)}
                if self.rows in ready:
                    self._read()
                if self.control.fileno() in ready:
                    self.control.recv()
                    break
                self._work()
                if int(time.time() / task.slot) != self.slot:
                    self._end_slot(reporter)
            reporter.close(1.0)
            told = reporter.status
        left = np.concatenate([np.zeros(0), *self.queue])
        none = [np.zeros(0)]
        due, finished = np.concatenate(none + self.due), np.concatenate(none + self.finished)
        return Done(tuple(self.slots), due, finished, left, (told.sent, told.dropped, told.error))

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self.rows, 1 << 16)
            except BlockingIOError:
                return
            some = np.frombuffer(data, np.float64)
            self.queue.append(some)
            self.waiting += len(some)
            self.arrived += len(some)
            if len(data) < 1 << 16:
                return

    def _work(self) -> None:
        """A few rows: each costs the same processor time, all that the worker does for it included."""
        if not self.waiting:
            return
        head = self.queue[0]
        some, rest = head[:_STEP], head[_STEP:]
        if len(rest):
            self.queue[0] = rest
        else:
            self.queue.popleft()
        end = self.cpu + len(some) * self.task.cost
        while time.process_time() < end:
            pass
        self.cpu = time.process_time()
        self.due.append(some)
        self.finished.append(np.full(len(some), time.monotonic()))
        self.waiting -= len(some)
        self.done += len(some)
        self.counts[self.number] += len(some)

    def _end_slot(self, reporter: Reporter) -> None:
        """CG's utilisation: what came and what had waited, over what the worker can do in a slot. It knows its share
        of a processor as a container does, and what a row costs from its own processor time."""
        now, cpu = time.monotonic(), time.process_time()
        seconds, spent = now - self.slot_began, cpu - self.slot_cpu
        cost = spent / self.done if self.done >= 2 * _STEP else self.task.cost
        share = share_of(self.limit_file)
        capacity = share / cost
        work = Work(self.number, self.arrived, seconds=self.done / capacity, queue=self.waiting, capacity=capacity)
        reporter.tell(self.slot, BatchWork((work,), interval=seconds))
        used = (self.done + self.waiting) / capacity / seconds
        self.slots.append(
            SlotSeen(self.slot, seconds, self.arrived, self.done, self.waiting, used, spent / share / seconds)
        )
        self.slot, self.slot_began, self.slot_cpu = int(time.time() / self.task.slot), now, cpu
        self.arrived = self.done = 0


# -- source -------------------------------------------------------------------------------------------------


def source(number: int, control: Connection, keys: U64, pipes: list[int], counts: I64) -> None:
    """Send one stream after another, until None comes. ``pipes`` are the workers' in their order."""
    _die_with_parent()
    for pipe in pipes:
        os.set_blocking(pipe, False)
    while (task := control.recv()) is not None:
        control.send(_Sending(number, task, keys, pipes, control, counts).run())


@dataclass
class _Sending:
    number: int
    task: Task
    keys: U64
    pipes: list[int]
    control: Connection
    counts: I64
    backlog: dict[int, deque[bytes]] = field(default_factory=dict)
    pairs: list[I64] = field(default_factory=list)
    versions: set[Any] = field(default_factory=set)

    def run(self) -> Sent:
        task = self.task
        self.backlog = {pipe: deque() for pipe in self.pipes}
        if task.scheme not in _PLANNED:
            rows = self._loop(make_router(_ROUTERS[task.scheme], task.workers))
            return self._sent(rows, "")
        name = f"source-{self.number}"
        with PlanAgent(task.stream, task.target, workers=task.workers, slot=task.slot, name=name) as agent:
            rows = self._loop(agent)
            return self._sent(rows, agent.status.error)

    def _sent(self, rows: int, error: str) -> Sent:
        left = sum(len(data) for kept in self.backlog.values() for data in kept) // 8
        return Sent(rows, np.unique(np.concatenate(self.pairs)), left, len(self.versions), error)

    def _loop(self, router: Any) -> int:
        """Every tick, the rows that have come due since, or that may be sent."""
        sent = 0
        while not self.control.poll():
            due = self._due(sent)
            if len(due):
                at = np.arange(sent, sent + len(due)) % len(self.keys)
                self._send(router.route(self.keys[at]), due, at)
                sent += len(due)
                self.counts[self.task.workers + self.number] = sent
            if isinstance(router, PlanAgent):
                self.versions.add(router.plan.version)
            time.sleep(_TICK)
        self.control.recv()
        return sent

    def _due(self, sent: int) -> F64:
        """The moments of the rows to be sent now; the other sources' are in between."""
        task, now = self.task, time.monotonic()
        if task.window:
            done, under_way = np.split(self.counts, [task.workers])
            return np.full(max(task.window - int(under_way.sum() - done.sum()), 0) // task.sources, now)
        rate, shift = task.rate / task.sources, self.number / task.rate
        until = int((now - task.start - shift) * rate) + 1
        due: F64 = np.arange(sent, max(until, sent)) / rate + task.start + shift
        return due

    def _send(self, workers: NDArray[np.int32], due: F64, at: I64) -> None:
        self.pairs.append(self._pairs(workers, at))
        order = np.argsort(workers, kind="stable")
        cuts = np.searchsorted(workers[order], np.arange(1, len(self.pipes)))
        for pipe, rows in zip(self.pipes, np.split(due[order], cuts), strict=True):
            kept = self.backlog[pipe]
            kept.extend(rows[i : i + _ATOMIC].tobytes() for i in range(0, len(rows), _ATOMIC))
            while kept:
                try:
                    os.write(pipe, kept[0])
                except BlockingIOError:
                    break
                kept.popleft()

    def _pairs(self, workers: NDArray[np.int32], at: I64) -> I64:
        """Keys by the bits that tell them apart here, with their worker."""
        key = (self.keys[at] >> np.uint64(8)).astype(np.int64)
        out: I64 = (key & ~np.int64(0xFF)) | workers
        return out
