"""What each router is for, by hand and against its bound."""

from __future__ import annotations

import numpy as np
import pytest

from tests.planning import key_hashes
from tests.property.test_router_laws import stream
from unskew.core import make_planner, make_router, quality
from unskew.core.histogram.histogram import Histogram


def test_hash_goes_where_a_hash_plan_goes() -> None:
    """A key's worker is its place under plain hashing, so that a router and a plan fall back to the same."""
    keys = key_hashes(10_000)
    for n in (1, 7, 64, 1000):
        plan = make_planner("hash", n).plan(Histogram.empty())
        assert np.array_equal(make_router("hash", n).route(keys), plan.route(keys))


def test_shuffle_takes_turns_from_where_the_seed_says() -> None:
    assert make_router("shuffle", 3, seed=4).route(key_hashes(7)).tolist() == [1, 2, 0, 1, 2, 0, 1]


def test_pk2_sends_a_lone_key_to_its_two_workers_in_turn() -> None:
    """All rows of one key alternate between exactly two workers, the first choice first."""
    out = make_router("pk2", 8).route(np.full(10, 12345, np.uint64))
    a, b = out[:2].tolist()
    assert a != b
    assert out.tolist() == [a, b] * 5


@pytest.mark.parametrize(("name", "choices"), [("pk2", 2), ("pk5", 5)])
def test_the_choices_of_a_key_are_all_different(name: str, choices: int) -> None:
    """A heavy key uses exactly d workers, never fewer because two hashes coincide."""
    for key in key_hashes(50):
        out = make_router(name, 6).route(np.full(60, key))
        assert len(set(out.tolist())) == choices


def test_choices_are_uniform_over_workers() -> None:
    """Drawing among the workers that are left gives every worker its share of first and second choices."""
    keys = key_hashes(30_000)
    router = make_router("pk2", 6)
    used = np.bincount(
        np.concatenate([make_router("pk2", 6).route(np.repeat(keys[i : i + 1], 2)) for i in range(3_000)])
    )
    assert np.abs(used / used.mean() - 1).max() < 0.12
    assert quality.imbalance(router.route(keys), 6) < 1.001


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.5])
@pytest.mark.parametrize("n", [8, 16, 64])
def test_pk2_is_bounded_by_half_of_the_heaviest_key(n: int, exponent: float) -> None:
    """Two workers share the heaviest key, so imbalance is at most 1.05 max(1, p1 n / 2), the median of 5 draws."""
    over = []
    for seed in range(5):
        keys = stream(100_000, 20_000, exponent, seed)
        p1 = Histogram.from_hashes(keys).counts.max() / len(keys)
        over.append(quality.imbalance(make_router("pk2", n, seed).route(keys), n) / max(1.0, p1 * n / 2))
    assert float(np.median(over)) <= 1.05


@pytest.mark.parametrize("name", ["porc", "chbl"])
@pytest.mark.parametrize("epsilon", [0.01, 0.3])
@pytest.mark.parametrize("exponent", [0.5, 1.5])
def test_bounded_loads_are_bounded_at_every_moment(name: str, epsilon: float, exponent: float) -> None:
    """No worker ever holds more than ceil((1 + epsilon) x mean), at any prefix of the stream."""
    keys, n = stream(30_000, 5_000, exponent), 16
    out = make_router(name, n, epsilon=epsilon).route(keys)
    for rows in (10, 100, 1_000, 10_000, 30_000):
        assert np.bincount(out[:rows], minlength=n).max() <= np.ceil((1 + epsilon) * rows / n)


def test_light_keys_hardly_spread_where_there_is_room() -> None:
    """With epsilon 1 a uniform stream stays with its first choices: few keys have a second worker."""
    keys = stream(50_000, 5_000, 0.0)
    assert quality.replication(keys, make_router("porc", 16, epsilon=1.0).route(keys)) < 1.02


def test_consistent_hashing_moves_few_keys() -> None:
    """From 16 to 17 workers about 1/17 of the keys move, and only to the new worker."""
    keys = key_hashes(20_000)
    before, after = make_router("ch", 16).route(keys), make_router("ch", 17).route(keys)
    moved = before != after
    assert 0.03 < moved.mean() < 0.10
    assert set(after[moved].tolist()) == {16}


def test_two_random_choices_ignore_the_key() -> None:
    """One key alone is spread as evenly as many."""
    out = make_router("potc", 10).route(np.full(10_000, 7, np.uint64))
    assert quality.imbalance(out, 10) < 1.01


def test_a_window_forgets() -> None:
    """Ten rows of one key fill its two workers; once they have left the window, its first choice is first again."""
    a, b = np.uint64(1), np.uint64(2)
    keys = np.concatenate([np.full(11, a), np.full(200, b), np.full(1, a)])
    out = make_router("pk2", 50, window=20, slide=5).route(keys)
    assert out[-1] == out[0]
    assert make_router("pk2", 50).route(keys)[-1] != out[0]


@pytest.mark.parametrize("name", ["am", "cam"])
def test_affinity_never_splits_a_key_inside_a_window(name: str) -> None:
    """Exact AM and cAM: within each window of 2,000 tuples every key has one worker, at any skew."""
    for exponent in (0.0, 1.0, 1.5):
        keys = stream(10_000, 3_000, exponent)
        out = make_router(name, 16, window=2_000, slide=100).route(keys)
        for start in range(0, 10_000, 2_000):
            part = slice(start, start + 2_000)
            assert quality.replication(keys[part], out[part]) == 1.0


def test_cm_by_hand() -> None:
    """One key: its first choice gets it (0 keys each), then the second (1 against 0), then the first again (tie)."""
    out = make_router("cm", 8).route(np.full(4, 99, np.uint64)).tolist()
    assert out[0] != out[1]
    assert out == [out[0], out[1], out[0], out[0]]


def test_am_evens_keys_and_cam_evens_rows() -> None:
    """On uniform streams of many keys both are even in what they look at."""
    keys = stream(50_000, 20_000, 0.0)
    am, cam = make_router("am", 8).route(keys), make_router("cam", 8).route(keys)
    distinct = quality.cardinalities(keys, am, 8)
    assert distinct.max() / distinct.mean() < 1.005
    assert quality.imbalance(cam, 8) < 1.005


def test_lm_weighs_rows_against_keys() -> None:
    """bias 1 is pk2 in a window from the start; bias 0 is cm; as published raw rows outweigh the few keys."""
    keys = stream(20_000, 500, 1.2)
    rows = make_router("lm", 8, bias=1.0).route(keys)
    assert np.array_equal(rows, make_router("pk2", 8).route(keys))
    assert np.array_equal(make_router("lm", 8, bias=0.0).route(keys), make_router("cm", 8).route(keys))
    published = quality.imbalance(make_router("lm", 8, as_published=True).route(keys), 8)
    assert published <= quality.imbalance(make_router("lm", 8).route(keys), 8)


def test_a_window_full_of_new_keys_is_remembered() -> None:
    """The table of keys grows as needed and is reused by the next window."""
    keys = key_hashes(50_000)
    router = make_router("am", 64, window=25_000)
    first = router.route(keys)
    assert quality.imbalance(first, 64) < 1.05
    assert np.array_equal(router.route(keys[:25_000]), first[:25_000])
