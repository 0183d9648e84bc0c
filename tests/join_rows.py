"""Rows of both sides of a join, as they are counted."""

from __future__ import annotations

import numpy as np

from unskew.core import hash_keys
from unskew.core.histogram.histogram import Histogram, Tail
from unskew.core.operators.join_plan import JoinRows

__all__ = ["HASHES", "rows_of"]

HASHES = np.sort(hash_keys(list(range(6))))


def rows_of(left: list[int], right: list[int], how: str = "inner", spread: int = 10_000) -> JoinRows:
    """Six listed keys and a tail of 4,096 rows of as many keys on each side."""
    ones = np.ones(4096, np.int64)

    def side(counts: list[int]) -> Histogram:
        found = np.array(counts)
        return Histogram(HASHES[found > 0], found[found > 0], Tail(ones, ones))

    told = np.full(len(HASHES), spread, np.int64)
    return JoinRows(how, side(left), side(right), HASHES, {"left": told, "right": told})
