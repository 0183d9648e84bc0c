"""Two learning partitioners beside the stream: real agents of the embedded service, as a streaming job would run them.

Each gets half of the key hashes that the arms get, in small pieces while a batch runs, and learns with Dalton's rounds
where hot keys should go. No row of the arms is routed by them: they show how unskew routes row by row, without batches
and plans. Their interval DSYNC, the rounds and the Q-table are the service's.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.client import Agent, Client, Synced
from unskew.core.dalton.qtable import QTable
from unskew.core.rounds.messages import Answer
from unskew.core.stream_spec import StreamSpec
from unskew.spark.demo.stream import Demo

__all__ = ["DSYNC_LEAST", "DSYNC_MOST", "Agents", "Round"]

U64 = NDArray[np.uint64]

_AGENTS = 2
_PIECE = 1_000  # rows an agent gets at a time
_SPREAD = 5.0  # the rows are fed over so many times the least time of a batch
_SLIDES = 50
_DSYNC, DSYNC_LEAST, DSYNC_MOST = 4.0, 0.5, 16.0


@dataclass(frozen=True)
class Round:
    """A round: ``at`` seconds since the start, the new interval, the rows and the hot keys in it."""

    at: float
    epoch: int
    dsync: float
    records: int
    hot: int


class RoundLog:
    """The rounds that the agents took part in, each once, and the newest Q-table that has a key. Thread-safe."""

    def __init__(self) -> None:
        self._started, self._lock = time.monotonic(), threading.Lock()
        self.rounds: list[Round] = []
        self.table: QTable | None = None
        self._newest = (0, 0)

    def clock(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def add(self, answer: Answer) -> None:
        with self._lock:
            if answer.version <= self._newest:
                return
            self._newest = answer.version
            self.rounds.append(Round(self.clock(), answer.epoch, answer.dsync, answer.records, len(answer.table)))
            if answer.records and len(answer.table):  # between batches the agents forget their rows, and the table too
                self.table = answer.table


class LoggedAgent(Agent):
    """An agent that writes the answers of the service into a log."""

    def __init__(self, log: RoundLog, *args: Any, **settings: Any) -> None:
        self._log = log
        super().__init__(*args, **settings)

    def take(self, synced: Synced) -> None:
        super().take(synced)
        if synced.answer is not None:
            self._log.add(synced.answer)


class Agents:
    """The agents. ``feed`` them a batch when it begins; ``settle``, when it has ended, gives their imbalance."""

    def __init__(self, target: str, demo: Demo, stream: str = "demo-agents") -> None:
        self._stream, self._demo = stream, demo
        self._client, self.log = Client(target, timeout=10.0), RoundLog()
        spec = StreamSpec(demo.partitions, "dalton", dsync=_DSYNC, seed=demo.seed)
        spec = replace(spec, dsync_min=DSYNC_LEAST, dsync_max=DSYNC_MOST)
        try:
            self._client.put_stream(stream, spec)
            self._agents = [self._agent(number) for number in range(_AGENTS)]
        except BaseException:
            self._client.close()
            raise
        self._stopped = threading.Event()
        self._feeding: threading.Thread | None = None
        self._loads = np.zeros(demo.partitions, np.int64)
        self._failed: BaseException | None = None

    def _agent(self, number: int) -> Agent:
        demo = self._demo
        window = float(max(demo.rows // _AGENTS, _SLIDES))
        return LoggedAgent(
            self.log,
            self._stream,
            self._client,
            workers=demo.partitions,
            name=f"demo-{number}",
            dsync=_DSYNC,
            window=window,
            slide=window // _SLIDES,
            seed=demo.seed,
        )

    def feed(self, hashes: U64) -> None:
        """Route these rows in a thread."""
        self._loads = np.zeros(self._demo.partitions, np.int64)
        self._feeding = threading.Thread(target=self._feed, args=(hashes,), name="unskew demo agents", daemon=True)
        self._feeding.start()

    def settle(self) -> float:
        """Wait until all rows are routed; the fullest partition over its fair share."""
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
        except BaseException as why:  # noqa: BLE001 - raised again by ``settle``
            self._failed = why

    def close(self) -> None:
        self._stopped.set()
        if self._feeding is not None:
            self._feeding.join()
        for agent in self._agents:
            agent.close(timeout=1.0)
        self._client.close()
