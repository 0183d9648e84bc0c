"""Auto: which policy to use, if any; where plain hashing is good enough it does nothing, and says so. Ours.

1. Plain hash within ``enough`` (10 %) of even, beside what chance alone would give for so few rows: do nothing.
2. Keys that may not be split (``splits=False``: opaque groups): ``kip``, which places them anew: where a batch keeps no
   state, a move costs nothing.
3. Else the cheapest of the candidates under a linear cost model (``plan_cost``). Its coefficients are fitted from
   reported task times where there are any (``Feedback``): rows, keys and seconds of each task, of any number of tasks,
   so that times from before a change of n still count. Of candidates within 1 % of each other the smallest plan is
   taken.
4. The plan in force stays unless the best candidate is cheaper by more than ``least_gain``.
"""

from __future__ import annotations

from dataclasses import dataclass

from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram
from unskew.core.parameters import check_range
from unskew.core.plan.build import Placement, build_plan
from unskew.core.plan.plan import Plan, PlanInfo
from unskew.core.planners.balanced import Balanced
from unskew.core.planners.base import Feedback, KeepPrevious, Place, PlannerAlgorithm, PlannerSettings
from unskew.core.planners.hashed import hash_tail
from unskew.core.planners.kip import Kip
from unskew.core.planners.plan_cost import PlanCost, chance_excess
from unskew.core.planners.prompt import Prompt
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
        cost = PlanCost.of(self.common, self._model(feedback))
        hashed = Placement.tail_only(hash_tail(self.common))
        plain = self._built(hashed)
        present = previous if previous is not None and previous.partitions == self.common.partitions else None
        excess = load_imbalance(plain.loads(histogram), self.common.relative) - 1.0
        if excess <= self._allowed(histogram):
            return self._nothing(hashed, plain, present, histogram, excess)
        return self._cheapest(histogram, present, cost, excess)

    def _allowed(self, histogram: Histogram) -> float:
        return self.enough + chance_excess(histogram.total, self.common.partitions)

    def _nothing(
        self, hashed: Placement, plain: Plan, present: Plan | None, histogram: Histogram, excess: float
    ) -> Place | KeepPrevious:
        why = f"do nothing: with plain hashing the largest partition is {excess:.1%} over its share"
        if present is None or present.splits:
            return Place(hashed, why)
        if present.digest == plain.digest:
            return KeepPrevious(why)
        if load_imbalance(present.loads(histogram), self.common.relative) - 1.0 <= self._allowed(histogram):
            return KeepPrevious(f"{why}, and the plan in force is as good: nothing need move")
        return Place(hashed, why)

    def _cheapest(
        self, histogram: Histogram, present: Plan | None, cost: PlanCost, excess: float
    ) -> Place | KeepPrevious:
        tried: list[tuple[float, int, str, Placement]] = []
        for name, algorithm in self._candidates().items():
            answer = algorithm.place(histogram, None, None)
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
        return Place(placement, why)

    def _candidates(self) -> dict[str, PlannerAlgorithm]:
        whole: dict[str, PlannerAlgorithm] = {"kip": Kip(self.common, gate=False)}
        return {"balanced": Balanced(self.common), "prompt": Prompt(self.common), **whole} if self.splits else whole

    def _built(self, placement: Placement) -> Plan:
        return build_plan(placement, self.common.partitions, PlanInfo())

    def _model(self, feedback: Feedback | None) -> LinearCost:
        if feedback is None or feedback.seconds is None or feedback.loads is None or feedback.keys is None:
            return LinearCost(self.per_row, self.per_key, self.per_fragment)
        return LinearCost.fit(feedback.loads, feedback.keys, feedback.seconds, self.per_fragment)
