"""Replays a recorded stream of key hashes through planning policies, batch by batch. Pure: the clock is passed in.

Two ways to plan (``fresh``), those of the Spark library (DESIGN section 7):

- ``previous``: a batch is routed by the plan made from the batches before it. The first batch finds no plan and
  goes by plain hash; it teaches, and is left out of every policy's figures alike.
- ``same``: a batch is counted first and routed by a plan made from itself (what Prompt does).

Measured on the rows as they were routed, not on what the plans promised: imbalance, replication, block metrics and
predicted makespan come from ``unskew.core.quality``; the makespan is the cost model that policy ``auto`` decides by.
Batches report their loads and key counts back to the planners; there are no task times in a recording, so policies
that live on busy and idle signals (cg) get none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from unskew.core.hashing import mix
from unskew.core.histogram import Histogram
from unskew.core.history import History
from unskew.core.plan import Plan
from unskew.core.planners import Feedback, Origin, Planner, make_planner
from unskew.core.quality import LinearCost, cardinalities, load_imbalance, loads, makespan

__all__ = ["BatchResult", "Fresh", "Job", "PolicyResult", "Replay", "Routed", "cut", "equals", "replay", "steps"]

U64 = NDArray[np.uint64]
F64 = NDArray[np.float64]
Fresh = Literal["previous", "same"]

_SPREAD_SALT = 0x5EED
_ABOUT = 1.02  # the makespan is a model: within 2 % of each other it does not decide
_COST = LinearCost()


@dataclass(frozen=True)
class Job:
    """What to replay. ``window`` is the number of batches that a planner sees."""

    policies: tuple[str, ...]
    partitions: int = 16
    batch: int = 100_000
    window: int = 1
    weights: tuple[float, ...] | None = None
    seed: int = 7
    fresh: Fresh = "previous"

    def planners(self) -> tuple[Planner, ...]:
        """One planner a policy; a policy, weight or number that is not allowed is refused here."""
        return tuple(make_planner(name, self.partitions, self.seed, self.weights) for name in self.policies)


@dataclass(frozen=True)
class Routed:
    """One batch as it was routed. Where partitions have weights, loads are compared after dividing by them; without,
    ``bsi``, ``bci`` and ``ksr`` are Prompt's (``quality.block_metrics``)."""

    loads: tuple[int, ...]
    keys: tuple[int, ...]
    imbalance: float
    bsi: float
    bci: float
    ksr: float
    makespan: float


@dataclass(frozen=True)
class BatchResult:
    """One batch under one policy. ``moved`` is set where a new plan replaced another."""

    number: int
    rows: int
    routed: Routed
    planned: float
    new_plan: bool
    moved: float | None
    build_seconds: float


@dataclass(frozen=True, eq=False)
class PolicyResult:
    """All counted batches under one policy, and the last plan."""

    policy: str
    splits: bool
    batches: tuple[BatchResult, ...]
    relative_makespan: float
    plan: Plan

    @property
    def imbalance(self) -> float:
        """Largest load over mean load, in the median batch."""
        return median(b.routed.imbalance for b in self.batches)

    @property
    def worst_imbalance(self) -> float:
        return max(b.routed.imbalance for b in self.batches)

    @property
    def planned_imbalance(self) -> float:
        """What the plans promised on the rows they were made from, in the median batch."""
        return median(b.planned for b in self.batches)

    @property
    def replication(self) -> float:
        """(key, partition) pairs over keys, in the median batch. It is Prompt's KSR too."""
        return median(b.routed.ksr for b in self.batches)

    @property
    def bsi(self) -> float:
        return median(b.routed.bsi for b in self.batches)

    @property
    def bci(self) -> float:
        return median(b.routed.bci for b in self.batches)

    @property
    def moved_share(self) -> float:
        """The share of the rows whose place changed, mean of the plans that replaced another."""
        moved = [b.moved for b in self.batches if b.moved is not None]
        return fmean(moved) if moved else 0.0

    @property
    def moved_in_all(self) -> float:
        return sum(b.moved for b in self.batches if b.moved is not None)

    @property
    def plans(self) -> int:
        """Plans that route otherwise than the one before."""
        return sum(b.new_plan for b in self.batches)

    @property
    def build_ms(self) -> float:
        return 1000 * median(b.build_seconds for b in self.batches)


@dataclass(frozen=True, eq=False)
class Replay:
    """What came out, and of what. ``fresh`` may differ from what was asked: one batch can only plan for itself."""

    job: Job
    fresh: Fresh
    rows: int
    keys: int
    heaviest: float
    heaviest_in_batch: float
    batch_rows: tuple[int, ...]
    hash: tuple[Routed, ...]
    policies: tuple[PolicyResult, ...]

    @property
    def counted(self) -> tuple[int, ...]:
        """The batches that the figures are over."""
        return tuple(range(1 if self.fresh == "previous" else 0, len(self.batch_rows)))


def equals(policies: Sequence[PolicyResult]) -> list[PolicyResult]:
    """The policies of about the shortest makespan, best first: the one that moves least and makes fewest plans."""
    bound = _ABOUT * min(p.relative_makespan for p in policies)
    near = [p for p in policies if p.relative_makespan <= bound]
    return sorted(near, key=lambda p: (p.moved_in_all, p.plans, p.relative_makespan))


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
    return len(cut(rows, job.batch)) * len(job.policies)


def replay(
    hashes: U64,
    job: Job,
    origin: Origin,
    clock: Callable[[], float],
    tick: Callable[[], None] = lambda: None,
) -> Replay:
    """Route every batch under every policy. There must be at least one row."""
    parts = cut(len(hashes), job.batch)
    fresh: Fresh = "same" if len(parts) == 1 else job.fresh
    lanes = [_Lane(planner, clock) for planner in job.planners()]
    measure = _Measure(job, make_planner("hash", job.partitions, job.seed, job.weights).plan(Histogram.empty()))
    plain: list[Routed] = []
    tops: list[float] = []
    for batch in _batches(hashes, parts, job.window, fresh, origin):
        measure.begin(batch)
        plain.append(measure.routed(measure.plain))
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
        policies=tuple(lane.result(counted) for lane in lanes),
    )


def _top_share(counts: Histogram) -> float:
    return int(counts.counts.max()) / counts.total


@dataclass(frozen=True, eq=False)
class _Batch:
    number: int
    hashes: U64
    spread: U64
    own: Histogram
    window: Histogram | None
    origin: Origin


def _batches(hashes: U64, parts: Sequence[slice], window: int, fresh: Fresh, origin: Origin) -> Iterator[_Batch]:
    """Each batch with the histogram that its plan is to be made from: None where nothing has been seen yet."""
    record = History(depth=window)
    spread = mix(np.arange(len(hashes), dtype=np.uint64), _SPREAD_SALT)
    for number, part in enumerate(parts):
        own, before = Histogram.from_hashes(hashes[part]), record
        record = record.add(own)
        used, last = (record, number) if fresh == "same" else (before, number - 1)
        seen = used.merged() if used.batches else None
        yield _Batch(number, hashes[part], spread[part], own, seen, replace(origin, batch=last))


class _Measure:
    """Routes and measures a batch, once per plan that routes differently."""

    def __init__(self, job: Job, plain: Plan) -> None:
        self.plain = plain
        self._n = job.partitions
        weights = np.ones(job.partitions) if job.weights is None else np.asarray(job.weights, np.float64)
        self._relative: F64 = weights / weights.mean()
        self._known: dict[str, Routed] = {}

    def begin(self, batch: _Batch) -> None:
        self._batch = batch
        self._known = {}

    def imbalance(self, rows: Sequence[int]) -> float:
        return load_imbalance(rows, self._relative)

    def routed(self, plan: Plan) -> Routed:
        if plan.digest not in self._known:
            self._known[plan.digest] = self._route(plan)
        return self._known[plan.digest]

    def _route(self, plan: Plan) -> Routed:
        hashes, n = self._batch.hashes, self._n
        at = plan.route(hashes, self._batch.spread)
        rows, keys, distinct = loads(at, n), cardinalities(hashes, at, n), self._batch.own.keys
        fragments = int(keys.sum())
        imbalance = load_imbalance(rows, self._relative)
        return Routed(
            loads=tuple(rows.tolist()),
            keys=tuple(keys.tolist()),
            imbalance=imbalance,
            bsi=(imbalance - 1) * len(hashes) / n,
            bci=(load_imbalance(keys, self._relative) - 1) * fragments / n,
            ksr=fragments / distinct,
            makespan=makespan(_COST.tasks(rows, keys) / self._relative)
            + _COST.per_fragment * (fragments - distinct) / n,
        )


class _Lane:
    """One policy on its way through the batches: the plan in force and what has been measured."""

    def __init__(self, planner: Planner, clock: Callable[[], float]) -> None:
        self._planner, self._clock = planner, clock
        self._plan: Plan | None = None
        self._feedback: Feedback | None = None
        self._results: list[BatchResult] = []
        self._splits = False

    def step(self, batch: _Batch, measure: _Measure) -> None:
        if batch.window is None:
            return
        before, started = self._plan, self._clock()
        plan = self._planner.plan(batch.window, before, self._feedback, batch.origin)
        seconds = self._clock() - started
        new = before is None or plan.digest != before.digest
        promised = plan.info.loads if new else plan.loads(batch.window).tolist()
        routed = measure.routed(plan)
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
        )
