"""The ways to place a batch, what each would have cost the batches so far, and the one for the next batch.

A way says which counts a batch's plan is made from: those of the batches before it (``previous``: the record; ``last``:
the last batch alone), its own, counted before it is placed (``same``), or none (``hash``). All make their plans by the
stream's own policy. ``WayScores`` follows the way that would have been cheapest.

A passive machine: ``next`` says the way of the next batch; for ``same`` the caller counts the batch and asks
``plan_counted``. ``score`` takes the histogram of a finished batch, ``plan_ahead`` makes the plans for the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from unskew.core.freshness.stream_planner import StreamPlanner
from unskew.core.freshness.way_scores import WayChoice, WayScores
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Plan
from unskew.core.planners import Feedback
from unskew.core.planners.plan_cost import PlanCost

__all__ = ["COUNT_SHARE", "FIRST", "BatchPrice", "Fresh", "Ways"]

Fresh: TypeAlias = Literal["auto", "previous", "same"]
COUNT_SHARE = 0.10  # of an even share: what counting a batch is taken to cost until it has been measured
FIRST = WayChoice("same", "hash", "nothing is known of the stream: its first batch is counted")


@dataclass(frozen=True)
class BatchPrice:
    """What a unit of cost is worth in one batch, and what counting the batch takes, in the same currency: seconds
    where times were measured, even shares where not."""

    unit: float
    count: float

    @classmethod
    def shares(cls, cost: PlanCost, histogram: Histogram, count_share: float = COUNT_SHARE) -> BatchPrice:
        """In even shares of the batch."""
        return cls(1.0 / cost.even(histogram), count_share)


class Ways:
    """Of one stream. ``fresh`` says among which ways: all, those by the batches before (``previous``), or ``same``
    alone. ``slots``: how many tasks run at once; None: all."""

    def __init__(self, planner: StreamPlanner, fresh: Fresh = "auto", *, slots: int | None = None) -> None:
        self._fresh, self._slots = fresh, slots
        self._scores, self.record, self.planner = WayScores(), planner.record, planner
        self._plans: dict[str, Plan] = {}
        self._counted: Plan | None = None
        self.next = FIRST if fresh == "auto" else WayChoice(fresh, fresh, f"fresh={fresh!r}")
        self.plan_by(planner)

    def plan_by(self, planner: StreamPlanner) -> None:
        """Make plans by these settings from now on. Where the number of partitions changes the plans that are there go;
        the record and the scores, which are in shares of a partition, stay."""
        if planner == self.planner and self._plans:
            return
        self.planner, self.cost = planner, PlanCost.of(planner.planner.algorithm.common, slots=self._slots)
        self._plans = {way: plan for way, plan in self._plans.items() if plan.partitions == planner.spec.partitions}
        if self._fresh != "same":
            self._plans = {**self._plans, "hash": planner.by_hash()}

    @property
    def plans(self) -> Mapping[str, Plan]:
        """The plan of each way for the next batch: those that are made before it comes."""
        return self._plans

    def plan_counted(self, own: Histogram, batch: int) -> Plan:
        """The plan for a batch that has been counted."""
        return self.planner.after(self._counted, own, batch)

    def price(self, histogram: Histogram, seconds: float, placed_by: Plan, count: float | None) -> BatchPrice:
        """In seconds, of a batch whose tasks took ``seconds`` under the plan that it was placed by; in even shares
        where that is not known. ``count``: the seconds that counting a batch takes, where it has been measured."""
        cost = self.cost.batch(placed_by, histogram) if placed_by.partitions == self.planner.spec.partitions else 0.0
        if seconds <= 0.0 or cost <= 0.0:
            return BatchPrice.shares(self.cost, histogram)
        unit = seconds / cost
        return BatchPrice(unit, COUNT_SHARE * self.cost.even(histogram) * unit if count is None else count)

    def score(self, histogram: Histogram, batch: int, price: BatchPrice | None = None) -> None:
        """Add a finished batch to the record, and to each way what the batch would have cost by it."""
        self.record = self.record.add(histogram)
        if self._fresh == "same":
            return
        price = price or BatchPrice.shares(self.cost, histogram)
        costs = {way: price.unit * self.cost.batch(plan, histogram) for way, plan in self._plans.items()}
        if self._fresh == "auto":
            self._counted = self.plan_counted(histogram, batch)
            costs["same"] = price.unit * self.cost.batch(self._counted, histogram) + price.count
        self._scores = self._scores.after(costs)
        self.next = self._scores.choice() if len(costs) > 1 else self.next

    def plan_ahead(self, batch: int, previous: Plan | None = None, feedback: Feedback | None = None) -> None:
        """Make the plans for the batch after ``batch``. ``previous``: the plan from the record, where a service has
        made it; else it is made here."""
        made, histograms = self._plans, self.record.batches
        after = self.planner.after
        plans = {"previous": previous or after(made.get("previous"), self.record.merged(), batch, feedback)}
        if self._fresh != "same":
            plans = {**made, **plans, "last": after(made.get("last"), histograms[-1], batch, feedback)}
        self._plans = plans
