"""Dalton's Fig. 14b: how DSYNC follows the time that the reducer takes, on the real round machine and a fake clock.

    PYTHONPATH=core:simulate python -m benchmarks.dsync_script

The paper's script: DSYNC starts at 20 s; the reducer takes some time, from 5,000 s on twice that, from 10,000 s on four
times, from 15,000 s on the first again. The paper's DSYNC is 10, 20, 40, 10. Ours is told by rounds, 40 a phase, with a
reducer that takes 6 s. ``changes`` counts those in the last 20 rounds of each phase: none is wanted.

Below it, what a rule without memory would flap on: messages that take time, work just under the bound or varying, an
agent that dies, agents that started out of step (with and without the ``age`` of an answer).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count, pairwise

import numpy as np

from unskew.core.dalton.qtable import QTable
from unskew.core.rounds.carryover import MergedRound
from unskew.core.rounds.messages import Answer, Report
from unskew.core.rounds.round_log import ReportOutcome
from unskew.core.rounds.rules import RoundRules
from unskew.core.sketches.frequent import FrequentItems
from unskew.simulate.reducer import SimulatedReplica, SimulatedStore

PAPER = (10.0, 20.0, 40.0, 10.0)
TIMES = (1.0, 2.0, 4.0, 1.0)
REDUCER, START = 6.0, 20.0
PHASE, LAST = 40, 20

_NOTHING = {"table": QTable.empty(2), "records": 0, "frequent": FrequentItems(4), "loads": np.zeros(2, np.int64)}


@dataclass
class Agent:
    """Algorithm 2 as far as DSYNC goes: one report under way at a time; overdue ones leave with the answer.

    ``in_step`` counts DSYNC from when the last round was complete, else from when the last report left. ``forgetful``
    asks for more even where the answer has just brought it.
    """

    name: str
    starts: float = 0.0
    in_step: bool = True
    forgetful: bool = False
    dies: float = float("inf")
    dsync: float = START
    seq: int = 0
    sent: float = 0.0
    waiting: bool = False
    longer: bool = False
    waits: list[float] = field(default_factory=list)

    def report(self, now: float) -> Report:
        """The next one, which leaves now."""
        self.seq, self.sent, self.waiting = self.seq + 1, now, True
        return Report(self.name, 1, self.seq, **_NOTHING, dsync=self.dsync, longer=self.longer)  # type: ignore[arg-type]

    def answered(self, answer: Answer, age: float, now: float) -> float:
        """Take the answer; when the next report is due."""
        waited, old = now - self.sent, self.dsync
        self.dsync, self.waiting = answer.dsync, False
        self.waits.append(waited)
        self.longer = waited >= (old if self.forgetful else self.dsync)
        return max(now, (now - age if self.in_step else self.sent) + self.dsync)


class Simulation:
    """Agents, a network and one reducer, by events in order of time."""

    def __init__(
        self,
        agents: Iterable[Agent],
        work: Callable[[int], float],
        latency: Callable[[], float] = lambda: 0.0,
        rules: RoundRules | None = None,
    ) -> None:
        self.reducer = SimulatedReplica(SimulatedStore(), rules or RoundRules(workers=2, dsync=START))
        self.work, self.latency = work, latency
        self.now, self.dsync = 0.0, [START]  # after each round
        self._todo: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._agents = {agent.name: agent for agent in agents}
        for agent in self._agents.values():
            self._at(agent.starts, lambda agent=agent: self._due(agent))  # type: ignore[misc]

    def run(self, rounds: int) -> list[float]:
        """DSYNC after each of so many further rounds."""
        goal = len(self.dsync) + rounds
        while len(self.dsync) < goal:
            self.now, _, act = heapq.heappop(self._todo)
            act()
        return self.dsync[goal - rounds :]

    def _at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._todo, (when, next(self._order), act))

    def _due(self, agent: Agent) -> None:
        if self.now < agent.dies:
            self._send(agent, agent.report(self.now))

    def _send(self, agent: Agent, report: Report) -> None:
        """Now, and again each DSYNC until it is answered: so the agent keeps its lease."""
        if agent.waiting and agent.seq == report.seq and self.now < agent.dies:
            self._at(self.now + self.latency(), lambda: self._reported(report))
            self._at(self.now + agent.dsync, lambda: self._send(agent, report))

    def _reported(self, report: Report) -> None:
        outcome, newest = self.reducer.report(report, self.now), self.reducer.store.newest
        if outcome is ReportOutcome.MERGED and newest is not None:
            self._answer(report.agent, report.seq, newest)
        self._look()

    def _look(self) -> None:
        """At the rounds, and again when something will be due; a merge that begins now ends after its work."""
        if self.reducer.merging is not None:
            return
        wait = self.reducer.look(self.now)
        if self.reducer.merging is not None:
            self._at(self.now + self.work(self.reducer.merging.epoch), self._finish)
        elif wait is not None and wait < math.inf:
            self._at(self.now + wait, self._look)

    def _finish(self) -> None:
        merged = self.reducer.finish(self.now)
        assert merged is not None, "there is one replica only"
        self.dsync.append(merged.answer.dsync)
        for name in sorted(merged.names):
            self._answer(name.agent, name.seq, merged)
        self._look()

    def _answer(self, name: str, seq: int, merged: MergedRound) -> None:
        agent, age = self._agents[name], self.now - merged.carryover.complete

        def arrive() -> None:
            if agent.waiting and agent.seq == seq:
                due = agent.answered(merged.answer, age, self.now)
                self._at(due, lambda: self._due(agent))

        self._at(self.now + self.latency(), arrive)


def changes(values: Iterable[float]) -> int:
    """How often a value differs from the one before."""
    return sum(one != other for one, other in pairwise(values))


def script(agents: Iterable[Agent], latency: Callable[[], float] = lambda: 0.0) -> list[list[float]]:
    """Fig. 14b: DSYNC after every round, phase by phase."""
    simulation = Simulation(agents, lambda epoch: REDUCER * TIMES[min((epoch - 1) // PHASE, len(TIMES) - 1)], latency)
    return [simulation.run(PHASE) for _ in TIMES]


def jitter(seed: int, spread: float = 0.5, least: float = 0.0) -> Callable[[], float]:
    """Messages that take from ``least`` seconds to ``spread`` more."""
    rng = np.random.default_rng(seed)
    return lambda: least + float(rng.uniform(0.0, spread))


def straggling(seed: int) -> Callable[[], float]:
    """Messages as above, but one in a hundred is lost and comes 15 seconds later by being sent again."""
    rng = np.random.default_rng(seed)
    return lambda: float(rng.uniform(0.0, 0.5)) + 15.0 * bool(rng.random() < 0.01)


def crew(agents: int, *, in_step: bool = True, offset: float = 0.0, forgetful: bool = False) -> list[Agent]:
    """Agents that start ``offset`` seconds after one another."""
    return [Agent(f"a{i}", i * offset, in_step, forgetful) for i in range(agents)]


def _print_script(title: str, phases: list[list[float]]) -> None:
    print(f"\n{title}")
    print(f"  {'reducer':>8}{'paper':>8}{'ours':>8}{'rounds to settle':>18}{'changes':>9}")
    for time, paper, values in zip(TIMES, PAPER, phases, strict=True):
        settled = next((at for at in range(len(values)) if changes(values[at:]) == 0), len(values))
        row = f"  {REDUCER * time:>6.0f} s{paper:>8.0f}{values[-1]:>8.0f}{settled + 1:>18}"
        print(f"{row}{changes(values[-LAST:]):>9}")


def _print_long(title: str, simulation: Simulation, rounds: int = 1_000) -> None:
    values = simulation.run(rounds)
    share = {value: values.count(value) / rounds for value in sorted(set(values))}
    where = ", ".join(f"{value:g} s {part:.1%}" for value, part in share.items())
    waits = [wait for agent in simulation._agents.values() for wait in agent.waits[-20:]]
    late = f"{changes(values[: rounds // 2])} + {changes(values[rounds // 2 :])}"
    print(f"  {title:<58}{late:>9}   {np.mean(waits):>7.1f} s   {where}")


def main() -> None:
    """Print the script and the disturbances."""
    _print_script("two agents, messages at once", script(crew(2)))
    _print_script("two agents, messages take 0 to 0.5 s", script(crew(2), jitter(1)))
    _print_script("eight agents 1.5 s out of step at the start, 0 to 0.5 s", script(crew(8, offset=1.5), jitter(2)))

    print(
        "\n1,000 rounds from 20 s: changes (first + second half), agents' last mean wait, share of rounds at each DSYNC"
    )
    noise = np.random.default_rng(3)
    _print_long("6 s of work", Simulation(crew(2), lambda _: 6.0, jitter(1)))
    _print_long("9.9 s of work, messages up to 0.5 s", Simulation(crew(2), lambda _: 9.9, jitter(1)))
    _print_long("7 to 12 s of work by chance", Simulation(crew(2), lambda _: float(noise.uniform(7, 12)), jitter(1)))
    dead = [*crew(3), Agent("dies", dies=300.0)]
    _print_long("6 s, one of four dies at 300 s", Simulation(dead, lambda _: 6.0, jitter(1)))
    apart = Simulation(crew(2, offset=17.0, in_step=False), lambda _: 6.0, jitter(1))
    _print_long("6 s, 17 s out of step, DSYNC from the report", apart)
    _print_long("6 s, 17 s out of step, from the round", Simulation(crew(2, offset=17.0), lambda _: 6.0, jitter(1)))
    _print_long("1 s, messages take 5 to 6 s", Simulation(crew(2), lambda _: 1.0, jitter(1, 1.0, 5.0)))
    _print_long("6 s, one message in 100 takes 15 s more", Simulation(crew(2), lambda _: 6.0, straggling(1)))
    stale = Simulation(crew(2, forgetful=True), lambda _: 12.0, jitter(1))
    _print_long("12 s, agents that ask for what they have got", stale)


if __name__ == "__main__":
    main()
