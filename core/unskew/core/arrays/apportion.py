"""Whole rows shared out by weight, exactly.

All of it is integer arithmetic on Python ints, because counts may be near 2^63 and a plan promises shares "within one
tuple".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unskew.core.arrays.types import F64, I32, I64

__all__ = ["apportion", "capacities", "turns"]


def apportion(total: int, shares: Sequence[int]) -> list[int]:
    """Split ``total`` into whole numbers proportional to ``shares``: largest remainder, ties to the first.

    >>> apportion(10, [1, 1, 1])
    [4, 3, 3]
    """
    whole = sum(shares)
    parts = [total * share // whole for share in shares]
    rest = total - sum(parts)
    if rest:
        order = sorted(range(len(shares)), key=lambda i: (-(total * shares[i] % whole), i))
        for i in order[:rest]:
            parts[i] += 1
    return parts


def capacities(total: int, weights: F64) -> I64:
    """The rows each partition should get: ``total`` by weight, within one row of the exact share."""
    if (weights == weights[0]).all():
        base, rest = divmod(total, len(weights))
        out = np.full(len(weights), base, np.int64)
        out[:rest] += 1
        return out
    ratios = [weight.as_integer_ratio() for weight in weights.tolist()]
    common = max(below for _, below in ratios)  # powers of two: the largest is a multiple of all
    return np.array(apportion(total, [above * (common // below) for above, below in ratios]), np.int64)


def turns(count: int, weights: F64) -> I32:
    """The partition of each of ``count`` turns: round robin when weights are equal (the paper's round), else as evenly
    interleaved as the weights allow."""
    n = len(weights)
    if (weights == weights[0]).all():
        return (np.arange(count) % n).astype(np.int32)
    share = weights / weights.sum()
    quota = np.ceil(share * count).astype(np.int64) + 1
    owner = np.repeat(np.arange(n), quota)
    nth = np.arange(len(owner)) - np.repeat(np.cumsum(quota) - quota, quota)
    due = (nth + 0.5) / share[owner]
    return owner[np.lexsort((owner, due))][:count].astype(np.int32)
