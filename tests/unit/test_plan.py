"""The plan: its three-way rule, what it says about itself, and what it refuses."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from tests.planning import key_hashes, some_histogram, spread_of
from unskew.core.errors import PlanError
from unskew.core.histogram.histogram import Histogram
from unskew.core.limits import host_bits
from unskew.core.plan.build import Placement, build_plan
from unskew.core.plan.plan import Plan, PlanInfo, Version
from unskew.core.planners import make_planner

TOP = np.uint64(1) << np.uint64(63)


def small_plan() -> Plan:
    """Two partitions, 4096 hosts by halves; key 5 whole on 1, key 2^63 + 5 split 3 to 1 over both."""
    tail = (np.arange(4096) // 2048).astype(np.int32)
    placement = Placement(
        tail,
        np.array([TOP + np.uint64(5), 5], np.uint64),
        np.array([0, 0, 1]),
        np.array([0, 1, 1], np.int32),
        np.array([300, 100, 50]),
        ("split for the test", "whole for the test"),
        np.array([0, 1], np.uint8),
    )
    return build_plan(placement, 2, PlanInfo(stream="s", rows=1000, version=Version(7, 3)))


def test_the_three_ways() -> None:
    """Tail by host, a whole hot key to its home, a split key by its spread hash: done by hand."""
    plan = small_plan()
    low, high = 0, 2**64 - 1
    assert plan.route_one(6, low) == 0
    assert plan.route_one(2**63 + 6, low) == 1
    assert plan.route_one(5, low) == plan.route_one(5, high) == 1
    shares = [plan.route_one(2**63 + 5, int(s)) for s in np.linspace(0, float(2**64 - 4096), 4000)]
    assert shares.count(0) / 4000 == pytest.approx(0.75, abs=0.01)


def test_numpy_and_scalar_face_agree_at_every_cut() -> None:
    """One below, at and above each cut and slot border, where an off-by-one would show."""
    plan = make_planner("balanced", 7).plan(some_histogram(exponent=1.5))
    split = np.flatnonzero(plan.hot.home < 0)
    assert len(split) > 2
    for i in split.tolist():
        at = slice(*plan.hot.slots.offset[[-1 - plan.hot.home[i], -plan.hot.home[i]]])
        cuts = [int(c) * 2 for c in plan.hot.slots.cut[at]]
        spread = np.array([(c + d) % 2**64 for c in cuts for d in (-2, -1, 0, 1, 2)], np.uint64)
        key = np.full(len(spread), plan.hot.hashes[i])
        assert plan.route(key, spread).tolist() == [plan.route_one(int(key[0]), int(s)) for s in spread]


def test_routed_counts_scatter_as_the_binomial_says() -> None:
    """Routed rows stay within 4 sqrt(split rows) of the planned ones, on every partition."""
    for policy in ("balanced", "prompt", "cg"):
        histogram = some_histogram(rows=300_000, exponent=1.2)
        plan = make_planner(policy, 16).plan(histogram)
        rows = np.repeat(histogram.hashes, histogram.counts)
        routed = np.bincount(plan.route(rows, spread_of(len(rows))), minlength=16)
        key, partition, part = plan.fragments(histogram.hashes, histogram.counts)
        split = np.bincount(key, minlength=len(histogram.hashes)) > 1
        split_rows = np.bincount(partition[split[key]], weights=part[split[key]], minlength=16)
        assert (np.abs(routed - plan.loads(histogram)) <= 4 * np.sqrt(split_rows) + 1e-9).all()


def test_any_batch_size_routes_alike() -> None:
    """A stream routed whole, row by row, or in odd pieces gives the same partitions."""
    histogram = some_histogram(exponent=1.5)
    plan = make_planner("prompt", 16).plan(histogram)
    keys = np.repeat(histogram.hashes, histogram.counts)[:40_000]
    spread = spread_of(len(keys))
    whole = plan.route(keys, spread)
    cuts = [0, 1, 2, 777, 16_383, 16_385, 40_000]
    pieces = [plan.route(keys[a:b], spread[a:b]) for a, b in pairwise(cuts)]
    assert np.array_equal(np.concatenate(pieces), whole)


def test_splits_need_a_spread_hash() -> None:
    """Without one there is no right answer, so none is given."""
    plan = small_plan()
    with pytest.raises(PlanError, match="needs a spread hash"):
        plan.route(np.array([5], np.uint64))
    with pytest.raises(PlanError, match="2 key hashes but 1 spread hashes"):
        plan.route(np.array([5, 6], np.uint64), np.array([1], np.uint64))


def test_explain_says_where_how_much_and_why() -> None:
    plan = small_plan()
    split = plan.explain(2**63 + 5)
    assert (split.kind, split.partitions, split.shares) == ("hot, split in 2", (0, 1), (0.75, 0.25))
    assert (split.rows, split.share_of_rows, split.reason) == (400, 0.4, "split for the test")
    assert plan.explain(5).kind == "hot"
    tail = plan.explain(6)
    assert (tail.kind, tail.partitions) == ("tail", (0,))
    assert "host, 0," in tail.reason
    assert "40.00% of all" in str(split)


def test_the_digest_names_the_routing_and_nothing_else() -> None:
    """Same tables, same digest, whatever the version; another table, key type or size, another digest."""
    plan = small_plan()
    renamed = dataclasses.replace(plan, info=dataclasses.replace(plan.info, version=Version(9, 9), stream="other"))
    assert renamed.digest == plan.digest
    assert dataclasses.replace(plan, key_types=("bigint",)).digest != plan.digest
    assert dataclasses.replace(plan, partitions=3).digest != plan.digest
    swapped = np.where(np.arange(4096) == 0, 1, plan.tail).astype(np.int32)
    assert dataclasses.replace(plan, tail=swapped).digest != plan.digest


def test_moved_share_counts_rows_that_change_place() -> None:
    """Whole keys move whole, split keys by the share that leaves, tail keys with their host."""
    plan = small_plan()
    histogram = Histogram.from_counts(np.array([5, 6, 2**63 + 5, 2**63 + 6], np.uint64), np.array([50, 30, 400, 20]))
    assert plan.moved_share(plan, histogram) == 0.0
    swapped = Placement.tail_only((1 - np.arange(4096) // 2048).astype(np.int32))
    other = build_plan(swapped, 2, PlanInfo())
    rows, keys = other.moved(plan, histogram)
    assert rows == pytest.approx((30 + 20 + 100) / 500)  # key 5 stays on 1; of the split key a quarter was on 1
    assert keys == pytest.approx(3 / 4)


def test_moved_share_where_only_hosts_are_known() -> None:
    plan, histogram = small_plan(), some_histogram(rows=1000, keys=300)
    hosts = Histogram.from_counts(np.zeros(0, np.uint64), [], histogram.fold(np.zeros(len(histogram.hashes), bool), 12))
    other = build_plan(Placement.tail_only(np.zeros(8192, np.int32)), 2, PlanInfo())
    assert other.moved_share(plan, hosts) == pytest.approx(other.moved_share(plan, histogram), abs=1e-9)


@pytest.mark.parametrize(("n", "hosts"), [(1, 4096), (128, 4096), (129, 8192), (1000, 32768), (4096, 131072)])
def test_hosts_are_the_least_power_of_two(n: int, hosts: int) -> None:
    """H >= max(4096, 32 n)."""
    assert 1 << host_bits(n) == hosts


def test_a_plan_is_immutable() -> None:
    plan = small_plan()
    with pytest.raises(ValueError, match="read-only"):
        plan.tail[0] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.partitions = 3  # type: ignore[misc]


def test_tables_that_could_route_a_row_nowhere_are_refused() -> None:
    """Each invariant by itself, as a damaged or hostile encoding would break it."""
    plan = small_plan()
    hot, slots = plan.hot, plan.hot.slots
    broken = {
        "partitions": {"partitions": 0},
        "outside": {"tail": np.full(4096, 2, np.int32)},
        "power of two": {"tail": np.zeros(1000, np.int32)},
        "sorted": {"hot": dataclasses.replace(hot, hashes=hot.hashes[::-1])},
        "length": {"hot": dataclasses.replace(hot, rows=hot.rows[:1])},
        "own slots": {"hot": dataclasses.replace(hot, home=np.array([-1, -1], np.int32))},
        "bit counts": {"hot": dataclasses.replace(hot, slots=dataclasses.replace(slots, bits=np.array([2], np.uint8)))},
        "cut lies": {"hot": dataclasses.replace(hot, slots=dataclasses.replace(slots, cut=slots.cut + TOP))},
        "reason": {"hot": dataclasses.replace(hot, reason=np.array([9, 9], np.uint8))},
        "bucket": {"hot": dataclasses.replace(hot, lookup=dataclasses.replace(hot.lookup, bits=0))},
    }
    for message, change in broken.items():
        with pytest.raises(PlanError, match=message):
            dataclasses.replace(plan, **change)


def test_unknown_keys_are_spread_by_their_host() -> None:
    """A key the plan has never seen goes somewhere valid, by its hash alone."""
    plan = make_planner("kip", 16).plan(some_histogram())
    new = key_hashes(1000, 77)
    assert np.array_equal(plan.route(new), plan.tail[(new >> np.uint64(52)).astype(int)])
