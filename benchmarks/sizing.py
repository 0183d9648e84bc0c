"""What a replica and its Redis need: for the sizes in docs/operations.md.

The real service as a process, memory store and Redis, loaded by the client: when it is ready, its memory at rest, what
a stream adds (a plan with 500 hot keys, and the histograms of 8 batches), in Redis and in the replica, and how long a
plan takes by the number of keys in a batch.

Run: ``python -m benchmarks.sizing [--streams N]``; ``REDIS_SERVER=$(bash tools/redis.sh)`` where it is not on PATH.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.serving import Served, resident_mb, serving
from tests.servers import Server, free_ports
from unskew.client import Client
from unskew.core.histogram.histogram import Histogram, Tail
from unskew.core.stream_spec import Part

PARTITIONS = 64
BATCHES = 8
HOSTS = 4096


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=100)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        with serving() as served:
            print(f"ready after {time.monotonic() - began:.1f} s, {resident_mb(served.pid):.0f} MB at rest")
            rest = _streams(served, asked.streams)
            print(f"memory store: a stream {rest * 1024:.0f} kB in the replica")
        redis = Server(free_ports(1)[0], Path(folder)).start()
        try:
            with serving("--store", f"redis://127.0.0.1:{redis.port}/0") as served:
                before = redis.info("memory")["used_memory"]
                rest = _streams(served, asked.streams)
                each = (redis.info("memory")["used_memory"] - before) / asked.streams
                print(f"Redis: a stream {each / 1024:.0f} kB there, {rest * 1024:.0f} kB in the replica")
        finally:
            assert redis.process is not None
            redis.process.kill()
            redis.process.wait()
        with serving() as served:
            for keys in (10_000, 100_000, 1_000_000):
                taken, memory = _plans(served, keys)
                print(
                    f"a batch of {keys:>9,} keys: reported and planned in {taken:.2f} s, replica then {memory:.0f} MB"
                )


def _streams(served: Served, count: int) -> float:
    """Megabytes that a stream adds to the replica."""
    with Client(served.target) as client:
        _run(client, "warm", 1)
        before = resident_mb(served.pid)
        for number in range(count):
            _run(client, f"stream-{number}", number)
        return (resident_mb(served.pid) - before) / count


def _run(client: Client, stream: str, seed: int) -> None:
    """Batches as a job reports them: its hot keys by name, the tail by host."""
    rng = np.random.default_rng(seed)
    client.put_stream(stream, partitions=PARTITIONS, policy="balanced")
    for batch in range(BATCHES):
        hashes = np.unique(rng.integers(0, 2**63, 500, dtype=np.uint64))
        counts = rng.integers(20_000, 200_000, hashes.size)
        tail = Tail(rng.integers(100, 200, HOSTS), rng.integers(50, 100, HOSTS))
        client.report_histogram(stream, Part("app/query", batch), Histogram(hashes, counts, tail=tail))
    client.build_plan(stream, BATCHES)


def _plans(served: Served, keys: int, times: int = 3) -> tuple[float, float]:
    took = []
    rng = np.random.default_rng(keys)
    with Client(served.target, timeout=60.0) as client:
        client.put_stream(f"keys-{keys}", partitions=PARTITIONS, policy="balanced")
        for batch in range(times):
            hashes = np.unique(rng.integers(0, 2**63, keys, dtype=np.uint64))
            histogram = Histogram(hashes, rng.zipf(1.5, hashes.size).clip(1, 10**6))
            began = time.monotonic()
            client.report_histogram(f"keys-{keys}", Part("app/query", batch), histogram)
            client.build_plan(f"keys-{keys}", batch, fresh=True)
            took.append(time.monotonic() - began)
    return statistics.median(took), resident_mb(served.pid)


if __name__ == "__main__":
    main()
