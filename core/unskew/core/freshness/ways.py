"""The ways to place a batch, what each would have cost the batches so far, and the one for the next batch.

A way says which counts a batch's plan is made from: those of the batches before it (``previous``: the record; ``last``:
the last batch alone; ``spread``: the record, with heavy keys on more partitions than they need, which a small drift
does not overload), its own, counted before it is placed (``same``), or none (``hash``). All make their plans by the
stream's own planner. ``WayScores`` follows the way that would have been cheapest.

A passive machine: ``next`` says the way of the next batch and its plan; for ``same`` the caller counts the batch and
asks ``plan_counted``. ``after`` takes the histogram of a finished batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from unskew.core.freshness.way_scores import WayChoice, WayScores
from unskew.core.histogram.histogram import Histogram
from unskew.core.histogram.history import History
from unskew.core.plan.plan import Plan
from unskew.core.planners import Feedback, Origin, Planner, make_planner
from unskew.core.planners.plan_cost import PlanCost

__all__ = ["COUNT_SHARE", "NextWay", "Ways"]

COUNT_SHARE = 0.10  # of an even share: what counting a batch is taken to cost until it has been measured
FIRST = WayChoice("same", "hash", "nothing is known of the stream: its first batch is counted")


@dataclass(frozen=True, eq=False)
class NextWay:
    """How the next batch is placed: by ``plan``, or where it is None by the plan that a count of its own rows gives."""

    choice: WayChoice
    plan: Plan | None


class Ways:
    """Of one stream. ``count_share`` is what counting a batch costs, in even shares of the batch."""

    def __init__(
        self, planner: Planner, record: History, *, count_share: float = COUNT_SHARE, scores: WayScores | None = None
    ) -> None:
        common = planner.algorithm.common
        self._planner, self._cost, self.count_share = planner, PlanCost.of(common), count_share
        self._hash = make_planner("hash", common.partitions, common.seed, common.weights).plan(Histogram.empty())
        self._record, self._last = record, replace(record, depth=1, batches=())
        self._scores = scores or WayScores()
        self._plans: dict[str, Plan] = {"hash": self._hash}  # for the next batch, by way
        self._counted: Plan | None = None
        self.next = NextWay(FIRST, None)

    @property
    def plans(self) -> Mapping[str, Plan]:
        """The plan of each way for the next batch; of those that are made before it comes."""
        return self._plans

    def plan_counted(self, own: Histogram, origin: Origin | None = None) -> Plan:
        """The plan for a batch that has been counted."""
        return self._planner.plan(own, self._counted, None, origin)

    def after(self, batch: Histogram, feedback: Feedback | None = None, origin: Origin | None = None) -> NextWay:
        """The way of the next batch, after one with this histogram: scores every way by it, then plans."""
        costs = {way: self._cost.share(plan, batch) for way, plan in self._plans.items()}
        counted = self.plan_counted(batch, origin)
        costs["same"] = self._cost.share(counted, batch) + self.count_share
        self._scores, self._counted = self._scores.after(costs), counted
        self._record, self._last = self._record.add(batch), self._last.add(batch)
        self._plan_ahead(feedback, origin)
        choice = self._scores.choice()
        self.next = NextWay(choice, self._plans.get(choice.way))
        return self.next

    def _plan_ahead(self, feedback: Feedback | None, origin: Origin | None) -> None:
        before, record = self._plans, self._record.merged()
        self._plans = {
            "hash": self._hash,
            "previous": self._planner.plan(record, before.get("previous"), feedback, origin),
            "last": self._planner.plan(self._last.merged(), before.get("last"), feedback, origin),
        }
