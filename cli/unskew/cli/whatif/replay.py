"""Replays a recorded stream of key hashes through policies, batch by batch. Pure: the clock is passed in.

Two ways to plan (``fresh``), those of the Spark library (DESIGN section 7):

- ``previous``: a batch is routed by the plan made from the batches before it. The first batch finds no plan and
  goes by plain hash; it teaches, and is left out of every policy's figures alike.
- ``same``: a batch is counted first and routed by a plan made from itself (what Prompt does).

Routers decide row by row and need no plan; they route and learn from the first batch too, and are counted over the same
batches. Planners are told each batch's loads and key counts; there are no task times in a recording, so policies
that live on busy and idle signals (cg) get none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from unskew.cli.whatif.agents import Clock, fleet_of, warm_up
from unskew.cli.whatif.job import Fresh, Job
from unskew.cli.whatif.measure import Measure, Routed, Windows
from unskew.cli.whatif.results import BatchResult, PolicyResult, Replay, RoutedBatch, RouterResult
from unskew.core.histogram.histogram import Histogram
from unskew.core.histogram.history import History
from unskew.core.keys.hashing import mix
from unskew.core.plan.plan import Plan
from unskew.core.planners import Feedback, Origin, Planner, make_planner

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
    planners = [_Lane(planner, clock, Windows(job, hashes, times, skipped)) for planner in job.planners()]
    routers = [_RouterLane(name, job, clock, Windows(job, hashes, times, skipped)) for name in job.routers]
    lanes: list[_Lane | _RouterLane] = [*planners, *routers]
    measure, hashed = Measure(job), make_planner("hash", job.partitions, job.seed, job.weights).plan(Histogram.empty())
    plain: list[Routed] = []
    tops: list[float] = []
    for batch in _batches(hashes, times, parts, job.window, fresh, origin):
        measure.begin(batch.hashes, batch.spread, batch.own.keys)
        plain.append(measure.planned(hashed)[1])
        tops.append(_top_share(batch.own))
        for lane in lanes:
            lane.step(batch, measure)
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
        policies=tuple(lane.result(counted) for lane in planners),
        routers=tuple(lane.result(counted) for lane in routers),
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
    hashes: U64, times: F64 | None, parts: Sequence[slice], window: int, fresh: Fresh, origin: Origin
) -> Iterator[_Batch]:
    """Each batch with the histogram that its plan is to be made from: None where nothing has been seen yet."""
    record = History(depth=window)
    spread = mix(np.arange(len(hashes), dtype=np.uint64), _SPREAD_SALT)
    for number, part in enumerate(parts):
        own, before = Histogram.from_hashes(hashes[part]), record
        record = record.add(own)
        used, last = (record, number) if fresh == "same" else (before, number - 1)
        seen = used.merged() if used.batches else None
        when = None if times is None else times[part]
        yield _Batch(number, hashes[part], when, spread[part], own, seen, replace(origin, batch=last))


class _Lane:
    """One policy on its way through the batches: the plan in force and what has been measured."""

    def __init__(self, planner: Planner, clock: Clock, windows: Windows) -> None:
        self._planner, self._clock, self._windows = planner, clock, windows
        self._plan: Plan | None = None
        self._feedback: Feedback | None = None
        self._results: list[BatchResult] = []
        self._splits = False

    def step(self, batch: _Batch, measure: Measure) -> None:
        if batch.window is None:
            return
        before, started = self._plan, self._clock()
        plan = self._planner.plan(batch.window, before, self._feedback, batch.origin)
        seconds = self._clock() - started
        new = before is None or plan.digest != before.digest
        promised = plan.info.loads if new else plan.loads(batch.window).tolist()
        at, routed = measure.planned(plan)
        self._windows.add(at)
        self._results.append(
            BatchResult(
                number=batch.number,
                rows=len(batch.hashes),
                routed=routed,
                planned=measure.imbalance(promised),
                new_plan=new,
                moved=plan.info.moved_rows if new and before is not None else None,
                build_seconds=seconds,
            )
        )
        self._plan, self._splits = plan, self._splits or plan.splits
        self._feedback = Feedback(loads=np.array(routed.loads), keys=np.array(routed.keys))

    def result(self, plain: Sequence[Routed]) -> PolicyResult:
        if self._plan is None:
            raise RuntimeError(f"policy {self._planner.name} saw no batch")
        mine = sum(b.routed.makespan for b in self._results)
        return PolicyResult(
            policy=self._planner.name,
            splits=self._splits,
            batches=tuple(self._results),
            relative_makespan=mine / sum(routed.makespan for routed in plain),
            plan=self._plan,
            windows=self._windows.measured(),
        )


class _RouterLane:
    """One router on its way through the batches."""

    def __init__(self, name: str, job: Job, clock: Clock, windows: Windows) -> None:
        self._name, self._windows, self._rows = name, windows, 0
        warm_up(name, job, clock)
        self._fleet = fleet_of(name, job, clock)
        self._results: list[RoutedBatch] = []

    def step(self, batch: _Batch, measure: Measure) -> None:
        at = self._fleet.route(batch.hashes, batch.times)
        self._rows += len(at)
        if batch.window is not None:
            self._windows.add(at)
            self._results.append(RoutedBatch(batch.number, len(batch.hashes), measure.routed(at)))

    def result(self, plain: Sequence[Routed]) -> RouterResult:
        return RouterResult(
            policy=self._name,
            splits=any(b.routed.ksr > 1 for b in self._results),
            batches=tuple(self._results),
            relative_makespan=sum(b.routed.makespan for b in self._results) / sum(r.makespan for r in plain),
            ns_per_tuple=1e9 * self._fleet.seconds / self._rows,
            windows=self._windows.measured(),
        )
