"""Laws of Prompt's machines, for any input."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from papers.accumulator import Accumulator, MicroBatch
from papers.early_release import EarlyRelease, IntervalOpened, PlanBuilt, ReleaseRules
from unskew.core.operators.bucket_allocator import allocate, hash_buckets
from unskew.core.scaling.autoscale import step
from unskew.core.scaling.values import BatchStats, ScaleRules, ScaleState

hashes = st.one_of(st.integers(0, 6), st.integers(0, 2**64 - 1))
batches = st.lists(st.lists(hashes, max_size=30), max_size=12)


def accumulate(parts: list[list[int]], order: str, budget: int) -> MicroBatch:
    accumulator = Accumulator(order=order, budget=budget, expected_rows=20, expected_keys=4)  # type: ignore[arg-type]
    accumulator.open(0.0, float(len(parts) + 1))
    for now, part in enumerate(parts):
        accumulator.add(np.array(part, dtype=np.uint64), now=float(now))
    return accumulator.release(float(len(parts)))


@given(batches, st.sampled_from(["sort", "tree"]), st.integers(1, 4))
def test_every_row_is_counted_once_and_refreshes_stay_within_budget(parts, order, budget):
    """Conservation, distinct keys, and the bound of section 4.1."""
    batch = accumulate(parts, order, budget)
    rows = [key for part in parts for key in part]
    assert dict(zip(batch.hashes.tolist(), batch.counts.tolist(), strict=True)) == {k: rows.count(k) for k in rows}
    assert batch.keys == len(set(rows))
    assert batch.rows == len(rows)
    assert batch.refreshes.max(initial=0) <= budget
    assert batch.refreshes.sum() == batch.by_frequency + batch.by_time


@given(batches)
def test_the_sorted_list_is_a_function_of_the_rows_alone(parts):
    """One batch or many, in any order: the same list, by count and then by hash."""
    many, one = accumulate(parts, "sort", 1), accumulate([sorted(key for part in parts for key in part)], "sort", 1)
    pairs = list(zip((-many.counts).tolist(), many.hashes.tolist(), strict=True))
    assert pairs == sorted(pairs)
    assert many.hashes.tolist() == one.hashes.tolist()


clusters = st.dictionaries(hashes, st.tuples(st.integers(0, 40), st.booleans()), max_size=60)


@given(clusters, st.integers(1, 9), st.integers(0, 20))
def test_allocation_is_worst_fit_with_removal_pick_by_pick(items, buckets, task):
    """The vectorised turns give the loads that the listing's loop gives; split keys are hashed."""
    keys = np.array(list(items), dtype=np.uint64)
    counts = np.array([size for size, _ in items.values()], dtype=np.int64)
    split = np.array([mark for _, mark in items.values()], dtype=np.bool_)
    got = allocate(keys, counts, split, buckets, task=task)
    np.testing.assert_array_equal(got.buckets[split], hash_buckets(keys[split], buckets))
    loads = np.bincount(got.buckets[split], counts[split], buckets)
    left: set[int] = set()
    for size in sorted(counts[~split].tolist(), reverse=True):
        left = left or set(range(buckets))
        worst_fit = min(left, key=lambda bucket: loads[bucket])
        loads[worst_fit] += size
        left.remove(worst_fit)
    assert sorted(got.loads.tolist()) == sorted(loads.tolist())
    np.testing.assert_array_equal(got.loads, np.bincount(got.buckets, counts, buckets))
    free = np.bincount(got.buckets[~split], minlength=buckets)
    assert free.max() - free.min() <= 1


@given(clusters, st.integers(1, 9), st.integers(0, 20), st.randoms(use_true_random=False))
def test_allocation_does_not_depend_on_the_order_of_keys(items, buckets, task, random):
    """A retry that sees its clusters in another order decides the same."""

    def run(keys: list[int]) -> dict[int, int]:
        counts = np.array([items[key][0] for key in keys], dtype=np.int64)
        split = np.array([items[key][1] for key in keys], dtype=np.bool_)
        got = allocate(np.array(keys, dtype=np.uint64), counts, split, buckets, task=task)
        return dict(zip(keys, got.buckets.tolist(), strict=True))

    shuffled = list(items)
    random.shuffle(shuffled)
    assert run(list(items)) == run(shuffled)


@given(st.lists(st.floats(0.0, 10.0), max_size=40), st.floats(0.1, 100.0), st.floats(0.0, 1e9))
def test_cut_off_lies_in_the_last_five_percent(seconds, length, now):
    """Whatever was measured: min_slack <= slack <= 5 %, cut-off before heartbeat."""
    machine = EarlyRelease(ReleaseRules(warmup=3, memory=10))
    for one in seconds:
        machine.handle(PlanBuilt(one), now)
    (release,) = machine.handle(IntervalOpened(length), now)
    assert 0.001 <= release.slack <= 0.05
    assert now <= release.cutoff <= release.heartbeat
    assert len(machine.state.recent) <= 10


stats = st.builds(
    lambda mapping, reducing, rows, keys: BatchStats(1.0, mapping + reducing, mapping, reducing, rows, keys),
    st.floats(0.01, 1.0),
    st.floats(0.01, 1.0),
    st.integers(0, 10_000),
    st.integers(0, 1_000),
)
rules = st.builds(
    ScaleRules,
    d=st.integers(1, 4),
    grace=st.integers(0, 5),
    increment=st.integers(1, 3),
    min_p=st.just(2),
    max_p=st.just(12),
    max_r=st.just(9),
    as_published=st.booleans(),
)


@given(rules, st.lists(st.tuples(stats, st.integers(1, 8)), max_size=12))
def test_scaling_keeps_its_promises(rule, phases):
    """Within bounds, by increments, at most twice the tasks, d batches apart, no reverse in grace."""
    state = ScaleState(4, 4)
    last, since = "hold", 0
    for one in (one for one, times in phases for _ in range(times)):
        before = state
        state, decision = step(rule, state, one)
        since += 1
        assert 2 <= decision.p <= 12
        assert 1 <= decision.r <= 9
        assert (decision.p, decision.r) == (state.p, state.r)
        moves = {decision.p - before.p, decision.r - before.r}
        assert all(abs(move) % rule.increment == 0 or decision.p in (2, 12) or decision.r in (1, 9) for move in moves)
        most = 1 if rule.as_published else max(before.p, before.r) // rule.increment
        assert max(map(abs, moves)) <= rule.increment * max(most, 1)
        assert (decision.action == "hold") == (moves == {0})
        assert decision.reason
        if decision.action != "hold":
            assert decision.zone == (3 if decision.action == "out" else 1)
            assert all(move >= 0 for move in moves) == (decision.action == "out")
            assert since >= rule.d
            assert decision.action == last or last == "hold" or since > rule.grace_batches
            last, since = decision.action, 0
