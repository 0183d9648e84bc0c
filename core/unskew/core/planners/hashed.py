"""Plain hash partitioning as a plan: the baseline and the last fallback.

Hosts are dealt to partitions in equal runs, or in runs proportional to the weights. A run is contiguous because
the key hash is uniform already; with H >= 32 n hosts no partition is more than 1/32 from its share.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.core.arrays.types import I32
from unskew.core.histogram.histogram import Histogram
from unskew.core.limits import host_bits
from unskew.core.plan.build import Placement
from unskew.core.plan.plan import Plan
from unskew.core.planners.base import Feedback, Place, PlannerSettings

__all__ = ["HashPlanner", "hash_tail"]


def hash_tail(settings: PlannerSettings) -> I32:
    """Host -> partition under plain hashing."""
    hosts = 1 << host_bits(settings.partitions)
    if settings.even:
        return (np.arange(hosts) * settings.partitions // hosts).astype(np.int32)
    ends = np.cumsum(settings.weights) / settings.weights.sum()
    middle = (np.arange(hosts) + 0.5) / hosts
    return np.minimum(np.searchsorted(ends, middle, side="right"), settings.partitions - 1).astype(np.int32)


@dataclass(frozen=True, eq=False)
class HashPlanner:
    """Plain hashing: every key goes with its host."""

    common: PlannerSettings

    def place(self, histogram: Histogram, previous: Plan | None, feedback: Feedback | None) -> Place:  # noqa: ARG002 - a hash needs to know nothing
        return Place(Placement.tail_only(hash_tail(self.common)), "plain hashing was asked for")
