"""What each router is for, by hand and against its bound."""

from __future__ import annotations

import numpy as np
import pytest

from tests.planning import key_hashes
from tests.property.test_router_laws import stream
from unskew.core import make_planner, make_router, quality
from unskew.core.histogram import Histogram


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
