"""Measures a routing: each batch by itself, and every window of the stream.

Rows are measured as they were routed, not as plans promised, by ``core.quality.measures`` and
``core.quality.windows``; the makespan is that of the cost model by which policy ``auto`` decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from unskew.cli.whatif.job import Job
from unskew.core.plan.plan import Plan
from unskew.core.quality.measures import LinearCost, cardinalities, load_imbalance, loads, makespan
from unskew.core.quality.windows import window_imbalance, window_replication

__all__ = ["Measure", "RoutedBatch", "WindowFigures", "Windows"]

U64 = NDArray[np.uint64]
F64 = NDArray[np.float64]
At = NDArray[np.integer]

_COST = LinearCost()


@dataclass(frozen=True)
class RoutedBatch:
    """One batch as it was routed. Loads are divided by the partitions' weights, if there are any; without weights
    ``bsi``, ``bci`` and ``ksr`` are Prompt's (``quality.block_metrics``). ``makespan`` is in rows, ``cost`` the same in
    even shares."""

    loads: tuple[int, ...]
    keys: tuple[int, ...]
    imbalance: float
    bsi: float
    bci: float
    ksr: float
    makespan: float
    cost: float


def _relative(job: Job) -> F64:
    weights = np.ones(job.partitions) if job.weights is None else np.asarray(job.weights, np.float64)
    return np.asarray(weights / weights.mean())


class Measure:
    """Measures a batch, once per plan that routes differently."""

    def __init__(self, job: Job) -> None:
        self._n = job.partitions
        self._relative = _relative(job)
        self._by_digest: dict[str, tuple[At, RoutedBatch]] = {}

    def begin(self, hashes: U64, spread: U64, keys: int) -> None:
        """The next batch, and how many distinct keys it has."""
        self._hashes, self._spread, self._keys = hashes, spread, keys
        self._by_digest = {}

    def imbalance(self, rows: tuple[int, ...] | list[int]) -> float:
        return load_imbalance(rows, self._relative)

    def planned(self, plan: Plan) -> tuple[At, RoutedBatch]:
        """Where the batch's rows go by this plan, and its figures."""
        if plan.digest not in self._by_digest:
            at = plan.route(self._hashes, self._spread)
            self._by_digest[plan.digest] = at, self.routed(at)
        return self._by_digest[plan.digest]

    def routed(self, at: At) -> RoutedBatch:
        """The figures of the batch with its rows on these partitions."""
        hashes, n = self._hashes, self._n
        rows, keys = loads(at, n), cardinalities(hashes, at, n)
        fragments = int(keys.sum())
        imbalance = load_imbalance(rows, self._relative)
        merging = _COST.per_fragment * (fragments - self._keys) / n
        length = makespan(_COST.tasks(rows, keys) / self._relative) + merging
        return RoutedBatch(
            loads=tuple(rows.tolist()),
            keys=tuple(keys.tolist()),
            imbalance=imbalance,
            bsi=(imbalance - 1) * len(hashes) / n,
            bci=(load_imbalance(keys, self._relative) - 1) * fragments / n,
            ksr=fragments / self._keys,
            makespan=length,
            cost=length / (float(_COST.tasks(len(hashes), self._keys)) / n),
        )


@dataclass(frozen=True)
class WindowFigures:
    """Imbalance in the windows at the end of every slide; mean replication in windows that follow each other, because
    some routers forget at the end of each. None if there are too few rows for such a window."""

    windows: int
    imbalance: float
    worst_imbalance: float
    replication: float | None


class Windows:
    """One policy's routing of the stream from row ``counted`` on, kept only if the job has a window."""

    def __init__(self, job: Job, hashes: U64, times: F64 | None, counted: int) -> None:
        self._job, self._hashes, self._times, self._counted = job, hashes, times, counted
        self._at: list[NDArray[np.int16]] = []

    def add(self, at: At) -> None:
        """Where the next counted rows went."""
        if self._job.sliding is not None:
            self._at.append(at.astype(np.int16))  # a partition is below 8,192

    def measured(self) -> WindowFigures | None:
        """The figures of all windows; None if the job has no window, or the rows fill none."""
        sliding, n = self._job.sliding, self._job.partitions
        if sliding is None:
            return None
        at = np.concatenate(self._at)
        rows, times = self._from(sliding.slide)
        spread = window_imbalance(
            at[rows - self._counted :], n, sliding.whole, sliding.slide, _relative(self._job), times
        )
        if len(spread) == 0:
            return None
        rows, times = self._from(sliding.whole)
        pairs = window_replication(self._hashes[rows:], at[rows - self._counted :], sliding.whole, None, times).tolist()
        return WindowFigures(len(spread), fmean(spread.tolist()), float(spread.max()), fmean(pairs) if pairs else None)

    def _from(self, length: float) -> tuple[int, F64 | None]:
        """The first counted row at which a slide, or a window, of the routers begins; and the times from there on."""
        if self._times is None:
            return -int(-self._counted // length) * int(length), None
        first = 0
        if self._counted:
            number = np.floor_divide(self._times, length)
            first = int(np.searchsorted(number, number[self._counted - 1], "right"))
        return first, self._times[first:]
