"""Prompt's Algorithm 1: exact counts, a bounded number of tree refreshes, a descending list at the cut-off."""

from __future__ import annotations

import time

import numpy as np
import pytest

from papers.accumulator import Accumulator, MicroBatch
from unskew.core.errors import ConfigError


def keys(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


def run(rows: np.ndarray, batch_rows: int, **parameters: object) -> MicroBatch:
    accumulator = Accumulator(**parameters)  # type: ignore[arg-type]
    accumulator.open(0.0, 1.0)
    for at in range(0, rows.size, batch_rows):
        accumulator.add(rows[at : at + batch_rows], now=at / rows.size)
    return accumulator.release(1.0)


def zipf_rows(rows: int = 50_000, distinct: int = 5_000, z: float = 1.1, seed: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, distinct + 1) ** z
    hashes = rng.integers(0, 2**64, distinct, dtype=np.uint64)
    return hashes[rng.choice(distinct, rows, p=weights / weights.sum())]


@pytest.mark.parametrize("order", ["sort", "tree"])
def test_eight_keys_and_385_tuples_come_out_in_descending_order(order):
    """Fig. 5's size, by hand: 385 tuples of 8 keys, largest first, and the totals N_C and |K|."""
    counts = {1: 140, 2: 90, 3: 45, 4: 35, 5: 30, 6: 20, 7: 15, 8: 10}
    rows = np.repeat(keys(*counts), list(counts.values()))
    batch = run(rows, rows.size, order=order)
    assert batch.hashes.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert batch.counts.tolist() == [140, 90, 45, 35, 30, 20, 15, 10]
    assert (batch.rows, batch.keys) == (385, 8)


def test_refreshes_by_hand():
    """Budget 2, N_Est 8, K_Avg 2: f = 2, t.step = 4 s. Tuple by tuple, as in the listing.

    A at 0 s is inserted at 1; at 2 s it gained 2 = f.step: refreshed to 3, f.step = 8/2 * 3/3 = 4; at 6 s it
    gained 3 < 4, but 4 s = t.step are over: refreshed to 6; at 7, 8, 9 s the budget is spent.
    """
    accumulator = Accumulator(budget=2, order="tree", expected_rows=8, expected_keys=2)
    accumulator.open(0.0, 8.0)
    for now, key in [(0, 1), (1, 1), (2, 1), (3, 2), (4, 1), (5, 1), (6, 1), (7, 1), (7.5, 1), (8, 1)]:
        accumulator.add(keys(key), now=float(now))
    batch = accumulator.release(8.0)
    assert batch.hashes.tolist() == [1, 2]
    assert batch.counts.tolist() == [9, 1]
    assert batch.refreshes.tolist() == [2, 0]
    assert (batch.by_frequency, batch.by_time) == (1, 1)


@pytest.mark.parametrize("budget", [1, 3, 8])
def test_no_key_is_refreshed_more_often_than_its_budget(budget):
    """One row at a time and steps of 1, so that every row asks for a refresh: the budget is what stops them."""
    rows = np.tile(keys(1, 2, 3), 50)
    batch = run(rows, 1, order="tree", budget=budget, expected_rows=1, expected_keys=1)
    assert batch.refreshes.tolist() == [budget] * 3
    assert batch.by_frequency + batch.by_time == 3 * budget


@pytest.mark.parametrize("order", ["sort", "tree"])
@pytest.mark.parametrize("batch_rows", [7, 1_000, 50_000])
def test_counts_are_exact_at_any_batch_size(order, batch_rows):
    """Both orders count every row, whatever the batches; the table grows several times on the way."""
    rows = zipf_rows()
    batch = run(rows, batch_rows, order=order)
    hashes, counts = np.unique(rows, return_counts=True)
    ordered = np.argsort(batch.hashes)
    np.testing.assert_array_equal(batch.hashes[ordered], hashes)
    np.testing.assert_array_equal(batch.counts[ordered], counts)


def test_sorted_result_shows_neither_arrival_order_nor_batches():
    """Equal counts go by hash: shuffled rows in other batches give the same bytes."""
    rows = zipf_rows()
    shuffled = np.random.default_rng(1).permutation(rows)
    one, two = run(rows, 50_000), run(shuffled, 333)
    np.testing.assert_array_equal(one.hashes, two.hashes)
    np.testing.assert_array_equal(one.counts, two.counts)
    assert np.all(np.diff(one.counts) <= 0)


def test_hashes_that_differ_in_their_last_bits_only_are_still_ordered():
    """The packed sort word drops a hash's last bits; where that ties, whole hashes decide."""
    batch = run(np.repeat(keys(9, 3, 5, 4), [2, 2, 2, 7]), 13)
    assert batch.hashes.tolist() == [4, 3, 5, 9]


def test_tree_order_is_nearly_descending_and_refreshes_are_what_makes_it_so():
    """Rows arrive in 100 batches: few rows are out of place with budget 8, more with budget 1."""
    rows = zipf_rows()

    def displaced(budget: int) -> float:
        batch = run(rows, 500, order="tree", budget=budget, expected_rows=50_000, expected_keys=5_000)
        return float(np.abs(batch.counts - np.sort(batch.counts)[::-1]).sum() / batch.rows)

    assert displaced(8) < 0.05
    assert displaced(8) < displaced(1) / 2


def test_steps_are_learned_from_past_intervals():
    """N_Est of a million makes f.step too long for 1,000 rows; one interval later it fits."""
    accumulator = Accumulator(order="tree", expected_rows=1_000_000, expected_keys=10)
    rows, refreshed = np.tile(keys(1, 2), 500), []
    for interval in range(2):
        accumulator.open(float(interval), interval + 1.0)
        for at in range(0, 1_000, 10):
            accumulator.add(rows[at : at + 10], now=float(interval))
        refreshed.append(accumulator.release(interval + 1.0).by_frequency)
    assert refreshed[0] == 0
    assert refreshed[1] > 4


@pytest.mark.parametrize("order", ["sort", "tree"])
def test_an_interval_starts_empty_and_may_stay_so(order):
    """The heartbeat clears the tables; no rows, or empty batches, give an empty list."""
    accumulator = Accumulator(order=order)
    accumulator.open(0.0, 1.0)
    accumulator.add(keys(1, 1), now=0.1)
    assert accumulator.release(1.0).rows == 2
    accumulator.open(1.0, 2.0)
    accumulator.add(keys(), now=1.5)
    batch = accumulator.release(1.9)
    assert (batch.rows, batch.keys, batch.refreshes.size) == (0, 0, 0)
    assert (batch.start, batch.released) == (1.0, 1.9)


GOLDEN = 0x9E3779B97F4A7C15
CHOSEN = {
    "one home cell": pow(GOLDEN, -1, 2**64),
    "the steps between the salts of mix": GOLDEN,
    "small numbers, as unhashed keys are": 1,
}


def chosen(step: int, count: int) -> np.ndarray:
    return np.arange(1, count + 1, dtype=np.uint64) * np.uint64(step)


@pytest.mark.parametrize("step", CHOSEN.values(), ids=CHOSEN)
def test_chosen_keys_are_told_apart_at_any_batch_size(step):
    """Keys that crowd the table keep their own counts, also while it grows and when they come again."""
    crowd = chosen(step, 3_000)
    for batch_rows in (100, 6_000):
        batch = run(np.concatenate([crowd, crowd[::-1]]), batch_rows)
        assert np.sort(batch.hashes).tolist() == np.sort(crowd).tolist()
        assert batch.counts.tolist() == [2] * 3_000


@pytest.mark.parametrize("step", CHOSEN.values(), ids=CHOSEN)
def test_chosen_keys_cost_no_more_than_a_few_times_what_others_do(step):
    """Whoever writes the keys can choose their hashes. Linear probing alone took 300 times as long here."""

    def seconds(rows: np.ndarray) -> float:
        best = float("inf")
        for _ in range(3):
            began = time.process_time()
            run(rows, 10_000)
            best = min(best, time.process_time() - began)
        return best

    others = np.random.default_rng(1).integers(0, 2**64, 10_000, dtype=np.uint64)
    assert seconds(chosen(step, 10_000)) < 30 * seconds(others)


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"order": "heap"}, "order"),
        ({"budget": 0}, "budget"),
        ({"budget": 2.5}, "budget"),
        ({"memory": 0}, "memory"),
        ({"expected_rows": 0}, "expected_rows"),
        ({"expected_keys": True}, "expected_keys"),
    ],
)
def test_bad_parameters_are_named(parameters, name):
    """A ConfigError names the parameter."""
    with pytest.raises(ConfigError) as caught:
        Accumulator(**parameters)
    assert caught.value.parameter == name


def test_calls_out_of_turn_are_refused():
    """Rows without an interval, two intervals at once, time that runs back, an interval without length."""
    accumulator = Accumulator()
    with pytest.raises(ConfigError, match=r"open\(\) first"):
        accumulator.add(keys(1), now=0.0)
    with pytest.raises(ConfigError, match="after start"):
        accumulator.open(1.0, 1.0)
    accumulator.open(0.0, 1.0)
    with pytest.raises(ConfigError, match=r"release\(\) first"):
        accumulator.open(1.0, 2.0)
    accumulator.add(keys(1), now=0.5)
    with pytest.raises(ConfigError, match=r"not before 0\.5"):
        accumulator.add(keys(1), now=0.4)
    with pytest.raises(ConfigError, match="uint64"):
        accumulator.add(np.array([1, 2]), now=0.6)  # type: ignore[arg-type]
