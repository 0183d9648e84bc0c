"""From what was counted of a frame to a histogram."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.core.errors import ConfigError
from unskew.core.histogram.sampling import (
    candidates,
    counted,
    draw_by_weight,
    one_in,
    rows_of_mean_weight,
    sample_histogram,
)


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


@given(
    st.lists(st.floats(0.0, 1e12), min_size=1, max_size=50).filter(lambda weights: sum(weights) > 1e-6),
    st.integers(0, 1_000_000),
)
def test_weights_in_rows_sum_up_to_the_rows(weights: list[float], rows: int) -> None:
    """Each within one of its share."""
    given = np.array(weights)
    found = rows_of_mean_weight(given, rows)
    assert found.sum() == rows
    assert np.abs(found - given * rows / given.sum()).max() <= 1.0


@pytest.mark.parametrize("weights", [[0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0]])
def test_weights_without_a_finite_sum_above_0_are_refused(weights: list[float]) -> None:
    with pytest.raises(ConfigError, match=r"weight: .*finite numbers, above 0"):
        rows_of_mean_weight(np.array(weights), 2)


def test_rows_are_drawn_as_often_as_they_weigh() -> None:
    """At even steps through the weights: here at 1, 3, 5 and 7 of 8."""
    assert draw_by_weight(np.array([2.0, 0.0, 5.5, 0.5])).tolist() == [0, 2, 2, 2]
    assert np.bincount(draw_by_weight(np.repeat([1.0, 9.0], 500)) // 500).tolist() == [100, 900]


def test_a_sample_by_weight_knows_few_heavy_rows() -> None:
    """One row in two of 2,000: ten keys of two rows, whose rows weigh fifty times as much."""
    keys = np.repeat(np.arange(1, 501, dtype=np.uint64), 2)
    weights = np.where(keys <= 10, 50.0, 1.0)
    found = sample_histogram(keys, np.arange(1_000, dtype=np.uint64), 2_000, 8, weights)
    each = 2 * 50 * 2_000 / weights.sum()
    assert found.total == 2_000
    assert found.count(np.arange(1, 11, dtype=np.uint64)) == pytest.approx(each, abs=1)
    by_rows = sample_histogram(keys, None, 2_000, 8)
    assert by_rows.count(np.arange(1, 11, dtype=np.uint64)).tolist() == [4] * 10
