"""A stream replayed against queues: a cost model in time slots, not a cluster.

Rows arrive at given times, a routing sends each to a worker, and each worker is one first-come first-served queue
with a capacity in rows a second that may change at set times (CG, section 3: the supermarket model with fixed service
times and no network). Finish times are exact: a worker's capacity adds up to the work it can have done by a moment,
and a row is finished when that reaches the rows before it plus one. After each slot the routing receives the slot's
figures and may react: that is CG's loop of signals (``Grouped``).

What is measured, a slot and a worker: rows that arrived; the queue L at the slot's end (rows not yet finished); and the
utilisation U = (queue at its start + arrived) / rows it can do in the slot. That is CG's L / c with L taken before
the slot's service, so that a balanced worker at 80 % load has U = 0.8 and one that piles up goes beyond 1; with the
queue *after* service every worker below 1 would have 0, and thresholds of 0.75 and 0.85 could not be told apart.

``stages`` is the other question (Dalton's figures): which rate could partitioners, combiners and reducers bear? Each
member's busy seconds are counted from stated costs, and the busiest sets the pace. It knows no queue and no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from papers.grouping import Grouping
from papers.grouping_events import GroupingRules, Moved
from unskew.core.arrays.mixing import mix
from unskew.core.errors import ConfigError
from unskew.core.grouping.signals import sense
from unskew.core.kernels.base import kernel
from unskew.core.routers.base import Router
from unskew.core.routers.cg import ConsistentGrouping
from unskew.core.routers.registry import make_router

__all__ = [
    "Capacities",
    "Grouped",
    "Routing",
    "Slot",
    "Sources",
    "StageCosts",
    "Stages",
    "Trace",
    "arrivals",
    "replay",
    "stages",
]

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
F64 = NDArray[np.float64]


def arrivals(rows: int, rate: float) -> F64:
    """One row every 1 / rate seconds from 0 on, as CG's model has it."""
    if not 0.0 < rate < np.inf:
        raise ConfigError("rate", rate, "rows a second above 0")
    return np.arange(rows) / rate


class Capacities:
    """Rows a second of each worker: ``rates[k]`` from ``since[k]`` on, the first of which is 0."""

    def __init__(self, rates: ArrayLike, since: ArrayLike = (0.0,)) -> None:
        self.rates = np.atleast_2d(np.asarray(rates, np.float64))
        self.since = np.atleast_1d(np.asarray(since, np.float64))
        if self.rates.ndim != 2 or len(self.rates) != len(self.since) or not self.rates.size:
            raise ConfigError("rates", f"shape {self.rates.shape}", f"a row for each of {len(self.since)} moments")
        if not (np.isfinite(self.rates) & (self.rates > 0)).all():
            raise ConfigError("rates", float(self.rates.min()), "finite rows a second above 0")
        if self.since[0] != 0.0 or not np.isfinite(self.since).all() or (np.diff(self.since) <= 0).any():
            raise ConfigError("since", self.since.tolist(), "seconds that rise from 0")
        spans = np.diff(self.since)[:, None] * self.rates[:-1]
        self.work_done = np.concatenate([np.zeros((1, self.workers)), np.cumsum(spans, axis=0)])

    @property
    def workers(self) -> int:
        return int(self.rates.shape[1])

    def work(self, until: float) -> F64:
        """The rows that each worker can have done by then."""
        at = int(np.searchsorted(self.since, until, side="right")) - 1
        out: F64 = self.work_done[at] + (until - self.since[at]) * self.rates[at]
        return out


class Slot(NamedTuple):
    """What a slot was like, a worker each: ``end`` in seconds, rows arrived, queue at the end, utilisation."""

    number: int
    end: float
    arrived: I64
    queue: I64
    utilisation: F64


class Routing(Protocol):
    """A routing to replay: it routes a slot's rows, and then receives the slot's figures."""

    def route(self, keys: U64, times: F64) -> I32: ...

    def observe(self, slot: Slot) -> None: ...


class Sources:
    """Routers side by side without feedback. Rows are dealt to them in turn (CG's shuffle in front of the sources), so
    a source with a stream of its own is one whose rows stand at every P-th place. ``timed`` routers get the times."""

    def __init__(self, routers: Sequence[Router], *, timed: bool = False) -> None:
        if not routers:
            raise ConfigError("routers", "none", "one or more")
        self.routers = tuple(routers)
        self._timed, self._turn = timed, 0

    def route(self, keys: U64, times: F64) -> I32:
        out, many = np.empty(len(keys), np.int32), len(self.routers)
        for number, router in enumerate(self.routers):
            rows_now = slice((number - self._turn) % many, None, many)
            out[rows_now] = router.route(keys[rows_now], times[rows_now] if self._timed else None)
        self._turn = (self._turn + len(keys)) % many
        return out

    def observe(self, slot: Slot) -> None:
        """These routers use no feedback."""


class Grouped(Sources):
    """CG with feedback: sources with the router ``cg``, and one delegation that gets every worker's signal after a
    slot.

    The signals arrive in the order of the workers, before the next slot's first row.
    """

    def __init__(self, routers: Sequence[Router], machine: Grouping, *, timed: bool = False) -> None:
        super().__init__(routers, timed=timed)
        self.machine, self.moved = machine, 0
        self._tell()

    @classmethod
    def of(
        cls, workers: int, sources: int = 1, alpha: int = 100, rules: GroupingRules | None = None, **settings: Any
    ) -> Grouped:
        """So many sources, their steps spread evenly, and a delegation for them; ``settings`` are the router's."""
        routers = [
            make_router("cg", workers, alpha=alpha, **{"phase": number / sources, **settings})
            for number in range(sources)
        ]
        return cls(routers, Grouping(workers, alpha, rules))

    def observe(self, slot: Slot) -> None:
        before = self.machine.version
        for worker in self.machine.workers:
            signal = sense(self.machine.rules.signals, worker, float(slot.utilisation[worker]), slot.end)
            for action in self.machine.handle(signal, slot.end):
                self.moved += len(action.virtual) if isinstance(action, Moved) else 0
        if self.machine.version != before:
            self._tell()

    def _tell(self) -> None:
        owners = self.machine.owners()
        for router in self.routers:
            if not isinstance(router.algorithm, ConsistentGrouping):
                raise ConfigError("routers", router.name, "routers of the name cg")
            router.algorithm.adopt(owners)


@dataclass(frozen=True, eq=False)
class Trace:
    """The result: per row the worker and the seconds from arrival to finish; all else per slot and worker."""

    slot: float
    workers: I32
    times: F64
    latency: F64
    arrived: I64
    queue: I64
    utilisation: F64

    @property
    def spread(self) -> F64:
        """CG's imbalance of each slot: max U - mean U."""
        out: F64 = self.utilisation.max(axis=1) - self.utilisation.mean(axis=1)
        return out

    @property
    def imbalance(self) -> F64:
        """Rows of the fullest worker over the mean, a slot each; 1 where no row arrived."""
        mean = self.arrived.mean(axis=1)
        out: F64 = np.where(mean > 0, self.arrived.max(axis=1) / np.where(mean > 0, mean, 1.0), 1.0)
        return out

    @property
    def throughput(self) -> float:
        """Rows finished by the end of the last slot, a second."""
        end = len(self.arrived) * self.slot
        return float((self.times + self.latency <= end).sum() / end)

    def latencies(self, share: float | None = None) -> F64:
        """Of the rows that arrived in each slot: the mean, or the quantile ``share``. 0 where none did."""
        ends = np.cumsum(self.arrived.sum(axis=1))[:-1]
        parts = np.split(self.latency, ends)
        return np.array([_summary(part, share) for part in parts])

    def queue_slope(self, since: int = 0) -> float:
        """Rows a second by which the longest queue grows, by least squares from this slot on."""
        longest = self.queue[since:].max(axis=1).astype(np.float64)
        if len(longest) < 2:
            raise ConfigError("since", since, f"at most {len(self.queue) - 2}: a slope needs two slots")
        return float(np.polyfit(np.arange(len(longest)) * self.slot, longest, 1)[0])


def _summary(values: F64, share: float | None) -> float:
    if not len(values):
        return 0.0
    return float(values.mean() if share is None else np.quantile(values, share))


def replay(routing: Routing, keys: U64, times: ArrayLike, capacities: Capacities, slot: float = 1.0) -> Trace:
    """Send all rows, in slots of so many seconds from 0 on. Times never fall and are 0 or more."""
    when = np.asarray(times, np.float64)
    if when.shape != keys.shape or not np.isfinite(when).all() or (np.diff(when, prepend=0.0) < 0).any():
        raise ConfigError("times", f"shape {when.shape}", f"one finite number, never falling, for each of {keys.size}")
    if not 0.0 < slot < np.inf:
        raise ConfigError("slot", slot, "seconds above 0")
    slots = int(np.floor(when[-1] / slot)) + 1 if len(when) else 0
    ends = np.arange(1, slots + 1) * slot
    cuts = [0, *np.searchsorted(when, ends).tolist()]
    queues = _Queues(capacities, len(keys))
    slots_done: list[Slot] = []
    for number in range(slots):
        part = slice(cuts[number], cuts[number + 1])
        out = routing.route(keys[part], when[part])
        slots_done.append(queues.take(out, when[part], number, float(ends[number])))
        routing.observe(slots_done[-1])
    columns = ([getattr(each, name) for each in slots_done] for name in ("arrived", "queue", "utilisation"))
    shaped = (np.array(column).reshape(slots, capacities.workers) for column in columns)
    return Trace(slot, queues.workers, when, queues.finished - when, *shaped)


class _Queues:
    """The workers' queues between slots: the rows done and to do, as a level of work that each has to reach."""

    def __init__(self, capacities: Capacities, rows: int) -> None:
        self.capacities = capacities
        self.level = np.zeros(capacities.workers)
        self.queue = np.zeros(capacities.workers, np.int64)
        self.work_done = np.zeros(capacities.workers)
        self.workers, self.finished, self.rows = np.empty(rows, np.int32), np.empty(rows), 0

    def take(self, out: I32, times: F64, number: int, end: float) -> Slot:
        rows_now, of = slice(self.rows, self.rows + len(out)), self.capacities
        arrived = np.bincount(out, minlength=of.workers)
        if len(arrived) > of.workers:
            raise ConfigError("capacities", of.workers, f"{len(arrived)} workers: the routing sends rows there")
        self.workers[rows_now] = out
        serve(out, times, of.since, of.work_done, of.rates, self.level, self.finished[rows_now])
        work_done = of.work(end)
        used = (self.queue + arrived) / (work_done - self.work_done)
        self.queue = np.maximum(np.ceil(self.level - work_done - 1e-6), 0.0).astype(np.int64)
        self.work_done, self.rows = work_done, rows_now.stop
        return Slot(number, end, arrived, self.queue, used)


@kernel
def serve(out: I32, times: F64, since: F64, work_done: F64, rates: F64, level: F64, finished: F64) -> None:
    """First come, first served: when each row is finished. ``level`` is the work at which each worker's last row is."""
    last, phase = since.shape[0] - 1, 0
    for i in range(out.shape[0]):
        worker = out[i]
        while phase < last and times[i] >= since[phase + 1]:
            phase += 1
        now = work_done[phase, worker] + (times[i] - since[phase]) * rates[phase, worker]
        level[worker] = max(level[worker], now) + 1.0
        at = phase
        while at < last and level[worker] >= work_done[at + 1, worker]:
            at += 1
        finished[i] = since[at] + (level[worker] - work_done[at, worker]) / rates[at, worker]


@dataclass(frozen=True)
class StageCosts:
    """What a dataflow costs, in seconds: ``partition`` a row at one of the ``partitioners`` (dealt in turn),
    ``combine`` a row at its worker, ``reduce`` a partial aggregate at the reducer that its key hashes to.

    At each slide's end a worker sends one partial aggregate for each key that it holds in the last ``window`` slides;
    with ``forward`` (Dalton, 4.2) only for keys that another worker holds too, the others being final where they are.
    """

    partition: float = 0.0
    combine: float = 1e-6
    reduce: float = 1e-6
    partitioners: int = 1
    reducers: int = 1
    window: int = 1
    forward: bool = False

    def __post_init__(self) -> None:
        for name in ("partition", "combine", "reduce"):
            if not 0.0 <= getattr(self, name) < np.inf:
                raise ConfigError(name, getattr(self, name), "seconds, 0 or more")
        for name in ("partitioners", "reducers", "window"):
            if getattr(self, name) < 1:
                raise ConfigError(name, getattr(self, name), "1 or more")


@dataclass(frozen=True, eq=False)
class Stages:
    """Rows of each slide, and busy seconds of each member of each stage in it, a row each."""

    rows: I64
    partition: F64
    combine: F64
    reduce: F64

    @property
    def busiest(self) -> dict[str, F64]:
        """Seconds of each stage's busiest member, a slide each."""
        return {name: getattr(self, name).max(axis=1) for name in ("partition", "combine", "reduce")}

    @property
    def throughput(self) -> F64:
        """Rows a second that each slide alone could sustain: no member is behind when the slide ends."""
        slowest = np.max(list(self.busiest.values()), axis=0)
        out: F64 = np.divide(self.rows, slowest, out=np.zeros(len(self.rows)), where=slowest > 0)
        return out

    @property
    def totals(self) -> dict[str, float]:
        """Seconds of each stage's busiest member over all slides."""
        return {name: float(getattr(self, name).sum(axis=0).max()) for name in ("partition", "combine", "reduce")}

    @property
    def bottleneck(self) -> str:
        """The stage that sets the pace over all slides."""
        return max(self.totals, key=lambda name: self.totals[name])

    @property
    def sustained(self) -> float:
        """Rows a second over all slides, with queues long enough to even the slides out."""
        slowest = max(self.totals.values())
        return float(self.rows.sum()) / slowest if slowest else 0.0


def stages(keys: U64, workers: I32, slides: I64, costs: StageCosts, n: int, speeds: ArrayLike | None = None) -> Stages:
    """The busy seconds behind rows that were routed so. ``slides`` are slide numbers that never fall; ``speeds`` are
    the workers' relative to the one that ``costs`` are about. The hash to reducers is not the routers' own."""
    if not len(keys) == len(workers) == len(slides) or (np.diff(slides) < 0).any():
        raise ConfigError("slides", f"{len(slides)} numbers", f"one, never falling, for each of {len(keys)} rows")
    first = int(slides[0]) if len(slides) else 0
    slide = np.asarray(slides - first, np.int64)
    span = int(slide[-1]) + 1 if len(slide) else 0
    rows = np.bincount(slide * n + workers, minlength=span * n).reshape(span, n)
    speed: F64 = np.ones(n) if speeds is None else np.asarray(speeds, np.float64)
    if speed.shape != (n,) or not (speed > 0).all():
        raise ConfigError("speeds", speed.tolist(), f"{n} numbers above 0")
    many = costs.partitioners
    rows_per_partitioner = np.bincount(slide * many + np.arange(len(slide)) % many, minlength=span * many).reshape(
        span, many
    )
    partials = _partials(keys, workers, slide, span, n, costs)
    seconds = (
        rows_per_partitioner.astype(np.float64) * costs.partition,
        rows * (costs.combine / speed),
        partials.astype(np.float64),
    )
    return Stages(rows.sum(axis=1), seconds[0], seconds[1], seconds[2] * costs.reduce)


def _partials(keys: U64, workers: I32, slide: I64, span: int, n: int, costs: StageCosts) -> I64:
    """Partial aggregates that each reducer gets at each slide's end.

    A (key, worker) pair is in the window from a slide that has it on, until ``window`` slides without it have passed.
    Its begins and ends are steps up and down of how many workers hold the key; what the reducer gets follows them.
    """
    distinct, key = np.unique(keys, return_inverse=True)
    pair, at = np.divmod(np.unique((key.astype(np.int64) * n + workers) * span + slide), max(span, 1))
    if not len(pair):
        return np.zeros((span, costs.reducers), np.int64)
    again = np.append(pair[1:] == pair[:-1], False)
    end = np.where(again, np.minimum(at + costs.window, np.append(at[1:], 0)), at + costs.window)
    key_of_change = np.concatenate([pair, pair]) // n
    when, step = np.concatenate([at, end]), np.repeat([1, -1], len(pair))
    order = np.lexsort((when, key_of_change))
    key_of_change, when, holders = key_of_change[order], when[order], np.cumsum(step[order])
    counted = np.where(holders > 1, holders, 0) if costs.forward else holders
    change = np.diff(counted, prepend=0)
    reducer = (mix(distinct, 0x5EED) >> np.uint64(32)) * np.uint64(costs.reducers) >> np.uint64(32)
    inside = when < span
    place = when[inside] * costs.reducers + reducer.astype(np.int64)[key_of_change[inside]]
    steps = np.zeros(span * costs.reducers, np.int64)
    np.add.at(steps, place, change[inside])
    out: I64 = np.cumsum(steps.reshape(span, costs.reducers), axis=0)
    return out
