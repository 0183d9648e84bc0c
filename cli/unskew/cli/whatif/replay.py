"""Replays a recorded stream of key hashes through policies, batch by batch. Pure: the clock is passed in.

How fresh the counts are that a batch is planned from (``fresh``), as in the Spark library (DESIGN section 7):

- ``previous``: a batch is routed by the plan made from the batches before it. The first batch has no plan and is
  routed by plain hash; it is left out of every policy's figures.
- ``same``: a batch is counted first and routed by a plan made from itself (as in Prompt).
- ``auto``: each batch goes the way that would have been cheapest so far (``unskew.core.freshness.ways``). The first is
  counted, and left out of the figures as with ``previous``.

Routers decide row by row and need no plan; they route and learn from the first batch too, and are measured over the
same batches. Planners get each batch's loads and key counts. A recording has no task times, so policies that need busy
and idle signals (cg) get none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from unskew.cli.whatif.agents import Clock, fleet_of, warm_up
from unskew.cli.whatif.job import Job
from unskew.cli.whatif.measure import Measure, RoutedBatch, Windows
from unskew.cli.whatif.results import BatchResult, PlannedBatch, PolicyResult, Replay
from unskew.core.freshness.batch_price import BatchPrice
from unskew.core.freshness.stream_planner import StreamPlanner
from unskew.core.freshness.ways import Fresh, Ways
from unskew.core.histogram.histogram import Histogram
from unskew.core.histogram.history import History
from unskew.core.keys.hashing import mix
from unskew.core.plan.plan import Plan
from unskew.core.planners import Origin, Planner, make_planner

__all__ = ["cut", "replay", "steps"]

U64 = NDArray[np.uint64]
F64 = NDArray[np.float64]

_SPREAD_SALT = 0x5EED


def cut(rows: int, batch: int) -> tuple[slice, ...]:
    """The batches. A remainder of less than half a batch joins the last one: a handful of rows has no balance."""
    whole, left = divmod(rows, batch)
    ends = [batch * (i + 1) for i in range(whole)]
    if not ends or 2 * left >= batch:
        ends.append(rows)
    ends[-1] = rows
    return tuple(slice(start, end) for start, end in zip([0, *ends], ends, strict=False))


def steps(rows: int, job: Job) -> int:
    """How often ``replay`` calls ``tick``."""
    return len(cut(rows, job.batch)) * (len(job.policies) + len(job.routers))


def replay(
    hashes: U64,
    job: Job,
    origin: Origin,
    clock: Clock,
    tick: Callable[[], None] = lambda: None,
    times: F64 | None = None,
) -> Replay:
    """Route every batch under every policy. There must be at least one row; with ``times``, one a row."""
    parts = cut(len(hashes), job.batch)
    fresh: Fresh = "same" if len(parts) == 1 else job.fresh
    skipped = 0 if fresh == "same" else parts[0].stop
    windows = partial(Windows, job, hashes, times, skipped)
    planners = [_PlannerRun(planner, job, fresh, origin, clock, windows()) for planner in job.planners()]
    routers = [_RouterRun(name, job, clock, windows()) for name in job.routers]
    runs: list[_PlannerRun | _RouterRun] = [*planners, *routers]
    measure, hashed = Measure(job), make_planner("hash", job.partitions, job.seed, job.weights).plan(Histogram.empty())
    plain: list[RoutedBatch] = []
    tops: list[float] = []
    for batch in _batches(hashes, times, parts, job.record, fresh, origin):
        measure.begin(batch.hashes, batch.spread, batch.own.keys)
        plain.append(measure.planned(hashed)[1])
        tops.append(_top_share(batch.own))
        for run in runs:
            run.step(batch, measure)
            tick()
    total = Histogram.from_hashes(hashes)
    counted = plain if fresh == "same" else plain[1:]
    return Replay(
        job=job,
        fresh=fresh,
        rows=len(hashes),
        keys=total.keys,
        heaviest=_top_share(total),
        heaviest_in_batch=median(tops),
        batch_rows=tuple(part.stop - part.start for part in parts),
        hash=tuple(plain),
        policies=tuple(run.result(counted) for run in planners),
        routers=tuple(run.result(counted) for run in routers),
        timed=times is not None,
    )


def _top_share(counts: Histogram) -> float:
    return int(counts.counts.max()) / counts.total


@dataclass(frozen=True, eq=False)
class _Batch:
    number: int
    hashes: U64
    times: F64 | None
    spread: U64
    own: Histogram
    window: Histogram | None
    origin: Origin


def _batches(
    hashes: U64, times: F64 | None, parts: Sequence[slice], history: History, fresh: Fresh, origin: Origin
) -> Iterator[_Batch]:
    """Each batch with the histogram that its plan is made from: None if there was no batch before."""
    spread = mix(np.arange(len(hashes), dtype=np.uint64), _SPREAD_SALT)
    for number, part in enumerate(parts):
        own, before = Histogram.from_hashes(hashes[part]), history
        history = history.add(own)
        used, last = (history, number) if fresh == "same" else (before, number - 1)
        merged = used.merged() if used.batches else None
        part_times = None if times is None else times[part]
        yield _Batch(number, hashes[part], part_times, spread[part], own, merged, replace(origin, batch=last))


class _PlansAhead:
    """The plans of one planner, each made from what ``--fresh previous`` or ``same`` gives it."""

    def __init__(self, planner: Planner, clock: Clock, way: str) -> None:
        self.planner, self._clock, self._way = planner, clock, way
        self._plan: Plan | None = None

    def plan(self, batch: _Batch) -> tuple[Plan, str, float]:
        """The plan, the way that it stands for, and the seconds that it took to make."""
        assert batch.window is not None
        began = self._clock()
        self._plan = self.planner.plan(batch.window, self._plan, origin=batch.origin)
        return self._plan, self._way, self._clock() - began

    def after(self, batch: _Batch, routed: RoutedBatch | None, measure: Measure) -> dict[str, float]:  # noqa: ARG002 - the other plans measure their ways
        """What each way would have cost the batch, without counting it."""
        if routed is None:
            return {}
        return {self._way: routed.cost}


class _PlansByWay:
    """The plans of one planner, each by the way that would have been cheapest so far."""

    def __init__(self, planner: Planner, clock: Clock, job: Job, origin: Origin) -> None:
        self.planner, self._clock, self._count_cost = planner, clock, job.count_cost
        self._ways = Ways(StreamPlanner(origin.stream, job.spec(planner.name, origin.key_types)))
        self._counted: Plan | None = None
        self._seconds = 0.0  # for the plans ahead

    def plan(self, batch: _Batch) -> tuple[Plan, str, float]:
        """The plan, the way that was taken, and the seconds that the plan took to make."""
        way, began = self._ways.next.way, self._clock()
        self._counted = self._ways.plan_counted(batch.own, batch.number)
        if way == "same":
            return self._counted, way, self._clock() - began
        return self._ways.plans[way], way, self._seconds

    def after(self, batch: _Batch, routed: RoutedBatch | None, measure: Measure) -> dict[str, float]:
        """What each way would have cost the batch, without counting it; then the plans for the next one."""
        costs = {}
        if routed is not None and self._counted is not None:
            plans = {**self._ways.plans, "same": self._counted}
            costs = {way: measure.planned(plan)[1].cost for way, plan in plans.items()}
        self._ways.score(batch.own, batch.number, BatchPrice(1.0 / self._ways.cost.even(batch.own), self._count_cost))
        began = self._clock()
        self._ways.plan_ahead(batch.number)
        self._seconds = self._clock() - began
        return costs


class _PlannerRun:
    """One planner over the batches: the plan in force and what was measured."""

    def __init__(
        self, planner: Planner, job: Job, fresh: Fresh, origin: Origin, clock: Clock, windows: Windows
    ) -> None:
        self._job, self._windows = job, windows
        way = "hash" if planner.name == "hash" else fresh
        self._plans = _PlansByWay(planner, clock, job, origin) if way == "auto" else _PlansAhead(planner, clock, way)
        self._plan: Plan | None = None
        self._batches: list[BatchResult] = []
        self._planned: list[PlannedBatch] = []
        self._taken: list[str] = []
        self._costs: dict[str, list[float]] = {}
        self._splits = False

    def step(self, batch: _Batch, measure: Measure) -> None:
        if batch.window is None:
            self._plans.after(batch, None, measure)
            return
        before = self._plan
        plan, way, seconds = self._plans.plan(batch)
        new = before is None or plan.digest != before.digest
        promised = plan.info.loads if new else plan.loads(batch.window).tolist()
        moved = plan.moved_share(before, batch.window) if new and before is not None else None
        at, routed = measure.planned(plan)
        self._windows.add(at)
        self._batches.append(BatchResult(batch.number, len(batch.hashes), routed))
        self._planned.append(PlannedBatch(measure.imbalance(promised), new, moved, seconds))
        self._taken.append(way)
        self._plan, self._splits = plan, self._splits or plan.splits
        for each, cost in self._plans.after(batch, routed, measure).items():
            self._costs.setdefault(each, []).append(cost + self._counting(each))

    def _counting(self, way: str) -> float:
        return self._job.count_cost if way == "same" else 0.0

    def result(self, plain: Sequence[RoutedBatch]) -> PolicyResult:
        if self._plan is None:
            raise RuntimeError(f"policy {self._plans.planner.name} was given no batch")
        asked = self._job.fresh == "auto"
        return PolicyResult(
            policy=self._plans.planner.name,
            splits=self._splits,
            batches=tuple(self._batches),
            relative_makespan=_relative_makespan(self._batches, plain, [self._counting(way) for way in self._taken]),
            windows=self._windows.measured(),
            plan=self._plan,
            planned=tuple(self._planned),
            count_cost=fmean(map(self._counting, self._taken)),
            taken=tuple(self._taken) if asked else (),
            ways={way: fmean(costs) for way, costs in self._costs.items()} if asked else {},
        )


class _RouterRun:
    """One router over the batches."""

    def __init__(self, name: str, job: Job, clock: Clock, windows: Windows) -> None:
        self._name, self._windows, self._rows = name, windows, 0
        warm_up(name, job, clock)
        self._fleet = fleet_of(name, job, clock)
        self._batches: list[BatchResult] = []

    def step(self, batch: _Batch, measure: Measure) -> None:
        at = self._fleet.route(batch.hashes, batch.times)
        self._rows += len(at)
        if batch.window is not None:
            self._windows.add(at)
            self._batches.append(BatchResult(batch.number, len(batch.hashes), measure.routed(at)))

    def result(self, plain: Sequence[RoutedBatch]) -> PolicyResult:
        return PolicyResult(
            policy=self._name,
            splits=any(b.routed.ksr > 1 for b in self._batches),
            batches=tuple(self._batches),
            relative_makespan=_relative_makespan(self._batches, plain, [0.0] * len(self._batches)),
            windows=self._windows.measured(),
            ns_per_tuple=1e9 * self._fleet.seconds / self._rows,
        )


def _relative_makespan(
    batches: Sequence[BatchResult], plain: Sequence[RoutedBatch], counting: Sequence[float]
) -> float:
    """With what counting costs, in even shares of each batch."""
    costs = (b.routed.makespan * (1.0 + count / b.routed.cost) for b, count in zip(batches, counting, strict=True))
    return sum(costs) / sum(routed.makespan for routed in plain)
