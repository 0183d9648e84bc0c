"""Figure 3: what callers feel while Redis is killed, stopped or out of reach.

A service process on a real Redis behind a proxy; one caller. The calls are counted from the moment of the fault on, so
the first ones, which find out, are among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from benchmarks.reliability.callers import caller, paced
from benchmarks.reliability.taken import Dose, Taken, p99
from tests.chaos.proxy import ProxyLoop
from tests.servers import Server, single
from tests.service.processes import process
from tests.service.test_last_known import build, faulty
from tests.service.test_outages import LONG, Caller, in_time, prepare
from unskew.v1 import partitioner_pb2 as pb

__all__ = ["store_away"]

FAULTS = ("killed", "stopped", "black hole")
_ADDED, _BUILD = 50.0, 100.0  # the marks, in milliseconds
Calls = Sequence[tuple[Any, float]]


def store_away(dose: Dose) -> Taken:
    plans, builds = dose.of(200, 1000), dose.of(100, 500)
    with single(dose.folder, "appendonly yes", "appendfsync always") as redis, closing(ProxyLoop()) as loop:
        proxy = loop.proxy(redis.port)
        with (
            process(dose.folder, "--store", f"redis://127.0.0.1:{proxy.port}") as service,
            caller(service) as one,
        ):
            prepare(one)
            well = asked(one, plans, builds)
            away = {fault: _in(fault, redis, loop, proxy, one, plans, builds) for fault in FAULTS}
    return judged(well, away)


def _in(
    fault: str, redis: Server, loop: ProxyLoop, proxy: Any, one: Caller, plans: int, builds: int
) -> tuple[Calls, Calls]:
    with faulty(fault, redis, loop, proxy):
        found = asked(one, plans, builds)
    in_time("ready", lambda: one.ready() == 200)
    in_time("fresh", lambda: not one.get_plan(LONG).stale)
    return found


def asked(one: Caller, plans: int, builds: int) -> tuple[Calls, Calls]:
    """GetPlan and BuildPlan, one after the other."""
    got = paced(lambda _: one.get_plan(LONG), plans, 0.01)
    return got, paced(lambda number: build(one, 100 + number), builds, 0.01)


def judged(well: tuple[Calls, Calls], away: dict[str, tuple[Calls, Calls]]) -> Taken:
    def milliseconds(calls: Calls) -> float:
        return 1000 * p99([seconds for _, seconds in calls])

    base = milliseconds(well[0])
    added = {fault: milliseconds(plans) - base for fault, (plans, _) in away.items()}
    built = {fault: milliseconds(builds) for fault, (_, builds) in away.items()}
    failed = sum(isinstance(one, Exception) for both in away.values() for calls in both for one, _ in calls)
    unmarked = sum(
        not one.stale for _, builds in away.values() for one, _ in builds if isinstance(one, pb.BuildPlanResponse)
    )
    said = "; ".join(f"{fault}: {added[fault]:+.0f}, {built[fault]:.0f} ms" for fault in away)
    count = sum(len(calls) for both in away.values() for calls in both)
    met = max(added.values()) <= _ADDED and max(built.values()) <= _BUILD and not failed and not unmarked
    return Taken(
        f"{said}; p99 before {base:.0f} ms; {failed} of {count:,} calls failed, {unmarked} plans were not marked",
        met,
        {"p99 well": base, "added": added, "built": built, "failed": failed, "unmarked": unmarked, "calls": count},
    )
