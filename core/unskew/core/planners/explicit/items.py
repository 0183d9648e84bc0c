"""What Readj, Redist, Scan and Mixed share: a tail that is hashed and never moved, and items placed one by one.

All four are baselines for comparison (KIP/DR, section 5), reconstructed from how KIP/DR and our notes on Gedik
(VLDBJ 2014) and Fang (2016) describe them, not from those papers. An item is one of the top ``lambda * N`` keys.
A key that is no longer an item goes back to where it hashes. Loads are in mean loads and state in mean states of a
partition, so that balance and migration can be added up; a load is divided by its partition's weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.core.arrays.ranking import heaviest, marked
from unskew.core.arrays.types import F64, I32, I64, U64, Index
from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram, host_of
from unskew.core.limits import MAX_LISTED, host_bits, listed_budget
from unskew.core.parameters import check_range
from unskew.core.plan.build import Placement
from unskew.core.plan.plan import Plan
from unskew.core.planners.base import Feedback, PlannerSettings
from unskew.core.planners.hashed import hash_tail

__all__ = ["HASHED", "MOVED", "STAYED", "Items", "check_explicit", "limit_of"]

STAYED, HASHED, MOVED = range(3)
REASONS = ("an item that stays where it was", "an item placed where it hashes", "an item moved to balance the load")


def check_explicit(common: PlannerSettings, factor: float, theta: float | None = None) -> None:
    """Refuse a list longer than a plan holds, and balance bounds that are none."""
    most = MAX_LISTED / common.partitions
    check_range("factor", factor, 0, most, f"0 to {most:g} items a partition")
    if theta is not None and not 0 <= theta <= 1e6:
        raise ConfigError("theta", theta, "0 to 1e6, in mean loads above the mean")


def limit_of(common: PlannerSettings, factor: float) -> int:
    """How many items there are at most: lambda * N, as far as a plan can list them."""
    return min(round(factor * common.partitions), listed_budget(common.partitions))


@dataclass(frozen=True, eq=False)
class Items:
    """The items, heaviest first (ties by hash), and the load of everything else under plain hashing.

    ``was`` is where an item's state is now, -1 where that is nowhere in one piece: no previous plan, one for
    another number of partitions, or one that split the key.
    """

    hashes: U64
    counts: I64
    load: F64
    state: F64
    was: I32
    hashes_to: I32
    tail: I32
    base: F64
    relative: F64

    @classmethod
    def of(
        cls,
        histogram: Histogram,
        previous: Plan | None,
        feedback: Feedback | None,
        common: PlannerSettings,
        limit: int,
        *,
        keep_table: bool = False,
    ) -> Items:
        """The top ``limit`` keys, and with ``keep_table`` also those that ``previous`` routes explicitly."""
        before = previous if previous is not None and previous.partitions == common.partitions else None
        index = heaviest(histogram.hashes, histogram.counts, limit)
        if keep_table and before is not None:
            index = _with_table(index, histogram, before)
        listed = marked(index, len(histogram.hashes))
        bits = host_bits(common.partitions)
        hashes, tail = histogram.hashes[index], hash_tail(common)
        was = np.full(len(hashes), -1) if before is None else np.maximum(before.place(hashes), -1)
        rows = histogram.fold(listed, bits).rows.astype(np.float64)
        mean = max(histogram.total, 1) / common.partitions
        state = feedback.state if feedback is not None and feedback.state is not None else histogram
        return cls(
            hashes, histogram.counts[index], histogram.counts[index] / mean,
            state.count(hashes) / (max(state.total, 1) / common.partitions), was.astype(np.int32),
            tail.take(host_of(hashes, bits)), tail, np.bincount(tail, weights=rows, minlength=common.partitions) / mean,
            common.relative,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def start(self) -> I32:
        """Where each item is without an update: its place so far, or where it hashes."""
        return np.where(self.was >= 0, self.was, self.hashes_to).astype(np.int32)

    def loads(self, at: I32) -> F64:
        """Mean loads per partition with the items at these places."""
        return self.base + np.bincount(at, weights=self.load, minlength=len(self.base))

    def heaviest(self, at: I32) -> float:
        """The largest load over its partition's weight: the imbalance of this placement."""
        return float((self.loads(at) / self.relative).max(initial=0.0))

    def placement(self, at: I32) -> Placement:
        reason = np.where(at == self.was, STAYED, np.where(at == self.hashes_to, HASHED, MOVED)).astype(np.uint8)
        return Placement.whole(self.tail, self.hashes, at, self.counts, REASONS, reason)

    def summary(self, at: I32) -> str:
        """The reason's figures, for all four alike."""
        moves = int(((self.was >= 0) & (self.was != at)).sum())
        return f"{len(self)} items, {moves} moved, largest load {self.heaviest(at):.2f} of the mean"


def _with_table(index: Index, histogram: Histogram, before: Plan) -> Index:
    in_table = np.flatnonzero(np.isin(histogram.hashes, before.hot.hashes))
    joined = np.union1d(index, in_table)
    order = heaviest(histogram.hashes[joined], histogram.counts[joined], listed_budget(before.partitions))
    return joined[order].astype(np.intp)
