"""Both sides of a join counted for the same keys: what a sample of either side calls heavy. Two jobs a side."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column

from unskew.core.histogram.sampling import Candidates
from unskew.core.operators.join_plan import LEFT, RIGHT, JoinRows
from unskew.spark.frame.histogram import Sampling, exact_counts, sampled_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Side", "counted_sides"]

Side = tuple[
    "DataFrame", Column, "Column | None"
]  # a frame, what places its rows, and, if it may be split, their spread


def counted_sides(how: str, left: Side, right: Side, partitions: int, sampling: Sampling) -> JoinRows:
    """A key that one side lists and the other does not is counted on both."""
    sides = {LEFT: left, RIGHT: right}
    samples = {name: sampled_keys(*side, partitions, sampling) for name, side in sides.items()}
    keys = np.union1d(samples[LEFT].hashes, samples[RIGHT].hashes)
    counts = {
        name: exact_counts(df, key, replace(samples[name], hashes=keys, spread=None), partitions)
        for name, (df, key, _) in sides.items()
    }
    spread = {name: _spread_at(keys, sample) for name, sample in samples.items()}
    return JoinRows(how, counts[LEFT], counts[RIGHT], keys, spread)


def _spread_at(keys: NDArray[np.uint64], sample: Candidates) -> NDArray[np.int64]:
    """Spread values by key; 0 for keys that this side's sample does not have twice."""
    spread = np.zeros(len(keys), np.int64)
    if sample.spread is not None:
        spread[np.searchsorted(keys, sample.hashes)] = sample.spread
    return spread
