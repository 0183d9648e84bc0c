"""Values stay what they are: against writes through the caller's arrays, and after pickling."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest

from tests.planning import some_histogram, spread_of
from unskew.core.arrays.frozen import derived, frozen, hashes_of
from unskew.core.errors import ConfigError, KeyTypeError
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.build import Placement, build_plan
from unskew.core.plan.plan import Plan, PlanInfo
from unskew.core.planners import make_planner


def test_the_callers_array_stays_his_and_the_value_does_not_follow_it() -> None:
    hashes, counts = np.array([1, 2], np.uint64), np.array([5, 6])
    histogram = Histogram(hashes, counts)
    counts[0], hashes[0] = 99, 9
    assert histogram.counts.tolist() == [5, 6]
    assert histogram.hashes.tolist() == [1, 2]
    tail = np.zeros(4096, np.int32)
    plan = build_plan(Placement.tail_only(tail), 2, PlanInfo())
    tail[:] = 1
    assert plan.route_one(0) == 0
    weights = np.ones(4)
    planner = make_planner("balanced", 4, weights=weights)
    weights[0] = -5
    assert planner.algorithm.common.weights.tolist() == [1.0] * 4


def test_a_read_only_view_of_somebody_elses_array_is_copied() -> None:
    mine = np.arange(4)
    view = mine.view()
    view.setflags(write=False)
    kept = frozen(view, np.int64)
    mine[0] = 7
    assert kept.tolist() == [0, 1, 2, 3]
    assert frozen(kept, np.int64) is kept


def plans() -> list[Plan]:
    return [make_planner(policy, 16).plan(some_histogram(exponent=1.3)) for policy in ("balanced", "kip", "hash")]


@pytest.mark.parametrize("again", [copy.deepcopy, copy.copy, lambda value: pickle.loads(pickle.dumps(value))])
def test_a_copied_or_unpickled_value_is_the_same_and_as_frozen(again: object) -> None:
    """Spark pickles plans into closures: on the other side nobody can write to them either."""
    histogram = some_histogram()
    assert again(histogram) == histogram  # type: ignore[operator]
    for plan in plans():
        other = again(plan)  # type: ignore[operator]
        assert (other.digest, other.info) == (plan.digest, plan.info)
        spread = spread_of(len(histogram.hashes))
        assert np.array_equal(other.route(histogram.hashes, spread), plan.route(histogram.hashes, spread))
        with pytest.raises(ValueError, match="read-only"):
            other.tail[0] = 1
    planner = again(make_planner("kip", 8, weights=[1, 2] * 4))  # type: ignore[operator]
    assert planner.plan(histogram).digest == make_planner("kip", 8, weights=[1, 2] * 4).plan(histogram).digest


def test_tables_that_routing_derives_do_not_travel() -> None:
    """A plan pickles to the same bytes before and after it has routed."""
    plan = plans()[0]
    before = len(pickle.dumps(plan))
    plan.route(some_histogram().hashes, spread_of(len(some_histogram().hashes)))
    assert len(pickle.dumps(plan)) == before


def test_signed_hashes_are_the_same_bits() -> None:
    """Spark's xxhash64 is a signed bigint: both forms count, route and explain alike, in every face."""
    plan, histogram = plans()[0], some_histogram(exponent=1.3)
    spread = spread_of(len(histogram.hashes))
    signed, signed_spread = histogram.hashes.view(np.int64), spread.view(np.int64)
    assert np.array_equal(plan.route(signed, signed_spread), plan.route(histogram.hashes, spread))
    assert Histogram.from_counts(signed, histogram.counts) == histogram
    assert np.array_equal(histogram.count(signed), histogram.counts)
    for key, s, k2, s2 in zip(
        signed.tolist(), signed_spread.tolist(), histogram.hashes.tolist(), spread.tolist(), strict=True
    ):
        assert plan.route_one(key, s) == plan.route_one(k2, s2)
    assert plan.explain(int(signed[0])) == plan.explain(int(histogram.hashes[0]))


@pytest.mark.parametrize(
    "bad", [[1.5], ["x"], np.array([1], np.uint32), np.array([[1]], np.uint64), np.array([True]), 5]
)
def test_what_is_no_hash_is_refused(bad: object) -> None:
    """A narrower or floating type would be cast to other bits and routed elsewhere."""
    plan = plans()[0]
    for use in (lambda: hashes_of(bad, "hashes"), lambda: plan.route(bad, bad), lambda: Histogram.from_hashes(bad)):  # type: ignore[arg-type]
        with pytest.raises(KeyTypeError, match="64-bit hashes"):
            use()


def test_lists_of_hashes_will_do() -> None:
    plan = plans()[0]
    assert plan.route([1, 2, 3], [4, 5, 6]).tolist() == [plan.route_one(k, s) for k, s in ((1, 4), (2, 5), (3, 6))]  # type: ignore[arg-type]


def test_planning_from_hashes_instead_of_counts_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"Histogram\.from_hashes"):
        make_planner("kip", 4).plan(some_histogram().hashes)  # type: ignore[arg-type]


class _Slow:
    """A value whose table takes as long as somebody wants."""

    def __init__(self, begun: threading.Event, end: threading.Event) -> None:
        self.begun, self.end, self.made = begun, end, 0

    @derived
    def table(self) -> list[int]:
        """What it has."""
        self.made += 1
        self.begun.set()
        assert self.end.wait(30)
        return [1]


def test_what_is_derived_is_made_once_and_kept() -> None:
    ended = threading.Event()
    ended.set()
    value = _Slow(threading.Event(), ended)
    assert value.table is value.table
    assert value.made == 1
    assert _Slow.table.__doc__ == "What it has."


def test_a_value_waits_for_no_other_while_something_is_derived() -> None:
    """With a lock for all values a child that was forked in such a moment would wait for good: 1 of 15 did."""
    begun, end, free = threading.Event(), threading.Event(), threading.Event()
    free.set()
    slow, other, found = _Slow(begun, end), _Slow(threading.Event(), free), threading.Event()
    threads = [
        threading.Thread(target=lambda: slow.table),
        threading.Thread(target=lambda: other.table and found.set(), daemon=True),
    ]
    threads[0].start()
    assert begun.wait(30)
    threads[1].start()
    waited = found.wait(5)
    end.set()
    for thread in threads:
        thread.join(30)
    assert waited
