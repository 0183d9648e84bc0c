"""Dalton as a plan: what the learner knows is used, kept, and encoded; cost and size are bounded."""

from __future__ import annotations

import numpy as np
import pytest

from tests.dalton_reference import poured
from tests.planning import key_hashes, some_histogram, zipf_counts
from unskew.core import Histogram, make_planner, make_router
from unskew.core.dalton.batch_learner import BatchRouting, learning
from unskew.core.dalton.qtable import UNTRIED, QTable
from unskew.core.errors import ConfigError
from unskew.core.kernels import base as kernels
from unskew.core.limits import MAX_BYTES, MAX_SLOTS
from unskew.core.plan.plan import Plan
from unskew.core.planners.base import Feedback
from unskew.core.planners.dalton import DaltonPlanner
from unskew.wire.plans import plan_to_bytes


def histogram(*heavy: int, light: int = 1_000, seed: int = 1) -> Histogram:
    """Keys with these counts, and ``light`` keys of one row each."""
    return Histogram.from_counts(key_hashes(len(heavy) + light, seed), np.array([*heavy] + [1] * light, np.int64))


def imbalance(plan: Plan, of: Histogram, relative: np.ndarray | float = 1.0) -> float:
    load = plan.loads(of) / relative
    return float(load.max() * np.sum(np.ones(plan.partitions) * relative) / of.total)


def partitions_of(plan: Plan, key: np.uint64) -> list[int]:
    return sorted(set(plan.fragments(np.array([key], np.uint64), np.array([10_000]))[1].tolist()))


def algorithm(n: int, **parameters: object) -> DaltonPlanner:
    found = make_planner("dalton", n, **parameters).algorithm  # type: ignore[arg-type]
    assert isinstance(found, DaltonPlanner)
    return found


def learned(n: int, of: Histogram, table: QTable | None = None, **parameters: object) -> BatchRouting:
    return algorithm(n, **parameters).learn(of, QTable.empty(n) if table is None else table)[1]


def worth(n: int, key: np.uint64, values: dict[int, float]) -> QTable:
    """A Q-table of one key."""
    row = [values.get(worker, UNTRIED) for worker in range(n)]
    return QTable.of([key], [row], [1], [[worker in values for worker in range(n)]])


# -- what is decided


def test_a_plan_is_the_reference_on_counts() -> None:
    """Hot keys heaviest first over the tail's loads; a decision is for mean / 4096 rows, where that is over one."""
    for heavy in ((900, 700), (90_000, 80_000, 60_000)):
        of, n = histogram(*heavy), 4
        keys = of.hashes[np.argsort(-of.counts, kind="stable")][: len(heavy)]
        tail = np.bincount(make_router("hash", n).route(of.hashes), np.where(np.isin(of.hashes, keys), 0, 1), n)
        homes = make_router("hash", n).route(keys).tolist()
        grain = max(of.total // n // 4096, 1)
        values = [[UNTRIED] * n for _ in heavy]
        want = poured(
            [*heavy], homes, [n] * len(heavy), tail.astype(int).tolist(), [1.0] * n, learning(), 7, values, grain
        )
        done = learned(n, of)
        assert done.placed.tolist() == want
        assert done.table.take(keys).values.tolist() == [values[j] for j in np.argsort(keys)]


def test_what_partitioners_learned_decides() -> None:
    """A hot key goes where the Q-table of the feedback says, and to its hash partition where nothing is known."""
    of = histogram(300)
    key = of.hashes[of.counts == 300][0]
    home = int(make_router("hash", 8).route(np.array([key]))[0])
    there = (home + 3) % 8
    planner = make_planner("dalton", 8, epsilon=0.0)
    assert partitions_of(planner.plan(of), key) == [home]
    assert partitions_of(planner.plan(of, feedback=Feedback(table=worth(8, key, {there: -0.1}))), key) == [there]
    both = worth(8, key, {there: 0.3, home: 0.3})
    assert partitions_of(planner.plan(of, feedback=Feedback(table=both)), key) == sorted([home, there])


def test_what_was_learned_counts_more_than_the_plan_before() -> None:
    of = histogram(300)
    key = of.hashes[of.counts == 300][0]
    planner = make_planner("dalton", 8, epsilon=0.0)
    before = planner.plan(of, feedback=Feedback(table=worth(8, key, {1: -0.1})))
    assert partitions_of(before, key) == [1]
    assert partitions_of(planner.plan(of, before), key) == [1]
    assert partitions_of(planner.plan(of, before, Feedback(table=worth(8, key, {5: -0.1}))), key) == [5]


def test_a_table_for_another_number_of_partitions_is_resized() -> None:
    """What is known of partitions that are left counts; the others are untried."""
    of = histogram(400)
    key = of.hashes[of.counts == 400][0]
    home = int(make_router("hash", 4).route(np.array([key]))[0])
    there = (home + 1) % 4
    planner = make_planner("dalton", 4, epsilon=0.0)
    assert partitions_of(planner.plan(of, feedback=Feedback(table=worth(8, key, {there: -0.1}))), key) == [there]
    assert partitions_of(planner.plan(of, feedback=Feedback(table=worth(8, key, {7: -0.1}))), key) == [home]


def test_the_state_after_a_plan_is_the_start_of_the_next() -> None:
    """``learn`` hands on the Q-table; planning on with it changes little."""
    of = some_histogram()
    first = learned(16, of)
    second = learned(16, of, first.table)
    assert second.table.hashes.tolist() == first.table.hashes.tolist()
    moved = np.abs(second.placed - first.placed).sum() / 2 / of.total
    assert moved <= 0.05


@pytest.mark.parametrize("n", [16, 64])
def test_nothing_much_moves_where_nothing_changed(n: int) -> None:
    """Fragments of the previous plan stay: far fewer rows move than to a plan made without it (of another seed: with
    the same one it would be the same plan), and it is as even."""
    of = some_histogram(exponent=1.5)
    before = make_planner("dalton", n).plan(of)
    again = make_planner("dalton", n, seed=8).plan(of, before)
    anew = make_planner("dalton", n, seed=8).plan(of)
    assert anew.moved_share(before, of) > 0.1
    assert again.moved_share(before, of) <= 0.03
    assert make_planner("dalton", n).plan(of, before).moved_share(before, of) <= 0.05
    assert imbalance(again, of) <= 1.02 * imbalance(before, of)
    hot = before.hot.hashes
    key, partition, _ = before.fragments(hot, np.full(len(hot), 10_000))
    had = set(zip(hot[key].tolist(), partition.tolist(), strict=True))
    key, partition, _ = again.fragments(again.hot.hashes, np.full(len(again.hot.hashes), 10_000))
    has = set(zip(again.hot.hashes[key].tolist(), partition.tolist(), strict=True))
    assert len(has & had) >= 0.95 * len(has)


def test_few_rows_move_from_batch_to_batch() -> None:
    """Batches of one distribution, each planned after the one before."""
    share = np.arange(1, 5_001) ** -1.5
    planner, keys = make_planner("dalton", 64), key_hashes(5_000)
    plan, moved, anew = None, [], []
    for seed in range(4):
        counts = np.random.default_rng(seed).multinomial(50_000, share / share.sum())
        of = Histogram.from_counts(keys[counts > 0], counts[counts > 0])
        new = planner.plan(of, plan)
        if plan is not None:
            moved.append(new.moved_share(plan, of))
            anew.append(planner.plan(of).moved_share(plan, of))
        plan = new
    assert np.mean(moved) <= 0.5 * np.mean(anew)


def test_hot_is_a_key_with_a_mean_share_of_the_rows() -> None:
    """1,000 rows on eight partitions: 125 are hot, 124 are not."""
    plan = make_planner("dalton", 8).plan(histogram(125, 124, light=751))
    assert plan.hot.rows.tolist() == [125]
    assert make_planner("dalton", 8).plan(histogram(light=64)).hot.rows.tolist() == []
    assert "0 hot keys, 0 fragments" in make_planner("dalton", 8).plan(histogram(light=64)).info.reason


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.5])
@pytest.mark.parametrize("n", [4, 16, 64])
def test_plans_are_as_even_as_the_hashed_tail_allows(n: int, exponent: float) -> None:
    counts = zipf_counts(200_000, 20_000, exponent)
    of = Histogram.from_counts(key_hashes(len(counts)), counts)
    homes = make_router("hash", n).route(of.hashes)
    tail = np.bincount(homes, np.where(of.counts * n >= of.total, 0, of.counts), n)
    bound = max(1.0, float(tail.max()) * n / of.total)
    assert imbalance(make_planner("dalton", n).plan(of), of) <= 1.15 * bound


def test_weights_are_respected() -> None:
    """Loads are shared out by capacity; the strong partition gets more of the hot key than any weak one."""
    relative = np.array([4.0, 1.0, 1.0, 2.0])
    of = histogram(60_000, light=2_000)
    plan = make_planner("dalton", 4, weights=relative).plan(of)
    assert imbalance(plan, of, relative) <= 1.10
    assert imbalance(make_planner("dalton", 4).plan(of), of, relative) > 1.5


def test_a_key_that_cannot_be_split_stays_whole() -> None:
    """Too few spread values: one partition, the reason says so, and the Q-table chooses which."""
    of = histogram(5_000, 4_000)
    spread = np.where(of.counts == 5_000, 2, 1_000).astype(np.int64)
    narrow = Histogram(of.hashes, of.counts, spread=spread)
    plan = make_planner("dalton", 8).plan(narrow)
    whole, free = of.hashes[of.counts == 5_000][0], of.hashes[of.counts == 4_000][0]
    assert len(partitions_of(plan, whole)) == 1
    assert len(partitions_of(plan, free)) > 2
    assert any("too few distinct spread values" in reason for reason in plan.hot.reasons)
    table = worth(8, whole, {6: -0.1})
    assert partitions_of(
        make_planner("dalton", 8, epsilon=0.0).plan(narrow, feedback=Feedback(table=table)), whole
    ) == [6]


@pytest.mark.parametrize("cap", [1, 3, None, "share", "adaptive"])
def test_no_key_is_on_more_partitions_than_it_may_be(cap: int | str | None) -> None:
    of = histogram(20_000, 3_000, light=1_000)
    done = learned(16, of, split_cap=cap)
    share = [min(1 + -(-4 * rows * 16 // of.total), 16) for rows in (20_000, 3_000)]
    most = {"share": share, "adaptive": [2, 2], None: [16, 16]}.get(cap, [cap, cap])  # type: ignore[call-overload]
    assert all(got <= allowed for got, allowed in zip((done.placed > 0).sum(axis=1).tolist(), most, strict=True))
    assert (done.placed[0] > 0).sum() >= min(most[0], 10)


# -- cost and size


def test_shares_do_not_depend_on_the_scale_of_rows() -> None:
    """A thousand times the rows: the same plan within a grain, and no more decisions (4e9 rows one by one would never
    end)."""
    of = some_histogram(1_000_000)
    small, large = (learned(16, Histogram.from_counts(of.hashes, of.counts * scale)) for scale in (1, 1_000))
    assert large.table.hashes.tolist() == small.table.hashes.tolist()
    assert np.abs(large.placed / 1_000 - small.placed).max() <= 0.001 * of.total
    billions = Histogram.from_counts(of.hashes, of.counts * 10**9)
    assert np.abs(learned(16, billions).placed / 10**9 - small.placed).max() <= 0.001 * of.total


def crowd(n: int, hot: int, rows: int) -> Histogram:
    """So many hot keys of so many rows, and light ones."""
    return histogram(*[rows] * hot, light=20_000)


@pytest.mark.skipif(not kernels.COMPILED, reason="numba is not installed: plain Python takes minutes")
@pytest.mark.parametrize(
    ("n", "hot", "rows"),
    [pytest.param(1024, 900, 400), pytest.param(8192, 6_000, 400, marks=pytest.mark.long)],
)
def test_thousands_of_hot_keys_fit_a_plan(n: int, hot: int, rows: int) -> None:
    """Under 1 MB however many keys are hot, and every row has a place."""
    of = crowd(n, hot, rows)
    plan = make_planner("dalton", n).plan(of)
    assert len(plan_to_bytes(plan)) <= MAX_BYTES
    assert plan.slots <= MAX_SLOTS
    assert plan.loads(of).sum() == of.total
    assert len(plan.hot) >= min(hot, 2_000)
    assert imbalance(plan, of) <= imbalance(make_planner("hash", n).plan(of), of)


@pytest.mark.parametrize("seed", [-1, 2**70])
def test_any_whole_number_is_a_seed(seed: int) -> None:
    of = some_histogram(5_000)
    assert make_planner("dalton", 8, seed=seed).plan(of).loads(of).sum() == of.total


def test_bad_settings_are_refused_by_name() -> None:
    for name, value in (
        ("gamma", 0.0), ("epsilon", -0.1), ("p1", 2.0), ("look", 65), ("split_cap", "most"), ("split_cap", 9_000),
        ("share", 0.0), ("keep_untried", 1), ("quantum", 2),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=name):
            make_planner("dalton", 8, **{name: value})  # type: ignore[arg-type]
