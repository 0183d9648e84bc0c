"""Blocks of state: which of them a batch touches, what moves, what is written anew."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from unskew.core import Histogram, make_planner
from unskew.core.operators.keyed_state import (
    BLOCK,
    Blocks,
    Spans,
    arrivals,
    cut,
    expired,
    holding,
    in_use,
    moved_away,
    no_blocks,
    overlapping,
    runs,
    to_empty,
)
from unskew.core.plan.build import Placement, build_plan
from unskew.core.plan.plan import Plan, PlanInfo

TOP = 2**64 - 1
HASHES = st.lists(st.integers(0, TOP), unique=True)
NUMBERS = np.random.default_rng(3).integers(0, TOP, 3000, np.uint64)


def u64(values: list[int]) -> NDArray[np.uint64]:
    return np.array(values, np.uint64)


def blocks_at(first: list[int]) -> Blocks:
    made = np.zeros(len(first), BLOCK)
    made["first"] = u64(sorted(first))
    return made


def plan_of(rng: np.random.Generator, partitions: int) -> Plan:
    """Any plan that keeps keys whole, with some of ``NUMBERS`` listed."""
    listed = np.sort(rng.choice(NUMBERS, 12, replace=False))
    home = rng.integers(0, partitions, 12).astype(np.int32)
    tail = rng.integers(0, partitions, 4096).astype(np.int32)
    whole = Placement.whole(tail, listed, home, np.ones(12, np.int64), ("any",), np.zeros(12, np.uint8))
    return build_plan(whole, partitions, PlanInfo())


# -- which blocks -----------------------------------------------------------------------------------------------


def test_a_hash_is_in_the_last_block_that_begins_at_it_or_before() -> None:
    """The first block has what is below it too."""
    blocks = blocks_at([100, 200, 300])
    assert holding(blocks, u64([5, 100, 199])).tolist() == [True, False, False]
    assert holding(blocks, u64([200, TOP])).tolist() == [False, True, True]
    assert not holding(no_blocks(), u64([5])).any()
    assert not holding(blocks, u64([])).any()


@given(HASHES, st.lists(st.tuples(st.integers(0, TOP), st.integers(0, TOP)), max_size=6), HASHES)
def test_spans_meet_the_blocks_of_the_hashes_in_them(
    first: list[int], pairs: list[tuple[int, int]], hashes: list[int]
) -> None:
    """What a span holds is in a block that it is over; ends are in, order and overlap make no difference."""
    spans = Spans.of(u64([min(pair) for pair in pairs]), u64([max(pair) for pair in pairs]))
    assert (spans.first[1:] > spans.last[:-1]).all()
    asked = u64([*hashes, *(end for pair in pairs for end in pair)])
    inside = [any(min(pair) <= h <= max(pair) for pair in pairs) for h in asked.tolist()]
    assert spans.meets(asked, asked).tolist() == inside
    blocks = blocks_at(first)
    assert (overlapping(blocks, spans) >= holding(blocks, asked[np.array(inside, bool)])).all()


def test_a_span_between_two_blocks_is_over_the_one_before() -> None:
    """And over no other: a move reads no more than it needs."""
    blocks = blocks_at([100, 200, 300])
    assert overlapping(blocks, Spans.of(u64([150]), u64([160]))).tolist() == [True, False, False]
    assert overlapping(blocks, Spans.of(u64([299]), u64([299]))).tolist() == [False, True, False]
    assert overlapping(blocks, Spans.of(u64([0, 300]), u64([3, TOP]))).tolist() == [True, False, True]
    assert not overlapping(blocks, Spans.of(u64([]), u64([]))).any()


def test_blocks_expire_by_their_least_expiry() -> None:
    """At that instant already."""
    blocks = blocks_at([1, 2, 3])
    blocks["least"] = [10, 11, 12]
    assert expired(blocks, 11).tolist() == [True, True, False]


def test_runs_are_what_is_chosen_side_by_side() -> None:
    assert runs(np.array([True, True, False, True, False])) == [(0, 2), (3, 4)]
    assert runs(np.zeros(3, bool)) == []
    assert runs(np.zeros(0, bool)) == []


# -- what moves -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [(5, 5), (7, 3), (3, 200)])
def test_arrivals_are_all_that_comes_from_each_place(before: int, after: int) -> None:
    """Of hosts and of listed keys; every hash that moves is in the spans of its old place."""
    rng = np.random.default_rng(before)
    old, new = plan_of(rng, before), plan_of(rng, after)
    asked = np.unique(np.concatenate([NUMBERS, old.hot.hashes, new.hot.hashes]))
    was, now = old.place(asked), new.place(asked)
    for partition in range(after):
        coming = arrivals(old, new, partition)
        assert partition not in coming
        for place in range(before):
            moved = asked[(was == place) & (now == partition) & (was != now)]
            assert not len(moved) or coming[place].meets(moved, moved).all()


def test_nothing_arrives_where_no_plan_changes() -> None:
    plan = plan_of(np.random.default_rng(1), 4)
    assert all(arrivals(plan, plan, partition) == {} for partition in range(4))


def test_a_listed_key_moves_alone() -> None:
    """From the place where its host is, to a place of its own: no host is read for it."""
    counts = np.full(500, 10, np.int64)
    counts[7] = 5000
    hashes = np.sort(NUMBERS[:500])
    old = make_planner("hash", 4).plan(Histogram.empty())
    listed = hashes[7:8]
    whole = Placement.whole(old.tail, listed, np.array([3], np.int32), counts[7:8], ("heavy",), np.zeros(1, np.uint8))
    new = build_plan(whole, 4, PlanInfo())
    was = int(old.place(listed)[0])
    coming = arrivals(old, new, 3)
    assert list(coming) == ([] if was == 3 else [was])
    assert all(spans.first.tolist() == spans.last.tolist() == listed.tolist() for spans in coming.values())


def test_departed_blocks_hold_nothing_of_the_place() -> None:
    """No hash in them is put there by the plan, and a block with one is not among them."""
    plan = plan_of(np.random.default_rng(4), 60)
    first = np.sort(np.random.default_rng(5).choice(NUMBERS, 800, replace=False))
    blocks = blocks_at(first.tolist())
    gone = moved_away(blocks, plan, 9)
    assert 0 < gone.sum() < len(gone)
    mine = np.concatenate([NUMBERS, plan.hot.hashes])
    mine = mine[plan.place(mine) == 9]
    assert not (gone & holding(blocks, mine)).any()


# -- what is written --------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 30)), st.integers(1, 7))
def test_cuts_are_even_and_keep_equal_hashes_together(values: list[int], size: int) -> None:
    """But for keys of one hash, no block is twice as long as it should be."""
    hashes = u64(sorted(values))
    starts = cut(hashes, size)
    assert starts == sorted(set(starts))
    assert (starts[0] == 0) if values else (starts == [])
    for start, stop in zip(starts, [*starts, len(values)][1:], strict=True):
        assert start == 0 or hashes[start] != hashes[start - 1]
        alike = max(np.unique(hashes[start:stop], return_counts=True)[1])
        assert stop - start <= 2 * size + 2 * alike


def test_files_that_are_waste_are_emptied() -> None:
    """Those in use to an eighth or less; the others stay, be they small."""
    live, size = np.array([1000, 10, 112, 30]), np.array([1000, 10, 900, 30])
    assert to_empty(live, size, 15).tolist() == [False, False, True, False]
    assert to_empty(np.zeros(1, int), np.ones(1, int), 0).tolist() == [True]
    assert to_empty(np.zeros(0, int), np.zeros(0, int), 5).tolist() == []


def test_files_stay_few_however_many_batches_there_are() -> None:
    """Batches of one size, nothing given up: the number of files grows as the logarithm of theirs, and what is copied
    too."""
    files: list[int] = []
    copied = 0
    for _ in range(1000):
        live = np.array(files, np.int64)
        chosen = to_empty(live, live, 100)
        copied += int(live[chosen].sum())
        files = [*live[~chosen].tolist(), 100 + int(live[chosen].sum())]
        assert len(files) <= 34
    assert sum(files) == 100_000
    assert copied <= 5 * sum(files)


def test_in_use_counts_the_bytes_of_each_file() -> None:
    blocks = blocks_at([1, 2, 3])
    blocks["file"], blocks["length"] = [0, 2, 2], [10, 20, 30]
    assert in_use(blocks, 4).tolist() == [10, 0, 50, 0]
