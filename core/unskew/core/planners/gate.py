"""Is a new plan worth the move? The gain-against-migration gate of KIP/DR section 3.

Gain and cost are put in one unit, rows on the critical path. A batch ends when its slowest partition does, so the
gain is the fall of the *largest* load (a cluster-wide average hid a 3.6x skew for hours elsewhere), counted for
``horizon`` batches. Moving state is shared by all partitions, so its cost is the moved rows / n, times what a row
of state costs to move compared with what a row costs to process. The comparison is always with the plan in force, the
last one *accepted*, on the present rows: slow drift adds up until a new plan pays. A plan that moves no state is taken
where it is more even, however little: one key may hold the largest load up while the others get better places.

Where task times tell what a row and a key cost, a load is a partition's cost, and the reason names seconds. What moving
a row of state costs is measured by nobody: it stays in rows, of the mean cost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.core.arrays.types import F64
from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Plan
from unskew.core.quality.cost_fit import CostFit

__all__ = ["Gate", "GateVerdict"]


@dataclass(frozen=True)
class GateVerdict:
    """Whether to switch plans, and why, in figures."""

    switch: bool
    reason: str


@dataclass(frozen=True)
class Gate:
    """``horizon`` batches over which a gain counts; ``cost`` of moving a row of state; least gain in mean loads."""

    horizon: float = 5.0
    cost: float = 1.0
    least: float = 0.05

    def __post_init__(self) -> None:
        if not self.horizon > 0:
            raise ConfigError("horizon", self.horizon, "a number of batches above 0")
        if not self.cost >= 0:
            raise ConfigError("migration_cost", self.cost, "0 or more, in rows processed per row moved")
        if not 0 <= self.least < 1:
            raise ConfigError("least_gain", self.least, "0 or more and below 1, in mean loads")

    def judge(
        self,
        candidate: Plan,
        accepted: Plan,
        rows: Histogram,
        state: Histogram,
        relative: F64,
        fit: CostFit | None = None,
    ) -> GateVerdict:
        """Compare both plans on the current ``rows``; ``state`` counts the rows of state that may have to move, ``fit``
        says what a row and a key cost."""
        n = candidate.partitions
        if accepted.partitions != n:
            return GateVerdict(switch=True, reason=f"from {accepted.partitions} to {n} partitions")
        costs = fit if fit is not None and fit.tells_keys else None
        mean = rows.total / n if rows.total else 1.0
        share = mean if costs is None else float(costs.model.tasks(rows.total, rows.keys)) / n or 1.0
        before, after = _loads(accepted, rows, costs) / relative, _loads(candidate, rows, costs) / relative
        now, then = float(before.max(initial=0)) / share, float(after.max(initial=0)) / share
        gain = now - then
        moved = candidate.moved_share(accepted, state)
        cost = moved * state.total * self.cost / n / mean
        figures = (
            f"largest load {now:.2f} -> {then:.2f} of the mean, {gain * self.horizon:.2f} over {self.horizon:g} "
            f"batches, against {cost:.2f} for moving {moved:.1%} of the state"
        )
        if costs is not None:
            figures = f"{figures}; 1 is {costs.unit * share:.3g} s"
        if moved * state.total == 0.0 and gain >= 0.0 and after.var() < before.var():
            return GateVerdict(switch=True, reason=f"moves nothing that is kept: {figures}")
        if gain < self.least:
            return GateVerdict(switch=False, reason=f"no gain worth a move: {figures}")
        if gain * self.horizon <= cost:
            return GateVerdict(switch=False, reason=f"moving costs more than it gains: {figures}")
        return GateVerdict(switch=True, reason=figures)


def _loads(plan: Plan, rows: Histogram, costs: CostFit | None) -> F64:
    loads = plan.loads(rows).astype(np.float64)
    return loads if costs is None else costs.model.tasks(loads, plan.cardinalities(rows))
