"""Laws of the sketches: what holds for every stream, however it is cut, ordered and merged."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from papers.countmin import CountMin
from papers.hyperloglog import HyperLogLog
from unskew.core.sketches.frequent import FrequentItems, HeavyVerdict
from unskew.core.sketches.tally import tally

# Few different keys, so that batches collide; the domain is wider than most summaries.
KEYS = 24
DOMAIN = np.arange(KEYS, dtype=np.uint64) << np.uint64(40)
BATCH = st.lists(st.tuples(st.integers(0, KEYS - 1), st.integers(0, 40)), max_size=40)
BATCHES = st.lists(BATCH, max_size=6)
CAPACITY = st.integers(1, KEYS + 2)


def rows_of(batch):
    """A drawn batch as (hashes, counts)."""
    keys = np.array([key for key, _ in batch], np.intp)
    return DOMAIN[keys], np.array([count for _, count in batch], np.int64)


def true_counts(batches):
    """Exact counts over the domain, the slow way."""
    exact = Counter()
    for batch in batches:
        for key, count in batch:
            exact[key] += count
    return np.array([exact[key] for key in range(KEYS)], np.int64)


def summary_of(batches, capacity):
    """One summary that saw the batches in turn."""
    summary = FrequentItems(capacity)
    for batch in batches:
        summary = summary.update(*rows_of(batch))
    return summary


def assert_covers(summary, exact):
    """The guarantees of a summary against the exact counts."""
    lower, upper = summary.lower(DOMAIN), summary.upper(DOMAIN)
    assert np.all(lower <= exact)
    assert np.all(exact <= upper)
    assert np.all(upper - lower == summary.error)
    assert summary.error <= summary.bound
    assert len(summary.hashes) <= summary.capacity
    assert set(DOMAIN[exact > summary.error]) <= set(summary.hashes)


@given(BATCH)
def test_a_tally_is_the_exact_count_of_each_key_in_hash_order(batch):
    """Folding a batch loses nothing and lists no key without rows."""
    found = tally(*rows_of(batch))
    exact = true_counts([batch])
    assert found.hashes.tolist() == DOMAIN[exact > 0].tolist()
    assert found.counts.tolist() == exact[exact > 0].tolist()
    assert found.total == exact.sum()


@given(BATCHES, CAPACITY)
def test_frequent_items_cover_the_true_counts_for_any_cut_into_batches(batches, capacity):
    """lower <= f <= upper, error <= bound, and the total is exact."""
    summary, exact = summary_of(batches, capacity), true_counts(batches)
    assert_covers(summary, exact)
    assert summary.total == exact.sum()
    assert (summary.error * (capacity + 1)) <= summary.total - summary.counts.sum()


@given(st.lists(st.tuples(BATCHES, CAPACITY), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_frequent_items_keep_the_guarantees_in_any_tree_of_merges(streams, rng):
    """Merging in any shape, with different capacities, covers the union of the streams."""
    parts = [summary_of(batches, capacity) for batches, capacity in streams]
    exact = sum(true_counts(batches) for batches, _ in streams)
    while len(parts) > 1:
        left = parts.pop(rng.randrange(len(parts)))
        right = parts.pop(rng.randrange(len(parts)))
        assert left.merge(right) == right.merge(left)
        parts.append(left.merge(right))
    assert_covers(parts[0], exact)
    assert parts[0].total == exact.sum()
    assert parts[0].capacity == min(capacity for _, capacity in streams)


@given(st.lists(st.tuples(BATCHES, CAPACITY), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_merging_all_at_once_does_not_depend_on_the_order(streams, rng):
    """A round may read its agents' summaries in any order."""
    parts = [summary_of(batches, capacity) for batches, capacity in streams]
    merged = FrequentItems.merge_all(parts)
    assert_covers(merged, sum(true_counts(batches) for batches, _ in streams))
    rng.shuffle(parts)
    assert FrequentItems.merge_all(parts) == merged


@given(BATCHES)
def test_frequent_items_are_exact_while_they_have_a_counter_for_every_key(batches):
    """With room for all keys, any cut of the stream gives the same state, and it has no error."""
    summary, exact = summary_of(batches, KEYS), true_counts(batches)
    whole = summary_of([[row for batch in batches for row in batch]], KEYS)
    assert summary == whole
    assert summary == FrequentItems.merge_all([FrequentItems(KEYS), *(summary_of([b], KEYS) for b in batches)])
    assert summary.error == 0
    assert np.array_equal(summary.lower(DOMAIN), exact)


@given(BATCH, CAPACITY, st.randoms(use_true_random=False))
def test_the_rows_of_one_batch_may_come_in_any_order_and_one_by_one(batch, capacity, rng):
    """Shuffled rows, and weights written out as repeated rows, give the same state to the bit."""
    hashes, counts = rows_of(batch)
    summary = FrequentItems(capacity).update(hashes, counts)
    shuffled = list(batch)
    rng.shuffle(shuffled)
    assert FrequentItems(capacity).update(*rows_of(shuffled)) == summary
    assert FrequentItems(capacity).update(np.repeat(hashes, counts)) == summary


@given(BATCHES, CAPACITY, st.floats(0, 500))
def test_a_sure_verdict_is_never_wrong(batches, capacity, threshold):
    """A key called hot reaches the threshold, a key called cold does not."""
    summary, exact = summary_of(batches, capacity), true_counts(batches)
    verdicts = summary.verdicts(DOMAIN, threshold)
    assert np.all(exact[verdicts == HeavyVerdict.HOT] >= threshold)
    assert np.all(exact[verdicts == HeavyVerdict.COLD] < threshold)


@given(BATCHES, st.integers(1, 9), st.integers(1, 5), st.integers(0, 2**40))
def test_count_min_is_never_too_low_and_never_above_row_by_row(batches, width, depth, salt):
    """true <= batch form <= conservative row by row <= plain count-min, in every cell."""
    sketch, exact = CountMin(width, depth, salt), true_counts(batches)
    one_by_one, plain = CountMin(width, depth, salt), np.zeros((depth, width), np.int64)
    for batch in batches:
        hashes, counts = rows_of(batch)
        sketch.update(hashes, counts)
        for i in range(len(batch)):
            one_by_one.update(hashes[i : i + 1], counts[i : i + 1])
        for row, columns in zip(plain, sketch.cells(hashes), strict=True):
            np.add.at(row, columns, counts)
    assert np.all(sketch.estimate(DOMAIN) >= exact)
    assert np.all(sketch.table <= one_by_one.table)
    assert np.all(one_by_one.table <= plain)
    assert sketch.total == one_by_one.total == exact.sum()


@given(BATCHES, BATCHES, st.integers(1, 9))
def test_count_min_merges_from_either_side_and_is_never_too_low(left, right, width):
    """Merging adds: commutative to the bit, and still an upper bound of the union."""
    sketches = CountMin(width), CountMin(width)
    for sketch, batches in zip(sketches, (left, right), strict=True):
        for batch in batches:
            sketch.update(*rows_of(batch))
    merged, other = sketches[0].merge(sketches[1]), sketches[1].merge(sketches[0])
    assert np.array_equal(merged.table, other.table)
    assert np.all(merged.estimate(DOMAIN) >= true_counts(left + right))
    assert merged.total == true_counts(left + right).sum()


@given(BATCHES, st.randoms(use_true_random=False))
def test_hyperloglog_depends_on_the_set_of_keys_only(batches, rng):
    """Any cut, order, repetition and merging gives the same registers, and every key seen is contained."""
    whole, in_turn, merged = HyperLogLog(4), HyperLogLog(4), HyperLogLog(4)
    everything = rows_of([row for batch in batches for row in batch])[0]
    whole.update(everything)
    rng.shuffle(batches)
    for batch in batches:
        hashes = rows_of(batch)[0]
        in_turn.update(hashes)
        alone = HyperLogLog(4)
        alone.update(hashes)
        merged = alone.merge(merged)
    assert np.array_equal(whole.registers, in_turn.registers)
    assert np.array_equal(whole.registers, merged.registers)
    assert whole.contains(everything).all()


@given(BATCH, st.integers(0, KEYS - 1))
def test_containment_is_the_papers_trial_update(batch, key):
    """Holistic 3.2.2: contained exactly when a trial update leaves the estimate as it is."""
    sketch = HyperLogLog(4)
    sketch.update(rows_of(batch)[0])
    trial = sketch.copy()
    trial.update(DOMAIN[key : key + 1])
    assert sketch.contains(DOMAIN[key : key + 1])[0] == (trial.estimate() == sketch.estimate())
