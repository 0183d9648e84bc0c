"""An application without Spark: the same driver and the same tasks, through the light client, in this process.

``Clock`` takes the place of the clock that drivers go by: a batch comes when the test says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.service.faces import served
from unskew.client import Client
from unskew.core.dalton.qtable import QTable
from unskew.core.rounds.partition_agent import RoutingChoice, decide
from unskew.core.stream_spec import StreamSpec
from unskew.service.engine.rounds import round_driver
from unskew.spark import service_link
from unskew.spark.place import task_reports
from unskew.spark.place.task_pin import TaskPin
from unskew.spark.service_link import ServiceLink
from unskew.spark.streaming import round_participant
from unskew.spark.streaming.round_participant import RoundParticipant

__all__ = ["Clock", "Plain", "Slow", "let_go", "slow_service", "zipf"]

U64 = NDArray[np.uint64]
Placed = list[tuple[U64, NDArray[np.int32]]]


class Clock:
    """Seconds go by when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        mine = SimpleNamespace(monotonic=lambda: self.now, time_ns=round_participant.time.time_ns)
        for module in (round_participant, service_link):
            monkeypatch.setattr(module, "time", mine)


def zipf(own: int, rows: int, seed: int, hot: int = 20) -> U64:
    """Keys of which the first ``hot`` are this application's own."""
    rank = np.minimum((1 - np.random.default_rng([own, seed]).random(rows)) ** -2.0, 1e6).astype(np.uint64)
    return np.where(rank <= hot, rank + np.uint64((own + 1) * 10_000_000), rank) * np.uint64(0x9E3779B97F4A7C15)


@dataclass
class Plain:
    """``batch`` runs one: ``tasks`` partitions of ``rows`` rows each."""

    client: Client
    stream: str
    partitions: int
    own: int
    tasks: int = 2
    rows: int = 5_000
    interval: float = 5.0
    keys: Callable[[int, int, int], U64] = zipf
    syncs: RoundParticipant = field(init=False)

    def __post_init__(self) -> None:
        spec = StreamSpec(self.partitions)
        link = ServiceLink(self.client)
        self.syncs = RoundParticipant(link, self.stream, spec, f"plain-{self.own}", self.interval)

    def bound(self, batch: int) -> RoutingChoice:
        found = self.syncs.answer
        empty = RoutingChoice(self.partitions, table=QTable.empty(self.partitions), batch=batch, alike=True)
        return empty if found is None else empty.after(found)

    def batch(self, number: int, seconds: float = 0.01) -> Placed:
        due, out = self.syncs.due(), []
        pin = TaskPin(self.stream, self.bound(number), f"plain-{self.own}", session=self.syncs.session)
        pin = TaskPin(
            self.stream,
            pin.bound,
            pin.source,
            self.client.target,
            sync=due,
            session=self.syncs.session,
            dsync=self.syncs.dsync,
            parts=self.tasks,
            patience=60.0,
        )
        for task in range(self.tasks):
            keys = self.keys(self.own, self.rows, number * self.tasks + task)
            spread = np.arange(len(keys), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            decided = decide(pin.bound, keys, spread)
            if due:
                task_reports.report(pin, task, decided)
            out.append((keys, decided.partitions))
        self.syncs.ended(seconds)
        return out


@contextmanager
def let_go() -> Iterator[None]:
    """No client of this process's tasks outlives the block."""
    try:
        yield
    finally:
        while task_reports._LINKS:
            task_reports._LINKS.popitem()[1].link.close()


@dataclass
class Slow:
    """How long merges take."""

    seconds: float = 0.0


@contextmanager
def slow_service(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Slow]]:
    """A service in this process whose merges take as long as the test says, in a thread, as large ones do."""
    import time

    slow, real = Slow(), round_driver.reduce_round

    def reduced(job: round_driver.MergeJob) -> round_driver.RoundResult:
        time.sleep(slow.seconds)
        return real(job)

    monkeypatch.setattr(round_driver, "reduce_round", reduced)
    monkeypatch.setattr(round_driver, "_ON_LOOP", -1)
    with served("engine") as service:
        yield f"grpc://{service.target}", slow
