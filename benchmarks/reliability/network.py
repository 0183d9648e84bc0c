"""Figure 8: every verb of the client through every fault of the network, before the service and behind it.

A call has a deadline; it hangs if it has not ended ``_GRACE`` after that. The faults are set under connections that
stand, and all verbs are called at once, each on a thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from benchmarks.reliability.taken import Dose, Taken
from tests.chaos.proxy import Delay, FaultProxy, HalfOpen, Mode, ProxyLoop, Reset, Truncate
from tests.planning import some_histogram
from tests.servers import Server, single
from tests.service.faces import report
from tests.service.processes import Process, process
from unskew.client import Client, ServiceCallError
from unskew.core.stream_spec import BatchWork, Part, Work

__all__ = ["faults_by_verbs"]

_STREAM, _DEADLINE, _GRACE = "clicks", 1.0, 1.0
_NUMBERS = count(1)
MODES: Mapping[str, Mode] = {
    "late by 0.3 s": Delay(0.3),
    "late by 5 s": Delay(5.0),
    "reset": Reset(),
    "black hole": HalfOpen(),
    "cut at once": Truncate(0),
    "cut in a message": Truncate(40),
}
Verb = Callable[[Client], object]


@dataclass(frozen=True)
class Ended:
    """How a call ended, and how many seconds after its deadline."""

    verb: str
    outcome: str
    late: float


def verbs() -> dict[str, Verb]:
    """Every verb of the client that has a deadline; numbers are new each time, so that no report is a repetition."""
    number = next(_NUMBERS)
    work = BatchWork((Work(0, rows=100, seconds=1.0),), 2.0, 3.0, 1.0, 1.0)
    return {
        "PutStream": lambda one: one.put_stream(f"new-{number}", partitions=3),
        "GetStream": lambda one: one.get_stream(_STREAM),
        "ListStreams": lambda one: list(one.list_streams()),
        "DeleteStream": lambda one: one.delete_stream(f"new-{number - 1}"),
        "ReportHistogram": lambda one: one.report_histogram(_STREAM, Part("q", number), some_histogram(500, 50)),
        "BuildPlan": lambda one: one.build_plan(_STREAM, number),
        "BuildPlan of a histogram": lambda one: one.build_plan(_STREAM, histogram=some_histogram(500, 50, seed=number)),
        "GetPlan": lambda one: one.get_plan(_STREAM),
        "Sync": lambda one: one.sync(_STREAM, report(3, f"a{number}"), wait=0.0),
        "ReportBatch": lambda one: one.report_batch(_STREAM, Part("q", number), work),
        "GetScale": lambda one: one.get_scale(_STREAM),
        "Explain": lambda one: one.explain(_STREAM, 5),
    }


def called(client: Client) -> list[Ended]:
    """All verbs at once."""

    def one(name: str, verb: Verb) -> Ended:
        began = time.monotonic()
        try:
            verb(client)
            outcome = "OK"
        except ServiceCallError as why:
            outcome = why.code
        return Ended(name, outcome, time.monotonic() - began - _DEADLINE)

    each = verbs()
    with ThreadPoolExecutor(len(each)) as pool:
        return list(pool.map(one, each, each.values()))


@contextmanager
def served(folder: Any, redis: Server, loop: ProxyLoop) -> Iterator[tuple[Process, dict[str, FaultProxy]]]:
    back = loop.proxy(redis.port)
    with process(folder, "--store", f"redis://127.0.0.1:{back.port}") as service:
        yield service, {"client to service": loop.proxy(service.grpc), "service to store": back}


def well(client: Client) -> None:
    """Until the service answers again: a client's channel waits longer after each failure."""
    end = time.monotonic() + 60
    while True:
        try:
            client.put_stream(_STREAM, partitions=3, dsync=0.5, dsync_min=0.5)
            client.build_plan(_STREAM, histogram=some_histogram(500, 50, seed=next(_NUMBERS)))
            return
        except ServiceCallError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def faults_by_verbs(dose: Dose) -> Taken:
    found: list[Ended] = []
    with (
        single(dose.folder) as redis,
        closing(ProxyLoop()) as loop,
        served(dose.folder, redis, loop) as (_, proxies),
    ):
        target = f"127.0.0.1:{proxies['client to service'].port}"
        options = [("grpc.max_reconnect_backoff_ms", 500)]
        for _ in range(dose.of(1, 8)):
            for proxy in proxies.values():
                for mode in MODES.values():
                    with Client(target, timeout=_DEADLINE, options=options) as client:
                        well(client)
                        with loop.fault(mode, proxy):
                            found += called(client)
    return judged(found, len(proxies))


def judged(found: list[Ended], sides: int) -> Taken:
    hung = [one for one in found if one.late > _GRACE]
    latest = max(one.late for one in found)
    kinds = sorted({one.verb for one in found})
    said = (
        f"{len(hung)} of {len(found):,} calls ({len(MODES)} faults, {sides} sides, {len(kinds)} verbs); "
        f"the latest ended {1000 * latest:.0f} ms after its deadline of {_DEADLINE:.0f} s"
    )
    outcomes = {code: sum(one.outcome == code for one in found) for code in sorted({one.outcome for one in found})}
    return Taken(said, not hung, {"calls": len(found), "hung": [one.verb for one in hung], "outcomes": outcomes})
