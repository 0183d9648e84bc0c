"""The bucket table: collision-free for any distinct keys, also for keys that somebody chose badly on purpose."""

from __future__ import annotations

import numpy as np
import pytest

from tests.planning import key_hashes
from unskew.core.errors import PlanError
from unskew.core.plan.lookup import Lookup, find_lookup


@pytest.mark.parametrize("count", [0, 1, 2, 3, 64, 256, 257, 1000, 5000, 16_384])
def test_no_two_keys_share_a_bucket(count: int) -> None:
    keys = key_hashes(count)
    found = find_lookup(keys)
    assert len(np.unique(found.bucket(keys))) == count
    assert found.buckets <= max(256 * count, 16)
    assert not found.remix


def test_many_keys_take_a_table_of_at_most_four_times_their_number() -> None:
    keys = key_hashes(16_384)
    assert find_lookup(keys).buckets <= 4 * 16_384


@pytest.mark.parametrize(
    "keys",
    [
        np.array([5, 2**63 + 5], np.uint64),
        np.arange(2000, dtype=np.uint64),
        np.arange(2000, dtype=np.uint64) << np.uint64(53),
        np.concatenate([np.arange(400) + (1 << 40), np.arange(400) * (1 << 50)]).astype(np.uint64)[1:],
    ],
    ids=["one bit apart", "low bits only", "high bits only", "two families"],
)
def test_structured_hashes_are_separated_too(keys: np.ndarray) -> None:
    """XXH64 can be inverted, so a user can choose keys whose hashes differ in few bits: a table is found."""
    keys = np.unique(keys)
    assert len(np.unique(find_lookup(keys).bucket(keys))) == len(keys)


def test_equal_keys_cannot_be_separated() -> None:
    with pytest.raises(PlanError, match="distinct"):
        find_lookup(np.array([7, 7], np.uint64))


def test_a_table_that_does_not_fit_a_hash_is_refused() -> None:
    for shift, bits, groups in [(60, 8, 1), (-1, 4, 1), (0, 30, 1), (0, 4, 3)]:
        with pytest.raises(PlanError, match="look-up table"):
            Lookup(shift, bits, np.zeros(groups, np.uint32))


def test_two_groups_chosen_to_collide_do_not_stall_the_search() -> None:
    """All keys in two groups, places evenly spread: no displacement fits so many at once; the remix finds a table
    without trying for minutes."""
    upper = (np.arange(4000, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) & ~np.uint64((1 << 20) - 1)
    keys = np.unique(upper | (np.arange(4000, dtype=np.uint64) & np.uint64(1)))
    found = find_lookup(keys)
    assert found.remix
    assert len(np.unique(found.bucket(keys))) == len(keys)


@pytest.mark.parametrize("start", [257, 300, 454, 700, 1500])
def test_a_table_is_found_for_any_random_keys(start: int) -> None:
    """Sixty sets a size: none needs the remix more than now and then, none fails."""
    remixed = 0
    for seed in range(60):
        keys = key_hashes(start + seed, seed)
        found = find_lookup(keys)
        assert len(np.unique(found.bucket(keys))) == len(keys)
        remixed += found.remix
    assert remixed <= 3
