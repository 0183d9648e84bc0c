"""From what was counted of a frame to a histogram."""

from __future__ import annotations

import numpy as np

from unskew.core.histogram.sampling import candidates, counted, one_in


def test_candidates_are_the_heaviest_keys_seen_twice() -> None:
    """Sorted by hash, with their distinct spread values in the sample."""
    hashes = np.array([9, 9, 9, 5, 5, 7, 3, 3, 3, 3], np.uint64)
    spread = np.array([1, 1, 2, 1, 1, 1, 1, 2, 3, 4], np.uint64)
    found = candidates(hashes, spread, 2)
    assert found.hashes.tolist() == [3, 9]
    assert found.spread is not None
    assert found.spread.tolist() == [4, 2]
    assert found.seen == 4
    assert candidates(hashes, None, 9).hashes.tolist() == [3, 5, 9]


def test_how_many_keys_are_counted_by_themselves_is_bounded() -> None:
    """All of a small frame's, one in 512 of ten million, never fewer than one in 8,192."""
    assert [one_in(rows) for rows in (0, 30_000, 40_000, 10e6, float("inf"))] == [1, 1, 2, 512, 8192]


def test_sampled_keys_count_for_their_host_and_for_how_many_keys_there_are() -> None:
    """One key of 1,024 by its low bits; its rows stay with the unlisted ones."""
    keys = np.array([(1 << 62) + 1024, (3 << 62) + 2048, (3 << 62) + 5], np.uint64)
    chosen = candidates(np.repeat(keys[2:], 2), None, 5, every=1024)
    zero = np.array([0], np.int64)
    found = counted(chosen, keys, np.array([4, 5000, 7]), zero, np.array([9]), 2)
    assert (found.hashes.tolist(), found.counts.tolist()) == ([int(keys[2])], [7])
    assert found.tail is not None
    assert found.tail.rows.tolist() == [9, 4, 0, 5000]
    assert found.tail.keys.tolist() == [9, 4, 0, round((2 * 1024 - 1) / 3)]
