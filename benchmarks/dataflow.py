"""A dataflow of partitioners, combiners and reducers in a cost model: what ``dalton_figures`` is made of.

Measured: where each row goes (the real routers and the real fleet of agents), and what a router's ``route`` costs a
row, as CPU time of this process in this run. Simulated: everything else, by ``papers.replay.stages``, of which
the busiest member of the busiest stage sets the pace. No network, no queues, no engine; a second of the paper's windows
is 1,000 rows, so a window of 60 s is 60,000 rows at any rate.

One set of costs for all figures:
- ``UPDATE``, 1 us: one update of a keyed state. A combiner updates every window that a row is in (W / s of them, as
  Flink does), a reducer one a partial aggregate. So a row is 60 times a partial aggregate in windows of 60 s by 1 s;
  from the 3x of key-forwarding on T4SA (Fig. 11), at 64 slots and Fig. 12's 40,000 rows a second, it is some 30.
- ``READ``, 50 ns: what a partitioner spends on a row besides choosing the worker. Section 5.4 sets its size: in windows
  of 60 s by 20 s one partitioner is the bottleneck and two of Dalton's never are, so reading and routing lie between
  one and two times the 54 ns that 56 combiners need for a row.
Only ratios mean anything. Ours route in tens of ns where the paper's took up to 1,100 (FIDELITY), so what a slow router
costs the dataflow is smaller here.

Of P slots, P / 8 are reducers (section 5.1); ``hash`` needs none and combines on all. ``cam``, to the paper a
router of one choice, starts anew with each window, so some keys do need a reducer: it is lent the P / 8.
Key-forwarding (4.2): with one partitioner for Dalton and DAGreedy, with several for Dalton if it syncs every slide.
Hot keys that are on one worker all the same are forwarded too: up to n of Dalton's, up to 100 n of DAGreedy's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from papers.replay import StageCosts, Stages, stages
from unskew.core import make_router
from unskew.core.dalton.qtable import UNTRIED, QTable
from unskew.core.rounds.agent import Agent, Answered
from unskew.core.routers.base import Router, common
from unskew.core.routers.dalton import DaltonRouter
from unskew.simulate.fleet import Fleet
from unskew.simulate.key_streams import zipf_keys, zipf_probabilities

__all__ = [
    "ALGORITHMS", "READ", "SECOND", "SEEDS", "UPDATE",
    "Keys", "Plan", "Run", "alone", "by_seed", "exponent_of", "fleet", "gains", "pace", "pinned", "show", "spans",
    "together", "workers_of",
]  # fmt: skip

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
F64 = NDArray[np.float64]
Route = Callable[[U64], I32]
Cells = Mapping[str, Sequence[Sequence[Stages]]]  # an algorithm's stages, by seed and by column

UPDATE, READ = 1e-6, 50e-9
SEEDS = (1, 2, 3)
SECOND = 1_000  # rows
ALGORITHMS = ("hash", "cam", "shuffle", "pk2", "cm", "dagreedy", "dalton")
WHOLE = ("hash", "cam")
FORWARDS = (*WHOLE, "dagreedy", "dalton")


def exponent_of(heaviest: float, keys: int) -> float:
    """The Zipf exponent whose first key has this share, by halving."""
    low, high = 0.0, 3.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if zipf_probabilities(keys, middle)[0] < heaviest else (low, middle)
    return low


class Keys:
    """Draws from keys with random hashes. ``turn`` makes other keys heavy: none is of the first 1,000 in two turns."""

    def __init__(self, seed: int, many: int = 100_000) -> None:
        self.rng = np.random.default_rng([seed, many])
        self.hashes = self.rng.integers(0, 2**64, many, dtype=np.uint64)

    def draw(self, rows: int, exponent: float, turn: int = 0) -> U64:
        ranks = zipf_keys(self.rng, rows, len(self.hashes), exponent)
        drawn: U64 = np.roll(self.hashes, 1_000 * turn)[ranks]
        return drawn


def together(*sources: U64) -> U64:
    """Sources of as many rows each as one stream: row i is of source i mod P, and goes to partitioner i mod P."""
    return np.ascontiguousarray(np.stack(sources, axis=1).ravel())


@dataclass(frozen=True)
class Plan:
    """A dataflow: window and slide in rows of the whole stream."""

    window: int = 60 * SECOND
    slide: int = SECOND
    slots: int = 64
    partitioners: int = 1

    @property
    def reducers(self) -> int:
        return max(self.slots // 8, 1)

    @property
    def costs(self) -> StageCosts:
        return StageCosts(
            partition=1.0, combine=UPDATE * self.window / self.slide, reduce=UPDATE, partitioners=self.partitioners,
            reducers=self.reducers, window=self.window // self.slide,
        )  # fmt: skip


def workers_of(name: str, plan: Plan) -> int:
    """Combiners: ``hash`` and ``cam`` are given all slots, the others what the reducers leave."""
    return plan.slots if name in WHOLE else plan.slots - plan.reducers


@dataclass(frozen=True, eq=False)
class Run:
    """A stream routed, phase by phase: the worker of each row, and seconds a row by phase and partitioner."""

    plan: Plan
    keys: U64
    ends: tuple[int, ...]
    workers: I32
    n: int
    seconds: F64
    forward: bool

    @property
    def stages(self) -> Stages:
        """Busy seconds, with what each partitioner was measured to take in each phase."""
        slides = np.arange(len(self.keys)) // self.plan.slide
        model = stages(self.keys, self.workers, slides, replace(self.plan.costs, forward=self.forward), self.n)
        phase = np.searchsorted(self.ends, np.arange(len(model.rows)) * self.plan.slide, side="right")
        return replace(model, partition=model.partition * (READ + self.seconds[phase]))


def spans(run: Run, skip: int = 60 * SECOND) -> list[Stages]:
    """The stages of each phase; ``skip`` rows of the first are the warm-up."""
    model, cuts = run.stages, [skip, *run.ends]
    return [_part(model, a // run.plan.slide, b // run.plan.slide) for a, b in pairwise(cuts)]


def _part(of: Stages, start: int, end: int) -> Stages:
    return Stages(of.rows[start:end], of.partition[start:end], of.combine[start:end], of.reduce[start:end])


# -- routing --------------------------------------------------------------------------------------------------


def alone(name: str, phases: Sequence[U64], plan: Plan) -> Run:
    """Partitioners that know nothing of each other. A row of one is ``partitioners`` rows of the stream."""
    n, many = workers_of(name, plan), plan.partitioners
    window, slide = plan.window // many, plan.slide // many
    make_router(name, n, 7, window, slide).route(phases[0][:2_000])  # compiles
    routers = [make_router(name, n, 7 + j, window, slide).route for j in range(many)]
    forward = name in WHOLE or (name in FORWARDS and many == 1)
    return _run(plan, phases, routers, n, forward=forward)


def _run(plan: Plan, phases: Sequence[U64], routers: Sequence[Route], n: int, *, forward: bool) -> Run:
    outs, seconds, many = [], np.zeros((len(phases), len(routers))), len(routers)
    for phase, keys in enumerate(phases):
        outs.append(np.empty(len(keys), np.int32))
        for j, route in enumerate(routers):
            mine = np.ascontiguousarray(keys[j::many])
            started = time.process_time()
            outs[-1][j::many] = route(mine)
            seconds[phase, j] = (time.process_time() - started) / len(mine)
    ends = tuple(np.cumsum([len(keys) for keys in phases]).tolist())
    return Run(plan, np.concatenate(phases), ends, np.concatenate(outs), n, seconds, forward)


@dataclass(eq=False)
class Watch:
    """CPU seconds of what agents do for a sync: what a call that sends a report takes longer, and taking an answer."""

    plain: list[float] = field(default_factory=list)
    sending: list[float] = field(default_factory=list)
    taking: list[float] = field(default_factory=list)

    def on(self, agent: Agent) -> None:
        handle = agent.handle

        def timed(event: Any, now: float) -> Any:
            started = time.process_time()
            actions = handle(event, now)
            kind = self.taking if isinstance(event, Answered) else self.sending if len(actions) > 1 else self.plain
            kind.append(time.process_time() - started)
            return actions

        agent.handle = timed  # type: ignore[method-assign]

    @property
    def sync(self) -> float:
        if not self.taking:
            return 0.0
        median = (float(np.median(part)) for part in (self.sending, self.plain, self.taking))
        sending, plain, taking = median
        return max(sending - plain, 0.0) + taking


def fleet(phases: Sequence[U64], plan: Plan, dsync: int | None, beside: Run | None = None) -> tuple[Run, float]:
    """Cooperating partitioners that sync every ``dsync`` rows (None: never), and seconds that a sync takes of an agent.

    What routing costs is that of routers alone on the same stream (``beside``, else measured here): the fleet hands
    its agents short pieces, where calls dominate.
    """
    n = workers_of("dalton", plan)
    agents = Fleet(plan.partitioners, n, dsync, window=plan.window, slide=plan.slide)
    watch = Watch()
    for agent in agents.partners:
        watch.on(agent)
    out = np.concatenate([agents.route(keys) for keys in phases])
    run = alone("dalton", phases, plan) if beside is None else beside
    share = 0.0 if dsync is None else watch.sync / (dsync / SECOND)
    forward = dsync is not None and dsync <= plan.slide
    return replace(run, workers=out, seconds=run.seconds * (1.0 + share), forward=forward), watch.sync


def pinned(phases: Sequence[U64], plan: Plan, hot: U64, shares: F64, *, forward: bool) -> Run:
    """Dalton with its hot keys given: exactly these from the first row to the last, whatever their frequency.

    An agent that took one answer with them, whose L is far more than will ever come, so that no other key gets hot,
    and whose interval never ends, so that none expires; ``share`` is larger by as much, so that ``split_cap`` is what
    it would be.
    """
    n, rows, far = workers_of("dalton", plan), sum(len(keys) for keys in phases), 250

    def learner() -> Any:
        one = DaltonRouter(common(n, 7, plan.window, plan.slide), share=4.0 * far, frequencies="map").partner(0)
        one.rule = one.rule._replace(room=max(one.rule.room, len(hot)))
        often = np.round(shares * rows).astype(np.int64)
        blank = np.zeros((len(hot), n))
        table = QTable.of(hot, blank + UNTRIED, often, blank.astype(np.bool_))
        one.adopt(table, frozenset(), far * rows, np.zeros(n, np.int64), 0)
        return one

    assert n < far
    Router("dalton", learner()).route(phases[0][:2_000])  # compiles
    return _run(plan, phases, [Router("dalton", learner()).route], n, forward=forward)


# -- tables -----------------------------------------------------------------------------------------------------


def by_seed(run: Callable[[int], Sequence[Stages]]) -> list[Sequence[Stages]]:
    return [run(seed) for seed in SEEDS]


def pace(seeds: Sequence[Stages]) -> float:
    """M rows a second, mean over seeds."""
    return float(np.mean([one.sustained for one in seeds])) / 1e6


def show(cells: Cells, columns: Sequence[str]) -> None:
    """M rows a second, and the stage that sets the pace on the first seed."""
    print(f"  {'':24}" + "".join(f"{column:>19}" for column in columns))
    for name, seeds in cells.items():
        row = [f"{pace(column):17.3f} {column[0].bottleneck[0]}" for column in zip(*seeds, strict=True)]
        print(f"  {name:24}" + "".join(row))


def gains(cells: Cells, columns: Sequence[str], ours: str = "dalton") -> str:
    """Dalton as a multiple of the best and the worst other, column by column."""
    out = []
    for at, column in enumerate(columns):
        mine = pace([seed[at] for seed in cells[ours]])
        others = {name: pace([seed[at] for seed in seeds]) for name, seeds in cells.items() if name != ours}
        best, worst = max(others, key=others.__getitem__), min(others, key=others.__getitem__)
        out.append(f"{column}: {mine / others[best]:.2f} ({best}) to {mine / others[worst]:.1f} ({worst})")
    return "  ours, dalton over the best and the worst other:\n    " + "\n    ".join(out)
