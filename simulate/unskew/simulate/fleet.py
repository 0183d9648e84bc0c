"""Several cooperating partitioners of one stream and their reducer, in one process: for simulation and ``whatif``.

Row i of the stream goes to agent i mod P, or where ``deal`` says. Time is the stream's rows, so a run is a function of
its arguments. Messages arrive at the end of a stretch of rows; a merge takes ``delay`` rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from unskew.core.errors import ConfigError
from unskew.core.rounds.agent import Agent, AgentSettings, AgentTick, Answered, Routed, SendReport, Tuples
from unskew.core.rounds.round_log import RoundLog
from unskew.core.rounds.rules import RoundRules
from unskew.core.routers.dalton import DaltonRouter
from unskew.simulate.reducer import SimulatedReplica, SimulatedStore

__all__ = ["Fleet"]

U64 = NDArray[np.uint64]
I32 = NDArray[np.int32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

_STRETCHES = 4  # of a DSYNC: how finely agents and reducer take turns


@dataclass(eq=False)
class Fleet:
    """``agents`` partitioners that sync every ``dsync`` rows of the stream; None: never, each for itself, and an
    interval of its statistics is as long as a lone learner's.

    ``clock`` is asked around every call of an agent and adds up in ``seconds``: what routing costs, if it is a clock.
    """

    agents: int
    workers: int
    dsync: float | None
    seed: int = 7
    window: float | None = None
    slide: float | None = None
    delay: float = 0.0
    lonely: bool = False
    parameters: Mapping[str, object] = field(default_factory=dict)
    clock: Callable[[], float] = field(default=lambda: 0.0)
    seconds: float = field(default=0.0, init=False)
    rows: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.agents < 1:
            raise ConfigError("agents", self.agents, "1 or more")
        dsync = self._alone() if self.dsync is None else float(self.dsync)
        self.partners = [
            Agent(
                AgentSettings(
                    f"agent-{number:04}", self.workers, dsync, number, seed=self.seed, window=self.window,
                    slide=self.slide, lonely=self.lonely, parameters=self.parameters,
                )
            )
            for number in range(self.agents)
        ]  # fmt: skip
        for agent in self.partners:
            agent.handle(AgentTick(), 0.0)
        self._names = {agent.settings.name: agent for agent in self.partners}
        rules = RoundRules(self.workers, dsync=dsync, dsync_min=dsync, dsync_max=dsync)
        self._reducer = SimulatedReplica(SimulatedStore(forget=4.0 * dsync), rules)
        self._stretch = max(int(dsync) // _STRETCHES, 1)

    @property
    def rounds(self) -> RoundLog:
        """The rounds so far."""
        return self._reducer.store.rounds

    def _alone(self) -> float:
        return float(max(DaltonRouter.stats * self.workers * self.agents, self.slide or 0))

    def route(self, hashes: U64, times: F64 | None = None, deal: I64 | None = None) -> I32:
        """The worker of each of the stream's next rows. Windows are in ``times`` where they are given, else in rows
        of the whole stream."""
        out = np.empty(len(hashes), np.int32)
        whose = (self.rows + np.arange(len(hashes))) % self.agents if deal is None else deal
        when: F64 | None = self.rows + np.arange(len(hashes), dtype=np.float64) if times is None else times
        if self.window is None:
            when = None
        first = self._stretch - self.rows % self._stretch  # stretches are the stream's, however it is cut
        for part in _slices(len(hashes), first, self._stretch):
            self.rows += part.stop - part.start
            self._route_stretch(hashes[part], None if when is None else when[part], whose[part], out[part])
        return out

    def _route_stretch(self, hashes: U64, when: F64 | None, whose: I64, out: I32) -> None:
        now = self.rows - self.rows % self._stretch
        for number, agent in enumerate(self.partners):
            mine = np.flatnonzero(whose == number)
            tuples = Tuples(np.ascontiguousarray(hashes[mine]), None if when is None else when[mine])
            started = self.clock()
            actions = agent.handle(tuples, now)
            self.seconds += self.clock() - started
            for action in actions:
                if isinstance(action, Routed):
                    out[mine] = action.workers
                elif isinstance(action, SendReport) and self.dsync is not None:
                    self._reducer.report(action.report, float(self.rows))
        self._reducer.look(float(self.rows))
        if not self.delay or self.rows % self._stretch == 0:
            self._answer()

    def _answer(self) -> None:
        """Merges that are done by now."""
        now = float(self.rows)
        while (merging := self._reducer.merging) is not None and merging.now + self.delay <= now:
            merged = self._reducer.finish(now)
            assert merged is not None, "there is one replica only"
            for name in merged.names:
                self._names[name.agent].handle(Answered(merged.answer, now - merged.carryover.complete), self.rows)
            self._reducer.look(now)


def _slices(rows: int, first: int, step: int) -> list[slice]:
    """The first so many rows, then equal stretches."""
    cuts = [0, *range(first, rows, step), rows] if rows else [0]
    return [slice(a, b) for a, b in pairwise(cuts)]
