"""The sketches on worked examples, at their limits, and their error statements measured."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest

from papers.countmin import CountMin
from papers.hyperloglog import HyperLogLog, estimate_registers
from unskew.core.errors import ConfigError, HistogramError
from unskew.core.keys.hashing import mix
from unskew.core.sketches.frequent import FrequentItems, HeavyVerdict

LIMIT = 2**63 - 1


def u64(*values):
    """A short array of key hashes."""
    return np.array(values, np.uint64)


def i64(*values):
    """A short array of counts."""
    return np.array(values, np.int64)


def keys_of(count, stream=0):
    """Distinct key hashes, another set for each stream."""
    return mix(np.arange(count, dtype=np.uint64) + (np.uint64(stream) << np.uint64(32)), 77)


def zipf_rows(rows, exponent, keys=100_000, seed=1):
    """Key numbers of a Zipf stream."""
    weights = 1 / np.arange(1, keys + 1) ** exponent
    return np.random.default_rng(seed).choice(keys, size=rows, p=weights / weights.sum())


# --- frequent items ---------------------------------------------------------------------------------------


def test_merge_subtracts_the_largest_count_beyond_the_capacity():
    """By hand, k = 3: counts 9 7 5 | 4 2 after adding; 4 goes from all, the error grows by 4."""
    left = FrequentItems(3).update(u64(1, 2, 4), i64(9, 3, 4))
    right = FrequentItems(3).update(u64(2, 3, 5), i64(4, 5, 2))
    merged = left.merge(right)
    assert merged.hashes.tolist() == [1, 2, 3]
    assert merged.counts.tolist() == [5, 3, 1]
    assert (merged.error, merged.total, merged.bound) == (4, 27, 6)
    assert merged.lower(u64(1, 2, 3, 4, 99)).tolist() == [5, 3, 1, 0, 0]
    assert merged.upper(u64(1, 2, 3, 4, 99)).tolist() == [9, 7, 5, 4, 4]


def test_the_error_bound_is_reached_when_all_keys_weigh_the_same():
    """k + 1 keys of equal count: nothing can be told apart, and the error is total / (k + 1)."""
    summary = FrequentItems(9).update(keys_of(10), np.full(10, 6))
    assert len(summary.hashes) == 0
    assert summary.error == summary.bound == 6


def test_the_error_is_well_under_its_bound_on_a_skewed_stream():
    """Zipf 1.0, a million rows in 100 batches: no key is further off than the error, nor it than L/(k+1)."""
    numbers = zipf_rows(1_000_000, 1.0)
    hashes = keys_of(100_000)
    summary = FrequentItems(1024)
    for rows in np.split(hashes[numbers], 100):
        summary = summary.update(rows)
    exact = np.bincount(numbers, minlength=100_000)
    assert summary.bound == 1_000_000 // 1025
    assert 0 < summary.error <= summary.bound
    assert np.all((summary.lower(hashes) <= exact) & (exact <= summary.upper(hashes)))


def agents_of_the_counter_example(capacity):
    """FIDELITY, "no heavy hitter is missed": 76 k at one agent; 28 a, 27 b, 26 k at the other; 100 rows."""
    a, b, k = u64(1, 2, 3)
    one = np.concatenate([np.full(76, k), keys_of(24, 1)])
    two = np.concatenate([np.full(28, a), np.full(27, b), np.full(26, k), keys_of(19, 2)])
    return k, [FrequentItems(capacity).update(rows) for rows in (one, two)]


def test_a_key_that_no_top_n_reports_twice_is_still_called_hot():
    """f(k) = 102 >= GL/n = 100, though the second agent's top two leave k out and 76 would be seen."""
    key, agents = agents_of_the_counter_example(capacity=16)
    assert key not in agents[1].hashes[np.argsort(agents[1].counts)[-2:]]
    merged = FrequentItems.merge_all(agents)
    assert merged.hashes[merged.verdicts(merged.hashes, 200 / 2) == HeavyVerdict.HOT].tolist() == [key]
    assert merged.verdicts(u64(12345), 200 / 2).tolist() == [HeavyVerdict.COLD]


@pytest.mark.parametrize("capacity", [1, 2, 3, 4, 8, 15])
def test_a_summary_too_small_for_the_counter_example_says_unknown_and_never_cold(capacity):
    """With as few counters as the top-n had, the hot key is not lost: its upper bound reaches GL/n."""
    key, agents = agents_of_the_counter_example(capacity)
    merged = FrequentItems.merge_all(agents)
    assert merged.upper(u64(key))[0] >= 102
    assert merged.verdicts(u64(key), 100)[0] != HeavyVerdict.COLD


def test_a_verdict_compares_with_the_threshold_as_a_real_number():
    """A count of 5 reaches 4.5 and 5.0, not 5.1; the error of 1 makes 5.5 unknown."""
    exact = FrequentItems(2).update(u64(1), i64(5))
    assert [int(exact.verdicts(u64(1), t)[0]) for t in (4.5, 5.0, 5.1)] == [2, 2, 0]
    blurred = FrequentItems(2).update(u64(1, 2, 3), i64(6, 2, 1))
    assert (blurred.counts.tolist(), blurred.error) == ([5, 1], 1)
    assert blurred.verdicts(u64(1, 2), 5.5).tolist() == [HeavyVerdict.UNKNOWN, HeavyVerdict.COLD]
    unlisted = [int(blurred.verdicts(u64(9), threshold)[0]) for threshold in (1.0, 1.5, 0)]
    assert unlisted == [HeavyVerdict.UNKNOWN, HeavyVerdict.COLD, HeavyVerdict.HOT]


def test_a_verdict_is_exact_where_a_double_is_not():
    """2**53 + 1 is no double: a count one below the threshold is cold all the same."""
    summary = FrequentItems(2).update(u64(1, 2), i64(2**53, 2**53 + 1))
    assert summary.verdicts(u64(1, 2), 2**53 + 1).tolist() == [HeavyVerdict.COLD, HeavyVerdict.HOT]
    assert summary.verdicts(u64(1, 2), 2.0**80).tolist() == [HeavyVerdict.COLD, HeavyVerdict.COLD]


@pytest.mark.parametrize("threshold", [math.nan, math.inf, -1.0])
def test_a_threshold_that_is_no_number_of_rows_is_refused(threshold):
    """The error names the parameter."""
    with pytest.raises(ConfigError, match="threshold"):
        FrequentItems(2).verdicts(u64(1), threshold)


def test_counts_up_to_the_limit_are_exact_and_beyond_it_refused():
    """Two halves of 2**63 - 1 fit; one row more raises and changes nothing."""
    full = FrequentItems(2).update(u64(1, 1, 2), i64(2**62, 2**62 - 2, 1))
    assert full.counts.tolist() == [LIMIT - 1, 1]
    for more in (lambda: full.update(u64(5)), lambda: full.merge(FrequentItems(2).update(u64(5)))):
        with pytest.raises(HistogramError, match=r"9223372036854775808 rows pass the allowed 2\*\*63 - 1"):
            more()
    with pytest.raises(HistogramError, match="pass the allowed"):
        FrequentItems(2).update(np.zeros(8, np.uint64), np.full(8, LIMIT))


@pytest.mark.parametrize(
    ("hashes", "counts", "message"),
    [
        (np.array([1, 2]), None, "hashes: int64"),
        (np.zeros((2, 2), np.uint64), None, "one-dimensional"),
        ([1, 2], None, "hashes: list"),
        (u64(1, 2), i64(1), "shape"),
        (u64(1, 2), i64(1, -4), "-4 is not allowed"),
        (u64(1), u64(2**63), "9223372036854775808 is not allowed"),
        (u64(1), np.array([0.5]), "float64 are not whole numbers"),
        (u64(1), np.array([True]), "bool are not whole numbers"),
    ],
)
@pytest.mark.parametrize("make", [lambda: FrequentItems(4), lambda: CountMin(16)])
def test_bad_rows_are_refused_by_name(make, hashes, counts, message):
    """The message says what was wrong, and a mutable sketch is left as it was."""
    sketch = make()
    with pytest.raises(HistogramError, match=message):
        sketch.update(hashes, counts)
    assert sketch.total == 0


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"hashes": u64(1, 2, 3), "counts": i64(1, 1, 1), "total": 9}, "capacity is 2"),
        ({"hashes": u64(2, 1), "counts": i64(1, 1), "total": 9}, "rising order"),
        ({"hashes": u64(1, 1), "counts": i64(1, 1), "total": 9}, "rising order"),
        ({"hashes": u64(1), "counts": i64(0), "total": 9}, "no rows"),
        ({"hashes": u64(1), "counts": i64(10), "total": 9}, "error: 0"),
        ({"total": 2**63}, "total"),
        ({"total": 9, "error": -1}, "error: -1"),
        ({"total": 9, "error": 4}, "passes what 9 uncounted rows allow"),
        ({"total": 9, "error": 1, "rounding": 2}, "rounding 2"),
    ],
)
def test_a_state_that_no_stream_can_give_is_refused(state, message):
    """Summaries come from the wire: one that breaks the guarantees is not taken."""
    with pytest.raises(HistogramError, match=message):
        FrequentItems(2, **state)


def test_a_summary_is_a_value():
    """Its arrays are its own and read-only; equal states are equal; updating leaves the old one alone."""
    hashes, counts = u64(1, 2), i64(3, 4)
    summary = FrequentItems(4, hashes, counts, total=7)
    hashes[0] = 0
    assert summary.hashes.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        summary.counts[0] = 9
    with pytest.raises(dataclasses.FrozenInstanceError):
        summary.total = 9
    assert summary.update(u64(1)) != summary
    assert summary == FrequentItems(4).update(u64(2, 1), i64(4, 3))
    assert summary != "another thing"


def test_nothing_to_count_changes_nothing():
    """Empty batches and rows of count 0, before and after real rows."""
    empty = FrequentItems(4)
    assert empty.update(u64()) == empty.update(u64(5), i64(0)) == empty
    some = empty.update(u64(1, 2))
    assert some.update(u64()) == some.merge(empty) == some
    assert empty.lower(u64(1)).tolist() == [0]


def test_a_summary_needs_a_counter_and_a_merge_needs_a_summary():
    """Both are named."""
    with pytest.raises(ConfigError, match="capacity"):
        FrequentItems(0)
    with pytest.raises(HistogramError, match="nothing to merge"):
        FrequentItems.merge_all([])


# --- count-min --------------------------------------------------------------------------------------------


def test_keys_of_one_batch_that_meet_in_a_cell_are_each_covered_and_not_added():
    """One cell, three keys: it holds the largest, then the old estimate and what came on top."""
    sketch = CountMin(1, 1)
    sketch.update(u64(1, 2, 3, 2), i64(3, 4, 2, 1))
    assert sketch.table.tolist() == [[5]]
    sketch.update(u64(1))
    assert sketch.estimate(u64(1, 2, 3, 4)).tolist() == [6, 6, 6, 6]


def test_a_row_raises_only_the_cells_that_its_estimate_needs():
    """Conservative update: where one of a key's cells is high already, it stays."""
    sketch = CountMin(64, 2)
    crowd = keys_of(500)
    columns = sketch.cells(crowd)
    same_first = np.flatnonzero((columns[0] == columns[0, 0]) & (columns[1] != columns[1, 0]))
    heavy, light = crowd[:1], crowd[same_first[:1]]
    sketch.update(heavy, i64(100))
    sketch.update(light, i64(7))
    assert sketch.estimate(light).tolist() == [7]
    assert sketch.table[0, columns[0, 0]] == 100


@pytest.mark.parametrize("salt", [0, 1, 2])
def test_the_share_of_keys_beyond_the_bound_is_under_one_less_the_confidence(salt):
    """e N / width with probability 1 - exp(-depth), over 100,000 keys; and no estimate is too low."""
    numbers = zipf_rows(200_000, 1.0)
    hashes, exact = keys_of(100_000), np.bincount(numbers, minlength=100_000)
    for depth in (1, 2, 4):
        sketch = CountMin(512, depth, salt)
        for rows in np.split(hashes[numbers], 20):
            sketch.update(rows)
        over = sketch.estimate(hashes) - exact
        assert over.min() >= 0
        assert sketch.bound == pytest.approx(math.e * 200_000 / 512)
        assert np.mean(over > sketch.bound) <= 1 - sketch.confidence


@pytest.mark.parametrize("workers", [8, 64])
def test_the_size_for_n_workers_calls_no_more_rows_hot_than_an_exact_map(workers):
    """FIDELITY, frequency store: z = 1.0, a window of 60,000 rows; the artefact's sketch called 72 % hot."""
    numbers = zipf_rows(60_000, 1.0)
    hashes, exact = keys_of(100_000), np.bincount(numbers, minlength=100_000)
    sketch = CountMin.for_workers(workers)
    for rows in np.split(hashes[numbers], 60):
        sketch.update(rows)
    assert sketch.table.shape == (4, 16 * workers)
    threshold = 60_000 / workers
    hot_rows = exact[exact >= threshold].sum() / 60_000
    called = exact[sketch.estimate(hashes) >= threshold].sum() / 60_000
    assert hot_rows <= called <= hot_rows + 0.05


def test_keys_that_share_their_top_bits_do_not_share_their_cells():
    """One worker's keys all have the same top 12 bits: the sketch is as good on them."""
    hashes = keys_of(2000) >> np.uint64(12)
    sketch = CountMin(1024)
    for row in sketch.cells(hashes):
        assert len(np.unique(row)) > 800
    sketch.update(hashes)
    assert sketch.estimate(hashes).mean() < 2


def test_cells_are_independent_from_row_to_row():
    """Two keys that meet in one row meet in another one with probability 1 / width only."""
    columns = CountMin(256, 5).cells(keys_of(20_000))
    meet = columns[:, :-1] == columns[:, 1:]
    both = [int((meet[a] & meet[b]).sum()) for a, b in itertools.combinations(range(5), 2)]
    assert meet.sum(axis=1).min() > 40
    assert max(both) <= 5


def test_count_min_refuses_what_int64_cannot_hold_and_stays_as_it_was():
    """Neither an update nor a merge wraps."""
    sketch = CountMin(16)
    sketch.update(u64(1), i64(LIMIT))
    with pytest.raises(HistogramError, match="pass the allowed"):
        sketch.update(u64(2))
    with pytest.raises(HistogramError, match="pass the allowed"):
        sketch.merge(sketch)
    assert (sketch.total, sketch.estimate(u64(1))[0]) == (LIMIT, LIMIT)


def test_count_min_copies_clears_and_merges_only_its_like():
    """A copy is apart; a cleared sketch is a new one; other hash functions are refused."""
    sketch = CountMin(16)
    sketch.update(u64(1, 1))
    other = sketch.copy()
    other.update(u64(1))
    assert (sketch.estimate(u64(1))[0], other.estimate(u64(1))[0]) == (2, 3)
    assert sketch.merge(other).estimate(u64(1)).tolist() == [5]
    other.clear()
    assert (other.total, other.table.max()) == (0, 0)
    for unlike in (CountMin(17), CountMin(16, 3), CountMin(16, 4, salt=9)):
        with pytest.raises(ConfigError, match="same width, depth and salt"):
            sketch.merge(unlike)


@pytest.mark.parametrize("bad", [{"width": 0}, {"width": 2**25}, {"width": 8, "depth": 0}, {"width": 8, "depth": 17}])
def test_count_min_names_a_bad_size(bad):
    """Width and depth have bounds."""
    with pytest.raises(ConfigError, match=r"width|depth"):
        CountMin(**bad)
    with pytest.raises(ConfigError, match="workers"):
        CountMin.for_workers(0)


@pytest.mark.parametrize(
    ("table", "total", "message"),
    [
        (np.zeros((4, 8)), 0, "float64"),
        (np.zeros((3, 8), np.int64), 0, r"int64\[4, 8\]"),
        (np.full((4, 8), -1), 5, "holds -1"),
        (np.full((4, 8), 6), 5, "holds 6"),
        (np.zeros((4, 8), np.int64), -1, "total"),
    ],
)
def test_count_min_refuses_a_state_that_no_stream_can_give(table, total, message):
    """As with the summaries: state may come from elsewhere."""
    with pytest.raises(HistogramError, match=message):
        CountMin(8, total=total, table=table)


# --- HyperLogLog ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cardinality", [1, 2, 7, 50, 300, 1000, 3000, 8000, 10_000, 12_000, 40_000, 200_000])
def test_the_estimate_is_within_its_error_at_every_cardinality(cardinality):
    """24 hash functions: each within 4 standard errors, their root mean square in 1.25, their mean in 0.85.

    The range around 2.5 m to 5 m, where the first HyperLogLog was biased and changed formula, is in it.
    """
    hashes = keys_of(cardinality)
    errors = []
    for salt in range(24):
        sketch = HyperLogLog(salt=salt)
        sketch.update(hashes)
        errors.append(sketch.estimate() / cardinality - 1)
    unit = HyperLogLog().relative_error
    assert unit == pytest.approx(1.04 / 64)
    assert np.max(np.abs(errors)) < 4 * unit
    assert np.sqrt(np.mean(np.square(errors))) < 1.25 * unit
    assert abs(np.mean(errors)) < 0.85 * unit


@pytest.mark.parametrize("exponent", [6, 9, 12, 15, 18, 19])
def test_the_estimate_holds_up_to_the_end_of_64_bits(exponent):
    """Registers drawn from their law at 10**exponent keys, the highest of them full: still unbiased."""
    cardinality, rng = 10.0**exponent, np.random.default_rng(exponent)
    errors = []
    for _ in range(40):
        rate = -np.log(rng.random(4096)) * 4096 / cardinality
        registers = np.clip(np.ceil(-np.log2(rate)), 0, 53).astype(np.uint8)
        errors.append(estimate_registers(registers, 12) / cardinality - 1)
    assert abs(np.mean(errors)) < 4 * 1.04 / 64 / math.sqrt(40)
    assert np.max(np.abs(errors)) < 4 * 1.04 / 64


def test_the_estimate_of_nothing_is_zero_and_of_full_registers_endless():
    """The two ends of the state."""
    assert HyperLogLog().estimate() == 0.0
    almost = np.full(4096, 53, np.uint8)
    almost[0] = 52
    assert 2.0**64 < estimate_registers(almost, 12) < math.inf
    assert estimate_registers(np.full(4096, 53, np.uint8), 12) == math.inf


@pytest.mark.parametrize("precision", [4, 12, 18])
def test_places_are_the_top_bits_and_the_first_one_from_below(precision):
    """Against plain Python on the mixed hash, the all-zero rest included."""
    sketch = HyperLogLog(precision, salt=5)
    hashes = keys_of(3000)
    index, rank = sketch.places(hashes)
    for mixed, i, r in zip(mix(hashes, 5).tolist(), index.tolist(), rank.tolist(), strict=True):
        rest = mixed % 2 ** (64 - precision)
        assert i == mixed >> (64 - precision)
        assert r == ((rest & -rest).bit_length() if rest else 65 - precision)


def test_the_rank_of_an_all_zero_rest_is_the_highest(monkeypatch):
    """No key in a test happens to mix to it: hand it in instead of the mix."""
    monkeypatch.setattr("papers.hyperloglog.mix", lambda hashes, salt: hashes)
    index, rank = HyperLogLog().places(u64(0, 5 << 52, (5 << 52) + 2**51, 2**64 - 1))
    assert index.tolist() == [0, 5, 5, 4095]
    assert rank.tolist() == [53, 53, 52, 1]


@pytest.mark.parametrize("seen", [256, 1024, 4096, 16_384, 100_000])
def test_containment_is_wrong_for_new_keys_as_often_as_it_says(seen):
    """100,000 new keys: the share taken for known is false_containment; a known key is never missed."""
    sketch = HyperLogLog()
    known = keys_of(seen)
    sketch.update(known)
    assert sketch.contains(known).all()
    share = sketch.contains(keys_of(100_000, stream=1)).mean()
    assert share == pytest.approx(sketch.false_containment, abs=4 * math.sqrt(0.25 / 100_000))
    published = {256: 0.04, 1024: 0.15, 4096: 0.45, 16_384: 0.82, 100_000: 0.97}
    assert share == pytest.approx(published[seen], abs=0.015)


def test_keys_that_share_their_top_bits_are_counted_as_well():
    """All keys of one worker begin with the same 12 bits: they must not fall into one register."""
    sketch = HyperLogLog()
    sketch.update(keys_of(50_000) >> np.uint64(12))
    assert sketch.estimate() == pytest.approx(50_000, rel=4 * sketch.relative_error)


def test_hyperloglog_copies_clears_and_merges_only_its_like():
    """A copy is apart; a cleared sketch contains nothing; another size or salt is refused."""
    sketch = HyperLogLog()
    sketch.update(keys_of(10))
    other = sketch.copy()
    other.update(keys_of(10, stream=1))
    assert round(sketch.estimate()) == 10
    assert round(other.estimate()) == 20
    assert np.array_equal(sketch.merge(other).registers, other.registers)
    other.clear()
    assert not other.contains(keys_of(10)).any()
    for unlike in (HyperLogLog(11), HyperLogLog(salt=1)):
        with pytest.raises(ConfigError, match="same precision and salt"):
            sketch.merge(unlike)


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        ({"precision": 3}, ConfigError, "4 to 18"),
        ({"precision": 19}, ConfigError, "4 to 18"),
        ({"registers": np.zeros(4095, np.uint8)}, HistogramError, r"uint8\[4096\]"),
        ({"registers": np.zeros(4096)}, HistogramError, "float64"),
        ({"registers": np.full(4096, 54, np.uint8)}, HistogramError, "54 is not allowed"),
    ],
)
def test_hyperloglog_refuses_a_bad_size_or_state(state, error, message):
    """Registers hold 0 to 65 - precision."""
    with pytest.raises(error, match=message):
        HyperLogLog(**state)


def test_hyperloglog_takes_only_hashes():
    """The same check as the other sketches have."""
    for call in (HyperLogLog().update, HyperLogLog().contains):
        with pytest.raises(HistogramError, match="use hash_keys"):
            call(np.arange(4))
