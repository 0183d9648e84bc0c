"""How long a health check of the real service waits while large things come in: over gRPC and over REST.

Three processes ask for health every two milliseconds: the service over gRPC, the service over REST, and, over gRPC, a
bare grpc.aio server with nothing but the health service, which is idle all the while: what it shows is the noise of the
machine, on which two cores hold six busy processes. What is sent comes from yet another process. Of each step the worst
call that was under way in it counts; told are the median of the steps, and the worst of all. Between the steps nothing
goes on for half a second.

Target: in a step no health check waits more than 50 ms, in the median; other load on the machine adds its own to the
worst of all, the bare server's too.

Run ``python -m benchmarks.service_health [--keys 1000000] [--times 5]``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx
import numpy as np

from benchmarks.serving import Served, bare_environment, child, serving
from unskew.client import Client
from unskew.core.histogram.histogram import Histogram
from unskew.core.stream_spec import Part
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire import histogram_to_message

STREAM = "clicks"
MARK = 0.050
WHO = ("service, gRPC", "service, REST", "bare")


@dataclass(frozen=True)
class Step:
    """Something large, and when it was going on; ``quiet`` is the time before it."""

    name: str
    began: float
    ended: float
    quiet: float


@contextlib.contextmanager
def probing(*where: str) -> Iterator[Callable[[], list[tuple[float, float]]]]:
    """Ask there all the while; at the end, what the calls took."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.health_probe", *where],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=bare_environment(),
    )

    def told() -> list[tuple[float, float]]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        return [(began, took) for began, took in json.loads(process.stdout.readline())]

    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield told
    finally:
        process.kill()
        process.wait()


def large(keys: int) -> Histogram:
    rng = np.random.default_rng(3)
    hashes = np.unique(rng.integers(0, 2**64, keys + 1000, dtype=np.uint64))[:keys]
    return Histogram.from_counts(rng.permutation(hashes), (rng.zipf(1.3, len(hashes)) % 100_000).astype(np.int64) + 1)


class Sender:
    """What is sent, step by step."""

    def __init__(self, served: Served, keys: int) -> None:
        self.client = Client(served.target, timeout=60)
        self.web = httpx.Client(base_url=f"http://127.0.0.1:{served.http}", trust_env=False, timeout=60)
        self.histogram, self.batch = large(keys), 0
        message = histogram_to_message(self.histogram)
        rest = {name: getattr(message, name) for name in ("hashes", "counts")}
        part = pb.Part(source="rest", batch=1, parts=1)
        self.body = pb.ReportHistogramRequest(stream=STREAM, part=part, **rest).SerializeToString()
        few = {"hashes": [str(one) for one in self.histogram.hashes[:50_000].tolist()]}
        few |= {"counts": self.histogram.counts[:50_000].tolist()}
        self.json = json.dumps({"source": "json", "batch": 1, **few}).encode()
        self.client.put_stream(STREAM, partitions=64, policy="balanced")

    def steps(self) -> dict[str, Callable[[], object]]:
        keys = f"{len(self.histogram.hashes):,}"
        return {
            f"histogram of {keys} keys, gRPC in chunks": self.over_grpc,
            "the same in one body, REST": lambda: self.over_rest(self.body, "application/x-protobuf"),
            "50,000 keys as JSON, REST": lambda: self.over_rest(self.json, "application/json"),
            "a plan from the histogram": self.plan,
            "the plan as JSON, REST": lambda: self.web.get(f"/v1/streams/{STREAM}/plans/latest").raise_for_status(),
        }

    def over_grpc(self) -> None:
        self.batch += 1
        self.client.report_histogram(STREAM, Part("app", self.batch, 0, 0, 1), self.histogram)

    def over_rest(self, body: bytes, kind: str) -> None:
        path = f"/v1/streams/{STREAM}/histograms"
        self.web.post(path, content=body, headers={"content-type": kind}).raise_for_status()

    def plan(self) -> None:
        self.client.build_plan(STREAM, self.batch, fresh=True)


def run(sender: Sender, times: int) -> list[Step]:
    found = []
    for _ in range(times):
        for name, act in sender.steps().items():
            waited = time.monotonic()
            time.sleep(0.5)  # quiet between two steps, so that each has its own worst call
            began = time.monotonic()
            act()
            ended = time.monotonic()
            found.append(Step(name, began, ended, waited + 0.1))
    return found


def worst(calls: list[tuple[float, float]], began: float, ended: float) -> float:
    """Of those that were under way at some time of the step."""
    return max((took for at, took in calls if at < ended and at + took > began), default=0.0)


def show(steps: list[Step], calls: dict[str, list[tuple[float, float]]]) -> bool:
    print(f"{'the worst health check of a step, ms':44}{'takes s':>8}" + "".join(f"{who:>20}" for who in WHO))
    print(f"{'':52}" + f"{'median / worst':>20}" * len(WHO))
    met = True
    for name in dict.fromkeys(step.name for step in steps):
        mine = [step for step in steps if step.name == name]
        took = statistics.median(step.ended - step.began for step in mine)
        waits = {who: [worst(calls[who], step.began, step.ended) for step in mine] for who in WHO}
        good = all(statistics.median(waits[who]) <= MARK for who in WHO[:2])
        met = met and good
        print(f"{name:44}{took:8.2f}{''.join(map(written, waits.values()))}{'' if good else '   NOT met'}")
    quiet = ([worst(calls[who], step.quiet, step.began) for step in steps] for who in WHO)
    print(f"{'nothing':44}{'':8}{''.join(map(written, quiet))}")
    return met


def written(waits: list[float]) -> str:
    return f"{f'{1000 * statistics.median(waits):.1f} / {1000 * max(waits):.1f}':>20}"


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--keys", type=int, default=1_000_000)
    options.add_argument("--times", type=int, default=9)
    given = options.parse_args()
    with contextlib.ExitStack() as stack:
        served = stack.enter_context(serving())
        sender = Sender(served, given.keys)
        _, at = stack.enter_context(child(["-m", "benchmarks.health_probe", "bare"]))
        where = (("grpc", served.target), ("http", str(served.http)), ("grpc", f"127.0.0.1:{at['grpc']}"))
        probes = [stack.enter_context(probing(*one)) for one in where]
        steps = run(sender, given.times)
        calls = {who: told() for who, told in zip(WHO, probes, strict=True)}
        met = show(steps, calls)
    print(f"target: at most {1000 * MARK:.0f} ms in the median: {'met' if met else 'NOT met'}")


if __name__ == "__main__":
    main()
