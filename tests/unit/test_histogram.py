"""Histograms: exact counts as values, merged in any order, with a tail by host."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.planning import key_hashes, some_histogram
from unskew.core.arrays.ranking import heaviest
from unskew.core.errors import HistogramError
from unskew.core.histogram.histogram import MAX_ROWS, Histogram, Tail, fold_hosts, host_of
from unskew.core.sketches.tally import exact_sum
from unskew.simulate.key_streams import zipf_keys


def hist(counts: dict[int, int]) -> Histogram:
    return Histogram.from_counts(np.array(list(counts), np.uint64), np.array(list(counts.values()), np.int64))


def test_counting_hashes() -> None:
    """Sorted, distinct, with totals."""
    h = Histogram.from_hashes(np.array([9, 3, 9, 9, 3, 7], np.uint64))
    assert h.hashes.tolist() == [3, 7, 9]
    assert h.counts.tolist() == [2, 1, 3]
    assert (h.total, h.keys) == (6, 3)
    assert h.count(np.array([9, 4], np.uint64)).tolist() == [3, 0]


def test_counts_in_any_order_and_repeated_are_added_up() -> None:
    h = Histogram.from_counts(np.array([5, 1, 5, 2], np.uint64), np.array([1, 2, 3, 0]))
    assert h == hist({1: 2, 5: 4})
    assert hash(h) == hash(hist({5: 4, 1: 2}))


@given(
    st.lists(st.dictionaries(st.integers(0, 20), st.integers(1, 100), max_size=8), min_size=1, max_size=5), st.randoms()
)
def test_merging_in_any_order_and_grouping_gives_the_same(parts: list[dict[int, int]], random: object) -> None:
    """Commutative and associative, to the byte."""
    made = [hist(part) for part in parts]
    at_once = made[0].merge(*made[1:])
    random.shuffle(made)  # type: ignore[attr-defined]
    one_by_one = Histogram.empty()
    for part in made:
        one_by_one = part.merge(one_by_one)
    assert one_by_one == at_once
    assert at_once.total == sum(sum(part.values()) for part in parts)


def test_top_is_heaviest_first_ties_by_hash() -> None:
    h = hist({8: 5, 2: 5, 4: 9, 6: 1})
    keys, counts = h.top(3)
    assert keys.tolist() == [4, 2, 8]
    assert counts.tolist() == [9, 5, 5]
    assert h.top(0)[0].tolist() == []
    assert h.top(99)[0].tolist() == [4, 2, 8, 6]


@given(st.integers(1, 60), st.integers(0, 70))
def test_the_heaviest_equal_a_full_sort(keys: int, limit: int) -> None:
    """The linear selection and a complete sort agree, ties at the border included."""
    rng = np.random.default_rng(keys * 100 + limit)
    counts = rng.integers(1, 5, keys)
    hashes = key_hashes(keys, keys)
    assert heaviest(hashes, counts, limit).tolist() == np.lexsort((hashes, -counts))[:limit].tolist()


def test_decay_keeps_the_sum_to_a_row_and_takes_the_share_of_no_key() -> None:
    """Rounded down, the keys of one row would vanish, and the heavy ones' share would grow by a fifth."""
    h = hist({1: 100, 2: 1, 3: 3}).decay(0.5)
    assert h == hist({1: 50, 2: 1, 3: 1})
    keys = zipf_keys(np.random.default_rng(1), 60_000, 100_000, 1.0).astype(np.uint64)
    full = Histogram.from_hashes(keys * np.uint64(0x9E3779B97F4A7C15))
    for factor in (0.9, 0.5, 0.1):
        faded = full.decay(factor)
        assert abs(faded.total - factor * full.total) <= 1
        assert faded.top(20)[1].sum() / faded.total == pytest.approx(full.top(20)[1].sum() / full.total, rel=0.01)


def test_decay_by_one_or_zero_and_by_nothing_else() -> None:
    h = hist({1: 100, 2: 1, 3: 3})
    assert h.decay(1.0) is h
    assert h.decay(0.0).total == 0
    with pytest.raises(HistogramError, match=r"0\.0 to 1\.0"):
        h.decay(1.5)


def test_decay_of_the_tail_keeps_no_more_keys_than_rows() -> None:
    h = Histogram.from_counts(np.zeros(0, np.uint64), [], Tail(np.array([10, 1]), np.array([9, 1]))).decay(0.5)
    assert h.tail is not None
    assert (h.tail.rows.tolist(), h.tail.keys.tolist()) == ([5, 1], [5, 1])


def test_the_tail_counts_in_totals_and_merges_at_the_coarser_grain() -> None:
    fine = Histogram.from_counts(np.array([1], np.uint64), [4], Tail(np.array([1, 2, 3, 4]), np.ones(4)))
    coarse = Histogram.from_counts(np.array([1], np.uint64), [6], Tail(np.array([5, 5]), np.array([2, 2])))
    both = fine.merge(coarse)
    assert (both.total, both.keys) == (4 + 10 + 6 + 10, 1 + 4 + 4)
    assert both.tail is not None
    assert both.tail.rows.tolist() == [8, 12]


def test_folding_keeps_every_row() -> None:
    """Listed keys stay out, the others go to their host; finer or coarser hosts add up to the same."""
    h = some_histogram(rows=10_000, keys=500)
    listed = np.zeros(len(h.hashes), bool)
    listed[:5] = True
    for bits in (0, 3, 12):
        tail = h.fold(listed, bits)
        assert exact_sum(tail.rows) == h.total - int(h.counts[:5].sum())
        assert exact_sum(tail.keys) == h.keys - 5
    assert h.fold(listed, 12).fold(3).rows.tolist() == h.fold(listed, 3).rows.tolist()


@given(st.lists(st.integers(0, 2**40), min_size=4, max_size=4), st.integers(0, 6))
def test_fold_hosts_shares_out_and_sums_up_exactly(rows: list[int], bits: int) -> None:
    folded = fold_hosts(np.array(rows), bits)
    assert len(folded) == 1 << bits
    assert folded.sum() == sum(rows)


def test_hosts_are_the_top_bits() -> None:
    keys = np.array([0, 2**63, 2**64 - 1], np.uint64)
    assert host_of(keys, 12).tolist() == [0, 2048, 4095]
    assert host_of(keys, 0).tolist() == [0, 0, 0]


def test_spread_counts_survive_merging_as_a_lower_bound() -> None:
    a = Histogram(np.array([1, 2], np.uint64), np.array([5, 5]), spread=np.array([3, 1]))
    b = Histogram(np.array([2, 3], np.uint64), np.array([5, 5]), spread=np.array([4, 2]))
    merged = a.merge(b, hist({7: 1}))
    assert merged.spread is not None
    assert merged.spread.tolist() == [3, 4, 2, 0]


def test_totals_do_not_wrap() -> None:
    """Up to 2^63 - 1 rows is a histogram, one more is an error."""
    full = hist({1: MAX_ROWS - 1, 2: 1})
    assert full.total == MAX_ROWS
    with pytest.raises(HistogramError, match="at most 2\\^63 - 1"):
        full.merge(hist({3: 1}))
    with pytest.raises(HistogramError, match="rows in all"):
        hist({1: MAX_ROWS, 2: 1})


@pytest.mark.parametrize(
    ("hashes", "counts", "message"),
    [
        ([1, 2], [1], "2 hashes but 1 counts"),
        ([1], [-1], "negative"),
        ([1], [1.5], "whole numbers"),
        ([1], ["x"], "whole numbers"),
        ([1], np.array([2**63], np.uint64), "whole numbers"),
    ],
)
def test_counts_that_cannot_be_are_refused(hashes: list[int], counts: object, message: str) -> None:
    with pytest.raises(HistogramError, match=message):
        Histogram.from_counts(np.array(hashes, np.uint64), counts)  # type: ignore[arg-type]


def test_raw_arrays_are_checked() -> None:
    """The constructor takes arrays from outside: unsorted, repeated or empty keys are refused."""
    for hashes, counts in [([2, 1], [1, 1]), ([1, 1], [1, 1]), ([1], [0]), ([1, 2], [1])]:
        with pytest.raises(HistogramError):
            Histogram(np.array(hashes, np.uint64), np.array(counts))
    for rows, keys in [([1, 2, 3], [1, 1, 1]), ([1, 2], [1]), ([-1, 2], [1, 1])]:
        with pytest.raises(HistogramError, match="tail"):
            Tail(np.array(rows), np.array(keys))
