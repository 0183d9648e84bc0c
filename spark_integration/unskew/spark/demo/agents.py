"""Two learning partitioners beside the stream: real agents of the embedded service, as a streaming job would run them.

They get the same key hashes as the arms, in small pieces while a batch runs, each half of them, and learn with Dalton's
rounds where hot keys should go. Nothing is routed by what they say here: it shows what the other half of unskew does,
tuple by tuple, where there is no batch to plan for. Their interval DSYNC, the rounds and the Q-table are the service's.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.client import Agent, Client, Synced
from unskew.client.client import PendingSync
from unskew.core.dalton.qtable import QTable
from unskew.core.rounds.messages import Answer, Report
from unskew.core.stream_spec import StreamSpec
from unskew.spark.demo.settings import Demo

__all__ = ["DSYNC_LEAST", "DSYNC_MOST", "Agents", "Round"]

U64 = NDArray[np.uint64]

_AGENTS = 2
_PIECE = 1_000  # rows an agent gets at a time
_SPREAD = 5.0  # times the least that a batch can take: over so long its rows are fed
_SLIDES = 50
_DSYNC, DSYNC_LEAST, DSYNC_MOST = 4.0, 0.5, 16.0


@dataclass(frozen=True)
class Round:
    """A round as an agent heard of it: ``at`` seconds since the start, the interval from then on, tuples in it."""

    at: float
    epoch: int
    dsync: float
    records: int
    hot: int


class _Noted(PendingSync):
    """A report under way, whose answer is noted when it comes."""

    def __init__(self, inner: PendingSync, listener: Listener) -> None:
        self._inner, self._listener = inner, listener

    def result(self) -> Synced:
        synced = self._inner.result()
        if synced.answer is not None:
            self._listener.note(synced.answer)
        return synced

    def cancel(self) -> None:
        self._inner.cancel()


class Listener(Client):
    """A client that keeps what the service answers to its agents."""

    def __init__(self, target: str, **settings: Any) -> None:
        super().__init__(target, **settings)
        self._began, self._heard = time.monotonic(), threading.Lock()
        self.rounds: list[Round] = []
        self.table: QTable | None = None
        self._newest = (0, 0)

    def clock(self) -> float:
        return time.monotonic() - self._began

    def begin_sync(
        self,
        stream: str,
        report: Report,
        *,
        wait: float = 0.0,
        known: tuple[int, int] = (0, 0),
        timeout: float | None = None,
    ) -> PendingSync:
        return _Noted(super().begin_sync(stream, report, wait=wait, known=known, timeout=timeout), self)

    def note(self, answer: Answer) -> None:
        """Each round once, whichever agent heard of it first."""
        with self._heard:
            if answer.version <= self._newest:
                return
            self._newest = answer.version
            self.rounds.append(Round(self.clock(), answer.epoch, answer.dsync, answer.records, len(answer.table)))
            if answer.records and len(answer.table):  # between batches the agents forget, and the table with them
                self.table = answer.table


class Agents:
    """``feed`` a batch when it begins, ``settle`` when it has ended: how the agents spread its rows."""

    def __init__(self, target: str, demo: Demo, stream: str = "demo-agents") -> None:
        self._stream, self._demo = stream, demo
        self._client = Listener(target, timeout=10.0)
        spec = StreamSpec(demo.partitions, "dalton", dsync=_DSYNC, seed=demo.seed)
        spec = replace(spec, dsync_min=DSYNC_LEAST, dsync_max=DSYNC_MOST)
        try:
            self._client.put_stream(stream, spec)
            self._agents = [self._agent(number, demo) for number in range(_AGENTS)]
        except BaseException:
            self._client.close()
            raise
        self._stopped = threading.Event()
        self._feeding: threading.Thread | None = None
        self._loads = np.zeros(demo.partitions, np.int64)
        self._failed: BaseException | None = None

    def _agent(self, number: int, demo: Demo) -> Agent:
        window = float(max(demo.rows // _AGENTS, _SLIDES))
        return Agent(
            self._stream,
            self._client,
            workers=demo.partitions,
            name=f"demo-{number}",
            dsync=_DSYNC,
            window=window,
            slide=window // _SLIDES,
            seed=demo.seed,
        )

    def clock(self) -> float:
        """Seconds since they began, as rounds have it."""
        return self._client.clock()

    @property
    def rounds(self) -> tuple[Round, ...]:
        return tuple(self._client.rounds)

    @property
    def table(self) -> QTable | None:
        """The newest global Q-table that has a key, of a round with tuples."""
        return self._client.table

    def feed(self, hashes: U64) -> None:
        """These rows, while the caller goes on."""
        self._loads = np.zeros(self._demo.partitions, np.int64)
        self._feeding = threading.Thread(target=self._feed, args=(hashes,), name="unskew demo agents", daemon=True)
        self._feeding.start()

    def settle(self) -> float:
        """Wait until all are routed: the fullest partition of them over its fair share."""
        if self._feeding is not None:
            self._feeding.join()
            self._feeding = None
        if self._failed is not None:
            raise self._failed
        return float(self._loads.max() * self._demo.partitions / max(int(self._loads.sum()), 1))

    def _feed(self, hashes: U64) -> None:
        pause = _SPREAD * self._demo.least_seconds * _AGENTS * _PIECE / len(hashes)
        try:
            for start in range(0, len(hashes), _AGENTS * _PIECE):
                for number, agent in enumerate(self._agents):
                    piece = hashes[start + number : start + _AGENTS * _PIECE : _AGENTS]
                    self._loads += np.bincount(agent.route(piece), minlength=self._demo.partitions)
                if self._stopped.wait(pause):
                    return
        except BaseException as why:  # noqa: BLE001 - raised again where the batch is settled
            self._failed = why

    def close(self) -> None:
        self._stopped.set()
        if self._feeding is not None:
            self._feeding.join()
        for agent in self._agents:
            agent.close(timeout=1.0)
        self._client.close()

    def __enter__(self) -> Agents:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
