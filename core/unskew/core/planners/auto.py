"""Auto: which policy to use, if any; where plain hashing is good enough it does nothing, and says so. Ours.

1. Plain hash within ``enough`` (10 %) of even: do nothing.
2. Keys that may not be split (``splits=False``: opaque groups, state): ``kip``, with its gate. If the plan in force
   splits keys, ``kip`` ignores it and places anew.
3. Else the cheapest of the candidates under a linear cost model, in rows:

   ``cost = max over partitions of (per_row rows + per_key keys) / capacity  +  per_fragment (fragments - keys) / n``

   The first term is when the last task ends, the second the cost of merging the cuts, shared by n mergers. The
   coefficients are fitted from reported task times where there are any (``Feedback``): rows, keys and seconds of each
   task, of any number of tasks, so that times from before a change of n still count. Of candidates within 1 % of each
   other the smallest plan is taken.
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
from unskew.core.planners.prompt import Prompt
from unskew.core.quality.measures import LinearCost, load_imbalance, makespan

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
        model = self._model(feedback)
        hashed = Placement.tail_only(hash_tail(self.common))
        plain = self._built(hashed)
        present = previous if previous is not None and previous.partitions == self.common.partitions else None
        excess = load_imbalance(plain.loads(histogram), self.common.relative) - 1.0
        if excess <= self.enough:
            return self._nothing(hashed, plain, present, histogram, excess)
        if not self.splits:
            return self._whole(histogram, present, feedback)
        return self._cheapest(histogram, present, model, excess)

    def _whole(self, histogram: Histogram, present: Plan | None, feedback: Feedback | None) -> Place | KeepPrevious:
        why = "kip, keys may not be split"
        if present is not None and present.splits:
            present, why = None, f"{why}, as the plan in force does"
        answer = Kip(self.common).place(histogram, present, feedback)
        why = f"{why}: {answer.reason}"
        return KeepPrevious(why) if isinstance(answer, KeepPrevious) else Place(answer.placement, why)

    def _nothing(
        self, hashed: Placement, plain: Plan, present: Plan | None, histogram: Histogram, excess: float
    ) -> Place | KeepPrevious:
        why = f"do nothing: with plain hashing the largest partition is {excess:.1%} over its share"
        if present is None or present.splits:
            return Place(hashed, why)
        if present.digest == plain.digest:
            return KeepPrevious(why)
        if load_imbalance(present.loads(histogram), self.common.relative) - 1.0 <= self.enough:
            return KeepPrevious(f"{why}, and the plan in force is as good: nothing need move")
        return Place(hashed, why)

    def _cheapest(
        self, histogram: Histogram, present: Plan | None, model: LinearCost, excess: float
    ) -> Place | KeepPrevious:
        candidates: dict[str, PlannerAlgorithm] = {
            "balanced": Balanced(self.common),
            "prompt": Prompt(self.common),
            "kip": Kip(self.common, gate=False),
        }
        tried: list[tuple[float, int, str, Placement]] = []
        for name, algorithm in candidates.items():
            answer = algorithm.place(histogram, present, None)
            if isinstance(answer, Place):
                plan = self._built(answer.placement)
                tried.append((self._cost(plan, histogram, model), plan.slots, name, answer.placement))
        least = min(cost for cost, *_ in tried)
        _, _, name, placement = min((t for t in tried if t[0] <= least * _AS_GOOD), key=lambda t: t[1])
        even = self._even(histogram, model)
        why = f"{name}: {least / even:.2f} of an even share's cost; plain hashing is {excess:.0%} over its share"
        if present is not None:
            now = self._cost(present, histogram, model)
            if now - least <= self.least_gain * now:
                return KeepPrevious(
                    f"the plan in force costs {now / even:.2f} of an even share, {name} {least / even:.2f}"
                )
        return Place(placement, why)

    def _built(self, placement: Placement) -> Plan:
        return build_plan(placement, self.common.partitions, PlanInfo())

    def _model(self, feedback: Feedback | None) -> LinearCost:
        if feedback is None or feedback.seconds is None or feedback.loads is None or feedback.keys is None:
            return LinearCost(self.per_row, self.per_key, self.per_fragment)
        return LinearCost.fit(feedback.loads, feedback.keys, feedback.seconds, self.per_fragment)

    def _cost(self, plan: Plan, histogram: Histogram, model: LinearCost) -> float:
        keys = plan.cardinalities(histogram)
        tasks = model.tasks(plan.loads(histogram), keys) / self.common.relative
        cuts = max(int(keys.sum()) - histogram.keys, 0)
        return makespan(tasks) + model.per_fragment * cuts / self.common.partitions

    def _even(self, histogram: Histogram, model: LinearCost) -> float:
        n = self.common.partitions
        return float(model.tasks(histogram.total / n, histogram.keys / n)) or 1.0
