"""Ranks and look-ups in arrays: heaviest first, a key's place in a sorted array, runs of equal values.

Every order is complete: ties go by hash, or stay in the order given. So equal contents rank equally on every machine,
which plans and merged rounds rely on.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from unskew.core.arrays.types import I64, U64, Index, Mask

__all__ = ["ascending", "descending", "find", "heaviest", "look_up", "marked", "new_values", "run_starts"]

Keys = NDArray[Any]
Number = TypeVar("Number", bound=np.generic)


def heaviest(hashes: U64, counts: I64, limit: int) -> Index:
    """Where the ``limit`` largest counts are, largest first, ties by hash.

    Only those are sorted: a partition finds the least of them, so the cost is linear in all counts.
    """
    if limit <= 0 or len(counts) == 0:
        return np.zeros(0, np.intp)
    index = np.arange(len(counts))
    if limit < len(counts):
        least = np.partition(counts, len(counts) - limit)[len(counts) - limit]
        over = np.flatnonzero(counts > least)
        even = np.flatnonzero(counts == least)
        even = even[np.argsort(hashes[even], kind="stable")][: limit - len(over)]
        index = np.concatenate([over, even])
    return index[np.lexsort((hashes[index], -counts[index]))]


def descending(values: NDArray[Any]) -> Index:
    """The order from the largest value down, ties in the order given."""
    return np.argsort(-values, kind="stable")


def find(ordered: Keys, keys: Keys) -> tuple[Index, Mask]:
    """Where each key is in a sorted array, and whether it is there; the place of a missing key means nothing."""
    if not len(ordered):
        return np.zeros(len(keys), np.intp), np.zeros(len(keys), np.bool_)
    at = np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)
    return at, ordered[at] == keys


def look_up(ordered: Keys, values: NDArray[Number], keys: Keys) -> NDArray[Number]:
    """The value of each key, where ``values[i]`` belongs to ``ordered[i]``; 0 for a key that is not there."""
    at, there = find(ordered, keys)
    return np.where(there, values[at], values.dtype.type(0)) if len(ordered) else np.zeros(len(keys), values.dtype)


def marked(index: Index, size: int) -> Mask:
    """A mask of ``size`` that is true at these places."""
    mask = np.zeros(size, np.bool_)
    mask[index] = True
    return mask


def ascending(keys: Keys) -> bool:
    """Whether each key is greater than the one before it: sorted, and none twice."""
    return not (keys[1:] <= keys[:-1]).any()


def new_values(ordered: Keys) -> Mask:
    """Marks each value of a sorted array that differs from the one before it."""
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return first


def run_starts(ordered: Keys) -> Index:
    """Where each run of equal values begins in a sorted array."""
    return np.flatnonzero(new_values(ordered))
