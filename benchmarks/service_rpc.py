"""What a call of the service costs beside a bare grpc.aio echo of the same size, in one run, both as processes.

Run ``python -m benchmarks.service_rpc [--rounds N] [--seconds S] [--only rates redis others latency cells]``.

A Sync here is what an agent does (``benchmarks.rpc_load``): a new report of 64 hot rows x 64 workers, kept until all
agents of its stream have reported, merged with theirs, and answered with the table that came of it. So every call
carries a table in and a table out, and the merging of the rounds is in its cost. Marks, medians of slices in turns:

- Sync >= 60 % of the echo's rate on the memory store, >= 40 % on Redis; GetPlan from cache >= 60 %;
- at half of the peak rate, open loop, p99 under 5 x p50;
- cost linear in hot rows x workers: microseconds a call against cells, with the fit.

"server us" is processor time of the server's process a call (with redis-server's, on Redis). "generator" is the
generator's share of a core: near 1 it would be the limit. Server and generator need two cores to themselves: where
others use them, both sides are held up by turns and the ratios say little (their range is printed beside them).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.rpc_load import ECHO, GET_PLAN, Crowd, Loader, Measured, cpu, echo_server, loader
from tests.servers import single
from unskew.client.testing import Embedded, embedded
from unskew.core.histogram.histogram import Histogram
from unskew.v1 import partitioner_pb2 as pb

MAIN = Crowd(streams=8, agents=16, rows=64, workers=64)
OTHERS = (
    ("1 stream of 128 agents", Crowd(1, 128, 64, 64)),
    ("32 streams of 4 agents", Crowd(32, 4, 64, 64)),
    ("4,096 counters a report", Crowd(8, 16, 64, 64, 4096)),
)
LANES = 128
SIZES = (16, 64, 256)
DSYNC = 20.0  # and no other: so long, agents are waited for when a slice is over


@dataclass
class Side:
    """One of those compared: how to load it, whose processor time it takes, and what its slices showed."""

    name: str
    load: Loader
    pids: Sequence[int]
    slices: list[Measured] = field(default_factory=list)
    spent: list[float] = field(default_factory=list)

    def slice(self, seconds: float) -> None:
        before = cpu(*self.pids)
        found = self.load.closed(seconds)
        if found.failed:
            raise RuntimeError(f"{self.name}: {found.failed} calls failed")
        self.slices.append(found)
        self.spent.append((cpu(*self.pids) - before) / max(found.calls, 1) * 1e6)

    @property
    def rate(self) -> float:
        return statistics.median(one.rate for one in self.slices)

    @property
    def cost(self) -> float:
        return statistics.median(self.spent)

    def line(self) -> str:
        last = self.slices[-1]
        busy = statistics.median(one.busy for one in self.slices)
        sizes = f"{last.size_in:>9,} {last.size_out:>9,}"
        return f"  {self.name:28} {sizes} {self.rate:>9,.0f} {self.cost:>10,.0f} {busy:>9.2f}"


HEAD = f"  {'':28} {'bytes in':>9} {'out':>9} {'calls/s':>9} {'server us':>10} {'generator':>9}"


def in_turns(sides: Sequence[Side], rounds: int, seconds: float) -> None:
    """A slice of each that does not count, then all in turns."""
    for side in sides:
        side.load.closed(0.3)
    for at in range(rounds):
        for side in sides if at % 2 == 0 else reversed(sides):
            side.slice(seconds)
    print(HEAD)
    for side in sides:
        print(side.line())


def ratio(ours: Side, bare: Side, mark: float | None = None) -> None:
    """Of the rates, slice by slice: what else the machine does is the same for both."""
    found = [a.rate / b.rate for a, b in zip(ours.slices, bare.slices, strict=True)]
    rates = statistics.median(found)
    said = "" if mark is None else f"  (mark: >= {100 * mark:.0f} %) {'met' if rates >= mark else 'NOT MET'}"
    more = f"slices {100 * min(found):.0f} to {100 * max(found):.0f} %; server time {ours.cost / bare.cost:.1f} x"
    print(f"  {ours.name} / {bare.name}: {100 * rates:.0f} % of the rate{said}; {more}")


# -- what is loaded -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def crowd_on(service: Embedded, crowd: Crowd) -> Iterator[Loader]:
    with service.client() as client:
        for name in crowd.names:
            client.put_stream(name, partitions=crowd.workers, dsync=DSYNC, dsync_min=DSYNC, dsync_max=DSYNC)
    with loader(service.target.removeprefix("grpc://"), crowd) as load:
        yield load


@contextlib.contextmanager
def plans_on(service: Embedded) -> Iterator[Loader]:
    """A plan of a skewed stream over 64 partitions, asked for without saying which one is known."""
    rng = np.random.default_rng(3)
    histogram = Histogram.from_counts(
        rng.integers(0, 2**64, 10_000, dtype=np.uint64), rng.zipf(1.3, 10_000).clip(1, 10**6)
    )
    with service.client() as client:
        client.put_stream("plans", partitions=64)
        client.build_plan("plans", histogram=histogram)
    request = pb.GetPlanRequest(stream="plans").SerializeToString()
    target = service.target.removeprefix("grpc://")
    with loader(target, method=GET_PLAN, head=request, pad=0, lanes=LANES) as load:
        yield load


@contextlib.contextmanager
def echo_like(target: str, found: Measured) -> Iterator[Loader]:
    """The same bytes in and out."""
    head = found.size_out.to_bytes(4, "little")
    with loader(target, method=ECHO, head=head, pad=max(found.size_in - 4, 0), lanes=LANES) as load:
        yield load


@dataclass
class Stage:
    """The processes that all parts share."""

    stack: contextlib.ExitStack
    rounds: int
    seconds: float

    def __post_init__(self) -> None:
        self.echo, self.echo_pid = self.stack.enter_context(echo_server())
        self.service = self.stack.enter_context(embedded())

    def sides(self, name: str, load: Loader, pids: Sequence[int], stack: contextlib.ExitStack) -> tuple[Side, Side]:
        """Ours, warmed up, and the echo of what was seen then."""
        seen = load.closed(0.5)
        echo = stack.enter_context(echo_like(self.echo, seen))
        return Side(name, load, pids), Side("bare echo", echo, [self.echo_pid])


# -- parts ----------------------------------------------------------------------------------------------------


def rates(stage: Stage) -> None:
    print("\nSync, memory store: 64 rows x 64 workers, 8 streams of 16 agents")
    with contextlib.ExitStack() as stack:
        load = stack.enter_context(crowd_on(stage.service, MAIN))
        ours, bare = stage.sides("Sync", load, [stage.service.pid], stack)
        in_turns((ours, bare), stage.rounds, stage.seconds)
        ratio(ours, bare, 0.6)
    print("\nGetPlan from cache")
    with contextlib.ExitStack() as stack:
        load = stack.enter_context(plans_on(stage.service))
        ours, bare = stage.sides("GetPlan", load, [stage.service.pid], stack)
        in_turns((ours, bare), stage.rounds, stage.seconds)
        ratio(ours, bare, 0.6)


def others(stage: Stage) -> None:
    print("\nSync, memory store, other crowds (no mark)")
    for name, crowd in OTHERS:
        with contextlib.ExitStack() as stack:
            load = stack.enter_context(crowd_on(stage.service, crowd))
            ours, bare = stage.sides(name, load, [stage.service.pid], stack)
            in_turns((ours, bare), 2, stage.seconds / 2)
            ratio(ours, bare)


def redis(stage: Stage) -> None:
    print("\nSync, Redis: the same as on the memory store")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(single(folder))
        assert server.process is not None
        service = stack.enter_context(embedded(store=server.url))
        load = stack.enter_context(crowd_on(service, MAIN))
        ours, bare = stage.sides("Sync on Redis", load, [service.pid, server.process.pid], stack)
        before = cpu(server.process.pid)
        in_turns((ours, bare), stage.rounds, stage.seconds)
        calls = sum(one.calls for one in ours.slices)
        print(f"  of which redis-server: {(cpu(server.process.pid) - before) / calls * 1e6:.0f} us a call")
        ratio(ours, bare, 0.4)


def latency(stage: Stage) -> None:
    """Echo's own beside it: what of the spread is gRPC's and the machine's."""
    print("\nLatency at half of the peak rate, open loop")
    print(f"  {'':28} {'peak/s':>9} {'p50 ms':>9} {'p99 ms':>9} {'p99/p50':>9}   (mark: < 5)")
    for name in ("Sync", "GetPlan"):
        with contextlib.ExitStack() as stack:
            made = crowd_on(stage.service, MAIN) if name == "Sync" else plans_on(stage.service)
            ours, bare = stage.sides(name, stack.enter_context(made), [stage.service.pid], stack)
            for side in (ours, bare):
                peak = statistics.median(side.load.closed(1.0).rate for _ in range(2))
                seen = [side.load.open(peak / 2, 2 * stage.seconds) for _ in range(3)]
                p50, p99 = (statistics.median(getattr(one, what) for one in seen) for what in ("p50", "p99"))
                print(f"  {side.name:28} {peak:>9,.0f} {1000 * p50:>9.2f} {1000 * p99:>9.2f} {p99 / p50:>9.1f}")


def cells(stage: Stage) -> None:
    """A report has rows x workers cells; of its rows as many come back as there are workers, at most."""
    print("\nCost of a Sync by size: the server's time a call")
    print(f"  {'rows x workers':>16} {'cells both ways':>16} {'calls/s':>9} {'server us':>10} {'ns a cell':>10}")
    found = []
    for rows in SIZES:
        for workers in SIZES:
            with crowd_on(stage.service, Crowd(4, 8, rows, workers)) as load:
                side = Side(f"{rows} x {workers}", load, [stage.service.pid])
                load.closed(0.3)
                for _ in range(2):
                    side.slice(stage.seconds / 2)
            both = (rows + min(rows, workers)) * workers
            found.append((both, side.cost))
            print(
                f"  {side.name:>16} {both:>16,} {side.rate:>9,.0f} {side.cost:>10,.0f} {1000 * side.cost / both:>10.1f}"
            )
    size, cost = np.array(found).T
    slope, base = np.polyfit(size, cost, 1)
    left = 1.0 - ((cost - base - slope * size) ** 2).sum() / ((cost - cost.mean()) ** 2).sum()
    print(f"  fit: {base:,.0f} us + {1000 * slope:.1f} ns a cell, R2 = {left:.3f}  (mark: linear)")


PARTS = {"rates": rates, "redis": redis, "others": others, "latency": latency, "cells": cells}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=1.0)
    options.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    given = options.parse_args()
    print(f"{os.cpu_count()} cores, load before the run {os.getloadavg()[0]:.1f}")
    with contextlib.ExitStack() as stack:
        stage = Stage(stack, given.rounds, given.seconds)
        for name in given.only:
            PARTS[name](stage)


if __name__ == "__main__":
    main()
