"""The same plan with its partitions renumbered, the heaviest first.

Spark starts the tasks of a stage roughly by partition number. Where there are more partitions than slots, a long task
that starts last runs alone at the end; if it starts first, short ones fill up beside it (longest processing time
first). In the plan of one job the numbers have no meaning. State is stored by partition number, so plans of stateful
streams are never relabelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from unskew.core.arrays.ranking import descending
from unskew.core.errors import PlanError
from unskew.core.plan.hot_keys import SplitSlots
from unskew.core.plan.plan import Plan

__all__ = ["relabelled"]

_WHY = "partitions numbered by descending load"


def relabelled(plan: Plan, loads: ArrayLike | Sequence[float]) -> Plan:
    """``plan`` with partition 0 the heaviest by ``loads``, ties by their old number.

    It routes differently, so its digest differs, and its figures of what moved since a previous plan are cleared.
    """
    weights = np.asarray(loads, np.float64)
    if weights.shape != (plan.partitions,) or not np.isfinite(weights).all():
        raise PlanError(f"{weights.size} loads for {plan.partitions} partitions: give one finite number for each")
    order = descending(weights)
    number = np.empty(plan.partitions, np.int32)
    number[order] = np.arange(plan.partitions, dtype=np.int32)
    hot, slots = plan.hot, plan.hot.slots
    home = np.where(hot.home >= 0, number[np.maximum(hot.home, 0)], hot.home)
    moved = replace(hot, home=home, slots=SplitSlots(slots.bits, number[slots.first], number[slots.second], slots.cut))
    before = plan.info
    info = replace(
        before,
        reason=f"{before.reason}; {_WHY}" if before.reason else _WHY,
        loads=tuple(before.loads[i] for i in order.tolist()) if before.loads else (),
        previous=None,
        moved_rows=0.0,
        moved_keys=0.0,
    )
    return Plan(plan.partitions, number[plan.tail], moved, plan.key_types, info)
