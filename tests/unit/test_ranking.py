"""Ranks and look-ups in arrays, against the plain way."""

from __future__ import annotations

import numpy as np
import pytest

from tests.planning import key_hashes
from unskew.core.arrays.ranking import ascending, descending, find, heaviest, look_up, marked, run_starts


@pytest.mark.parametrize("size", [0, 1, 5, 200])
def test_keys_are_found_where_they_stand_and_others_are_not(size: int) -> None:
    """Also beyond both ends, and in nothing at all."""
    ordered = np.sort(key_hashes(size))
    keys = np.concatenate([ordered[::2], np.array([0, 2**64 - 1], np.uint64), key_hashes(50, seed=9)])
    at, there = find(ordered, keys)
    assert there.tolist() == np.isin(keys, ordered).tolist()
    assert np.array_equal(ordered[at[there]], keys[there])


def test_a_value_is_looked_up_by_its_key_and_is_0_for_a_key_that_is_not_there() -> None:
    ordered, values = np.array([3, 5, 9], np.uint64), np.array([30, 50, 90])
    assert look_up(ordered, values, np.array([9, 4, 3], np.uint64)).tolist() == [90, 0, 30]
    none = look_up(ordered[:0], values[:0], ordered)
    assert (none.tolist(), none.dtype) == ([0, 0, 0], np.dtype(np.int64))


def test_ties_are_broken_by_hash_or_stay_in_the_order_given() -> None:
    hashes, counts = np.array([9, 4, 7, 1], np.uint64), np.array([5, 8, 5, 5])
    assert heaviest(hashes, counts, 3).tolist() == [1, 3, 2]
    assert descending(counts).tolist() == [1, 0, 2, 3]


def test_runs_and_marks() -> None:
    """Empty arrays have no run; a sorted array is ascending only where no value comes twice."""
    assert run_starts(np.array([2, 2, 5, 7, 7])).tolist() == [0, 2, 3]
    assert run_starts(np.zeros(0)).tolist() == []
    assert marked(np.array([2, 0]), 4).tolist() == [True, False, True, False]
    assert [ascending(np.array(values)) for values in ([], [1], [1, 2], [1, 1], [2, 1])] == [
        True,
        True,
        True,
        False,
        False,
    ]
