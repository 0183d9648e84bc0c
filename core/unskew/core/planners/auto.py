"""Auto: which policy to use, if any; where plain hashing is good enough it does nothing, and says so. Ours.

1. Plain hash within ``enough`` (10 %) of even, beside what chance alone would give for so few rows: do nothing.
2. Keys that may not be split (``splits=False``: opaque groups): ``kip``, which places them anew: where a batch keeps no
   state, a move costs nothing.
3. Else the cheapest of the candidates under a linear cost model (``plan_cost``). Its coefficients are fitted from task
   times where there are any (``quality.cost_fit``), of any number of tasks, so that times from before a change of n
   still count. Where they tell rows from keys, "even" means even in cost, and what evens out cost instead of rows is a
   candidate, too. Of candidates within 1 % of each other the smallest plan is taken.
4. The plan in force stays unless the best candidate is cheaper by more than ``least_gain``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram
from unskew.core.parameters import check_range
from unskew.core.plan.build import Placement, build_plan
from unskew.core.plan.plan import Plan, PlanInfo
from unskew.core.planners.balanced import Balanced
from unskew.core.planners.base import Feedback, KeepPrevious, Place, PlannerSettings
from unskew.core.planners.hashed import hash_tail
from unskew.core.planners.kip import Kip
from unskew.core.planners.plan_cost import PlanCost, chance_excess, weighed
from unskew.core.planners.prompt import Prompt
from unskew.core.quality.cost_fit import CostFit, fit_cost
from unskew.core.quality.measures import LinearCost, load_imbalance

__all__ = ["Auto"]

_AS_GOOD = 1.01


@dataclass(frozen=True, eq=False)
class Auto:
    """Chooses a policy and states the reason. ``splits``: whether a key's rows may be split and merged again."""

    common: PlannerSettings
    splits: bool = True
    enough: float = 0.10
    per_row: float = 1.0
    per_key: float = 1.0
    per_fragment: float = 2.0
    least_gain: float = 0.05

    def __post_init__(self) -> None:
        check_range("enough", self.enough, 0, 10, "0 to 10, the tolerated excess of the largest load")
        if not 0.0 <= self.least_gain < 1.0:
            raise ConfigError("least_gain", self.least_gain, "0 or more and below 1, a share of the present cost")
        LinearCost(self.per_row, self.per_key, self.per_fragment)

    def place(self, histogram: Histogram, previous: Plan | None, feedback: Feedback | None) -> Place | KeepPrevious:
        prior = LinearCost(self.per_row, self.per_key, self.per_fragment)
        fit = fit_cost(feedback.times if feedback is not None else (), prior)
        hashed = Placement.tail_only(hash_tail(self.common))
        plain = self._built(hashed)
        present = previous if previous is not None and previous.partitions == self.common.partitions else None
        excess = self._excess(plain, histogram, fit)
        if excess <= self._allowed(histogram):
            why = f"do nothing: with plain hashing the largest partition is {excess:.1%} over its share"
            return self._nothing(Place(hashed, why), plain, present, histogram, fit)
        return self._cheapest(histogram, present, fit, excess)

    def _excess(self, plan: Plan, histogram: Histogram, fit: CostFit) -> float:
        """By how much the fullest partition is over its share: in rows, or in cost where that is fitted."""
        loads = plan.loads(histogram)
        tasks = fit.model.tasks(loads, plan.cardinalities(histogram)) if fit.tells_keys else loads
        return load_imbalance(tasks, self.common.relative) - 1.0

    def _allowed(self, histogram: Histogram) -> float:
        return self.enough + chance_excess(histogram.total, self.common.partitions)

    def _nothing(
        self, hashed: Place, plain: Plan, present: Plan | None, histogram: Histogram, fit: CostFit
    ) -> Place | KeepPrevious:
        if present is None or present.splits:
            return hashed
        if present.digest == plain.digest:
            return KeepPrevious(hashed.reason)
        if self._excess(present, histogram, fit) <= self._allowed(histogram):
            return KeepPrevious(f"{hashed.reason}, and the plan in force is as good: nothing need move")
        return hashed

    def _cheapest(
        self, histogram: Histogram, present: Plan | None, fit: CostFit, excess: float
    ) -> Place | KeepPrevious:
        tried: list[tuple[float, int, str, Placement]] = []
        cost = PlanCost.of(self.common, fit.model)
        for name, answer in self._candidates(histogram, fit):
            if isinstance(answer, Place):
                plan = self._built(answer.placement)
                tried.append((cost.batch(plan, histogram), plan.slots, name, answer.placement))
        least = min(cost for cost, *_ in tried)
        _, _, name, placement = min((t for t in tried if t[0] <= least * _AS_GOOD), key=lambda t: t[1])
        even = cost.even(histogram)
        if present is not None and (self.splits or not present.splits):
            now = cost.batch(present, histogram)
            if now - least <= self.least_gain * now:
                return KeepPrevious(
                    f"the plan in force costs {now / even:.2f} of an even share, {name} {least / even:.2f}"
                )
        why = name if self.splits else f"{name}, keys may not be split"
        if present is not None and present.splits and not self.splits:
            why = f"{why}, as the plan in force does"
        why = f"{why}: {least / even:.2f} of an even share's cost; plain hashing is {excess:.0%} over its share"
        return Place(placement, f"{why}; {fit.text}" if fit.tells_keys else why)

    def _candidates(self, histogram: Histogram, fit: CostFit) -> Iterator[tuple[str, Place | KeepPrevious]]:
        kip = Kip(self.common, gate=False)
        if self.splits:
            yield "balanced", Balanced(self.common).place(histogram, None, None)
            yield "prompt", Prompt(self.common).place(histogram, None, None)
        yield "kip", kip.place(histogram, None, None)
        if fit.tells_keys:
            even = Balanced(self.common) if self.splits else kip
            yield "even in cost", even.place(weighed(histogram, fit.model), None, None)

    def _built(self, placement: Placement) -> Plan:
        return build_plan(placement, self.common.partitions, PlanInfo())
