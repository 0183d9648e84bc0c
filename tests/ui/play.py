"""A run for the page to show: the same rows through two streams of the real service, one by hash, one by unskew.

As in the demo one key has 39 % of the rows, and after every three batches it is another one. A batch is counted,
planned for from the batches before it, routed by that plan, and reported with what it took; three agents learn beside.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from tests.service.engines import a_report
from unskew.client import Client
from unskew.core import Histogram, Plan, hash_keys
from unskew.core.stream_spec import BatchWork, Part, Work

__all__ = ["AGENTS", "BY_HASH", "BY_UNSKEW", "SOURCE", "hot_name", "play", "wide"]

BY_HASH, BY_UNSKEW, SOURCE = "demo/by-hash", "demo/by-unskew", "demo/stream"
_ROWS, _KEYS, _SHARE, _CHANGE = 40_000, 3000, 0.39, 3
AGENTS = 3


def hot_name(batch: int) -> str:
    """The key that has most of the rows of this batch."""
    return f"badger-{batch // _CHANGE}"


@dataclass(frozen=True)
class _Rows:
    hashes: np.ndarray
    spread: np.ndarray


def _rows(batch: int, seed: int) -> _Rows:
    rng = np.random.default_rng([seed, batch])
    light = rng.zipf(1.4, _ROWS) % _KEYS
    names = np.where(rng.random(_ROWS) < _SHARE, hot_name(batch), np.char.add("otter-", light.astype(str)))
    return _Rows(hash_keys(names.tolist()), hash_keys(np.arange(_ROWS) + batch * _ROWS))


def play(
    client: Client,
    batches: int = 9,
    partitions: int = 16,
    *,
    seed: int = 7,
    policy: str = "balanced",
    between: Callable[[], None] = lambda: None,
) -> None:
    """``between`` is called after each batch."""
    client.put_stream(BY_HASH, partitions=partitions, policy="hash", key_types=["string"])
    client.put_stream(BY_UNSKEW, partitions=partitions, policy=policy, key_types=["string"], dsync=8.0)
    for batch in range(batches):
        rows = _rows(batch, seed)
        for stream in (BY_HASH, BY_UNSKEW):
            plan = client.build_plan(stream, batch).plan
            client.report_histogram(stream, Part(SOURCE, batch), Histogram.from_hashes(rows.hashes))
            client.report_batch(stream, Part(SOURCE, batch), _work(plan, rows), plan.version)
        _round(client, batch, partitions)
        between()
    for stream in (BY_HASH, BY_UNSKEW):
        client.build_plan(stream, batches)


def _work(plan: Plan, rows: _Rows) -> BatchWork:
    where = plan.route(rows.hashes, rows.spread)
    each = np.bincount(where, minlength=plan.partitions)
    slowest = float(each.max()) * 1e-4
    work = tuple(Work(at, int(many), keys=int(many) // 9, seconds=many * 1e-4) for at, many in enumerate(each))
    return BatchWork(work, 10.0, 1.0 + slowest, 1.0, slowest)


def _round(client: Client, batch: int, workers: int) -> None:
    """All agents report at once. One of them wants longer intervals now and then."""

    def sync(number: int) -> None:
        report = a_report(f"agent-{number}", batch + 1, workers=workers, longer=batch in (2, 3, 6) and number == 0)
        client.sync(BY_UNSKEW, report)

    with ThreadPoolExecutor(AGENTS) as agents:
        list(agents.map(sync, range(AGENTS)))


def wide(client: Client, stream: str = "wide", partitions: int = 1000, hot: int = 500) -> None:
    """A stream of very many partitions and hot keys, with a batch of it."""
    rng = np.random.default_rng(11)
    hashes = rng.integers(0, 2**64, 40_000, np.uint64)
    counts = np.full(len(hashes), 3)
    counts[:hot] = 60_000 // (1 + np.arange(hot)) + 400
    every = {"factor": hot / partitions}  # each of the hot keys has a route of its own
    client.put_stream(stream, partitions=partitions, policy="kip", key_types=["bigint", "string"], parameters=every)
    plan = client.build_plan(stream, histogram=Histogram.from_counts(hashes, counts)).plan
    client.report_batch(stream, Part(SOURCE, 0), BatchWork(tuple(_wide_work(plan, hashes, counts))), plan.version)


def _wide_work(plan: Plan, hashes: np.ndarray, counts: np.ndarray) -> list[Work]:
    where = plan.route(hashes, hashes)
    rows = np.bincount(where, weights=counts, minlength=plan.partitions).astype(int)
    return [Work(at, int(many)) for at, many in enumerate(rows)]
