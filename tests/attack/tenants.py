"""Tenants beside each other: what one does, and how long the calls of another take meanwhile.

Whoever attacks is a process of its own, with so many calls in flight; it does not wait after a refusal.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace
from statistics import quantiles
from typing import Any

import grpc
import numpy as np

from tests.attack.victim import ATTACKER, STREAM, VICTIM, Victim
from tests.planning import some_histogram
from tests.service.faces import report
from unskew.client import Client, ServiceCallError
from unskew.core.histogram.histogram import Histogram
from unskew.core.stream_spec import Part
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire import histogram_to_message, report_to_message

__all__ = [
    "Beside",
    "agents",
    "beside",
    "flood_of",
    "get_plan",
    "large_plan",
    "large_plans",
    "one_round",
    "pushed",
    "small_plan",
]

OWN, OWN_LARGE = "own", "own-large"
Call = Callable[[Client], object]
Attack = Callable[[Victim], tuple[float, str]]  # when it began, and what it did


@dataclass
class Neighbour:
    """Somebody within all limits, who makes a call so many times a second: when each began, and how long it took;
    infinitely long where it failed."""

    took: list[tuple[float, float]] = field(default_factory=list)

    def seconds(self, since: float, until: float) -> list[float]:
        return [took for began, took in self.took if since <= began < until]


@dataclass(frozen=True)
class Beside:
    """Seconds of the neighbour's calls, before and during; the share of those in the attack that were answered."""

    before: tuple[float, float]
    during: tuple[float, float]
    goodput: float
    more: str

    def __str__(self) -> str:
        before, during = (f"p50 {1000 * one[0]:7.1f} p99 {1000 * one[1]:7.1f}" for one in (self.before, self.during))
        return f"before {before} ms  during {during} ms  goodput {100 * self.goodput:5.1f} %  {self.more}"


@contextmanager
def neighbour(on: Victim, call: Call, rate: float) -> Iterator[Neighbour]:
    """It calls at these times whether the calls before have ended or not."""
    found, over = Neighbour(), threading.Event()

    def one(client: Client, due: float) -> None:
        try:
            call(client)
        except ServiceCallError:
            found.took.append((due, float("inf")))
        else:
            found.took.append((due, time.monotonic() - due))

    def run() -> None:
        due = time.monotonic()
        while not over.is_set():
            threading.Thread(target=one, args=(client, due), daemon=True).start()
            due += 1.0 / rate
            over.wait(max(0.0, due - time.monotonic()))

    with Client(f"grpc://127.0.0.1:{on.grpc}", token=VICTIM, timeout=10) as client:
        client.put_stream(OWN, partitions=3, dsync=1.0, dsync_min=1.0, dsync_max=1.0)
        client.build_plan(OWN, histogram=some_histogram(100, 20))
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            over.set()
            thread.join(30)
            time.sleep(0.5)


def beside(on: Victim, call: Call, attack: Attack, rate: float = 20.0, alone: float = 5.0) -> Beside:
    """Make the neighbour's calls alone, of which the first are left out, then beside the attack."""
    with neighbour(on, call, rate) as found:
        began = time.monotonic()
        time.sleep(alone)
        alone_until = time.monotonic()
        attacked, more = attack(on)
        ended = time.monotonic()
        until = time.monotonic() + 12
        while len(found.seconds(attacked, ended)) < rate * (ended - attacked) - 2 and time.monotonic() < until:
            time.sleep(0.1)
    before, during = found.seconds(began + 0.4 * alone, alone_until), found.seconds(attacked, ended)
    missing = max(0, round(rate * (ended - attacked)) - len(during) - 2)
    during += [float("inf")] * missing
    goodput = sum(took < float("inf") for took in during) / max(len(during), 1)
    return Beside(_middle_and_end(before), _middle_and_end(during), goodput, f"{more}; peak {on.peak} MB")


def _middle_and_end(took: list[float]) -> tuple[float, float]:
    cuts = quantiles([min(one, 99.0) for one in took], n=100)
    return cuts[49], cuts[98]


# -- what the neighbour does --------------------------------------------------------------------------------


def small_plan(client: Client) -> object:
    return client.build_plan(OWN, histogram=some_histogram(100, 20))


def large_plan(client: Client) -> object:
    """From what ``report_large`` has reported."""
    return client.build_plan(OWN_LARGE, fresh=True)


def get_plan(client: Client) -> object:
    return client.get_plan(OWN)


_sequence = iter(range(1, 1 << 30))


def one_round(client: Client) -> object:
    """The round of the only agent of its stream."""
    return client.sync(OWN, replace(report(3, "honest"), seq=next(_sequence)), wait=5.0)


# -- what the attacker does ---------------------------------------------------------------------------------


def report_large(on: Victim, token: str, stream: str, keys: int) -> None:
    hashes = np.unique(np.random.default_rng(7).integers(0, 2**64, keys, np.uint64))
    counts = Histogram.from_counts(hashes, np.ones(len(hashes), np.int64))
    with Client(f"grpc://127.0.0.1:{on.grpc}", token=token, timeout=120) as client:
        client.put_stream(stream, partitions=64)
        client.report_histogram(stream, Part("app", 1), counts)


def large_plans(streams: int, keys: int, seconds: float) -> tuple[Callable[[Victim], None], Attack]:
    """Report so many keys for each of the streams; then plans of all of them at once, over and over."""

    def prepare(on: Victim) -> None:
        for number in range(streams):
            report_large(on, ATTACKER, f"large-{number}", keys)

    def attack(on: Victim) -> tuple[float, str]:
        began, built, told = time.monotonic(), Counter[str](), threading.Lock()
        end = began + seconds

        def run(number: int) -> None:
            with Client(f"grpc://127.0.0.1:{on.grpc}", token=ATTACKER, timeout=seconds) as client:
                while time.monotonic() < end:
                    try:
                        client.build_plan(f"large-{number}", fresh=True, timeout=max(0.1, end - time.monotonic()))
                        outcome = "built"
                    except ServiceCallError as why:
                        outcome = why.code
                    with told:
                        built[outcome] += 1

        threads = [threading.Thread(target=run, args=(number,)) for number in range(streams)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return began, f"{streams} x {keys:,} keys: {dict(built)}"

    return prepare, attack


def flood_of(what: str, token: str, processes: int, in_flight: int, seconds: float) -> Attack:
    """Calls as fast as they are answered or refused, so many in flight."""

    def attack(on: Victim) -> tuple[float, str]:
        command = [sys.executable, "-m", "tests.attack.tenants", str(on.grpc), what, token, str(in_flight)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        runs = [subprocess.Popen([*command, str(seconds)], **pipes) for _ in range(processes)]
        for run in runs:
            assert run.stdout is not None
            assert run.stdout.readline() == "ready\n"
        began, codes = time.monotonic(), Counter[str]()
        for run in runs:
            assert run.stdin is not None
            run.stdin.write("go\n")
            run.stdin.flush()
        for run in runs:
            codes.update(json.loads(run.communicate(timeout=seconds + 60)[0]))
        return began, ", ".join(f"{many / seconds:,.0f}/s {code}" for code, many in sorted(codes.items()))

    return attack


def pushed(watches: int, seconds: float) -> Attack:
    """Watches of one stream from a process of its own, and a new plan for all of them, over and over."""

    def attack(on: Victim) -> tuple[float, str]:
        command = [sys.executable, "-m", "tests.attack.tenants", str(on.grpc), "WatchPlans", ATTACKER, str(watches)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with Client(f"grpc://127.0.0.1:{on.grpc}", token=ATTACKER, timeout=30) as client:
            run = subprocess.Popen([*command, str(seconds + 10)], **pipes)
            assert run.stdout is not None
            assert run.stdin is not None
            run.stdout.readline()
            run.stdin.write("go\n")
            run.stdin.flush()
            time.sleep(10.0)
            began, made = time.monotonic(), 0
            while time.monotonic() < began + seconds:
                histogram = some_histogram(3000, 300, seed=made + 100)
                client.build_plan(STREAM, histogram=histogram)
                made += 1
                time.sleep(0.3)
            told = json.loads(run.communicate(timeout=60)[0])
        return began, f"{made} plans, {told}"

    return attack


def agents(count: int, seconds: float) -> Attack:
    """Reports of so many agents, each under another name."""
    return flood_of(f"agents:{count}", ATTACKER, 2, 100, seconds)


# -- the attacker's process ---------------------------------------------------------------------------------


def _requests(what: str) -> tuple[str, Iterator[bytes]]:
    verb, _, most = what.partition(":")
    if verb == "agents":
        return "Sync", _reports(int(most))
    if verb == "BuildPlan":
        message = histogram_to_message(some_histogram(100, 20))
        return verb, _same(pb.BuildPlanRequest(stream=STREAM, histogram=message))
    return verb, _same(pb.GetPlanRequest(stream=STREAM))


async def _watch(port: int, token: str, watches: int, seconds: float) -> Mapping[str, int]:
    """How many pushes came."""
    metadata, counts = (("authorization", f"Bearer {token}"),), Counter[str]()
    asked = pb.WatchPlansRequest(stream=STREAM).SerializeToString()

    async def run(channel: Any) -> None:
        call = channel.unary_stream("/unskew.v1.PartitionerService/WatchPlans")(asked, metadata=metadata)
        try:
            async for _ in call:
                counts["pushes"] += 1
        except grpc.RpcError as why:
            counts[why.code().name] += 1  # type: ignore[attr-defined]  # each is a call

    async with AsyncExitStack() as stack:
        local = [("grpc.use_local_subchannel_pool", 1)]
        address = f"127.0.0.1:{port}"
        channels = [await stack.enter_async_context(grpc.aio.insecure_channel(address, local)) for _ in range(10)]
        runs = [asyncio.ensure_future(run(channels[number % 10])) for number in range(watches)]
        await asyncio.sleep(seconds)
        for one in runs:
            one.cancel()
    return counts


def _same(message: Any) -> Iterator[bytes]:
    data = message.SerializeToString()
    while True:
        yield data


def _reports(most: int) -> Iterator[bytes]:
    name = f"agent-{time.monotonic_ns()}"
    for number in range(most):
        message = report_to_message(report(8, f"{name}-{number}"))
        yield pb.SyncRequest(stream=STREAM, report=message).SerializeToString()


async def _flood(port: int, what: str, token: str, in_flight: int, seconds: float) -> Mapping[str, int]:
    if what == "WatchPlans":
        return await _watch(port, token, in_flight, seconds)
    verb, requests = _requests(what)
    codes, end = Counter[str](), time.monotonic() + seconds
    metadata = (("authorization", f"Bearer {token}"),)
    options = [("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]

    async def run(call: Any) -> None:
        while time.monotonic() < end and (data := next(requests, None)) is not None:
            try:
                await call(data, metadata=metadata, timeout=30)
                codes["OK"] += 1
            except grpc.RpcError as why:
                codes[why.code().name] += 1  # type: ignore[attr-defined]  # each is a call

    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        call = channel.unary_unary(f"/unskew.v1.PartitionerService/{verb}")
        await asyncio.gather(*(run(call) for _ in range(in_flight)))
    return codes


if __name__ == "__main__":
    print("ready", flush=True)  # noqa: T201
    sys.stdin.readline()
    _, to_port, to_do, by, at_once, lasting = sys.argv
    print(json.dumps(asyncio.run(_flood(int(to_port), to_do, by, int(at_once), float(lasting)))))  # noqa: T201
