"""The ways to place a batch, what each would have cost the batches so far, and the one for the next batch.

A way says which counts a batch's plan is made from: those of the batches before it (``previous``: the record; ``last``:
the last batch alone), its own, counted before it is placed (``same``), or none (``hash``). All make their plans by the
stream's own policy. Where a batch can also be placed in flight, by its own rows in the job that reads them
(``inflight``), that is taken to be as good as a plan by its own counts; what it takes on top is another price.
``WayScores`` follows the way that would have been cheapest.

A passive machine: ``next`` says the way of the next batch; for ``same`` the caller counts the batch and plans after
``counted``, and so it does where a batch cannot go ``inflight``. ``score`` takes the histogram of a finished batch,
``plan_ahead`` makes the plans for the next one. With its ``state`` another machine goes on where this one ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from unskew.core.freshness.batch_price import COUNT_SHARE, BatchPrice
from unskew.core.freshness.stream_planner import StreamPlanner
from unskew.core.freshness.way_scores import WayChoice, WayScores
from unskew.core.histogram.histogram import Histogram
from unskew.core.histogram.history import History
from unskew.core.plan.plan import Plan
from unskew.core.planners import Feedback
from unskew.core.planners.plan_cost import PlanCost
from unskew.core.quality.cost_fit import COST_BATCHES, TaskTimes, fit_cost

__all__ = ["FIRST", "OWN_ROWS", "Fresh", "Ways", "WaysState"]

Fresh: TypeAlias = Literal["auto", "previous", "same", "inflight"]
OWN_ROWS = ("same", "inflight")  # the ways that place a batch by its own rows
_CHANGES = 1 / 4  # that are expected before the first batch is seen
FIRST = WayChoice("same", "hash", "nothing is known of the stream: its first batch is counted")
_PLAIN = WayChoice("previous", "previous", "policy hash: no plan is made from counts")


@dataclass(frozen=True, eq=False)
class WaysState:
    """What a machine has learned. ``previous``: the plan of that way for the next batch; ``counted``: as in ``Ways``,
    and the plan of ``last``. ``timed``: the sums are of seconds. ``times``: of the tasks of the last batches."""

    scores: WayScores = field(default_factory=WayScores)
    previous: Plan | None = None
    counted: Plan | None = None
    record: History | None = None
    timed: bool = False
    times: Sequence[TaskTimes] = ()


class Ways:
    """Of one stream. ``fresh`` says among which ways: all, those by the batches before (``previous``), or one of
    ``same`` and ``inflight`` alone. ``counted`` is the last plan that was made from a batch's own counts. ``state`` is
    that of the machine that this one goes on for. ``fit``: what rows and keys cost."""

    def __init__(self, planner: StreamPlanner, fresh: Fresh = "auto", state: WaysState | None = None) -> None:
        state = state or WaysState()
        self._plain = planner.spec.policy == "hash"
        self._fresh: Fresh = "previous" if self._plain else fresh
        self._scores, self._timed = state.scores, state.timed
        self.record, self.counted = state.record or planner.record, state.counted
        self.feedback, self.fit = Feedback(times=state.times), fit_cost(state.times)
        self._use(planner, None, state.previous, state.counted)
        named = _PLAIN if self._plain else WayChoice(self._fresh, self._fresh, f"fresh={fresh!r}")
        self.next = FIRST if self._fresh == "auto" else named

    def _use(self, planner: StreamPlanner, slots: int | None, previous: Plan | None, last: Plan | None) -> None:
        self.planner = planner
        self.cost = PlanCost.of(planner.planner.algorithm.common, self.fit.model, slots=slots)
        self._hash = {} if self._own else {"hash": planner.by_hash()}
        self._plans = self._fitting(previous, last)

    def _fitting(self, previous: Plan | None, last: Plan | None) -> dict[str, Plan]:
        """The plan of each way, where it is for as many partitions as there are now."""
        plans = {**self._hash, "previous": previous, "last": None if self._own else last}
        n = self.planner.spec.partitions
        return {way: plan for way, plan in plans.items() if plan is not None and plan.partitions == n}

    @property
    def _own(self) -> bool:
        """Whether every batch is placed by its own rows."""
        return self._fresh in OWN_ROWS

    @property
    def state(self) -> WaysState:
        """What was learned, for a machine that goes on."""
        previous, times = self._plans.get("previous"), self.feedback.times
        return WaysState(self._scores, previous, self.counted, self.record, self._timed, times)

    def plan_by(self, planner: StreamPlanner, slots: int | None = None) -> None:
        """Make plans by these settings from now on, for so many tasks at once (None: all). Where the number of
        partitions changes the plans that are there go; the record and the scores stay."""
        if planner != self.planner or slots != self.cost.slots:
            self._use(planner, slots, self._plans.get("previous"), self._plans.get("last"))

    def add_times(self, times: TaskTimes) -> None:
        """Add a batch's task times: plans are made, and ways compared, by what rows and keys cost in them."""
        self.feedback = Feedback(times=(*self.feedback.times, times)[-COST_BATCHES:])
        self.fit = fit_cost(self.feedback.times)
        self.cost = replace(self.cost, model=self.fit.model)

    @property
    def plans(self) -> Mapping[str, Plan]:
        """The plan of each way for the next batch: those that are made before it comes."""
        return self._plans

    def plan_counted(self, own: Histogram, batch: int) -> Plan:
        """The plan for a batch that has been counted."""
        return self.planner.after(self.counted, own, batch, self.feedback)

    def score(
        self,
        histogram: Histogram,
        batch: int,
        price: BatchPrice | None = None,
        plans: Mapping[str, Plan] | None = None,
        *,
        flies: bool = False,
    ) -> None:
        """Add a finished batch to the record, and to each way what the batch would have cost by it. ``plans``: those
        that were there when the batch began, where there are newer ones by now. ``flies``: whether batches can be
        placed in flight."""
        self.record = self.record.add(histogram)
        if self._own or self._plain:
            return
        price = price or BatchPrice(1.0 / self.cost.even(histogram), COUNT_SHARE)
        if price.timed != self._timed:  # sums of seconds and of shares are not to be added
            self._scores, self._timed = WayScores(self._scores.decay), price.timed
        n, had = self.planner.spec.partitions, self._plans if plans is None else plans
        fit = {way: plan for way, plan in had.items() if plan.partitions == n}
        costs = {way: price.unit * self.cost.batch(plan, histogram) for way, plan in {**self._hash, **fit}.items()}
        if self._fresh == "auto":
            self.counted = self.plan_counted(histogram, batch)
            by_own = price.unit * self.cost.batch(self.counted, histogram)
            costs |= dict.fromkeys(OWN_ROWS if flies else ("same",), by_own)
        self._scores = self._scores.after(costs)
        if len(costs) > 1:
            self.next = self._scores.choice({"same": price.count, "inflight": price.flight, **self._unseen_change()})

    def _unseen_change(self) -> dict[str, float]:
        """What a change that has not come yet is expected to cost the plans of before, a batch: as much as plain hash
        costs more than a count. The longer none came, the less likely it is (the rule of succession)."""
        scores = self._scores
        if not {"same", "previous"} <= scores.sums.keys():
            return {}
        risk = _CHANGES / (scores.batches + 1) * max(scores.mean("hash") - scores.mean("same"), 0.0)
        return {"previous": risk, "last": risk}

    def plan_ahead(self, batch: int, previous: Plan | None = None) -> None:
        """Make the plans for the batch after ``batch``. ``previous``: the plan from the record, where a service has
        made it for as many partitions; else it is made here."""
        n = self.planner.spec.partitions
        if previous is None or previous.partitions != n:
            previous = self.planner.after(self._plans.get("previous"), self.record.merged(), batch, self.feedback)
        stale = self._fresh != "auto" or self.counted is None or self.counted.partitions != n
        if stale and not self._own:  # else it was made to score the batch
            self.counted = self.plan_counted(self.record.batches[-1], batch)
        self._plans = self._fitting(previous, self.counted)
