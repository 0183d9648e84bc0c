"""The partitioners of one router: as many agents as asked for, each with its share of the stream.

Row i goes to agent i mod P, as upstream tasks that read evenly would have it. Agents without cooperation know nothing
of each other. They have one seed, because a key's choices must be the same at every agent (CG, section 7), except
where the seed is what keeps agents from moving in step. A window in rows is one of the whole stream's rows at every
agent, so the numbers of the rows serve as its clock.

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
from unskew.simulate.fleet import Fleet as Cooperating

__all__ = ["COOPERATING", "Clock", "Fleet", "fleet_of", "warm_up"]

U64 = NDArray[np.uint64]
I32 = NDArray[np.int32]
F64 = NDArray[np.float64]
Clock = Callable[[], float]

_OWN_SEEDS = ("shuffle", "potc", "dalton")  # the seed is where they begin or what they draw, not where a key belongs
_WARM = Sliding(1_024, 256)


class Fleet(Protocol):
    """All agents of one router."""

    def route(self, hashes: U64, times: F64 | None = None) -> I32:
        """The partition of each of the stream's next rows."""

    @property
    def seconds(self) -> float:
        """The time that the agents took to route, without what it took to deal the rows."""


def fleet_of(router: str, job: Job, clock: Clock) -> Fleet:
    """The agents of a router. A router, window or slide that is not allowed is refused here."""
    if job.dsync is not None and router in COOPERATING:
        return COOPERATING[router](router, job, clock)
    return _Strangers([_stranger(router, job, number) for number in range(job.agents)], clock)


def warm_up(router: str, job: Job, clock: Clock) -> None:
    """Route a few rows and forget them, so that compiling is not taken for routing: heavy and new keys, several
    windows, and more keys than the routers first have room for."""
    row = np.arange(6 * int(_WARM.window))
    hashes = mix(np.where(row % 2, row, row % 6).astype(np.uint64), job.seed)
    many, every = job.agents, job.dsync and int(_WARM.window)
    small = Job((), job.partitions, seed=job.seed, sliding=job.sliding and _WARM, agents=many, dsync=every)
    fleet = fleet_of(router, small, clock)
    for part in np.split(row, 3):
        fleet.route(hashes[part])


def _stranger(router: str, job: Job, number: int) -> Router:
    window, slide = (None, None) if job.sliding is None else (job.sliding.window, job.sliding.slide)
    seed = job.seed + number if router in _OWN_SEEDS else job.seed
    return make_router(router, job.partitions, seed, window, slide)


@dataclass(eq=False)
class _Strangers:
    """Agents that know nothing of each other."""

    agents: list[Router]
    clock: Clock
    seconds: float = field(default=0.0, init=False)
    _rows: int = field(default=0, init=False)

    def route(self, hashes: U64, times: F64 | None = None) -> I32:
        out = np.empty(len(hashes), np.int32)
        if len(self.agents) > 1 and times is None:
            times = np.arange(self._rows, self._rows + len(hashes), dtype=np.float64)
        for agent, mine in zip(self.agents, _dealt(self._rows, len(self.agents)), strict=True):
            keys, when = np.ascontiguousarray(hashes[mine]), None if times is None else times[mine]
            started = self.clock()
            at = agent.route(keys, when)
            self.seconds += self.clock() - started
            out[mine] = at
        self._rows += len(hashes)
        return out


def _dealt(rows: int, agents: int) -> list[slice]:
    """Whose the next rows of a stream are, of which there were so many before."""
    return [slice((number - rows) % agents, None, agents) for number in range(agents)]


def _partners(router: str, job: Job, clock: Clock) -> Fleet:  # noqa: ARG001 - there is only one such router
    window, slide = (None, None) if job.sliding is None else (job.sliding.window, job.sliding.slide)
    return Cooperating(job.agents, job.partitions, job.dsync, job.seed, window, slide, clock=clock)


# A router whose agents cooperate -> what makes its fleet of ``job.agents`` that sync every ``job.dsync`` rows.
COOPERATING: dict[str, Callable[[str, Job, Clock], Fleet]] = {"dalton": _partners}
