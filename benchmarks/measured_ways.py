"""The ways that ``measured_rewards`` compares: how each places a batch, given what workers reported of the batches
before it. They are made of the code that ships; what is only here is how measured seconds get into it.

``capacities`` is the measurement: rows over seconds of each worker, the last batches with the more weight, over the
median worker's. What differs by less than 15 % counts as equal, so that noise makes no plan uneven.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from unskew.core import make_planner
from unskew.core.dalton.batch_learner import learning, place_hot_keys, workers_within_budget
from unskew.core.dalton.qtable import UNTRIED, QTable
from unskew.core.histogram.histogram import Histogram, host_of
from unskew.core.limits import host_bits
from unskew.core.plan.build import Placement, build_plan
from unskew.core.plan.plan import Plan, PlanInfo
from unskew.core.planners import Feedback
from unskew.core.planners.base import common
from unskew.core.planners.hashed import hash_tail
from unskew.core.planners.planner_view import PlannerView
from unskew.core.rounds.agent import Agent, AgentSettings, AgentTick, Answered, Routed, SendReport, Tuples
from unskew.core.rounds.merge import merge
from unskew.core.rounds.messages import Answer, Report
from unskew.core.rounds.partition_agent import RoutingChoice, decide, report_of
from unskew.core.stream_spec import BatchWork, Work
from unskew.service.engine.batches import feedback_of

__all__ = ["NULLS", "Batch", "Place", "Reports", "ways"]

SEED, TASKS = 7, 4
HISTORY, DECAY, ALIKE, MOST = 8, 0.5, 1.15, 20.0
NULLS = {
    "agents, seconds": ("agents, seconds, reset", "agents, seconds, explore"),
    "tasks, seconds": ("tasks, alone",),
    "dalton, seconds": ("dalton, seconds, reset", "dalton, seconds, explore"),
    "dalton, capacities": ("dalton, capacities, reset",),
}
"""Ways whose values move by measured seconds, and the same with nothing to remember, or all at random."""

U64 = NDArray[np.uint64]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch's rows. ``costs`` of them and ``speeds`` of the workers are what no way knows, but those of ``truth``."""

    number: int
    keys: U64
    spread: U64
    costs: F64
    speeds: F64
    histogram: Histogram
    weighed: Histogram

    @property
    def ideal(self) -> float:
        """The least seconds that the batch can take."""
        return float(self.costs.sum() / self.speeds.sum())

    def seconds(self, at: I32) -> F64:
        """What each worker takes for the rows that went to it."""
        return np.asarray(np.bincount(at, weights=self.costs, minlength=len(self.speeds)) / self.speeds)


@dataclass(frozen=True, eq=False)
class Reports:
    """Rows and seconds of each worker, of the last batches."""

    rows: tuple[I64, ...] = ()
    seconds: tuple[F64, ...] = ()

    def plus(self, rows: I64, seconds: F64) -> Reports:
        return Reports((*self.rows, rows)[-HISTORY:], (*self.seconds, seconds)[-HISTORY:])

    def capacities(self, n: int, batches: int = HISTORY) -> F64:
        """The rate of each worker over the median one's; 1 where nothing was reported."""
        rows, seconds = np.zeros(n), np.zeros(n)
        for done, took in zip(self.rows[-batches:], self.seconds[-batches:], strict=True):
            timed = took > 0
            rows, seconds = DECAY * rows + done * timed, DECAY * seconds + took * timed
        of = seconds > 0
        if not of.any():
            return np.ones(n)
        rate = rows[of] / seconds[of]
        relative = np.ones(n)
        relative[of] = np.clip(rate / np.median(rate), 1 / MOST, MOST)
        return np.where((relative <= ALIKE) & (relative >= 1 / ALIKE), 1.0, relative)

    def feedback(self) -> Feedback | None:
        """What the service makes of the last reports: CG's signals."""
        if not self.rows:
            return None
        both = zip(self.rows[-1].tolist(), self.seconds[-1].tolist(), strict=True)
        return feedback_of(
            [BatchWork(tuple(Work(at, rows, seconds=seconds) for at, (rows, seconds) in enumerate(both)))]
        )


Place = Callable[[Batch, Reports], I32]
Weights = Callable[[Batch, Reports], "F64 | None"]


def ways(n: int, rows: int) -> dict[str, Place]:
    """Each way by its name, new, for so many workers and batches of so many rows."""
    return {
        "hash": planned("hash", n),
        "balanced": planned("balanced", n),
        "auto": Replanned("auto", n),
        "kip": Replanned("kip", n),
        "agents, loads": Agents(n, rows),
        "agents, seconds": Agents(n, rows, seconds=True),
        "agents, seconds, reset": Agents(n, rows, seconds=True, forgets=True),
        "agents, seconds, explore": Agents(n, rows, seconds=True, epsilon=1.0),
        "tasks, loads": Tasks(n),
        "tasks, seconds": Tasks(n, seconds=True),
        "tasks, alone": Tasks(n, alone=True),
        "dalton, loads": Dalton(n),
        "dalton, seconds": Dalton(n, seconds=True),
        "dalton, seconds, reset": Dalton(n, seconds=True, forgets=True),
        "dalton, seconds, explore": Dalton(n, seconds=True, epsilon=1.0),
        "dalton, capacities": Dalton(n, seconds=True, weights=True),
        "dalton, capacities, reset": Dalton(n, seconds=True, weights=True, forgets=True),
        "balanced, capacities": planned("balanced", n, lambda _, reports: reports.capacities(n)),
        "balanced, last capacities": planned("balanced", n, lambda _, reports: reports.capacities(n, 1)),
        "cg, signals": Replanned("cg", n),
        "cg, signals, alpha 10": Replanned("cg", n, alpha=10),
        "truth: speeds": planned("balanced", n, lambda batch, _: batch.speeds),
        "truth: weight": planned("balanced", n, weighed=True),
    }


def routed(plan: Plan, batch: Batch) -> I32:
    return plan.route(batch.keys, batch.spread if plan.splits else None)


def planned(name: str, n: int, weights: Weights | None = None, *, weighed: bool = False) -> Place:
    """By a plan made from the batch's own counts, with these weights of the workers."""

    def place(batch: Batch, reports: Reports) -> I32:
        planner = make_planner(name, n, weights=None if weights is None else weights(batch, reports))
        return routed(planner.plan(batch.weighed if weighed else batch.histogram), batch)

    return place


class Replanned:
    """By a plan that knows the one before it, and the signals of the workers."""

    def __init__(self, name: str, n: int, **parameters: int) -> None:
        self.planner = make_planner(name, n, **parameters)
        self.plan: Plan | None = None

    def __call__(self, batch: Batch, reports: Reports) -> I32:
        self.plan = self.planner.plan(batch.histogram, self.plan, reports.feedback())
        return routed(self.plan, batch)


@dataclass(eq=False)
class Dalton:
    """Dalton's learner on a batch's counts, as the planner ``dalton`` runs it. ``seconds``: its rewards compare loads
    in the seconds that they will take, by what was measured; ``weights``: so are the keys dealt that are not hot."""

    n: int
    seconds: bool = False
    weights: bool = False
    forgets: bool = False
    epsilon: float = 0.1
    table: QTable = field(init=False)

    def __post_init__(self) -> None:
        self.table = QTable.empty(self.n)

    def __call__(self, batch: Batch, reports: Reports) -> I32:
        n, settings, histogram = self.n, learning(epsilon=self.epsilon), batch.histogram
        capacities = reports.capacities(n)
        tail = hash_tail(common(n, weights=capacities if self.weights else None))
        view = PlannerView.of(histogram, n, int((histogram.counts * n >= histogram.total).sum()), 1.0)
        homes = tail.take(host_of(view.hashes, host_bits(n)))
        most = workers_within_budget(settings, view.rows, view.total, n)
        load = np.bincount(tail, view.host_rows, n).astype(np.int64)
        relative = capacities / capacities.mean() if self.seconds else np.ones(n)
        rule = settings.rule(n, np.uint64(0), windowed=True)
        before = QTable.empty(n) if self.forgets else self.table
        done = place_hot_keys(view.hashes, view.rows, homes, most, load, relative, before, rule, SEED)
        self.table = done.table
        key, at = np.nonzero(done.placed)
        reasons = np.zeros(len(view.hashes), np.uint8)
        placement = Placement(tail, view.hashes, key, at.astype(np.int32), done.placed[key, at], ("hot",), reasons)
        return routed(build_plan(placement, n, PlanInfo()), batch)


def answer_to(reports: list[Report], before: Answer | None, epoch: int, dsync: float) -> Answer:
    """The round's answer, as the service makes it."""
    pool, names = merge(reports, before), tuple(sorted(one.name for one in reports))
    return Answer(epoch, names, pool.table, pool.records, pool.unsure, pool.loads, dsync, pool.split)


class Agents:
    """Agents that route tuple by tuple and report after each batch. ``seconds``: the loads in an answer, which their
    rewards count with their own, are the seconds that they took, in rows of the mean worker."""

    def __init__(
        self, n: int, rows: int, *, seconds: bool = False, forgets: bool = False, **parameters: object
    ) -> None:
        self.n, self.seconds, self.forgets = n, seconds, forgets
        window = float(max(rows // TASKS, 1))
        self.agents = [
            Agent(AgentSettings(f"a{i}", n, 1.0, i, window=window, slide=max(window // 25, 1.0), parameters=parameters))
            for i in range(TASKS)
        ]
        for agent in self.agents:
            agent.handle(AgentTick(), 0.0)
        self.answer: Answer | None = None

    def __call__(self, batch: Batch, reports: Reports) -> I32:
        workers, sent = [], []
        for agent, keys in zip(self.agents, np.array_split(batch.keys, TASKS), strict=True):
            if self.answer is not None:
                agent.handle(Answered(self._answer_for_agents(self.answer, reports), 0.0), float(batch.number))
            for action in agent.handle(Tuples(np.ascontiguousarray(keys)), batch.number + 1.0):
                if isinstance(action, Routed):
                    workers.append(action.workers)
                elif isinstance(action, SendReport):
                    sent.append(action.report)
        self.answer = answer_to(sent, self.answer, batch.number + 1, 1.0)
        return np.concatenate(workers)

    def _answer_for_agents(self, answer: Answer, reports: Reports) -> Answer:
        table, loads = answer.table, answer.loads
        if self.seconds:
            capacities = reports.capacities(self.n)
            loads = np.round(loads * capacities.mean() / capacities).astype(np.int64)
        if self.forgets:
            table = QTable(table.hashes, np.full(table.values.shape, UNTRIED), table.rows, table.held)
        return replace(answer, table=table, loads=loads)


@dataclass(eq=False)
class Tasks:
    """Tasks that learn in rounds (``learn=True``). ``seconds``: the values of a round move by the seconds of its whole
    batch, as they were measured, and not by the loads that each task sees."""

    n: int
    seconds: bool = False
    alone: bool = False
    answer: Answer | None = None
    before: QTable | None = None

    def __call__(self, batch: Batch, reports: Reports) -> I32:
        pin = RoutingChoice(self.n, table=QTable.empty(self.n), batch=batch.number, alike=True)
        if self.answer is not None and not self.alone:
            pin = pin.after(self.answer)
            if self.seconds:
                pin = replace(pin, table=self._rewarded(self.answer.table, reports.seconds[-1]))
        self.before = pin.table
        parts = zip(np.array_split(batch.keys, TASKS), np.array_split(batch.spread, TASKS), strict=True)
        done = [decide(pin, keys, spread) for keys, spread in parts]
        sent = [
            report_of(pin, one, agent=f"a/{task}", session=1, seq=batch.number + 1, dsync=20.0)
            for task, one in enumerate(done)
        ]
        self.answer = answer_to(sent, self.answer, batch.number + 1, 20.0)
        return np.concatenate([one.partitions for one in done])

    def _rewarded(self, table: QTable, took: F64) -> QTable:
        """Dalton's Eq. 3 to 5 with seconds in place of loads, half a step for a batch."""
        excess = (took - took.mean()) / np.maximum(took, took.mean())
        reward = -0.5 * (excess[None] + table.held.sum(axis=1, keepdims=True) / self.n)
        values = np.full(table.values.shape, UNTRIED)
        if self.before is not None and len(self.before):
            place = np.minimum(np.searchsorted(self.before.hashes, table.hashes), len(self.before) - 1)
            known = self.before.hashes[place] == table.hashes
            values[known] = self.before.values[place[known]]
        moved = np.where(values == UNTRIED, reward, values + 0.5 * (reward - values))
        return QTable(table.hashes, np.where(table.held, moved, values), table.rows, table.held)
