"""Figure 13: 200 calls a second on a service process over Redis, and what it holds after each five seconds.

Growth is the median of the last fifth of the looks over that of the fifth after the warm-up: the histories of all
streams fill to their bounds first, which a tenth of the time, at least a minute and at most five, is for.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import httpx

from benchmarks.reliability.taken import Dose, Taken, p99
from benchmarks.serving import resident_mb
from tests.planning import some_histogram
from tests.servers import single
from tests.service.faces import report
from tests.service.processes import Process, process
from unskew.client import Client, ServiceCallError
from unskew.core.stream_spec import BatchWork, Part, Work

__all__ = ["soaked"]

RATE, _STREAMS, _CALLERS, _LOOK = 200.0, 10, 8, 5.0
_MEMORY = 0.05  # the mark
_ENOUGH = 0.95  # of the rate: else the machine was too busy, and the figure is not measured
_WORK = BatchWork(tuple(Work(p, rows=100, seconds=1.0) for p in range(4)), 2.0, 3.0, 1.0, 1.0)


@dataclass(frozen=True)
class Held:
    """What the service's process holds."""

    memory: float
    descriptors: int
    threads: int


def look(pid: int) -> Held:
    status = Path(f"/proc/{pid}/status").read_text()
    threads = int(next(line for line in status.splitlines() if line.startswith("Threads")).split()[1])
    return Held(resident_mb(pid), sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()), threads)


class Caller:
    """A tenth of the load: it makes its calls when they are due, and does not make up for those that it missed."""

    def __init__(self, service: Process, number: int) -> None:
        self._client = Client(f"127.0.0.1:{service.grpc}", timeout=10)
        self._web = httpx.Client(base_url=service.url(""), trust_env=False, timeout=10)
        self._number, self._turns = number, itertools.count(1)
        self.calls: Counter[str] = Counter()
        self.failed: list[str] = []
        self.took: list[float] = []

    def run(self, end: float) -> None:
        due = time.monotonic()
        while (now := time.monotonic()) < end:
            self._one(next(self._turns))
            due = max(due + _CALLERS / RATE, now - 1.0)
            time.sleep(max(0.0, due - time.monotonic()))
        self._client.close()
        self._web.close()

    def _one(self, turn: int) -> None:
        stream = f"stream-{turn % _STREAMS}"
        name, call = self._calls(stream, turn)[turn // _STREAMS % 10]
        began = time.monotonic()
        try:
            call()
        except (ServiceCallError, httpx.HTTPError) as why:
            self.failed.append(f"{name}: {why}"[:300])
        self.calls[name] += 1
        self.took.append(time.monotonic() - began)

    def _calls(self, stream: str, turn: int) -> Sequence[tuple[str, Callable[[], object]]]:
        one, batch = self._client, turn // (10 * _STREAMS) + 1
        part = Part(f"app/{self._number}", batch)
        again = replace(report(4, f"a{self._number}"), seq=turn)
        plan = ("GetPlan", lambda: one.get_plan(stream))
        page = ("GET overview", lambda: self._web.get(f"/v1/streams/{stream}/overview").raise_for_status())
        return (
            plan,
            ("ReportHistogram", lambda: one.report_histogram(stream, part, some_histogram(2000, 200, seed=turn))),
            plan,
            ("BuildPlan", lambda: one.build_plan(stream, batch + 1)),
            plan,
            ("ReportBatch", lambda: one.report_batch(stream, part, _WORK)),
            ("Sync", lambda: one.sync(stream, again, wait=0.0)),
            plan,
            ("GetScale", lambda: one.get_scale(stream)),
            page,
        )


def soaked(dose: Dose) -> Taken:
    seconds = dose.of(40, round(dose.soak))
    with single(dose.folder) as redis, process(dose.folder, "--store", redis.url) as service:
        with Client(f"127.0.0.1:{service.grpc}") as client:
            for number in range(_STREAMS):
                client.put_stream(f"stream-{number}", partitions=4, policy="balanced", dsync=1.0)
                client.build_plan(f"stream-{number}", histogram=some_histogram(2000, 200))
        callers = [Caller(service, number) for number in range(_CALLERS)]
        end = time.monotonic() + seconds
        threads = [threading.Thread(target=one.run, args=(end,)) for one in callers]
        for thread in threads:
            thread.start()
        looks = []
        while time.monotonic() < end:
            time.sleep(min(_LOOK, seconds / 20))
            looks.append(look(service.run.pid))
        for thread in threads:
            thread.join()
    return judged(looks, callers, seconds)


def judged(looks: Sequence[Held], callers: Sequence[Caller], seconds: float) -> Taken:
    warm = round(len(looks) * min(max(60.0, seconds / 10), 300.0, seconds / 2) / seconds)
    settled = looks[warm:]
    fifth = max(1, len(settled) // 5)

    def ends(of: Callable[[Held], float]) -> tuple[float, float]:
        return median(of(one) for one in settled[:fifth]), median(of(one) for one in settled[-fifth:])

    memory, descriptors, threads = (
        ends(lambda one: one.memory), ends(lambda one: one.descriptors), ends(lambda one: one.threads)
    )  # fmt: skip
    growth = memory[1] / memory[0] - 1
    calls = sum(one.calls.total() for one in callers)
    failed = [why for one in callers for why in one.failed]
    said = (
        f"{seconds:,.0f} s at {calls / seconds:.0f} of {RATE:.0f} calls/s ({len(failed)} of {calls:,} failed, p99 "
        f"{1000 * p99([t for one in callers for t in one.took]):.0f} ms): memory {memory[0]:.0f} to {memory[1]:.0f} MB "
        f"({100 * growth:+.1f} %), descriptors {descriptors[1] - descriptors[0]:+.0f}, threads "
        f"{threads[1] - threads[0]:+.0f}"
    )
    met = growth < _MEMORY and descriptors[1] <= descriptors[0] and threads[1] <= threads[0] and not failed
    values = {"memory": [round(one.memory, 1) for one in looks], "failed": failed[:10], "calls": calls}
    values |= {"descriptors": [one.descriptors for one in looks], "threads": [one.threads for one in looks]}
    return Taken(said, met if calls / seconds >= _ENOUGH * RATE else None, values)
