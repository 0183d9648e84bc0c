"""How good a routing is: the measures of the five papers (``measures``), the same over sliding windows (``windows``),
and what tasks cost by their times (``cost_fit``).

>>> from unskew.core import quality
>>> quality.load_imbalance([30, 10, 20])
1.5
"""

from __future__ import annotations

from unskew.core.quality.cost_fit import CostFit, TaskTimes, fit_cost
from unskew.core.quality.measures import (
    BlockMetrics,
    Costs,
    LinearCost,
    block_metrics,
    cardinalities,
    fragment_count,
    holistic,
    imbalance,
    load_imbalance,
    loads,
    makespan,
    metrics_of,
    moved_share,
    replication,
    split_share,
)

__all__ = [
    "BlockMetrics",
    "CostFit",
    "Costs",
    "LinearCost",
    "TaskTimes",
    "block_metrics",
    "cardinalities",
    "fit_cost",
    "fragment_count",
    "holistic",
    "imbalance",
    "load_imbalance",
    "loads",
    "makespan",
    "metrics_of",
    "moved_share",
    "replication",
    "split_share",
]
