"""Dalton as a plan: the share that each partition gets of each hot key, by a learned Q-table.

The histogram is a whole batch, so this is Dalton for micro-batches (section 3.4) on its counts: keys with 1/n of the
rows are hot; heaviest first they go to the partitions with the best values in the feedback's Q-table, which moves on
the way. Without a Q-table the previous plan's fragments serve as one.

Deviations: a decision is for a 4,096th of a partition's rows, or one row if that is more, so that the cost does not
grow with the rows; loads are compared after dividing by capacity; splits that the plan's size does not allow are not
made.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.core.dalton.batch_learner import BatchRouting, learning, place_hot_keys, workers_within_budget
from unskew.core.dalton.qtable import UNTRIED, QTable
from unskew.core.dalton.settings import MOST_CELLS, LearningSettings
from unskew.core.histogram.histogram import Histogram, host_of
from unskew.core.limits import host_bits
from unskew.core.plan.build import Placement
from unskew.core.plan.plan import Plan
from unskew.core.planners.base import Feedback, Place, PlannerSettings
from unskew.core.planners.hashed import hash_tail
from unskew.core.planners.planner_view import PlannerView

__all__ = ["DaltonPlanner"]

_GRAIN = 4096
REASONS = ("hot: learned to be worth most there", "too few distinct spread values to split it: where it is worth most")


@dataclass(frozen=True, eq=False)
class DaltonPlanner:
    """The settings are those of the router of this name (``core/routers/dalton``)."""

    common: PlannerSettings
    gamma: float = 0.1
    epsilon: float = 0.1
    p1: float = 0.5
    look: int = 8
    split_cap: int | str | None = "share"
    share: float = 4.0
    keep_untried: bool = False

    def __post_init__(self) -> None:
        self._learning()

    def place(self, histogram: Histogram, previous: Plan | None, feedback: Feedback | None) -> Place:
        """The placement of the hot keys; ``learn`` also returns the new Q-table."""
        table = feedback.table if feedback is not None else None
        placement, routing = self.learn(histogram, self._known(histogram, previous) if table is None else table)
        return Place(
            placement, f"{len(routing.placed)} hot keys, {int((routing.placed > 0).sum())} fragments, the rest hashed"
        )

    def learn(self, histogram: Histogram, table: QTable) -> tuple[Placement, BatchRouting]:
        """Where the hot keys go, and the Q-table afterwards."""
        n, tail = self.common.partitions, hash_tail(self.common)
        view = PlannerView.of(histogram, n, self._hot(histogram), self.common.smallest)
        homes = tail.take(host_of(view.hashes, host_bits(n)))
        most = np.where(view.splittable, workers_within_budget(self._learning(), view.rows, view.total, n), 1)
        load = np.bincount(tail, view.host_rows, n).astype(np.int64)
        grain = max(int(view.mean) // _GRAIN, 1)
        rule = self._learning().rule(n, np.uint64(0), windowed=True)._replace(quantum=grain)
        routing = place_hot_keys(
            view.hashes, view.rows, homes, most, load, self.common.relative, table.resized(n), rule, self.common.seed
        )
        key, partition = np.nonzero(routing.placed)
        placement = Placement(
            tail, view.hashes, key, partition.astype(np.int32), routing.placed[key, partition], REASONS,
            (~view.splittable).astype(np.uint8),
        )  # fmt: skip
        return placement, routing

    def _learning(self) -> LearningSettings:
        return learning(
            self.gamma, self.epsilon, self.p1, self.look, self.split_cap, self.share, keep_untried=self.keep_untried
        )

    def _hot(self, histogram: Histogram) -> int:
        """How many keys have 1/n of the rows, or that share of the smallest partition's rows."""
        n = self.common.partitions
        hot = int((histogram.counts >= max(histogram.total / n * self.common.smallest, 1.0)).sum())
        return min(hot, max(MOST_CELLS // n, 1))

    def _known(self, histogram: Histogram, previous: Plan | None) -> QTable:
        """A Q-table from the previous plan's hot keys. A partition with a fragment has the value of an empty partition,
        the highest there is, so most rows stay; all other cells are untried."""
        n = self.common.partitions
        if previous is None or previous.partitions != n or len(previous.hot.hashes) == 0:
            return QTable.empty(n)
        hashes = previous.hot.hashes
        rows = np.maximum(histogram.count(hashes), 1)
        key, partition, _ = previous.fragments(hashes, rows)
        holds = np.zeros((len(hashes), n), np.bool_)
        holds[key, partition] = True
        empty = self.p1 - (1.0 - self.p1) / n
        return QTable.of(hashes, np.where(holds, empty, UNTRIED), rows, holds)
