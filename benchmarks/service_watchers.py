"""One replica with 2,000 watchers and 1,000 agents: its memory, how late a new plan is, and a restart under them all.

Of the watches 200 are those of ``unskew.client``, each with its thread; the others are coroutines that note when the
bytes came (``watch_load`` says why). 10 share a channel, so that there are 200 connections: real watchers are in many
processes, and each connection of its own takes some 20 kB more (``--streams 1``). The agents, 10 on a channel too,
report 64 hot rows for 16 workers every DSYNC (from 5 s on) and wait for their rounds all the while. All is on one
machine: the time until a plan has come to all includes the watchers' own work.

The restart is the hard kind: SIGKILL, everybody's channels are cut at once, nobody listens for two seconds, then the
same port again. For the stream to outlive it the state is in a real redis-server (``tools/redis.sh`` finds it); with
the memory store a restart is a new service. No watch may be lost, none may get a plan twice.

Targets: memory under 500 MB; a plan at all watchers within 1 s; no watch lost.

Run ``python -m benchmarks.service_watchers [--watchers 2000] [--agents 1000] [--plans 5] [--streams 10]``.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.serving import Served, bare_environment, processor_seconds, raise_file_limit, resident_mb, serving
from tests.servers import free_ports, single
from unskew.client import Client
from unskew.core.histogram.histogram import Histogram

STREAM = "clicks"
MEMORY, LATE = 500.0, 1.0


@dataclass
class Loader:
    """A process full of callers."""

    process: subprocess.Popen[str]

    def ask(self, **document: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(document) + "\n")
        self.process.stdin.flush()
        return self.told()

    def told(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found


@contextmanager
def loader(kind: str, target: str, channels: int, streams: int, *more: str) -> Iterator[Loader]:
    command = ["-m", "benchmarks.watch_load", kind, target, STREAM]
    options = ["--channels", str(channels), "--streams", str(streams), *more]
    process = subprocess.Popen(
        [sys.executable, *command, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=bare_environment(),
    )
    try:
        one = Loader(process)
        one.told()
        yield one
    finally:
        process.kill()
        process.wait()


@dataclass(frozen=True)
class Arrivals:
    """When a plan came to how many watches, from some moment on; how many watches have ended, and connected."""

    late: list[float]
    lost: int
    connects: int

    @property
    def last(self) -> float:
        return self.late[-1] if self.late else float("inf")


class Crowd:
    """All the callers."""

    def __init__(self, given: argparse.Namespace, target: str, stack: ExitStack) -> None:
        self.given = given
        each = [("watchers", given.real), ("light", (given.watchers - given.real) // 2)]
        shapes = [(kind, max(count // given.streams, 1), given.streams) for kind, count in (*each, each[1]) if count]
        self.watchers = [stack.enter_context(loader(kind, target, *shape)) for kind, *shape in shapes]
        self.count = sum(channels * streams for _, channels, streams in shapes)
        self.agents = None
        if given.agents:
            more = ("--dsync", str(given.dsync))
            self.agents = stack.enter_context(loader("agents", target, max(given.agents // 10, 1), 10, *more))

    def arrivals(self, digest: str, since: float, within: float) -> Arrivals:
        """Wait until the plan has come to all watches, or for so long."""
        while True:
            found = [one.ask(digest=digest) for one in self.watchers]
            came = sorted(at - since for one in found for at in one["came"])
            if len(came) >= self.count or time.monotonic() - since > within:
                if lost := [why for one in found for why in one["ended"]]:
                    print(f"    ended: {lost[0]}")
                return Arrivals(came, sum(one["lost"] for one in found), sum(one["connects"] for one in found))
            time.sleep(0.1)  # asking more often would take the processor from the watches

    def rounds(self) -> dict[str, Any]:
        return self.agents.ask() if self.agents else {"answered": 0, "failed": 0, "waiting": 0, "epoch": 0}


def skewed(seed: int) -> Histogram:
    rng = np.random.default_rng(seed)
    counts = (1_000_000 / np.arange(1, 2001)).astype(np.int64) + 1
    return Histogram.from_counts(rng.integers(0, 2**64, 2000, np.uint64), counts)


def told(name: str, value: str, *, good: bool = True) -> None:
    print(f"  {name:52} {value}{'' if good else '   NOT met'}", flush=True)


def connected(crowd: Crowd, client: Client, served: Served) -> float:
    """All watches and agents there."""
    began = time.monotonic()
    built = client.build_plan(STREAM, histogram=skewed(0), timeout=20)
    found = crowd.arrivals(built.plan.digest, began, 60.0)
    told(f"{crowd.count} watches connected, the first plan at all", f"{found.last:.2f} s", good=found.last < 60)
    end = time.monotonic() + 90
    while crowd.agents and crowd.rounds()["epoch"] < 2 and time.monotonic() < end:
        time.sleep(0.2)  # the same of the agents
    return resident_mb(served.pid)


def fan_out(crowd: Crowd, client: Client, served: Served) -> float:
    """The latest that a plan came to the last of them."""
    lasts, halves, cost = [], [], []
    for number in range(1, crowd.given.plans + 1):
        time.sleep(0.5)  # the plan before has come to all: each is timed alone
        histogram = skewed(number)
        spent, began = processor_seconds(served.pid), time.monotonic()
        built = client.build_plan(STREAM, histogram=histogram, timeout=20)
        ready = time.monotonic() - began
        found = crowd.arrivals(built.plan.digest, began, 30.0)
        cost.append(processor_seconds(served.pid) - spent)
        if len(found.late) != crowd.count:
            told("watches without the plan, or with it twice", f"{crowd.count - len(found.late)}", good=False)
        lasts.append(found.last)
        halves.append(found.late[len(found.late) // 2] if found.late else float("inf"))
    size = len(built.plan.tail)
    told(
        "a plan at half of the watches, at the last (median)",
        f"{statistics.median(halves):.2f} s, {statistics.median(lasts):.2f} s",
    )
    told("  at the last, worst; the plan made after", f"{max(lasts):.2f} s; {ready:.3f} s", good=max(lasts) < LATE)
    told("  processor of the service for one plan, at most", f"{max(cost):.2f} s (tail of {size} ranges)")
    return max(lasts)


def measured(crowd: Crowd, served: Served, memory: float) -> None:
    rounds = crowd.rounds()
    status = Path(f"/proc/{served.pid}/status").read_text().splitlines()
    top = next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
    told("memory of the service: with all, at most ever", f"{memory:.0f} MB, {top:.0f} MB", good=top < MEMORY)
    numbers = ", ".join(str(rounds[name]) for name in ("epoch", "answered", "failed"))
    told("rounds merged, reports answered, calls repeated", numbers)


def restarted(crowd: Crowd, served: Served, flags: list[str], stack: ExitStack) -> Served:
    """SIGKILL under everybody, two seconds of nobody there, the same port again."""
    before = sum(one.ask(digest="")["connects"] for one in crowd.watchers)
    served.process.send_signal(signal.SIGKILL)
    served.process.wait()
    time.sleep(2.0)  # an outage that every watch notices
    began = time.monotonic()
    again = stack.enter_context(serving(*flags))
    up = time.monotonic() - began
    with Client(again.target) as client:
        end = time.monotonic() + 60
        while (there := watching(again)) < crowd.count and time.monotonic() < end:
            time.sleep(0.05)  # the same
        back = time.monotonic() - began
        told("service up again; all watches back after", f"{up:.2f} s; {back:.2f} s", good=there == crowd.count)
        since = time.monotonic()
        built = client.build_plan(STREAM, histogram=skewed(99), timeout=20)
        found = crowd.arrivals(built.plan.digest, since, 30.0)
        without = crowd.count - len(found.late)
        told("watches lost, without the next plan", f"{found.lost}, {without}", good=not found.lost and not without)
        told("  the next plan at the last", f"{found.last:.2f} s", good=found.last < LATE)
        told("  tries of each watch to connect", f"{(found.connects - before) / crowd.count:.1f}")
    return again


def watching(served: Served) -> int:
    page = httpx.get(f"http://127.0.0.1:{served.metrics}/metrics", trust_env=False, timeout=20).text
    lines = [line for line in page.splitlines() if line.startswith("unskew_watchers{")]
    return int(float(lines[0].rpartition(" ")[2])) if lines else 0


def run(given: argparse.Namespace, store: str, *, restart: bool) -> None:
    flags = ["--grpc-port", str(free_ports(1)[0]), "--store", store]
    with ExitStack() as stack:
        served = stack.enter_context(serving(*flags))
        idle = resident_mb(served.pid)
        client = stack.enter_context(Client(served.target))
        client.put_stream(STREAM, partitions=16, policy="balanced")
        crowd = Crowd(given, served.target, stack)
        memory = connected(crowd, client, served)
        told("memory of the service: idle", f"{idle:.0f} MB")
        fan_out(crowd, client, served)
        measured(crowd, served, memory)
        if restart:
            served = restarted(crowd, served, flags, stack)
            measured(crowd, served, resident_mb(served.pid))


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--watchers", type=int, default=2000)
    options.add_argument("--agents", type=int, default=1000)
    options.add_argument("--plans", type=int, default=5)
    options.add_argument("--streams", type=int, default=10, help="watches on one connection")
    options.add_argument("--real", type=int, default=200, help="watches by the real client")
    options.add_argument("--dsync", type=float, default=5.0)
    given = options.parse_args()
    limit = raise_file_limit(16_384)
    print(f"{given.watchers} watches, {given.streams} on a connection; {given.agents} agents; {limit} files allowed")
    print("memory store")
    run(given, "memory", restart=False)
    with tempfile.TemporaryDirectory() as folder, single(Path(folder)) as redis:
        print("Redis, and a restart by SIGKILL")
        run(given, redis.url, restart=True)


if __name__ == "__main__":
    main()
