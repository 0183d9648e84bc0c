"""What the client costs: ``Agent.route`` beside the bare router in one run, and importing it beside its libraries.

The bare router is the very one inside an agent (Dalton as one of several partitioners). Both route the same million
hashes, call by call in turns; the agent does so while its thread exchanges reports with a service in another process.
Counted is the processor time of the whole process, so the thread's share is the agent's cost, and other processes'
is nobody's. With the default DSYNC (20 s) this is the driver's own cost: lock, clock, checks; target: within 10 %. With
1 s there are rounds as well: reports are made and answers adopted, which is part of the protocol and not of the driver.

Run: ``python benchmarks/client.py``
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unskew.client import Agent
from unskew.core.rounds.agent import Agent as Machine

ROWS, KEYS, WORKERS, ROUNDS = 1_000_000, 100_000, 16, 9
ROOT = Path(__file__).resolve().parents[1]
SERVE = """
import sys
from tests.client.service_in_test import serving
with serving() as service:
    print(service.target, flush=True)
    sys.stdin.read()
"""
IMPORT = """
import sys, time
import numpy, grpc
began, cpu = time.perf_counter(), time.process_time()
{}
print(1000 * (time.perf_counter() - began), 1000 * (time.process_time() - cpu))
"""


def zipf(exponent: float) -> NDArray[np.uint64]:
    rng = np.random.default_rng(1)
    share = 1.0 / np.arange(1, KEYS + 1) ** exponent
    return rng.integers(0, 2**64, KEYS, dtype=np.uint64)[rng.choice(KEYS, ROWS, p=share / share.sum())]


def timed(act: Callable[[NDArray[np.uint64]], object], part: NDArray[np.uint64]) -> float:
    start = time.process_time()
    act(part)
    return time.process_time() - start


def routing(target: str, exponent: float, pieces: int, dsync: float) -> None:
    """One million hashes in so many calls, bare and by the agent in turns, several times."""
    parts = np.array_split(zipf(exponent), pieces)
    spent = {"bare": [0.0] * ROUNDS, "agent": [0.0] * ROUNDS}
    with Agent("bench", target, workers=WORKERS, dsync=dsync, window=60_000, slide=1_000) as agent:
        bare = Machine(agent._settings).router
        acts: dict[str, Callable[[NDArray[np.uint64]], object]] = {"bare": bare.route, "agent": agent.route}
        for act in acts.values():
            act(parts[0])
        for at in range(ROUNDS):
            for number, part in enumerate(parts):
                for name in sorted(acts, reverse=bool((at + number) % 2)):
                    spent[name][at] += timed(acts[name], part)
        status = agent.status
    theirs, ours = spent["bare"], spent["agent"]
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    print(
        f"  DSYNC {dsync:>2g} s, z = {exponent}, calls of {ROWS // pieces:>9,} rows: "
        f"bare {min(theirs) * 1e9 / ROWS:5.1f} ns a row, agent {min(ours) * 1e9 / ROWS:5.1f}: {ratio:.3f} of bare"
        f" ({status.answered} rounds, {status.failed} failed)"
    )


def imports() -> None:
    for what, code in (
        ("nothing else", "pass"),
        ("unskew.client", "import unskew.client"),
        ("Client", "from unskew.client import Client"),
        ("Client and pyarrow", "import pyarrow, pyarrow.compute\nfrom unskew.client import Client"),
        ("pyarrow alone", "import pyarrow, pyarrow.compute"),
        ("Agent (numba too, where it is)", "from unskew.client import Agent"),
    ):
        runs = [
            subprocess.run(
                [sys.executable, "-c", IMPORT.format(code)], capture_output=True, text=True, check=True
            ).stdout.split()
            for _ in range(5)
        ]
        wall, cpu = (min(float(run[i]) for run in runs) for i in (0, 1))
        print(f"  {what:<32} {wall:6.0f} ms, {cpu:6.0f} ms of processor")


def main() -> None:
    print(f"Agent.route of {ROWS:,} hashes beside the bare router, {WORKERS} workers:")
    server = subprocess.Popen(
        [sys.executable, "-c", SERVE], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        target = server.stdout.readline().strip()
        for dsync in (20.0, 1.0):
            for exponent in (1.0, 1.5):
                for pieces in (1, 100, 1_000):
                    routing(target, exponent, pieces, dsync)
    finally:
        server.terminate()
        server.communicate()
    print("importing, over numpy and grpc (least of five; target: Client under 150 ms):")
    imports()


if __name__ == "__main__":
    main()
