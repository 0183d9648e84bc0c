"""What each attack does to a replica: its memory, and how long somebody else waits.

``python -m tests.attack.measure [--paths ROOTS]`` prints the full doses as a table; ``--paths`` are the roots of
another checkout, whose service is attacked instead.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.attack.attacks import (
    GET_PLAN,
    LATEST,
    HeldBodies,
    fill,
    flood,
    held_messages,
    put_large_plan,
    request,
    slow_connections,
    unread_answers,
)
from tests.attack.lying import LYING
from tests.attack.tenants import (
    OWN_LARGE,
    Beside,
    agents,
    beside,
    flood_of,
    get_plan,
    large_plan,
    large_plans,
    one_round,
    pushed,
    report_large,
    small_plan,
)
from tests.attack.victim import ATTACKER, STREAM, VICTIM, Victim, victim
from tests.servers import Server, single

__all__ = [
    "FEW",
    "FULL",
    "HISTOGRAMS",
    "Suffered",
    "accept_flood",
    "bodies",
    "connection_flood",
    "filled",
    "messages",
    "redis_of_600_mb",
    "slow_headers",
    "suffered",
    "tenants",
    "unread",
    "unread_over_http",
]

_MESSAGE, _BODY = 16 << 20, 64 << 20
HISTOGRAMS = f"/v1/streams/{STREAM}/histograms"
_BACK = 5.0  # seconds within which the others must be served as before


@dataclass(frozen=True)
class Suffered:
    """Megabytes of the replica; seconds of the others' calls; ``healthy``: whether /healthz answered in the attack."""

    idle: int
    peak: int
    after: int
    before_p99: float
    during_p99: float
    after_p99: float
    failed: int
    healthy: bool
    log_lines: int
    more: str

    def __str__(self) -> str:
        times = " ".join(f"{1000 * t:7.0f}" for t in (self.before_p99, self.during_p99, self.after_p99))
        return (
            f"{self.idle:5} {self.peak:5} {self.after:5} MB  p99 {times} ms  failed {self.failed:3} "
            f"healthz {'yes' if self.healthy else 'NO'}  log {self.log_lines:6}  {self.more}"
        )


Attack = Callable[[Victim], tuple[bool, str]]


def suffered(on: Victim, attack: Attack) -> Suffered:
    """``attack`` says whether /healthz answered at its worst, and what else is worth telling."""
    others, lines = on.others, on.log_lines
    on.forget_peak()
    began = time.monotonic()
    others.failed.clear()
    healthy, more = attack(on)
    ended, peak, failed = time.monotonic(), on.peak, len(others.failed)
    time.sleep(2 * _BACK)
    return Suffered(
        on.idle,
        peak,
        on.memory,
        others.p99(0, began),
        others.p99(began, ended),
        others.p99(ended + _BACK),
        failed,
        healthy,
        on.log_lines - lines,
        more,
    )


def messages(streams: int, seconds: float, token: str = "", path: str = GET_PLAN, connections: int = 1) -> Attack:
    """(a): calls of gRPC, each with 16 MB held 100 bytes short of its end."""

    def attack(on: Victim) -> tuple[bool, str]:
        with held_messages(on.grpc, streams, _MESSAGE, seconds, token, path) as attacker:
            return on.healthy(), f"{attacker.sent >> 20} MB taken, {len(attacker.open_streams())} streams open"

    return attack


def bodies(count: int, seconds: float, token: str = ATTACKER) -> Attack:
    """(b): bodies of 64 MB over HTTP."""

    def attack(on: Victim) -> tuple[bool, str]:
        held = HeldBodies()
        try:
            held.send(on.http, request(HISTOGRAMS, _BODY, token), count, _BODY, seconds)
            return on.healthy(), f"{held.sent >> 20} MB taken, {held.ended} ended"
        finally:
            held.close()

    return attack


def slow_headers(connections: int, seconds: float, first: bytes = b"GET / HTTP/1.1\r\nx: ") -> Attack:
    """(c): connections that begin a request and do not go on."""

    def attack(on: Victim) -> tuple[bool, str]:
        with slow_connections(on.http, connections, first) as found:
            time.sleep(seconds)
            return on.healthy(), f"{len(found)} opened, {on.descriptors} descriptors"

    return attack


def accept_flood(descriptors: int, seconds: float, grpc: bool = False) -> Attack:
    """(d): connections as fast as they are taken, where the replica has only so many descriptors more."""

    def attack(on: Victim) -> tuple[bool, str]:
        limit = on.descriptors + descriptors
        resource.prlimit(on.process.run.pid, resource.RLIMIT_NOFILE, (limit, limit))
        opened = flood(
            on.grpc if grpc else on.http, seconds, b"" if grpc else b"GET / HTTP/1.1\r\nx: ", 4 * descriptors
        )
        return on.healthy(), f"{opened} opened"

    return attack


def connection_flood(seconds: float, grpc: bool = False, source: str = "127.0.0.1") -> Attack:
    """(e): connections as fast as they are taken; the descriptors suffice, and ``FEW`` is set."""

    def attack(on: Victim) -> tuple[bool, str]:
        opened = flood(on.grpc if grpc else on.http, seconds, b"" if grpc else b"GET / HTTP/1.1\r\nx: ", 400, source)
        return on.healthy(), f"{opened} opened, {on.descriptors} descriptors"

    return attack


def filled(parts: int, keys: int = 1 << 16) -> Attack:
    """(f): one reporter, parts of a megabyte with keys of their own, and a plan from them all."""

    def attack(on: Victim) -> tuple[bool, str]:
        found = fill(on.grpc, ATTACKER, "flooded", parts, keys)
        refused = ", ".join(f"{count} {code}" for code, count in found.refused.items())
        return on.healthy(), f"{found.taken} taken, refused {refused or 0}, plan {found.plan} in {found.seconds:.1f} s"

    return attack


def unread(calls: int, seconds: float, path: str = GET_PLAN) -> Attack:
    """(k): calls whose answers of nearly a megabyte nobody takes."""

    def attack(on: Victim) -> tuple[bool, str]:
        put_large_plan(on.grpc, ATTACKER)
        with unread_answers(on.grpc, calls, seconds, ATTACKER, path) as attackers:
            held = sum(len(one.open_streams()) for one in attackers)
            return on.healthy(), f"{calls} asked, {held} not taken"

    return attack


def unread_over_http(connections: int, seconds: float) -> Attack:
    """(k): the same over HTTP, four on each connection."""

    def attack(on: Victim) -> tuple[bool, str]:
        put_large_plan(on.grpc, ATTACKER)
        with slow_connections(on.http, connections, 4 * (LATEST % ATTACKER.encode())):
            time.sleep(seconds)
            return on.healthy(), f"{on.descriptors} descriptors"

    return attack


FEW = ("--max-http-connections", "100", "--max-grpc-connections", "100")
FULL: Mapping[str, Attack] = {
    "a  140 messages of 16 MB, no credential": messages(140, 15),
    "a  140 messages of 16 MB, a credential": messages(140, 15, ATTACKER),
    "a  140 to BuildPlan, a credential": messages(140, 15, ATTACKER, GET_PLAN.replace("GetPlan", "BuildPlan")),
    "a  140 to ReportHistogram, a credential": messages(
        140, 15, ATTACKER, GET_PLAN.replace("GetPlan", "ReportHistogram")
    ),
    "a  140 to health, no credential": messages(140, 15, "", "/grpc.health.v1.Health/Check"),
    "a  140 to KEDA, no credential": messages(140, 15, "", "/externalscaler.ExternalScaler/IsActive"),
    "b  20 bodies of 64 MB, no credential": bodies(20, 15, ""),
    "b  20 bodies of 64 MB, a credential": bodies(20, 15),
    "c  3,000 slow headers": slow_headers(3000, 12),
    "c  3,000 slow bodies, a credential": slow_headers(3000, 12, request(HISTOGRAMS, 1 << 20, ATTACKER) + bytes(1000)),
    "d  flood at the descriptor limit, HTTP": accept_flood(100, 10),
    "d  flood at the descriptor limit, gRPC": accept_flood(100, 10, grpc=True),
    "e  flood at the connection limit, HTTP": connection_flood(10),
    "e  the same from elsewhere, HTTP": connection_flood(10, source="127.0.0.3"),
    "e  flood at the connection limit, gRPC": connection_flood(10, grpc=True),
    "f  a plan of 4,000,000 keys": filled(1, 4_000_000),
    "f  2,160 parts of 1 MB, in memory": filled(2160),
    "f  2,160 parts of 1 MB, Redis of 600 MB": filled(2160),
    "k  2,700 answers of 1 MB that nobody takes": unread(2700, 12),
    "k  2,700 pushes of 1 MB that nobody takes": unread(2700, 12, GET_PLAN.replace("GetPlan", "WatchPlans")),
    "k  900 times 14 MB over HTTP that nobody takes": unread_over_http(900, 12),
}
OVERLOADED = ("--max-calls-per-second", "300")


def tenants() -> Mapping[str, tuple[tuple[str, ...], Callable[[Victim], Beside]]]:
    """What a tenant does to another: the service's flags, and the measurement."""
    prepare, plan = large_plans(10, 4_000_000, 30)
    prepare_four, four = large_plans(4, 1_000_000, 30)

    def large_beside_large(on: Victim) -> Beside:
        prepare_four(on)
        report_large(on, VICTIM, OWN_LARGE, 1_000_000)
        return beside(on, large_plan, four, rate=0.5)

    def beside_large(on: Victim) -> Beside:
        prepare(on)
        return beside(on, small_plan, plan)

    return {
        "j  ten plans of 4 M keys; small plans": ((), beside_large),
        "l  four plans of 1 M keys; such a plan": ((), large_beside_large),
        "m  1,500 watches, 3 plans a second; GetPlan": ((), lambda on: beside(on, get_plan, pushed(1500, 15))),
        "g  a wrong token, 400 in flight; GetPlan": (
            (),
            lambda on: beside(on, get_plan, flood_of("GetPlan", "wrong", 2, 200, 10)),
        ),
        "h  23,200 agents; GetPlan": ((), lambda on: beside(on, get_plan, agents(11_600, 12))),
        "h  23,200 agents; a round": ((), lambda on: beside(on, one_round, agents(11_600, 12), rate=4.0)),
        "i  overload by BuildPlan; small plans": (
            OVERLOADED,
            lambda on: beside(on, small_plan, flood_of("BuildPlan", ATTACKER, 2, 200, 15)),
        ),
        "i  overload by GetPlan; GetPlan": (
            OVERLOADED,
            lambda on: beside(on, get_plan, flood_of("GetPlan", ATTACKER, 2, 200, 15)),
        ),
    }


def redis_of_600_mb(folder: Path) -> AbstractContextManager[Server]:
    return single(folder, "maxmemory 600mb", "maxmemory-policy noeviction")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--paths", default="", help="PYTHONPATH of the service that is attacked")
    options.add_argument("--only", default="", help="attacks whose names have this in them")
    given = options.parse_args()
    more = {"PYTHONPATH": given.paths} if given.paths else {}
    for name, attack in FULL.items():
        if given.only in name:
            flags = FEW if name.startswith("e") else ()
            with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
                if "Redis" in name:
                    flags = ("--store", stack.enter_context(redis_of_600_mb(Path(folder))).url)
                on = stack.enter_context(victim(Path(folder), *flags, **more))
                print(f"{name:42} {suffered(on, attack)}", flush=True)  # noqa: T201 - a table for people
    for name, prepare in LYING.items():
        if given.only in name:
            with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
                on, attack = prepare(Path(folder), stack, more)
                print(f"{name:42} {suffered(on, attack)}", flush=True)  # noqa: T201 - a table for people
    for name, (limits, measured) in tenants().items():
        if given.only in name:
            with tempfile.TemporaryDirectory() as folder, victim(Path(folder), *(() if more else limits), **more) as on:
                load = f"load {os.getloadavg()[0]:.1f}"
                print(f"{name:42} {measured(on)}; {load} when it began", flush=True)  # noqa: T201 - a table for people


if __name__ == "__main__":
    main()
