"""How good a routing is: the measures of the five papers (``measures``), and the same over sliding windows
(``windows``).

>>> from unskew.core import quality
>>> quality.load_imbalance([30, 10, 20])
1.5
"""

from __future__ import annotations

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
    "Costs",
    "LinearCost",
    "block_metrics",
    "cardinalities",
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
