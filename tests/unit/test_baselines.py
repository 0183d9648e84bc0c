"""Readj, Redist, Scan and Mixed: a worked example each, and what must not break any of them."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram, Tail
from unskew.core.plan.plan import Plan
from unskew.core.planners.base import Feedback
from unskew.core.planners.hashed import hash_tail
from unskew.core.planners.registry import PLANNERS, make_planner

BASELINES = ("readj", "redist", "scan", "mixed")
HOSTS = 4096


def key(partition: int, number: int, n: int = 2) -> int:
    """A key hash on the ``number``-th host of those that plain hashing gives to ``partition``."""
    return (partition * HOSTS // n + number) << 52


def histogram(rows: dict[int, int]) -> Histogram:
    return Histogram.from_counts(np.array(list(rows), np.uint64), np.array(list(rows.values()), np.int64))


def homes(plan: Plan, *keys: int) -> list[int]:
    return plan.place(np.array(keys, np.uint64)).tolist()


A, B, C, D, TAIL = key(0, 1), key(0, 2), key(1, 3), key(1, 4), key(0, 9)


# -- readj --------------------------------------------------------------------------------------------------


def test_readj_moves_the_item_that_gains_most():
    """Loads 9 and 1. Moving b (4) gives 5 and 5, moving a gives 4 and 6."""
    rows = histogram({A: 5, B: 4, C: 1})
    plan = make_planner("readj", 2).plan(rows)
    assert homes(plan, A, B, C) == [0, 1, 1]
    assert plan.info.reason.startswith("1 moves and swaps")


def test_readj_swaps_where_no_move_gains():
    """Loads 12 and 4. Moving a or b gives 6 and 10; swapping one of them with a 2 gives 8 and 8."""
    rows = histogram({A: 6, B: 6, C: 2, D: 2})
    plan = make_planner("readj", 2).plan(rows)
    assert plan.loads(rows).tolist() == [8, 8]
    assert sorted(homes(plan, A, B)) == sorted(homes(plan, C, D)) == [0, 1]


def test_readj_rests_within_theta():
    """Loads 11 and 9 are within 1.2 means of 10, though a move could do better; with theta 0 it is done."""
    rows = histogram({A: 10, B: 1, C: 9})
    assert homes(make_planner("readj", 2).plan(rows), A, B, C) == [0, 0, 1]
    assert homes(make_planner("readj", 2, theta=0).plan(rows), A, B, C) == [0, 1, 1]


def test_readj_starts_from_the_places_so_far():
    before = make_planner("readj", 2).plan(histogram({A: 5, B: 4, C: 1}))
    calm = histogram({A: 5, B: 5})
    assert homes(make_planner("readj", 2).plan(calm, before), A, B) == [0, 1]


# -- redist -------------------------------------------------------------------------------------------------


def test_redist_places_everything_anew_heaviest_first():
    """The tail loads 0 with 3. a (5): 1, as 5 < 8. b (4): 0, as 7 < 9."""
    plan = make_planner("redist", 2, factor=1).plan(histogram({A: 5, B: 4, TAIL: 3}))
    assert homes(plan, A, B, TAIL) == [1, 0, 0]


def test_redist_forgets_where_items_were():
    """The tail is on 0 now and pushes a to 1, whatever its state."""
    before = make_planner("redist", 2, factor=1).plan(histogram({A: 5, B: 4}))
    assert homes(before, A, B) == [0, 1]
    after = make_planner("redist", 2, factor=1).plan(histogram({A: 5, B: 4, TAIL: 3}), before)
    assert homes(after, A, B) == [1, 0]


# -- scan ---------------------------------------------------------------------------------------------------


def test_scan_weighs_balance_against_state():
    """Mean 6, theta 0.2. a (5) on 0 with the tail: -(8/6)/1.2 = -1.11 if it stays, -(5/6)/1.2 - 5/6 = -1.53 if it
    moves. With a state of its own of nearly nothing the second is about -0.69, and it moves."""
    before = make_planner("hash", 2).plan(Histogram.empty())
    rows = histogram({A: 5, C: 4, TAIL: 3})
    scan = make_planner("scan", 2, factor=1)
    assert homes(scan.plan(rows, before), A, C) == [0, 1]
    light = Feedback(state=histogram({A: 1, C: 400, TAIL: 300}))
    assert homes(scan.plan(rows, before, light), A) == [1]


def test_scan_without_a_plan_before_balances_only():
    """As Redist: nothing has state yet."""
    rows = histogram({A: 5, B: 4, TAIL: 3})
    assert homes(make_planner("scan", 2, factor=1).plan(rows), A, B) == [1, 0]


# -- mixed --------------------------------------------------------------------------------------------------


def test_mixed_lets_the_key_go_that_gives_most_load_for_its_state():
    """Loads 9 and 1, limit 6. With states 20 and 4, b (4/4) goes before a (5/20), and then 0 is within bounds;
    with the states the other way round a goes."""
    rows = histogram({A: 5, B: 4, C: 1})
    before = make_planner("hash", 2).plan(rows)
    mixed = make_planner("mixed", 2, theta=0.2)
    heavy_a = Feedback(state=histogram({A: 20, B: 4, C: 1}))
    heavy_b = Feedback(state=histogram({A: 4, B: 20, C: 1}))
    assert homes(mixed.plan(rows, before, heavy_a), A, B, C) == [0, 1, 1]
    assert homes(mixed.plan(rows, before, heavy_b), A, B, C) == [1, 0, 1]


def test_mixed_keeps_its_table_within_its_bound():
    """Eight equal keys hash to 0 of 2. A table of one entry lets only one of them be elsewhere."""
    rows = histogram({key(0, i): 5 for i in range(8)})
    for factor, elsewhere in ((0.5, 1), (1, 2), (4, 4)):
        plan = make_planner("mixed", 2, factor=factor).plan(rows)
        assert sum(homes(plan, *(key(0, i) for i in range(8)))) == elsewhere


def test_mixed_drops_the_smallest_entries_back_to_hash():
    """Four of eight keys are on 1. With a smaller table the lightest two of them go home."""
    keys = [key(0, i) for i in range(8)]
    before = make_planner("mixed", 2, factor=4).plan(histogram(dict.fromkeys(keys, 5)))
    away = [k for k in keys if homes(before, k) == [1]]
    rows = dict.fromkeys(keys, 5) | dict(zip(away, (9, 8, 2, 1), strict=True))
    plan = make_planner("mixed", 2, factor=1, theta=1e6).plan(histogram(rows), before)
    assert homes(plan, *away) == [1, 1, 0, 0]


def test_mixed_searches_for_the_bound_that_balances_best():
    """Bounds of 2 means leave the skew as it is; the search finds one that does not, and names it."""
    rows = some_rows()
    loose = make_planner("mixed", 16, theta=2.0).plan(rows)
    searched = make_planner("mixed", 16).plan(rows)
    assert searched.loads(rows).max() < loose.loads(rows).max()
    assert loose.info.reason.startswith("theta_max 2:")
    assert not searched.info.reason.startswith("theta_max 2:")


def test_mixed_takes_a_tighter_bound_only_for_a_gain():
    """Even loads: every bound gives the same, so the loosest stands and nothing moves."""
    rows = histogram({A: 5, C: 5})
    assert make_planner("mixed", 2).plan(rows).info.reason.startswith("theta_max 2: 2 items, 0 moved")


# -- all of them --------------------------------------------------------------------------------------------


def some_rows(seed: int = 5, keys: int = 500) -> Histogram:
    rng = np.random.default_rng(seed)
    return Histogram.from_counts(rng.integers(0, 2**63, keys).astype(np.uint64) * 2, rng.zipf(1.3, keys) % 9999 + 1)


@pytest.mark.parametrize("name", BASELINES)
def test_the_tail_is_hashed_and_never_moves(name: str):
    planner = make_planner(name, 16)
    plan = planner.plan(some_rows(2), planner.plan(some_rows(1)))
    assert np.array_equal(plan.tail, hash_tail(planner.algorithm.common))


@pytest.mark.parametrize("name", BASELINES)
def test_items_are_the_top_lambda_n(name: str):
    plan = make_planner(name, 16, factor=3).plan(some_rows())
    assert set(plan.hot.hashes.tolist()) == set(some_rows().top(48)[0].tolist())


@pytest.mark.parametrize("name", BASELINES)
def test_it_balances_better_than_plain_hashing(name: str):
    rows = some_rows()
    hashed = make_planner("hash", 16).plan(rows).loads(rows).max()
    assert make_planner(name, 16).plan(rows).loads(rows).max() < hashed


@pytest.mark.parametrize("name", BASELINES)
def test_weights_are_respected(name: str):
    """Ten of each 100 rows are the tail's; the rest can be shared 1 : 3."""
    rows = histogram({key(0, i): 10 for i in range(40)})
    loads = make_planner(name, 2, factor=20, weights=[1, 3]).plan(rows).loads(rows)
    assert loads[1] > 2 * loads[0]


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("n", [1, 2, 4096])
def test_no_rows_one_key_and_counts_near_the_limit(name: str, n: int):
    planner = make_planner(name, n)
    huge = Histogram.from_counts(np.array([3, 2**63], np.uint64), np.array([2**62, 2**62 - 1], np.int64))
    for rows in (Histogram.empty(), histogram({A: 7}), huge, histogram({key(0, i): 5 for i in range(3000)})):
        plan = planner.plan(rows, planner.plan(some_rows(1)))
        assert not plan.splits
        assert sum(plan.loads(rows).tolist()) == rows.total


@pytest.mark.parametrize("name", BASELINES)
def test_a_plan_before_it_may_have_another_width_or_split_keys(name: str):
    rows = some_rows()
    for before in (make_planner("kip", 5).plan(rows), make_planner("balanced", 16).plan(rows)):
        plan = make_planner(name, 16).plan(rows, before)
        assert not plan.splits
        assert plan.loads(rows).sum() == rows.total


@pytest.mark.parametrize("name", BASELINES)
def test_a_bounded_summary_is_enough(name: str):
    """Heavy keys one by one and the rest by host: same items, same places as from the full counts."""
    full = some_rows(keys=4000)
    listed = np.zeros(4000, bool)
    listed[np.argsort(-full.counts, kind="stable")[:400]] = True
    tail = full.fold(listed, 12)
    assert isinstance(tail, Tail)
    summary = Histogram.from_counts(full.hashes[listed], full.counts[listed], tail)
    planner = make_planner(name, 16)
    assert planner.plan(summary).digest == planner.plan(full).digest


@pytest.mark.parametrize("name", BASELINES)
def test_a_bad_list_is_refused_by_name(name: str):
    with pytest.raises(ConfigError, match="factor"):
        make_planner(name, 16, factor=-1)
    with pytest.raises(ConfigError, match="factor"):
        make_planner(name, 4096, factor=1e6)


@pytest.mark.parametrize("name", ["readj", "scan", "mixed"])
def test_a_bad_bound_is_refused_by_name(name: str):
    with pytest.raises(ConfigError, match="theta"):
        make_planner(name, 16, theta=-0.1)


@pytest.mark.parametrize("name", BASELINES)
def test_it_says_that_it_is_a_reconstruction(name: str):
    algorithm = PLANNERS[name].algorithm
    module = __import__(algorithm.__module__, fromlist=["__doc__"])
    assert "reconstructed" in (module.__doc__ or "")
