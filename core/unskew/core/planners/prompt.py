"""Prompt's Algorithm 2: balanced bin packing with fragmentable items (section 4.2).

Keys in descending order. A key larger than ``S_cut = P_size / P_|k| = N / K`` puts a fragment of that size on the
next block and keeps the rest for later; the other keys are dealt in zigzag; then the residuals fill what is left,
their own block first.

Deviations, each because a plan is bounded in size or the paper leaves it open (FIDELITY):
- only the ``listed`` heaviest keys above S_cut are items of their own; the rest are dealt by host, as one item each;
- residuals go in ascending order: the home block is filled up, the rest goes to the tightest block that holds it,
  else the widest block is filled and the remainder is placed again;
- where hosts alone overfill a block, a few small keys are listed too and poured last, and where the plan's size
  forbids more of them hosts are dealt by rows too, so that the blocks of the *encoded* plan are within one tuple;
- with weights, block sizes and turns are in proportion to them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.core.arrays.apportion import capacities, turns
from unskew.core.arrays.types import F64, I32, I64
from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram
from unskew.core.limits import MAX_LISTED, listed_budget
from unskew.core.plan.build import Placement
from unskew.core.plan.plan import Plan
from unskew.core.planners.balanced import place_whole
from unskew.core.planners.base import Feedback, Place, PlannerSettings
from unskew.core.planners.packing import FreeSpace, deal_hosts, even_out, wrap_around
from unskew.core.planners.planner_view import PlannerView

__all__ = ["Prompt", "zigzag"]

_GROW = 4
REASONS = (
    "above the split cut-off: a fragment dealt in turn, the rest where room was",
    "small change: poured last to level the blocks",
    "too few distinct spread values to split it: kept whole where most room was",
)
_SPLIT, _CHANGE, _WHOLE = range(3)
_Fragments = tuple[I64, I32, I64]  # key, partition, rows


def zigzag(count: int, weights: F64) -> I32:
    """Blocks in the order in which ``count`` items are dealt: the order reverses after each pass."""
    order = turns(count, weights)
    n = len(weights)
    for start in range(n, count, 2 * n):
        order[start : start + n] = order[start : start + n][::-1]
    return order


@dataclass(frozen=True, eq=False)
class Prompt:
    """Algorithm 2. ``listed`` bounds the keys that are items of their own; default max(4096, 4 n)."""

    common: PlannerSettings
    listed: int | None = None

    def __post_init__(self) -> None:
        if self.listed is not None and not 0 <= self.listed <= MAX_LISTED:
            raise ConfigError("listed", self.listed, f"0 to {MAX_LISTED} keys")

    def place(self, histogram: Histogram, previous: Plan | None, feedback: Feedback | None) -> Place:  # noqa: ARG002 - each batch anew
        cut = -(-histogram.total // max(histogram.keys, 1))
        most = max(4096, 4 * self.common.partitions) if self.listed is None else self.listed
        budget = min(len(histogram.hashes), listed_budget(self.common.partitions))
        big, extra = min(int((histogram.counts > cut).sum()), most, budget), 0
        while True:
            view = PlannerView.of(histogram, self.common.partitions, big + extra, self.common.smallest)
            placement, level = self._fill(view, big, cut, last=big + extra >= budget)
            if level or big + extra >= budget:
                break
            extra = min(max(extra * _GROW, self.common.partitions), budget - big)
        return Place(placement, f"Prompt: {big} of {histogram.keys} keys above the cut-off of {cut} rows")

    def _fill(self, view: PlannerView, big: int, cut: int, *, last: bool) -> tuple[Placement, bool]:
        """The three passes, and whether no block was over its size before the residual pass.

        The ``last`` try, when no more keys can be listed, also deals hosts by rows and swaps them until the blocks are
        level.
        """
        size = capacities(view.total, self.common.weights)
        space = size.copy()
        fragments: list[_Fragments] = []
        stiff = np.flatnonzero(~view.splittable)
        at = place_whole(view.rows[stiff], space)
        self._put(space, fragments, stiff, at, view.rows[stiff])
        items = np.flatnonzero(view.splittable)
        large, small = items[items < big], items[items >= big]
        home = turns(len(large), self.common.weights)
        self._put(space, fragments, large, home, np.minimum(view.rows[large], cut))
        weights = self.common.weights
        tail = deal_hosts(view.host_rows, view.host_keys, space, weights) if last else self._deal(view)
        np.subtract.at(space, tail, view.host_rows)
        if last:
            even_out(tail, view.host_rows, space)
        level = bool((space >= 0).all())
        residual = view.rows[large] - np.minimum(view.rows[large], cut)
        self._residuals(space, fragments, large, home, residual)
        key, partition, rows = wrap_around(view.rows[small], space)
        fragments.append((small[key], partition, rows))
        reason = np.full(len(view.hashes), _SPLIT, np.uint8)
        reason[small], reason[stiff] = _CHANGE, _WHOLE
        key, partition, rows = (np.concatenate(parts) for parts in zip(*fragments, strict=True))
        return Placement(tail, view.hashes, key, partition, rows, REASONS, reason), level

    @staticmethod
    def _put(space: I64, fragments: list[_Fragments], key: I64, at: I32, rows: I64) -> None:
        np.subtract.at(space, at, rows)
        fragments.append((key, at, rows))

    def _deal(self, view: PlannerView) -> I32:
        """The remaining keys in zigzag, a host at a time. Hosts with most keys come first: an item of the paper is
        one key, so its zigzag evens cardinality, and rows are levelled by the residuals anyway."""
        order = np.lexsort((-view.host_rows, -view.host_keys))
        tail = np.empty(len(order), np.int32)
        tail[order] = zigzag(len(order), self.common.weights)
        return tail

    @staticmethod
    def _residuals(space: I64, fragments: list[_Fragments], key: I64, home: I32, residual: I64) -> None:
        """Smallest residual first: home, then the tightest block that holds it, else the widest (lines 17-25)."""
        free_space = FreeSpace(space)
        out: list[tuple[int, int, int]] = []
        for i in np.argsort(residual, kind="stable").tolist():
            rest, block = int(residual[i]), int(home[i])
            while rest > 0:
                part = min(rest, free_space.free(block))
                if part:
                    free_space.take(block, part)
                    out.append((int(key[i]), block, part))
                    rest -= part
                if rest > 0:
                    tightest = free_space.tightest(rest)
                    block = free_space.widest() if tightest is None else tightest
        triples = np.array(out, np.int64).reshape(-1, 3)
        np.subtract.at(space, triples[:, 1], triples[:, 2])
        fragments.append((triples[:, 0], triples[:, 1].astype(np.int32), triples[:, 2]))
