"""The laws that every registered planner obeys. Registering a planner is all it takes to be checked here."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planning import key_hashes, some_histogram, spread_of
from unskew.core.histogram.histogram import Histogram
from unskew.core.limits import MAX_SLOTS
from unskew.core.planners import PLANNERS, Planner, make_planner
from unskew.wire import plan_from_bytes, plan_to_bytes

POLICIES = sorted(PLANNERS)
every_planner = pytest.mark.parametrize("policy", POLICIES)


@st.composite
def histograms(draw: st.DrawFn) -> Histogram:
    """Few to some hundred keys, from all alike to one that is nearly everything."""
    keys = draw(st.integers(1, 300))
    exponent = draw(st.sampled_from([0.0, 0.5, 1.0, 1.5, 3.0]))
    largest = draw(st.sampled_from([1, 7, 1000, 10**9]))
    counts = np.maximum((largest / np.arange(1, keys + 1) ** exponent).astype(np.int64), 1)
    return Histogram.from_counts(key_hashes(keys, draw(st.integers(0, 50))), counts)


@st.composite
def planners(draw: st.DrawFn, policy: str) -> Planner:
    n = draw(st.sampled_from([1, 2, 3, 7, 16, 64]))
    weights = draw(st.none() | st.lists(st.sampled_from([0.5, 1.0, 2.0, 5.0]), min_size=n, max_size=n))
    return make_planner(policy, n, seed=draw(st.integers(0, 3)), weights=weights)


@every_planner
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_every_row_is_routed_once_and_as_planned(policy: str, data: st.DataObject) -> None:
    """Conservation: planned loads add up to the rows, each key's fragments to its count, each route is 0..n-1."""
    planner, histogram = data.draw(planners(policy)), data.draw(histograms())
    plan = planner.plan(histogram)
    key, partition, rows = plan.fragments(histogram.hashes, histogram.counts)
    assert np.array_equal(np.bincount(key, weights=rows, minlength=len(histogram.hashes)), histogram.counts)
    assert plan.loads(histogram).sum() == histogram.total
    assert plan.hot.rows.tolist() == histogram.count(plan.hot.hashes).tolist()
    assert plan.info.loads == tuple(plan.loads(histogram).tolist())
    assert partition.min() >= 0
    assert partition.max() < planner.partitions


@every_planner
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_the_faces_agree_to_the_bit(policy: str, data: st.DataObject) -> None:
    """The numpy face equals the scalar face for listed keys, unknown keys and any spread."""
    planner, histogram = data.draw(planners(policy)), data.draw(histograms())
    plan = planner.plan(histogram)
    keys = np.concatenate([np.repeat(histogram.hashes, 3), key_hashes(50, 99)])
    spread = spread_of(len(keys), data.draw(st.integers(0, 9)))
    spread[:4] = [0, 2**64 - 1, 2**63, 2**63 - 1][: len(spread[:4])]
    one_by_one = [plan.route_one(int(k), int(s)) for k, s in zip(keys, spread, strict=True)]
    assert plan.route(keys, spread).tolist() == one_by_one


@every_planner
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_planning_is_deterministic_whatever_the_order_of_counting(policy: str, data: st.DataObject) -> None:
    """Shuffled and merged in any grouping, the same rows give byte-identical plans."""
    planner, histogram = data.draw(planners(policy)), data.draw(histograms())
    order = np.array(data.draw(st.permutations(range(len(histogram.hashes)))))
    cut = data.draw(st.integers(0, len(order)))
    half = histogram.counts // 2
    parts = [
        Histogram.from_counts(histogram.hashes[order[:cut]], histogram.counts[order[:cut]]),
        Histogram.from_counts(histogram.hashes[order[cut:]], half[order[cut:]]),
        Histogram.from_counts(histogram.hashes[order[cut:]], (histogram.counts - half)[order[cut:]]),
    ]
    merged = parts[2].merge(parts[0], parts[1])
    assert merged == parts[0].merge(parts[1].merge(parts[2])) == histogram
    assert plan_to_bytes(planner.plan(merged)) == plan_to_bytes(planner.plan(histogram))


@every_planner
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_encoding_is_byte_stable_and_keeps_the_routes(policy: str, data: st.DataObject) -> None:
    """Decoded and encoded again a plan has the same bytes, digest and routes."""
    planner, histogram = data.draw(planners(policy)), data.draw(histograms())
    plan = planner.plan(histogram)
    encoded = plan_to_bytes(plan)
    back = plan_from_bytes(encoded)
    assert plan_to_bytes(back) == encoded
    assert back.digest == plan.digest
    assert back.info == plan.info
    spread = spread_of(len(histogram.hashes))
    assert np.array_equal(back.route(histogram.hashes, spread), plan.route(histogram.hashes, spread))
    assert plan.slots <= MAX_SLOTS


@every_planner
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_plan_can_follow_any_other_plan(policy: str, data: st.DataObject) -> None:
    """A previous plan of any policy and any number of partitions is a valid start; versions only grow."""
    planner, histogram = data.draw(planners(policy)), data.draw(histograms())
    other = make_planner(data.draw(st.sampled_from(POLICIES)), data.draw(st.sampled_from([1, 3, planner.partitions])))
    previous = other.plan(data.draw(histograms()))
    decision = planner.decide(histogram, previous)
    assert decision.reason
    assert decision.plan.loads(histogram).sum() == histogram.total
    if decision.changed:
        assert decision.plan.version > previous.version
        assert decision.plan.info.previous == previous.version
        assert decision.plan.partitions == planner.partitions
        moved = decision.plan.moved(previous, histogram)
        assert (decision.plan.info.moved_rows, decision.plan.info.moved_keys) == moved
        assert 0.0 <= min(moved) <= max(moved) <= 1.0
    else:
        assert decision.plan is previous


@every_planner
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_keys_are_split_only_by_policies_that_say_so(policy: str, data: st.DataObject) -> None:
    """A policy registered as keeping keys whole never splits one, and none splits a key of too few spread values."""
    planner, histogram = data.draw(planners(policy)), data.draw(histograms())
    if not PLANNERS[policy].splits:
        assert not planner.plan(histogram).splits
    after = make_planner("balanced", planner.partitions).plan(histogram)
    if not PLANNERS[policy].splits:
        assert not planner.plan(histogram, previous=after).splits
    stiff = Histogram(histogram.hashes, histogram.counts, None, np.ones(len(histogram.hashes), np.int64))
    assert not planner.plan(stiff).splits


@every_planner
def test_weights_are_respected(policy: str) -> None:
    """On many small keys each partition's planned load is in proportion to its weight."""
    weights = np.array([1.0, 2.0, 4.0, 1.0])
    histogram = some_histogram(rows=200_000, keys=50_000, exponent=0.0)
    loads = make_planner(policy, 4, weights=weights).plan(histogram).loads(histogram)
    share = loads / loads.sum() / (weights / weights.sum())
    assert share.max() <= 1.25, share
    assert share.min() >= 0.75, share


@every_planner
@pytest.mark.parametrize("bad", [[1.0, 0.0, 1.0], [1.0, -1.0, 1.0], [1.0, float("nan"), 1.0], [1.0, 1.0], "heavy"])
def test_weights_that_cannot_be_are_refused(policy: str, bad: object) -> None:
    """A zero, negative, missing or non-numeric weight is an error that names the parameter."""
    with pytest.raises(ValueError, match="weights"):
        make_planner(policy, 3, weights=bad)  # type: ignore[arg-type]
