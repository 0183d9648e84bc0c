"""The plan for opaque groups: whole keys, heavy ones alone, the heaviest partition first.

A group takes as long as its own rows, so only the order of tasks can help: more partitions than slots, numbered by
descending load, so that short tasks run beside the long ones (``plan.relabel``).
"""

from __future__ import annotations

from unskew.core.histogram.histogram import Histogram
from unskew.core.limits import MAX_PARTITIONS
from unskew.core.plan.plan import Plan
from unskew.core.plan.relabel import relabelled
from unskew.core.planners import Origin, make_planner

__all__ = ["group_partitions", "group_plan"]

_PER_SLOT = 3  # at least: so the last tasks to end are about a third of a slot's share


def group_partitions(partitions: int, slots: int) -> int:
    """How many partitions to plan for a job that asks for ``partitions`` and runs ``slots`` tasks at once."""
    return min(max(partitions, _PER_SLOT * slots), MAX_PARTITIONS)


def group_plan(histogram: Histogram, partitions: int, seed: int = 7, origin: Origin | None = None) -> Plan:
    """The plan of whole keys for these rows, its partitions numbered by descending load."""
    plan = make_planner("kip", partitions, seed).plan(histogram, origin=origin)
    return relabelled(plan, plan.info.loads)
