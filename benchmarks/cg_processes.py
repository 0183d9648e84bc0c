"""CG's Figures 13 and 14 for real: 2 source and 8 worker processes, two workers throttled to 30 % of their CPU.

    python -m benchmarks.cg_processes [--window 2000] [--governor] [--schemes SG CG] [...]

Everything is the product: the service is its own process, each worker reports its load once a slot (``Reporter``), the
sources route by the plans that follow from that (``PlanAgent``, policy ``cg``). KG, PKG and SG are routers at the
sources. Rows come at a fixed rate, whatever happens to them (an open loop: a source that waited for a slow worker would
hide its latency), which is 80 % of what all can do together after the throttling (CG's simulations, section 7).

CPU: the paper gives every row a fixed cost (0.1 to 1 ms) and throttles by cpulimit. Here a row costs 0.1 ms of
processor time, counted by the process's own clock, so that a busy machine makes it no dearer. 8 workers have 2 cores:
each gets its own share of one, 10 %, as a container with a CPU limit would, and the two get 30 % of that. The share is
the kernel's quota (a cgroup) where this process may set one, else it is kept by stopping and continuing the process, as
cpulimit does: ``--governor``. Fixed sleeps would show no throttling at all, and workers without a share of their own
would lend each other the time that the throttled ones lose.

U is (queue at the slot's start + rows that came) / what the worker can do in the slot; spread is max U - mean U.
Settled, as in decision 0009: the slots after the throttling until the spread stays inside 0.85 - 0.75 and one virtual
worker on the smallest worker; here the median of a slot's and its neighbours', for there are others on the machine.
Throughput and p99 latency are of the slots from ``GRACE`` after the throttling on (the paper waits ten minutes). Rows
that were not finished at the end count with the time that they had waited; so the p99 of what is overloaded grows with
the run. The first line of a scheme is the same for the slots before the throttling: Figure 13.
The paper's own figures are at saturation: ``--window 2000`` sends as fast as rows are finished (a closed loop).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.cg_workers import Done, Sent, Task, source, worker
from benchmarks.cpu_limits import Limits, limits
from unskew.client.testing import embedded
from unskew.core import make_router
from unskew.simulate.key_streams import zipf_keys

WORKERS, SOURCES, THROTTLED = 8, 2, (2, 5)
SHARE, LEFT, LOAD = 0.10, 0.3, 0.8
KEYS, EXPONENT = 100_000, 1.02  # the heaviest key has 9.3 % of the rows, as Wikipedia's has
GRACE, ALPHA = 20, 100
CAPACITY = WORKERS - len(THROTTLED) * (1 - LEFT)  # after the throttling, in whole workers

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class Times:
    """Seconds a slot, slots before and after the throttling, and from which slot after it the rows are measured; rows
    under way at a time, 0: no matter how many; seconds of processor time a row."""

    slot: float = 1.0
    before: int = 8
    after: int = 30
    grace: int = GRACE
    window: int = 0
    cost: float = 1e-4

    @property
    def rate(self) -> float:
        """Rows a second that are sent."""
        return LOAD * CAPACITY * SHARE / self.cost


@dataclass(frozen=True)
class Window:
    """Rows finished a second; latency of those that came, in seconds."""

    throughput: float
    median: float
    p99: float


@dataclass(frozen=True)
class Outcome:
    """A scheme's run. ``spread`` and ``weak`` are a slot each, the first of them that of the throttling; ``weak``: rows
    that a throttled worker was sent, over those that another one was; ``settled`` None: never."""

    scheme: str
    limit: str
    before: Window
    after: Window
    settled: int | None
    band: float
    spread: list[float]
    utilisation: list[list[float]]
    weak: list[float]
    memory: float
    rows: int
    plans: int
    starved: float
    problems: list[str]


class Cluster:
    """The processes, and the pipes between them."""

    def __init__(self, seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        hashes = rng.integers(0, 2**64, KEYS, dtype=np.uint64)
        context = multiprocessing.get_context("fork")
        pipes = [os.pipe() for _ in range(WORKERS)]
        self.counts = np.frombuffer(context.RawArray("q", WORKERS + SOURCES), np.int64)
        self.workers: list[tuple[Any, Connection]] = []
        self.sources: list[tuple[Any, Connection]] = []
        for number in range(WORKERS):
            self.workers.append(self._child(context, worker, number, pipes[number][0], self.counts))
        for number in range(SOURCES):
            keys = hashes[zipf_keys(rng, 2_000_000 // SOURCES, KEYS, EXPONENT)]
            self.sources.append(self._child(context, source, number, keys, [into for _, into in pipes], self.counts))
        for ends in pipes:
            for end in ends:
                os.close(end)

    @staticmethod
    def _child(context: Any, main: Any, number: int, *args: Any) -> tuple[Any, Connection]:
        ours, theirs = context.Pipe()
        process = context.Process(target=main, args=(number, theirs, *args), daemon=True)
        process.start()
        return process, ours

    def limit(self, by: Limits, left: float = 1.0) -> None:
        """Each worker's share; ``left``: of those that are throttled."""
        for number, (process, _) in enumerate(self.workers):
            by.put(process.pid, SHARE * (left if number in THROTTLED else 1.0))

    def tell(self, who: Sequence[tuple[Any, Connection]], what: Any) -> None:
        for _, control in who:
            control.send(what)

    def hear(self, who: Sequence[tuple[Any, Connection]]) -> list[Any]:
        heard = []
        for process, control in who:
            if not control.poll(20.0):
                raise RuntimeError(f"process {process.pid} does not answer")
            heard.append(control.recv())
        return heard

    def close(self) -> None:
        """By pid: a process may be stopped, or busy for long."""
        for process, control in (*self.workers, *self.sources):
            process.kill()
            process.join()
            control.close()


@contextmanager
def cluster(*, governor: bool) -> Iterator[tuple[Cluster, Limits, Any]]:
    """All processes, and the service. They are forked first: a process that forks had better have no threads."""
    for name in ("hash", "pk2", "shuffle"):
        make_router(name, WORKERS).route(np.arange(8, dtype=np.uint64))  # compiled once, by the parent
    all_of_them = Cluster()
    try:
        with limits(governor=governor) as by:
            try:
                for process, control in all_of_them.workers:
                    by.put(process.pid, SHARE)
                    control.send(by.file(process.pid))
                for process, _ in all_of_them.sources:
                    by.favour(process.pid)
                with embedded() as service:
                    by.favour(service.pid)
                    yield all_of_them, by, service
            finally:
                all_of_them.close()
    finally:
        all_of_them.close()


def run(name: str, times: Times, of: Cluster, by: Limits, service: Any) -> Outcome:
    """One scheme: evenly strong workers, then two weak ones."""
    with service.client() as client:
        policy = "cg" if name == "CG" else "hash"
        more = {"parameters": {"alpha": ALPHA}, "history": 20, "decay": 0.9} if name == "CG" else {}
        client.put_stream(name, partitions=WORKERS, policy=policy, **more)
    of.limit(by)
    of.counts[:] = 0
    start = time.monotonic() + (-time.time() % times.slot) + times.slot
    task = Task(name, name, service.target, WORKERS, start, times.rate, times.slot, times.cost, SOURCES, times.window)
    of.tell(of.workers, task)
    of.hear(of.workers)  # that their pipes are empty
    time.sleep(max(start - time.monotonic(), 0.0))
    of.tell(of.sources, task)
    throttled = start + times.before * times.slot
    time.sleep(max(throttled - time.monotonic(), 0.0))
    first = round(time.time() / times.slot)
    of.limit(by, LEFT)
    end = throttled + times.after * times.slot
    time.sleep(max(end - time.monotonic(), 0.0))
    of.tell(of.sources, "stop")
    sent = of.hear(of.sources)
    of.tell(of.workers, "stop")
    done = of.hear(of.workers)
    measured = throttled + times.grace * times.slot
    figures = _Figures(done, sent, throttled, end)
    spread, utilisation, arrived = figures.slots(first, times.after)
    limit = band()
    return Outcome(
        scheme=name,
        limit=by.name,
        before=figures.window(start + times.before // 2 * times.slot, throttled),
        after=figures.window(measured, end),
        settled=settled(spread, limit),
        band=limit,
        spread=[round(one, 3) for one in spread],
        utilisation=[[round(one, 2) for one in row] for row in utilisation],
        weak=[round(one, 3) for one in weak(arrived)],
        memory=figures.memory(),
        rows=sum(one.rows for one in sent),
        plans=max(one.plans for one in sent),
        starved=figures.starved(),
        problems=figures.problems(),
    )


def band() -> float:
    """See above."""
    return 0.10 + LOAD * CAPACITY / (WORKERS * ALPHA) / LEFT


def weak(arrived: F64) -> list[float]:
    """Rows by slot and worker: the throttled ones' mean over the others'."""
    theirs = arrived[:, list(THROTTLED)].mean(axis=1)
    others = np.delete(arrived, THROTTLED, axis=1).mean(axis=1)
    found: list[float] = (theirs / np.maximum(others, 1)).tolist()
    return found


def settled(spread: Sequence[float], limit: float) -> int | None:
    """The first slot from which on the spread, smoothed, stays inside the band."""
    smooth = [statistics.median(spread[max(slot - 1, 0) : slot + 2]) for slot in range(len(spread))]
    outside = np.flatnonzero(np.array(smooth) > limit)
    slot = int(outside[-1]) + 1 if len(outside) else 0
    return slot if slot < len(spread) - 1 else None


class _Figures:
    def __init__(self, done: Sequence[Done], sent: Sequence[Sent], throttled: float, end: float) -> None:
        self.done, self.sent, self.throttled, self.end = done, sent, throttled, end
        self.due = np.concatenate([one.due for one in done] + [one.left for one in done])
        self.finished = np.concatenate(
            [one.finished for one in done] + [np.full(len(one.left), np.inf) for one in done]
        )

    def window(self, since: float, until: float) -> Window:
        """Of the rows that came in this time."""
        came = (self.due >= since) & (self.due < until)
        latency = np.minimum(self.finished[came], max(until, self.end)) - self.due[came]
        finished = ((self.finished >= since) & (self.finished < until)).sum()
        median, high = np.quantile(latency, (0.5, 0.99))
        return Window(float(finished / (until - since)), float(median), float(high))

    def slots(self, first: int, slots: int) -> tuple[list[float], F64, F64]:
        """From this slot on: spread, utilisation and rows that came, the latter by worker; a slot that a worker has not
        ended is left out."""
        seen = [{slot.number: slot for slot in one.slots} for one in self.done]
        common = [number for number in range(first, first + slots) if all(number in one for one in seen)]
        table = np.array([[one[number].utilisation for one in seen] for number in common])
        arrived = np.array([[one[number].arrived for one in seen] for number in common], np.float64)
        return (table.max(axis=1) - table.mean(axis=1)).tolist(), table, arrived

    def memory(self) -> float:
        """(key, worker) pairs over keys."""
        pairs = np.unique(np.concatenate([one.pairs for one in self.sent]))
        return len(pairs) / len(np.unique(pairs >> 8))

    def starved(self) -> float:
        """The share of slots in which a worker had rows left although it had less than its CPU: others took it."""
        slots = [slot for one in self.done for slot in one.slots[1:]]
        return sum(slot.queue > 0.1 * slot.arrived and slot.got < 0.9 for slot in slots) / len(slots)

    def problems(self) -> list[str]:
        found = [f"source: {one.error}" for one in self.sent if one.error]
        found += [f"source: {one.left} rows found no room in the pipes" for one in self.sent if one.left]
        return found + [f"worker: {one.reports}" for one in self.done if one.reports[1] or one.reports[2]]


# -- what is printed ----------------------------------------------------------------------------------------


def told(outcome: Outcome, rate: float) -> str:
    def line(window: Window) -> str:
        return (
            f"{window.throughput:6.0f} rows/s ({window.throughput / rate:4.0%} of {rate:.0f}),"
            f" median {1000 * window.median:7.1f}, p99 {1000 * window.p99:8.1f} ms"
        )

    after = "not" if outcome.settled is None else f"after {outcome.settled} slots"
    return (
        f"  {outcome.scheme:4} even workers   {line(outcome.before)}; {outcome.memory:.2f} pairs a key\n"
        f"  {'':4} two at {LEFT:.0%}      {line(outcome.after)}; settled {after} (band {outcome.band:.2f})"
        + (f"\n       the machine was busy: {outcome.starved:.0%} of the workers' slots" if outcome.starved else "")
        + "".join(f"\n       {problem}" for problem in outcome.problems)
    )


def compared(outcomes: Sequence[Outcome]) -> str:
    by_name = {one.scheme: one.after for one in outcomes}
    if not {"CG", "KG"} <= set(by_name):
        return ""
    ours, theirs = by_name["CG"], by_name["KG"]
    return (
        f"CG beside KG: throughput {ours.throughput / theirs.throughput:.2f}x, p99 latency"
        f" {theirs.p99 / ours.p99:.1f}x shorter (paper, at saturation: 2x and 3.44x, which is which it says both ways)"
    )


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cg_processes")
    plain = Times()
    parser.add_argument("--slot", type=float, default=plain.slot, help="seconds")
    parser.add_argument("--before", type=int, default=plain.before, help="slots before the throttling")
    parser.add_argument("--after", type=int, default=plain.after, help="slots after it")
    parser.add_argument("--grace", type=int, default=plain.grace, help="slots after it that are not measured")
    parser.add_argument("--schemes", nargs="+", choices=("KG", "PKG", "SG", "CG"), default=["KG", "PKG", "SG", "CG"])
    parser.add_argument(
        "--window", type=int, default=plain.window, help="rows under way at a time: saturation; try 2000"
    )
    parser.add_argument("--cost", type=float, default=plain.cost, help="processor seconds a row")
    parser.add_argument("--governor", action="store_true", help="stop and continue, also where quotas can be set")
    parser.add_argument("--json", action="store_true", help="one line, for programs")
    return parser.parse_args(argv)


def main() -> None:
    asked = arguments(sys.argv[1:])
    times = Times(asked.slot, asked.before, asked.after, asked.grace, asked.window, asked.cost)
    with cluster(governor=asked.governor) as (of, by, service):
        if not asked.json:
            print(
                f"{SOURCES} sources, {WORKERS} workers with {SHARE:.0%} of a core each ({by.name}),"
                f" {f'{times.window} rows under way' if times.window else f'{times.rate:.0f} rows/s'};"
                f" workers {THROTTLED} at {LEFT:.0%} after {times.before} of {times.before + times.after} slots"
                f" of {times.slot:g} s; measured from slot {times.grace} after it on",
                flush=True,
            )
        outcomes = []
        for name in asked.schemes:
            outcomes.append(run(name, times, of, by, service))
            if not asked.json:
                print(told(outcomes[-1], times.rate), flush=True)
    if asked.json:
        print(json.dumps([asdict(one) for one in outcomes]))
    else:
        print(compared(outcomes))


if __name__ == "__main__":
    main()
