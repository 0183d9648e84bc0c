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
from unskew.core.rounds.agent import Action, Agent, AgentSettings, AgentTick, Answered, Routed, Tuples
from unskew.core.rounds.agent import SendReport as Report
from unskew.core.rounds.events import Event, Merge, Merged, Renewed, Reported, Send
from unskew.core.rounds.events import Tick as Wake
from unskew.core.rounds.merge import merge
from unskew.core.rounds.reducer import RoundRules, Rounds
from unskew.core.routers.dalton import DaltonRouter

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
        self.rounds = Rounds(
            RoundRules(self.workers, dsync=dsync, dsync_min=dsync, dsync_max=dsync, forget=4.0 * dsync)
        )
        for agent in self.partners:  # else the first round would be of the first agent alone
            self.rounds.handle(Renewed(agent.settings.name), 0.0)
        self._stretch = max(int(dsync) // _STRETCHES, 1)
        self._underway: list[tuple[float, Event]] = []

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
            self._send(actions)
        if self.rows % self._stretch == 0:
            self._deliver()

    def _send(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            if isinstance(action, Report) and self.dsync is not None:
                self._tell(Reported(action.report))

    def _deliver(self) -> None:
        """Merges that are done by now."""
        due = [event for at, event in self._underway if at <= self.rows]
        self._underway = [(at, event) for at, event in self._underway if at > self.rows]
        for event in (*due, Wake()):
            self._tell(event)

    def _tell(self, event: Event) -> None:
        for action in self.rounds.handle(event, float(self.rows)):
            if isinstance(action, Merge):
                done = Merged(action.epoch, merge(action.reports, action.previous))
                self._underway.append((self.rows + self.delay, done))
                if not self.delay:
                    self._deliver()
            elif isinstance(action, Send):
                for name in action.agents:
                    self._names[name].handle(Answered(action.answer, action.age), self.rows)


def _slices(rows: int, first: int, step: int) -> list[slice]:
    """The first so many rows, then equal stretches."""
    cuts = [0, *range(first, rows, step), rows] if rows else [0]
    return [slice(a, b) for a, b in pairwise(cuts)]
