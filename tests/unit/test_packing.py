"""The exact integer steps under the planners: sharing out, slots, pouring, rooms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.core.arrays.apportion import apportion, capacities, turns
from unskew.core.plan.slots import UNITS_BITS, slots_for, units_of
from unskew.core.planners.packing import FreeSpace, deal_hosts, even_out, wrap_around

sizes = st.lists(st.integers(1, 10**18), min_size=1, max_size=40)


@given(st.integers(0, 2**63 - 1), sizes)
def test_apportion_is_exact_and_within_one(total: int, shares: list[int]) -> None:
    parts = apportion(total, shares)
    assert sum(parts) == total
    whole = sum(shares)
    assert all(abs(part * whole - total * share) < whole for part, share in zip(parts, shares, strict=True))


def test_capacities_are_within_one_row_of_the_weighted_share() -> None:
    assert capacities(10, np.ones(3)).tolist() == [4, 3, 3]
    assert capacities(80, np.array([1.0, 2.0, 5.0])).tolist() == [10, 20, 50]
    assert capacities(0, np.ones(2)).tolist() == [0, 0]
    big = capacities(2**63 - 1, np.array([1.0, 3.0]))
    assert sum(big.tolist()) == 2**63 - 1


@given(st.integers(0, 200), st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=1, max_size=7))
def test_turns_are_in_proportion_at_every_moment(count: int, weights: list[float]) -> None:
    """No partition is ever more than a couple of turns from its share, so dealing may stop anywhere."""
    weight = np.array(weights)
    order = turns(count, weight)
    assert len(order) == count
    for upto in (count // 2, count):
        got = np.bincount(order[:upto], minlength=len(weight))
        assert np.abs(got - upto * weight / weight.sum()).max(initial=0) <= 2


def test_equal_weights_take_turns_in_order() -> None:
    assert turns(7, np.ones(3)).tolist() == [0, 1, 2, 0, 1, 2, 0]


@given(st.lists(st.integers(1, 10**15), min_size=1, max_size=33))
def test_slots_express_any_shares(rows: list[int]) -> None:
    """2^b slots with b = ceil(log2 fragments) give each partition its share to 2^-62, and all of it is given."""
    partitions = list(range(100, 100 + len(rows)))
    made = slots_for(partitions, rows)
    assert made.bits == max(len(rows) - 1, 0).bit_length()
    units = units_of(made.bits, list(made.first), list(made.second), list(made.cut))
    assert sum(units.values()) == 1 << UNITS_BITS
    for partition, count in zip(partitions, rows, strict=True):
        assert abs(units.get(partition, 0) * sum(rows) - (count << UNITS_BITS)) <= 2 * sum(rows)


def test_slots_by_hand() -> None:
    """Shares 1/2, 1/4, 1/4 in four slots: no slot needs a cut but every one is whole."""
    made = slots_for([7, 8, 9], [2, 1, 1])
    quarter = 1 << (UNITS_BITS - 2)
    assert units_of(2, list(made.first), list(made.second), list(made.cut)) == {7: 2 * quarter, 8: quarter, 9: quarter}


@given(sizes, st.lists(st.integers(0, 10**18), min_size=1, max_size=20))
def test_pouring_fills_in_order_with_few_cuts(rows: list[int], shares: list[int]) -> None:
    """Every row is placed, rooms are filled exactly when they add up, and there are at most n - 1 cuts."""
    shares = shares if any(shares) else [1] * len(shares)
    room = np.array(apportion(sum(rows), shares))
    key, partition, part = wrap_around(np.array(rows), room)
    assert len(key) <= len(rows) + len(room) - 1
    assert (part > 0).all()
    for i, count in enumerate(rows):
        assert sum(part[key == i].tolist()) == count
    for p, free in enumerate(room.tolist()):
        assert sum(part[partition == p].tolist()) == free


def test_pouring_into_too_much_room_scales_it_down() -> None:
    key, partition, part = wrap_around(np.array([10]), np.array([20, 20, -5]))
    assert (key.tolist(), partition.tolist(), part.tolist()) == ([0, 0], [0, 1], [5, 5])
    assert len(wrap_around(np.zeros(0, np.int64), np.array([3]))[0]) == 0


def test_rooms_find_the_tightest_and_the_widest() -> None:
    rooms = FreeSpace(np.array([5, 9, 7, 9]))
    assert rooms.tightest(6) == 2
    assert rooms.tightest(10) is None
    assert rooms.widest() == 1
    rooms.take(1, 4)
    assert (rooms.free(1), rooms.widest(), rooms.tightest(5)) == (5, 3, 0)
    rooms.take(2, 100)
    assert rooms.free(2) == 0


@pytest.mark.parametrize("seed", range(3))
def test_dealt_hosts_are_even_in_rows_and_in_keys(seed: int) -> None:
    """Skewed hosts: after dealing, rows are within one large host of even, keys within a few per cent."""
    rng = np.random.default_rng(seed)
    keys = rng.poisson(20, 4096)
    rows = keys * 3 + rng.poisson(5, 4096)
    tail = deal_hosts(rows, keys, np.full(16, rows.sum() // 16 + 1), np.ones(16))
    per_rows, per_keys = np.bincount(tail, rows, 16), np.bincount(tail, keys, 16)
    assert per_rows.max() - per_rows.min() <= rows.max()
    assert per_keys.max() / per_keys.mean() <= 1.02


def test_full_partitions_get_no_hosts() -> None:
    tail = deal_hosts(
        np.ones(64, np.int64), np.ones(64, np.int64), np.array([10, 0, 30, -4]), np.array([1.0, 0.0, 3.0, 0.0])
    )
    assert np.bincount(tail, minlength=4)[[1, 3]].tolist() == [0, 0]
    assert 2 <= np.bincount(tail)[2] / np.bincount(tail)[0] <= 4


def test_hosts_of_which_nothing_is_known_are_dealt_by_weight() -> None:
    """Three rows seen, room for 0 or 1 each: the 4,093 empty hosts do not crowd where the three rows were due."""
    rows = np.zeros(4096, np.int64)
    rows[[5, 77, 900]] = 1
    tail = deal_hosts(rows, rows, np.full(64, 1), np.ones(64))
    assert np.bincount(tail, minlength=64).max() <= 65
    weighted = np.bincount(deal_hosts(rows, rows, np.array([1, 1]), np.array([1.0, 3.0])))
    assert weighted[1] / weighted[0] == pytest.approx(3.0, rel=0.01)


def test_swapping_hosts_evens_out_what_dealing_left() -> None:
    """Loads 12, 8, 10 of 10 each: one swap of hosts that differ by 2 makes all even, and keeps every host."""
    rows = np.array([7, 5, 5, 3, 6, 4])
    tail = np.array([0, 0, 1, 1, 2, 2], np.int32)
    room = 10 - np.bincount(tail, rows, 3).astype(np.int64)
    even_out(tail, rows, room)
    assert np.bincount(tail, rows, 3).tolist() == [10, 10, 10]
    assert room.tolist() == [0, 0, 0]
    stuck = np.array([9, 3])
    even_out(np.array([0, 1], np.int32), stuck, left := np.array([-3, 3]))
    assert left.tolist() == [-3, 3]
