"""The service of this checkout beside that of another one: rates, processor time a call, memory at rest.

Both run at once, each loaded for a slice in turns, so that what else the machine does is the same for both; what is
printed are medians of the ratios of neighbouring slices, with their quartiles. Nobody needs a credential in either.
Mark: within 5 %, and at rest no more memory than the other.

Run ``python -m benchmarks.service_pair ROOTS [--rounds N] [--seconds S]``; ``ROOTS`` are the folders of packages in the
other checkout as a PYTHONPATH (``OTHER/core:OTHER/service:...``).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.rpc_load import GET_PLAN, Crowd, Loader, loader
from benchmarks.serving import processor_seconds, resident_mb
from tests.planning import some_histogram
from tests.service.processes import Process, process
from unskew.client import Client
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire import histogram_to_message

BUILD_PLAN = GET_PLAN.replace("GetPlan", "BuildPlan")
STREAM, LANES, MARK = "plans", 32, 0.05
DSYNC = 20.0
AT_REST = 3.0  # seconds


@dataclass
class Side:
    """One of both services under one load: calls a second, and seconds of its processor time a call, by slice."""

    running: Process
    load: Loader
    rates: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)

    def slice(self, seconds: float) -> None:
        before = processor_seconds(self.running.run.pid)
        found = self.load.closed(seconds)
        if found.failed:
            raise RuntimeError(f"{found.failed} calls failed")
        self.rates.append(found.rate)
        self.costs.append((processor_seconds(self.running.run.pid) - before) / max(found.calls, 1))


def crowd(target: str) -> contextlib.AbstractContextManager[Loader]:
    """Agents with tables of 64 rows for 64 workers."""
    agents = Crowd(streams=8, agents=8, rows=64, workers=64)
    with Client(f"grpc://{target}") as client:
        for name in agents.names:
            client.put_stream(name, partitions=agents.workers, dsync=DSYNC, dsync_min=DSYNC, dsync_max=DSYNC)
    return loader(target, agents)


def get_plan(target: str) -> contextlib.AbstractContextManager[Loader]:
    request = pb.GetPlanRequest(stream=STREAM).SerializeToString()
    return loader(target, method=GET_PLAN, head=request, pad=0, lanes=LANES)


def build_plan(target: str) -> contextlib.AbstractContextManager[Loader]:
    request = pb.BuildPlanRequest(stream=STREAM, histogram=histogram_to_message(some_histogram(2000, 200)))
    return loader(target, method=BUILD_PLAN, head=request.SerializeToString(), pad=0, lanes=8)


LOADS: dict[str, Callable[[str], contextlib.AbstractContextManager[Loader]]] = {
    "Sync": crowd,
    "GetPlan": get_plan,
    "BuildPlan": build_plan,
}


@contextlib.contextmanager
def both(paths: str) -> Iterator[list[Process]]:
    """This checkout's service first."""
    with ExitStack() as stack:
        running = []
        for more in ({}, {"PYTHONPATH": paths}):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            running.append(stack.enter_context(process(folder, **more)))
        yield running


def in_turns(sides: Sequence[Side], rounds: int, seconds: float) -> None:
    """A slice of each that does not count; then pairs, each the other way about than the one before."""
    for side in sides:
        side.load.closed(seconds)
    for at in range(rounds):
        for side in sides if at % 2 == 0 else reversed(sides):
            side.slice(seconds)


def said(name: str, ours: Sequence[float], others: Sequence[float], *, more_is_better: bool) -> str:
    """The ratio, and whether it is within the mark."""
    low, middle, high = statistics.quantiles([a / b for a, b in zip(ours, others, strict=True)], n=4)
    met = middle >= 1.0 - MARK if more_is_better else middle <= 1.0 + MARK
    return f"  {name:14} {middle:6.3f} ({low:.3f} to {high:.3f})  {'met' if met else 'NOT MET'}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("paths", metavar="ROOTS")
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--seconds", type=float, default=1.0)
    options.add_argument("--only", nargs="+", choices=LOADS, default=list(LOADS))
    given = options.parse_args()
    print(f"{os.cpu_count()} cores, load before the run {os.getloadavg()[0]:.1f}; {given.rounds} pairs of slices")
    with both(given.paths) as running:
        time.sleep(AT_REST)
        ours, others = (resident_mb(one.run.pid) for one in running)
        print(f"at rest: {ours:.1f} MB, the other {others:.1f} MB  {'met' if ours <= others + 1.0 else 'NOT MET'}")
        for one in running:
            with Client(f"grpc://127.0.0.1:{one.grpc}") as client:
                client.put_stream(STREAM, partitions=64)
                client.build_plan(STREAM, histogram=some_histogram(20_000, 2000))
        for name in given.only:
            with ExitStack() as stack:
                loads = [stack.enter_context(LOADS[name](f"127.0.0.1:{one.grpc}")) for one in running]
                sides = [Side(one, load) for one, load in zip(running, loads, strict=True)]
                in_turns(sides, given.rounds, given.seconds)
            a, b = sides
            print(f"{name}: {statistics.median(a.rates):,.0f} calls/s, the other {statistics.median(b.rates):,.0f}")
            print(said("rate", a.rates, b.rates, more_is_better=True))
            print(said("processor time", a.costs, b.costs, more_is_better=False), flush=True)


if __name__ == "__main__":
    main()
