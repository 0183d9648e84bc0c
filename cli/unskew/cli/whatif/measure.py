"""What a routing is measured by: each batch on its own, and every window of the stream.

Measured on the rows as they were routed, not on what plans promised, by ``core.quality.measures.measures`` and
``core.quality.measures.windows``; the makespan is the cost model that policy ``auto`` decides by.
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

__all__ = ["Measure", "Routed", "Windowed", "Windows"]

U64 = NDArray[np.uint64]
F64 = NDArray[np.float64]
At = NDArray[np.integer]

_COST = LinearCost()


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


def _relative(job: Job) -> F64:
    weights = np.ones(job.partitions) if job.weights is None else np.asarray(job.weights, np.float64)
    return np.asarray(weights / weights.mean())


class Measure:
    """Measures a batch, once per plan that routes differently."""

    def __init__(self, job: Job) -> None:
        self._n = job.partitions
        self._relative = _relative(job)
        self._known: dict[str, tuple[At, Routed]] = {}

    def begin(self, hashes: U64, spread: U64, keys: int) -> None:
        """The next batch, and how many distinct keys it has."""
        self._hashes, self._spread, self._keys = hashes, spread, keys
        self._known = {}

    def imbalance(self, rows: tuple[int, ...] | list[int]) -> float:
        return load_imbalance(rows, self._relative)

    def planned(self, plan: Plan) -> tuple[At, Routed]:
        """Where the batch's rows go by this plan, and what that is worth."""
        if plan.digest not in self._known:
            at = plan.route(self._hashes, self._spread)
            self._known[plan.digest] = at, self.routed(at)
        return self._known[plan.digest]

    def routed(self, at: At) -> Routed:
        """The batch with its rows on these partitions."""
        hashes, n = self._hashes, self._n
        rows, keys = loads(at, n), cardinalities(hashes, at, n)
        fragments = int(keys.sum())
        imbalance = load_imbalance(rows, self._relative)
        return Routed(
            loads=tuple(rows.tolist()),
            keys=tuple(keys.tolist()),
            imbalance=imbalance,
            bsi=(imbalance - 1) * len(hashes) / n,
            bci=(load_imbalance(keys, self._relative) - 1) * fragments / n,
            ksr=fragments / self._keys,
            makespan=makespan(_COST.tasks(rows, keys) / self._relative)
            + _COST.per_fragment * (fragments - self._keys) / n,
        )


@dataclass(frozen=True)
class Windowed:
    """Imbalance in the windows at the end of every slide; mean replication in windows that follow each other, because
    some routers start anew with each. None where there are too few rows for one of those."""

    windows: int
    imbalance: float
    worst_imbalance: float
    replication: float | None


class Windows:
    """One policy's routing of the stream from row ``counted`` on, kept where there is a window to measure it by."""

    def __init__(self, job: Job, hashes: U64, times: F64 | None, counted: int) -> None:
        self._job, self._hashes, self._times, self._counted = job, hashes, times, counted
        self._at: list[NDArray[np.int16]] = []

    def add(self, at: At) -> None:
        """Where the next counted rows went."""
        if self._job.sliding is not None:
            self._at.append(at.astype(np.int16))  # a partition is below 8,192

    def measured(self) -> Windowed | None:
        """The figures of all windows; None without a window, or where none is whole."""
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
        return Windowed(len(spread), fmean(spread.tolist()), float(spread.max()), fmean(pairs) if pairs else None)

    def _from(self, length: float) -> tuple[int, F64 | None]:
        """The first counted row with which a slide, or a window, of the routers begins; and the times from there on."""
        if self._times is None:
            return -int(-self._counted // length) * int(length), None
        first = 0
        if self._counted:
            number = np.floor_divide(self._times, length)
            first = int(np.searchsorted(number, number[self._counted - 1], "right"))
        return first, self._times[first:]
