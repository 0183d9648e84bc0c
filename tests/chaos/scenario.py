"""What every chaos test does: a fleet at work, a fault, work again, a halt; and what has to be true then."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.chaos.fleet import Fleet, Replica, Replicas, loads
from tests.chaos.inputs import Shape, imbalance, simulated
from tests.chaos.ledger import Diary, Round, wrong
from tests.chaos.proxy import FaultProxy, Mode
from tests.servers import Server
from unskew.service.stores.redis.scripts import SCRIPTS

__all__ = ["LONG", "SMALL", "Outcome", "check", "check_balance", "kill_in_mid_round", "stall", "through"]

SMALL, LONG = Shape(agents=8, dsync=0.5), Shape(agents=32, dsync=0.5)
PATIENT = 90.0
"""Seconds until something is called stuck: with the suite's other half on the same two cores a DSYNC may take five."""
_WITHIN = 1.05


@dataclass
class Outcome:
    """A fleet after its fault. ``settled``: seconds from the end of the fault to a round that everybody was in."""

    fleet: Fleet
    live: list[str]
    version: tuple[int, int]
    counted: dict[str, float]
    diaries: list[Diary]
    marks: dict[int, int]
    settled: float


def through(
    folder: Path, stream: str, shape: Shape, replicas: Replicas, fault: Callable[[Fleet], None], *, after: int = 8
) -> Outcome:
    """Three rounds, the fault, one round with everybody, ``after`` more, and a halt at one version."""
    fleet = Fleet(folder / "fleet", re.sub(r"[^A-Za-z0-9]+", "-", stream)[:100], shape, replicas)
    with fleet.running():
        fleet.go_on(3, PATIENT)
        fault(fleet)
        settled = fleet.go_on(1, PATIENT)
        marks = {number: told["batch"] for number, told in fleet.status().items()}
        fleet.go_on(after, PATIENT)
        version = fleet.settled()
        live = sorted(member.name for member in fleet.live.values())
        return Outcome(fleet, live, version, replicas.rounds(fleet.stream), fleet.diary(), marks, settled)


def check(outcome: Outcome, *folders: Path, uncounted: int = 0) -> list[Round]:
    """All at one version with one table, every round and report once, imbalance as in the simulation. ``uncounted``:
    how many merges may have been made by a replica that was not told that it had made them."""
    rounds = outcome.fleet.rounds(*folders)
    assert wrong(rounds, outcome.diaries, outcome.live) == []
    assert rounds[-1].epoch == outcome.version
    assert sorted(name[0] for name in rounds[-1].names) == outcome.live
    counted = sum(count for name, count in outcome.counted.items() if name != "repeated")
    assert len(rounds) - uncounted <= counted <= len(rounds), outcome.counted
    check_balance(outcome, len(rounds))
    return rounds


def check_balance(outcome: Outcome, rounds: int) -> None:
    """Of the rows after the fault, and of all."""
    shape = outcome.fleet.shape
    live = loads(outcome.diaries, shape)
    ends = [int(live[agent].any(axis=1).nonzero()[0].max(initial=-1)) + 1 for agent in range(shape.agents)]
    alone = simulated(shape, ends)
    alone[~live.any(axis=2)] = 0  # a batch that was under way when its agent died
    found, wanted = [imbalance(_since(table, outcome.marks)) for table in (live, alone)]
    print(  # noqa: T201 - the figures, for pytest -s
        f"{outcome.fleet.stream}: {shape.agents} agents, {rounds} rounds {outcome.counted}, settled in "
        f"{outcome.settled:.1f} s, imbalance {found:.3f}, in one process {wanted:.3f}"
    )
    assert found <= _WITHIN * wanted


def _since(table: NDArray[np.int64], marks: dict[int, int]) -> NDArray[np.int64]:
    total: NDArray[np.int64] = np.sum([table[agent, mark:].sum(axis=0) for agent, mark in marks.items()], axis=0)
    return total


# -- faults


def stall(fleet: Fleet, mode: Mode, proxies: Sequence[FaultProxy], during: Callable[[], object]) -> None:
    """The network in this mode while ``during`` goes on, and well again after it; it has to have hit something."""
    before = [proxy.hurt for proxy in proxies]
    with fleet.replicas.loop.fault(mode, *proxies):
        during()
    assert all(proxy.hurt > had for proxy, had in zip(proxies, before, strict=True)), "the fault hit nothing"


def kill_in_mid_round(fleet: Fleet, replica: Replica, redis: Server) -> int:
    """SIGKILL after this replica has sealed a round and before it, or another, has merged it; that round."""
    assert replica.back is not None
    loop, back, key = fleet.replicas.loop, replica.back, f"{{unskew:{fleet.stream}}}:m"
    end = time.monotonic() + PATIENT
    while time.monotonic() < end:
        held = loop.call(lambda: back.hold_after(SCRIPTS["seal"].sha.encode()))
        assert held.wait(PATIENT), "it seals no round"
        now, merged = (int(text) for text in redis.ask("HMGET", key, "open", "merged"))
        if now > merged + 1:
            fleet.replicas.kill(replica, fleet.stream)
            loop.call(back.release)
            return merged + 1
        loop.call(back.release)  # another was faster
    raise AssertionError("it never sealed a round that nobody else had merged")
