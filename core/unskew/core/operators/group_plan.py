"""The plan for opaque groups: whole keys, heavy ones alone, the heaviest partition first.

No group ends before its own rows have been worked off, so what can be done is done by order: more partitions than
slots, numbered by descending load, and short tasks fill up beside the long ones (``relabel``).
"""

from __future__ import annotations

from unskew.core.histogram.histogram import Histogram
from unskew.core.limits import MAX_PARTITIONS
from unskew.core.plan.plan import Plan
from unskew.core.plan.relabel import relabelled
from unskew.core.planners import Origin, make_planner

__all__ = ["group_partitions", "group_plan"]

_PER_SLOT = 3  # at least: what is left to even out at the end is a third of a slot's share


def group_partitions(partitions: int, slots: int) -> int:
    """How many there are of a job that would have ``partitions``, where so many tasks run at once."""
    return min(max(partitions, _PER_SLOT * slots), MAX_PARTITIONS)


def group_plan(histogram: Histogram, partitions: int, seed: int = 7, origin: Origin | None = None) -> Plan:
    plan = make_planner("kip", partitions, seed).plan(histogram, origin=origin)
    return relabelled(plan, plan.info.loads)
