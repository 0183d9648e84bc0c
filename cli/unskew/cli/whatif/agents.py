"""The agents of one router: several partitioners, each with its share of the stream.

Row i goes to agent i mod P, as from upstream tasks that read evenly. Independent agents know nothing of each other.
They have the same seed, because a key's candidates must be the same at every agent (CG, section 7), except for routers
whose seed only keeps agents from moving in step. A window in rows is a window of the whole stream's rows at every
agent, so the rows' numbers serve as times.

Agents that cooperate (Dalton, section 4) are ``unskew.simulate.fleet``'s, whose messages and merges take no time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unskew.cli.whatif.job import Job, Sliding
from unskew.core.keys.hashing import mix
from unskew.core.routers import Router, make_router
from unskew.simulate.fleet import Fleet as CooperatingFleet

__all__ = ["COOPERATING", "Clock", "Fleet", "fleet_of", "warm_up"]

U64 = NDArray[np.uint64]
I32 = NDArray[np.int32]
F64 = NDArray[np.float64]
Clock = Callable[[], float]

_OWN_SEEDS = ("shuffle", "potc", "dalton")  # the seed is where they start or what they draw, not where a key goes
_WARM_UP = Sliding(1_024, 256)


class Fleet(Protocol):
    """All agents of one router."""

    def route(self, hashes: U64, times: F64 | None = None) -> I32:
        """The partition of each of the stream's next rows."""

    @property
    def seconds(self) -> float:
        """The time that the agents took to route, without distributing the rows to them."""


def fleet_of(router: str, job: Job, clock: Clock) -> Fleet:
    """The agents of a router. Raises ``ConfigError`` for a router, window or slide that is not allowed."""
    if job.dsync is not None and router in COOPERATING:
        return COOPERATING[router](router, job, clock)
    window, slide = _window_and_slide(job)
    step = 1 if router in _OWN_SEEDS else 0
    seeds = (job.seed + step * number for number in range(job.agents))
    return _IndependentFleet([make_router(router, job.partitions, seed, window, slide) for seed in seeds], clock)


def warm_up(router: str, job: Job, clock: Clock) -> None:
    """Route a few rows and forget them, so that compiling is not measured as routing: heavy and new keys, several
    windows, and more keys than the routers first have room for."""
    row = np.arange(6 * int(_WARM_UP.window))
    hashes = mix(np.where(row % 2, row, row % 6).astype(np.uint64), job.seed)
    dsync = job.dsync and int(_WARM_UP.window)
    small = Job((), job.partitions, seed=job.seed, sliding=job.sliding and _WARM_UP, agents=job.agents, dsync=dsync)
    fleet = fleet_of(router, small, clock)
    for part in np.split(row, 3):
        fleet.route(hashes[part])


def _window_and_slide(job: Job) -> tuple[float, float] | tuple[None, None]:
    return (None, None) if job.sliding is None else (job.sliding.window, job.sliding.slide)


@dataclass(eq=False)
class _IndependentFleet:
    """Agents that do not cooperate."""

    agents: list[Router]
    clock: Clock
    seconds: float = field(default=0.0, init=False)
    _rows: int = field(default=0, init=False)

    def route(self, hashes: U64, times: F64 | None = None) -> I32:
        out, agents = np.empty(len(hashes), np.int32), len(self.agents)
        if agents > 1 and times is None:
            times = np.arange(self._rows, self._rows + len(hashes), dtype=np.float64)
        for number, agent in enumerate(self.agents):
            share = slice((number - self._rows) % agents, None, agents)
            keys, key_times = np.ascontiguousarray(hashes[share]), None if times is None else times[share]
            started = self.clock()
            partitions = agent.route(keys, key_times)
            self.seconds += self.clock() - started
            out[share] = partitions
        self._rows += len(hashes)
        return out


def _cooperating_fleet(router: str, job: Job, clock: Clock) -> Fleet:  # noqa: ARG001 - there is only one such router
    window, slide = _window_and_slide(job)
    return CooperatingFleet(job.agents, job.partitions, job.dsync, job.seed, window, slide, clock=clock)


# Routers whose agents cooperate -> the function that makes ``job.agents`` of them, which sync every ``job.dsync`` rows.
COOPERATING: dict[str, Callable[[str, Job, Clock], Fleet]] = {"dalton": _cooperating_fleet}
