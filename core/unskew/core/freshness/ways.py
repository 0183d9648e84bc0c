"""The ways to place a batch, what each would have cost the batches so far, and the one for the next batch.

A way says which counts a batch's plan is made from: those of the batches before it (``previous``: the record; ``last``:
the last batch alone), its own, counted before it is placed (``same``), or none (``hash``). All make their plans by the
stream's own policy. ``WayScores`` follows the way that would have been cheapest.

A passive machine: ``next`` says the way of the next batch; for ``same`` the caller counts the batch and plans after
``counted``. ``score`` takes the histogram of a finished batch, ``plan_ahead`` makes the plans for the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from unskew.core.freshness.batch_price import COUNT_SHARE, BatchPrice
from unskew.core.freshness.stream_planner import StreamPlanner
from unskew.core.freshness.way_scores import WayChoice, WayScores
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Plan
from unskew.core.planners import Feedback
from unskew.core.planners.plan_cost import PlanCost

__all__ = ["FIRST", "Fresh", "Ways"]

Fresh: TypeAlias = Literal["auto", "previous", "same"]
_CHANGES = 1 / 4  # that are expected before the first batch is seen
FIRST = WayChoice("same", "hash", "nothing is known of the stream: its first batch is counted")


class Ways:
    """Of one stream. ``fresh`` says among which ways: all, those by the batches before (``previous``), or ``same``
    alone. ``counted`` is the last plan that was made from a batch's own counts."""

    def __init__(self, planner: StreamPlanner, fresh: Fresh = "auto") -> None:
        plain = planner.spec.policy == "hash"
        self._fresh: Fresh = "previous" if plain else fresh
        self._scores, self._timed, self.record = WayScores(), False, planner.record
        self.planner, self.cost = planner, PlanCost.of(planner.planner.algorithm.common)
        self._plans: dict[str, Plan] = {} if self._fresh == "same" else {"hash": planner.by_hash()}
        self.counted: Plan | None = None
        self.next = FIRST if self._fresh == "auto" else WayChoice(self._fresh, self._fresh, f"fresh={fresh!r}")

    def plan_by(self, planner: StreamPlanner, slots: int | None = None) -> None:
        """Make plans by these settings from now on, for so many tasks at once (None: all). Where the number of
        partitions changes the plans that are there go; the record and the scores stay."""
        if planner == self.planner and slots == self.cost.slots:
            return
        self.planner, self.cost = planner, PlanCost.of(planner.planner.algorithm.common, slots=slots)
        self._plans = {way: plan for way, plan in self._plans.items() if plan.partitions == planner.spec.partitions}
        if self._fresh != "same":
            self._plans = {**self._plans, "hash": planner.by_hash()}

    @property
    def plans(self) -> Mapping[str, Plan]:
        """The plan of each way for the next batch: those that are made before it comes."""
        return self._plans

    def plan_counted(self, own: Histogram, batch: int) -> Plan:
        """The plan for a batch that has been counted."""
        return self.planner.after(self.counted, own, batch)

    def score(
        self, histogram: Histogram, batch: int, price: BatchPrice | None = None, plans: Mapping[str, Plan] | None = None
    ) -> None:
        """Add a finished batch to the record, and to each way what the batch would have cost by it. ``plans``: those
        that were there when the batch began, where there are newer ones by now."""
        self.record = self.record.add(histogram)
        if self._fresh == "same":
            return
        price = price or BatchPrice(1.0 / self.cost.even(histogram), COUNT_SHARE)
        if price.timed != self._timed:  # sums of seconds and of shares are not to be added
            self._scores, self._timed = WayScores(self._scores.decay), price.timed
        n, had = self.planner.spec.partitions, self._plans if plans is None else plans
        fit = {way: plan for way, plan in had.items() if plan.partitions == n}
        costs = {way: price.unit * self.cost.batch(plan, histogram) for way, plan in {**self._hash, **fit}.items()}
        if self._fresh == "auto":
            self.counted = self.plan_counted(histogram, batch)
            costs["same"] = price.unit * self.cost.batch(self.counted, histogram)
        self._scores = self._scores.after(costs)
        if len(costs) > 1:
            self.next = self._scores.choice({"same": price.count, **self._unseen_change()})

    def _unseen_change(self) -> dict[str, float]:
        """What a change that has not come yet is expected to cost the plans of before, a batch: as much as plain hash
        costs more than a count. The longer none came, the less likely it is (the rule of succession)."""
        scores = self._scores
        if not {"same", "previous"} <= scores.sums.keys():
            return {}
        risk = _CHANGES / (scores.batches + 1) * max(scores.mean("hash") - scores.mean("same"), 0.0)
        return {"previous": risk, "last": risk}

    @property
    def _hash(self) -> dict[str, Plan]:
        return {"hash": self._plans["hash"]}

    def plan_ahead(self, batch: int, previous: Plan | None = None, feedback: Feedback | None = None) -> None:
        """Make the plans for the batch after ``batch``. ``previous``: the plan from the record, where a service has
        made it for as many partitions; else it is made here."""
        made, after = self._plans, self.planner.after
        if previous is None or previous.partitions != self.planner.spec.partitions:
            previous = after(made.get("previous"), self.record.merged(), batch, feedback)
        plans = {"previous": previous}
        if self._fresh != "same":
            last = after(made.get("last"), self.record.batches[-1], batch, feedback)
            plans = {**self._hash, "previous": previous, "last": last}
        self._plans = plans
