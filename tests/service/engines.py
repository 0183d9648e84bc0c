"""What the tests of the engine share: engines over one store, a store that can be cut off, reports, and deadlines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import numpy as np

from tests.planning import key_hashes
from unskew.core.dalton.qtable import QTable
from unskew.core.histogram.histogram import Histogram
from unskew.core.rounds.messages import Report
from unskew.core.rounds.round_log import Commit
from unskew.core.sketches.frequent import FrequentItems
from unskew.service.engine.engine import Engine
from unskew.service.errors import UnavailableError
from unskew.service.events.events import Event
from unskew.service.stores.memory import MemoryStore

__all__ = ["Cuttable", "Log", "a_report", "engines", "run", "skewed", "until"]

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T], seconds: float = 180.0) -> T:
    """To its end, or fail. Long, as in ``until``: it ends what hangs, and judges no speed."""

    async def limited() -> T:
        return await asyncio.wait_for(main, seconds)

    return asyncio.run(limited())


class Log(list[Event]):
    """An observer that remembers."""

    def __call__(self, event: Event, /) -> None:
        self.append(event)

    def of(self, kind: type[T]) -> list[T]:
        return [event for event in self if isinstance(event, kind)]


class Made:
    """What stores are made of where a test names none: memory, or what another suite sets (test_engine_on_redis)."""

    store: Callable[[Callable[[], float]], Any] = MemoryStore
    shared = True  # one store for all replicas


class Cuttable:
    """A store, of memory unless ``Made`` says otherwise, that can be cut off, and remembers what it was asked, what
    it answered (a report is in the store then, and not when it was asked) and what was committed."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.store = Made.store(clock)
        self.cut = False
        self.asked: list[str] = []
        self.answered: list[str] = []
        self.commits: list[Commit] = []

    def __getattr__(self, op: str) -> Any:
        found = getattr(self.store, op)
        if op in ("news", "news_state"):
            return found

        async def asked(*args: Any) -> Any:
            self.asked.append(op)
            if self.cut and op != "close":
                raise UnavailableError(f"the store does not answer: {op}")
            if op == "commit":
                before = (await self.store.round(args[0])).merged
                done = await found(*args)
                if done and before < args[1].epoch and args[1].epoch not in {one.epoch for one in self.commits}:
                    self.commits.append(args[1])
                return done
            answer = await found(*args)
            self.answered.append(op)
            return answer

        return asked


@asynccontextmanager
async def engines(store: Any = None, count: int = 1, **options: Any) -> AsyncIterator[list[Engine]]:
    """So many replicas over one store."""
    stores = [store or Made.store(time.time)]
    stores += [stores[0] if store or Made.shared else Made.store(time.time) for _ in range(count - 1)]
    found = [Engine(own, **options) for own in stores]
    for engine in found:
        await engine.start()
    try:
        yield found
    finally:
        for engine in found:
            await engine.close()
        for own in stores:
            await own.close()


async def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    """Until this holds, on a busy machine too."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came true"
        await asyncio.sleep(0.005)


def skewed(keys: int = 500, heavy: int = 3, seed: int = 1) -> Histogram:
    """A few keys with most of the rows."""
    counts = np.full(keys, 10)
    counts[:heavy] = 2000
    return Histogram.from_counts(key_hashes(keys, seed), counts)


def a_report(
    agent: str = "a", seq: int = 1, *, session: int = 1, workers: int = 4, rows: int = 100, longer: bool = False,
    dsync: float = 1.0, key: int = 7, values: list[float] | None = None,
) -> Report:  # fmt: skip
    """Of one key, with a tenth of the rows on each of some workers."""
    frequent = FrequentItems(8, np.array([key], np.uint64), np.array([rows], np.int64), 0, rows)
    table = QTable.of([key], [values or [0.1] * workers], [rows], np.ones((1, workers), np.bool_))
    return Report(agent, session, seq, table, rows, frequent, np.full(workers, rows), dsync, longer)
