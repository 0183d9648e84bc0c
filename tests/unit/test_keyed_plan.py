"""What is counted of stateful batches, the plan that follows, and both as bytes."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.core import Histogram, make_planner
from unskew.core.errors import StateError
from unskew.core.operators.keyed_plan import (
    HOSTS,
    KIP,
    first_plan,
    history_of,
    keys_added,
    next_plan,
    shortened,
    with_batch,
)
from unskew.core.operators.keyed_state import NEVER, StateFile, StatePart
from unskew.core.planners import Origin
from unskew.wire.manifests import (
    Figures,
    Identity,
    Manifest,
    TaskResult,
    identity_from_bytes,
    identity_to_bytes,
    manifest_from_bytes,
    manifest_to_bytes,
    task_result_from_bytes,
    task_result_to_bytes,
)

RNG = np.random.default_rng(5)
HASHES = RNG.integers(0, 2**64 - 1, 400, np.uint64)
ORIGIN = Origin(stream="s", key_types=("string",))


def skewed(shift: int = 0) -> Histogram:
    ranks = np.minimum(RNG.zipf(1.3, 5000), 400) - 1
    return Histogram.from_hashes(HASHES[(ranks + shift) % 400])


def test_brief_keeps_the_heaviest_and_loses_no_row() -> None:
    whole = skewed()
    short = shortened(whole, 10)
    assert (short.total, short.keys) == (whole.total, whole.keys)
    assert sorted(short.counts) == sorted(whole.counts)[-10:]


def test_keys_are_counted_by_host() -> None:
    change = keys_added(HASHES[:10], HASHES[5:20])
    assert (change.sum(), len(change)) == (5, HOSTS)
    assert (keys_added(HASHES, HASHES) == 0).all()


def test_a_batch_of_few_rows_adds_nothing_to_the_record() -> None:
    """Ten rows a partition, but where nothing else is known."""
    record = with_batch(history_of(), [skewed(), Histogram.empty()], 4)
    assert len(record.batches) == 1
    assert with_batch(record, [Histogram.empty()], 4) is record
    assert with_batch(record, [Histogram.from_hashes(HASHES[:39])], 4) is record
    assert len(with_batch(record, [Histogram.from_hashes(HASHES[:40])], 4).batches) == 2
    assert len(with_batch(history_of(), [Histogram.from_hashes(HASHES[:1])], 4).batches) == 1


def test_a_plan_follows_skew_and_stays_where_moving_would_not_pay() -> None:
    """The heaviest key gets a place of its own; the same rows again change nothing; and many keys of state are not
    moved for a small gain."""
    planner = make_planner("kip", 8, **KIP)
    plan = first_plan(planner, ORIGIN)
    record = with_batch(history_of(), [skewed()], 8)
    few = np.ones(HOSTS, np.int64)
    moved = next_plan(planner, plan, record, few, ORIGIN)
    assert moved.changed
    again = next_plan(planner, moved.plan, record, few, ORIGIN)
    assert (again.changed, again.plan) == (False, moved.plan)
    kept = next_plan(planner, plan, record, few * 1_000_000, ORIGIN)
    assert not kept.changed
    assert "moving costs more than it gains" in kept.reason
    assert next_plan(planner, plan, history_of(), few, ORIGIN).reason == "no rows to plan from"


def test_a_key_that_moves_by_its_name_costs_its_state() -> None:
    """It leaves its host behind, and is counted all the same: a plan that moves it does not move nothing."""
    planner = make_planner("kip", 4, **KIP)
    placed = first_plan(planner, ORIGIN)
    record = with_batch(history_of(), [skewed()], 4)
    moved = next_plan(planner, placed, record, keys_added(HASHES[:0], HASHES), ORIGIN)
    gone = (moved.plan.place(HASHES) != placed.place(HASHES)).sum()
    assert gone > 0
    assert f"moving {gone / len(HASHES):.1%} of the state" in moved.reason


def test_another_number_of_partitions_always_gets_a_plan() -> None:
    plan = first_plan(make_planner("kip", 8, **KIP), ORIGIN)
    decided = next_plan(make_planner("kip", 5, **KIP), plan, history_of(), np.zeros(HOSTS, np.int64), ORIGIN)
    assert (decided.changed, decided.plan.partitions) == (True, 5)


# -- as bytes ---------------------------------------------------------------------------------------------------

PART = StatePart((StateFile("3-0-ab.state", 900, 0), StateFile("4-0-cd.state", 500, 420)), 77, 2**63 + 5, -12)


def manifest() -> Manifest:
    planner = make_planner("kip", 8, **KIP)
    plan, record = first_plan(planner, ORIGIN), with_batch(history_of(), [skewed()], 8)
    record = with_batch(record, [skewed(30)], 8)
    keys = RNG.integers(0, 9, HOSTS)
    decided = next_plan(planner, plan, record, keys, ORIGIN)
    figures = Figures(*range(1, 11))
    return Manifest(
        7, plan, decided.plan, decided.reason, (PART, StatePart()), ("a.parquet",), figures, keys, record, -5
    )


def test_a_manifest_comes_back_as_it_was() -> None:
    made = manifest()
    data = manifest_to_bytes(made)
    back = manifest_from_bytes(data)
    assert manifest_to_bytes(back) == data
    assert (back.plan, back.next_plan, back.parts, back.latest) == (made.plan, made.next_plan, made.parts, -5)
    assert back.history.merged() == made.history.merged()
    assert back.figures == made.figures
    assert back.keys == int(made.host_keys.sum())
    assert back.files == {"3-0-ab.state", "4-0-cd.state"}


@pytest.mark.parametrize("least", [NEVER, 0, -1])
def test_what_a_task_tells_comes_back_as_it_was(least: int) -> None:
    change = np.zeros(HOSTS, np.int64)
    change[[0, 17, 4095]] = [3, -4, 1]
    part = StatePart(PART.files, 77, 5, least)
    made = TaskResult(3, part, "", Figures(rows=9), shortened(skewed(), 10), change, None)
    back = task_result_from_bytes(task_result_to_bytes(made))
    assert (back.partition, back.part, back.output, back.figures, back.latest) == (3, part, "", made.figures, None)
    assert (back.keys_added == change).all()
    assert back.rows == made.rows


def test_an_identity_comes_back_as_it_was() -> None:
    made = Identity("6e0a", "s", "q", ("user",), ("string",), "struct<n:bigint>", "")
    assert identity_from_bytes(identity_to_bytes(made)) == made


@pytest.mark.parametrize("read", [identity_from_bytes, task_result_from_bytes, manifest_from_bytes])
def test_bytes_that_are_not_whole_are_refused(read: object) -> None:
    """At any length, and with any byte changed."""
    assert callable(read)
    data = manifest_to_bytes(manifest())
    for wrong in (b"", data[:7], data[:-1], data + b"x", data[:40] + bytes([data[40] ^ 1]) + data[41:]):
        with pytest.raises(StateError, match="not whole: the checksum does not fit"):
            read(wrong)


# -- drift ------------------------------------------------------------------------------------------------------


def test_replans_follow_drift_and_move_little() -> None:
    """The 200 hottest keys are others after every ten batches: from the second batch on the fullest partition has at
    most 1.2 times max(mean, heaviest key), and no re-plan moves a quarter of the keys. (``benchmarks/stateful.py``
    has more seeds and sizes.)"""
    rng, partitions, keys = np.random.default_rng(2), 16, 50_000
    hashes, order = rng.integers(0, 2**64 - 1, keys, np.uint64), rng.permutation(keys)
    share = 1.0 / np.arange(1, keys + 1)
    planner = make_planner("kip", partitions, **KIP)
    plan, record = first_plan(planner, ORIGIN), history_of()
    state, there = Histogram.from_hashes(hashes), keys_added(np.zeros(0, np.uint64), hashes)
    replanned = 0
    for batch in range(30):
        if batch % 10 == 0:
            cold = rng.choice(np.arange(200, keys), 200, replace=False)
            order[:200], order[cold] = order[cold].copy(), order[:200].copy()
        seen = hashes[order[rng.choice(keys, 30_000, p=share / share.sum())]]
        place = plan.route(seen)
        loads = np.bincount(place, minlength=partitions)
        if batch % 10 >= 2:
            assert loads.max() <= 1.2 * max(loads.mean(), Histogram.from_hashes(seen).counts.max())
        parts = [shortened(Histogram.from_hashes(seen[place == p]), 64) for p in range(partitions)]
        record = with_batch(record, parts, partitions)
        decided = next_plan(planner, plan, record, there, ORIGIN)
        assert decided.plan.moved_share(plan, state) < 0.25
        replanned += decided.changed
        plan = decided.plan
    assert replanned >= 3
