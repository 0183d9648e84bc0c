"""balanced, prompt, cg and auto: examples by hand, and the figures that their plans must reach as encoded."""

from __future__ import annotations

import numpy as np
import pytest

from tests.planning import key_hashes, some_histogram, spread_of, zipf_counts
from unskew.core.errors import ConfigError
from unskew.core.grouping.signals import SignalRules, sense
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Plan
from unskew.core.planners import Feedback, make_planner
from unskew.core.planners.base import Place
from unskew.core.planners.prompt import zigzag
from unskew.core.quality.cost_fit import TaskTimes
from unskew.core.quality.measures import load_imbalance, metrics_of

EXPONENTS = (0.5, 1.0, 1.5, 2.0)


def on_hosts(*counts: int) -> Histogram:
    """Keys on hosts far apart, the first on the first host, so that an example can be followed by hand."""
    hashes = np.arange(len(counts), dtype=np.uint64) << np.uint64(60)
    return Histogram.from_counts(hashes, np.array(counts))


def routed(histogram: Histogram, policy: str, n: int, **parameters: object) -> dict[int, dict[int, int]]:
    """Rows per partition for each key of a plan."""
    plan = make_planner(policy, n, **parameters).plan(histogram)
    out: dict[int, dict[int, int]] = {}
    for key, partition, rows in zip(*plan.fragments(histogram.hashes, histogram.counts), strict=True):
        out.setdefault(int(key), {})[int(partition)] = int(rows)
    return out


# -- prompt -------------------------------------------------------------------------------------------------


def test_prompt_by_hand() -> None:
    """24 rows of 5 keys on 2 blocks. S_cut = ceil(24/5) = 5: keys 0 and 1 put 5 on blocks 0 and 1 and keep 5 and
    3. Keys 2, 3, 4 (4, 1, 1) go in zigzag to blocks 0, 1, 1. Residuals ascending: 3 fits its home 1; 5 fills its
    home 0 with 3 and the tightest block for the other 2 is 1. Both blocks hold 12."""
    assert routed(on_hosts(10, 8, 4, 1, 1), "prompt", 2) == {
        0: {0: 8, 1: 2},
        1: {1: 8},
        2: {0: 4},
        3: {1: 1},
        4: {1: 1},
    }


def test_zigzag_reverses_after_each_pass() -> None:
    assert zigzag(8, np.ones(3)).tolist() == [0, 1, 2, 2, 1, 0, 0, 1]


@pytest.mark.parametrize("blocks", [16, 64])
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_prompt_blocks_are_even_in_rows_and_keys_with_few_fragments(exponent: float, blocks: int) -> None:
    """N = 1 M: BSI <= 1, BCI no worse than hashing's, KSR <= 1.05, all of the encoded plan."""
    histogram = Histogram.from_counts(*_zipf(exponent))
    plan = make_planner("prompt", blocks).plan(histogram)
    plain = make_planner("hash", blocks).plan(histogram)
    rows, keys = plan.loads(histogram), plan.cardinalities(histogram)
    metrics = metrics_of(rows, keys, histogram.keys)
    hashed = metrics_of(plain.loads(histogram), plain.cardinalities(histogram), histogram.keys)
    assert metrics.bsi <= 1.0
    assert metrics.bci <= hashed.bci
    assert metrics.ksr <= 1.05


def _zipf(exponent: float) -> tuple[np.ndarray, np.ndarray]:
    counts = zipf_counts(1_000_000, 100_000, exponent)
    return key_hashes(len(counts)), counts


def test_a_block_that_is_over_before_the_residuals_is_over_by_one_cut_at_most() -> None:
    """Few keys, so that whole fragments overfill a block: BSI stays within ceil(N / K)."""
    for counts in ([100, 90, 80], [9, 9, 9, 9, 9], [1000, 1, 1, 1], [50] * 7):
        histogram = on_hosts(*counts)
        loads = make_planner("prompt", 4).plan(histogram).loads(histogram)
        assert loads.max() - loads.mean() <= -(-histogram.total // histogram.keys)


def test_prompt_lists_no_more_keys_than_told() -> None:
    """The plan's size is bounded: with few listed keys the rest is dealt by host, and blocks still come out even."""
    histogram = some_histogram(exponent=1.0)
    plan = make_planner("prompt", 16, listed=50).plan(histogram)
    assert len(plan.hot) == 50
    assert plan.loads(histogram).max() - histogram.total / 16 <= 1
    with pytest.raises(ConfigError, match="listed"):
        make_planner("prompt", 16, listed=-1)


# -- balanced -----------------------------------------------------------------------------------------------


def test_balanced_by_hand() -> None:
    """30 rows on 3 partitions of 10: the heavy key of 24 fills what the two small ones leave, with two cuts."""
    assert routed(on_hosts(24, 4, 2), "balanced", 3) == {0: {0: 10, 1: 10, 2: 4}, 1: {2: 4}, 2: {2: 2}}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("partitions", [16, 64])
@pytest.mark.parametrize("exponent", [0.0, *EXPONENTS])
def test_balanced_is_within_one_row_of_weighted_even(exponent: float, partitions: int, weighted: bool) -> None:
    """N = 1 M, the encoded plan: every partition within one row of its share, fragments <= K + n - 1, and the
    tail's distinct keys no less even than under hashing."""
    histogram = Histogram.from_counts(*_zipf(exponent))
    weights = 1.0 + np.arange(partitions) % 3 if weighted else np.ones(partitions)
    plan = make_planner("balanced", partitions, weights=weights).plan(histogram)
    share = histogram.total * weights / weights.sum()
    assert np.abs(plan.loads(histogram) - share).max() <= 1.0
    keys = plan.cardinalities(histogram)
    assert keys.sum() <= histogram.keys + partitions - 1
    plain = make_planner("hash", partitions, weights=weights).plan(histogram).cardinalities(histogram)
    assert load_imbalance(keys, weights) <= load_imbalance(plain, weights) + 0.02


def test_keys_of_too_few_spread_values_stay_whole() -> None:
    """A key whose rows are all alike cannot be split by a hash of the row; the others even things out."""
    counts = np.array([500, 400, 60, 20, 10, 10])
    spread = np.array([2, 10_000, 60, 20, 10, 10])
    histogram = Histogram(np.arange(6, dtype=np.uint64) << np.uint64(60), counts, spread=spread)
    for policy in ("balanced", "prompt", "cg"):
        plan = make_planner(policy, 4).plan(histogram)
        stiff, fluid = plan.explain(0), plan.explain(1 << 60)
        assert len(stiff.partitions) == 1
        assert "too few distinct spread values" in stiff.reason
        assert len(fluid.partitions) > 1


# -- cg -----------------------------------------------------------------------------------------------------


def test_cg_bounds_every_partition() -> None:
    """PoRC at n = 16: with 100 virtual workers each, no partition is far over (1 + epsilon) of the mean."""
    histogram = some_histogram(rows=1_000_000, keys=100_000, exponent=1.2)
    plan = make_planner("cg", 16).plan(histogram)
    assert load_imbalance(plan.loads(histogram)) <= 1.03


def test_one_virtual_worker_changes_hands_per_pair() -> None:
    """Busy 3 with idle 5, and busy 1 with nobody: 3 gives one virtual worker to 5, nothing else moves."""
    histogram = some_histogram(rows=100_000, keys=50_000, exponent=0.0)
    planner = make_planner("cg", 8, alpha=16)
    first = planner.plan(histogram)
    second = planner.plan(histogram, first, Feedback(busy=(3, 1), idle=(5,)))
    moved = np.flatnonzero(first.tail != second.tail)
    assert set(first.tail[moved].tolist()) == {3}
    assert set(second.tail[moved].tolist()) == {5}
    assert len(moved) == len(first.tail) // 128
    assert second.moved_share(first, histogram) == pytest.approx(1 / 128, rel=0.3)
    third = planner.plan(histogram, second)
    assert np.array_equal(third.tail, second.tail)


def test_repeated_signals_follow_capacity() -> None:
    """A partition that stays idle ends up with more of the stream, one that stays busy keeps at least one."""
    histogram = some_histogram(rows=50_000, keys=20_000, exponent=0.0)
    planner = make_planner("cg", 4, alpha=8)
    plan = planner.plan(histogram)
    for _ in range(40):
        plan = planner.plan(histogram, plan, Feedback(busy=(0,), idle=(1,)))
    loads = plan.loads(histogram)
    assert loads[1] > 1.7 * loads[2]
    assert loads[0] > 0


def held(plan: Plan) -> list[int]:
    """Virtual workers of each partition, of 128."""
    return (np.bincount(plan.tail, minlength=plan.partitions) * 128 // len(plan.tail)).tolist()


def test_who_says_how_much_gets_that_at_once() -> None:
    """16 virtual workers each; 3 wants half of its eighth of the rows, 5 would bear half as much again, 6 as much."""
    histogram = some_histogram(rows=100_000, keys=50_000, exponent=0.0)
    planner = make_planner("cg", 8, alpha=16)
    first = planner.plan(histogram)
    asked = Feedback(busy=(3,), idle=(5, 6), shares={3: 1 / 16, 5: 1.5 / 8, 6: 1.5 / 8})
    second = planner.decide(histogram, first, asked)
    assert held(first) == [16] * 8
    assert held(second.plan) == [16, 16, 16, 8, 16, 24, 16, 16]
    assert "8 changed hands" in second.reason
    again = planner.plan(histogram, second.plan, asked)  # the same signals: a pairing, for 6 still asks
    assert held(again) == [16, 16, 16, 7, 16, 25, 16, 16]


def test_a_busy_partition_without_an_idle_one_gives_to_those_that_are_fine() -> None:
    """6.1.2: one each, none to who says busy too, and one is always kept."""
    histogram = some_histogram(rows=100_000, keys=50_000, exponent=0.0)
    planner = make_planner("cg", 8, alpha=16)
    first = planner.plan(histogram)
    asked = Feedback(busy=(3, 4), fine=(0, 1, 2), shares={3: 1 / 16, 4: 15 / 128})
    assert held(planner.plan(histogram, first, asked)) == [18, 17, 17, 13, 15, 16, 16, 16]
    narrow = make_planner("cg", 8, alpha=1)
    plan = narrow.plan(histogram)
    nobody = Feedback(busy=tuple(range(7)), idle=(7,), shares=dict.fromkeys(range(7), 0.0) | {7: 1.0})
    assert np.bincount(narrow.plan(histogram, plan, nobody).tail, minlength=8).min() > 0


def test_capacities_that_change_are_followed_within_slots() -> None:
    """Signals of each slot, sent as ``core.grouping.signals`` makes them, against partitions two of which become weak:
    the spread of utilisation is inside decision 0009's band after a few plans, and stays there."""
    histogram = some_histogram(rows=200_000, keys=50_000, exponent=1.0)
    planner = make_planner("cg", 8)
    plan = planner.plan(histogram)
    capacity = np.where(np.isin(np.arange(8), (2, 5)), 0.3, 1.0)
    spreads = []
    for _ in range(12):
        shares = plan.loads(histogram) / histogram.total
        used = shares * 0.8 * capacity.sum() / capacity
        spreads.append(used.max() - used.mean())
        signals = [sense(SignalRules(), one, float(used[one]), 0.0) for one in range(8)]
        sign = {"busy": -1.0, "idle": 1.0, "fine": 0.0}
        plan = planner.plan(
            histogram,
            plan,
            Feedback(
                busy=[one.worker for one in signals if one.kind == "busy"],
                idle=[one.worker for one in signals if one.kind == "idle"],
                fine=[one.worker for one in signals if one.kind == "fine"],
                shares={one.worker: shares[one.worker] * (1 + sign[one.kind] * one.share) for one in signals},
            ),
        )
    assert spreads[0] > 1.0
    assert max(spreads[3:]) < 0.122, spreads


# -- auto ---------------------------------------------------------------------------------------------------


def test_auto_does_nothing_where_hashing_is_good_enough() -> None:
    histogram = some_histogram(rows=1_000_000, keys=200_000, exponent=0.0)
    decision = make_planner("auto", 16).decide(histogram)
    assert decision.reason.startswith("do nothing")
    assert decision.plan.digest == make_planner("hash", 16).plan(histogram).digest
    again = make_planner("auto", 16).decide(histogram, decision.plan)
    assert not again.changed
    assert again.plan is decision.plan


def test_auto_never_splits_when_told_so() -> None:
    decision = make_planner("auto", 16, splits=False).decide(some_histogram(exponent=1.5))
    assert not decision.plan.splits
    assert decision.reason.startswith("kip, keys may not be split")


def test_auto_prefers_a_policy_that_evens_the_load_and_says_which() -> None:
    histogram = some_histogram(rows=1_000_000, keys=100_000, exponent=1.5)
    decision = make_planner("auto", 16).decide(histogram)
    assert decision.reason.split(":")[0] in ("balanced", "prompt")
    assert load_imbalance(decision.plan.loads(histogram)) <= 1.001


def test_auto_keeps_a_plan_that_is_still_good() -> None:
    """Another draw of the same distribution is no reason to move."""
    planner = make_planner("auto", 16)
    first = planner.plan(some_histogram(rows=500_000, exponent=1.3))
    same = planner.decide(
        Histogram.from_counts(first.hot.hashes, first.hot.rows).merge(some_histogram(500_000, exponent=1.3)), first
    )
    assert same.plan is first or same.plan.version > first.version
    kept = planner.decide(some_histogram(rows=500_000, exponent=1.3), first)
    assert kept.plan is first
    assert "plan in force" in kept.reason


def test_auto_weighs_keys_as_task_times_show_it() -> None:
    """Where tasks turn out to cost per key and not per row, cutting the heavy key buys nothing, and it is left."""
    histogram = some_histogram(rows=1_000_000, keys=50_000, exponent=1.1)
    rng = np.random.default_rng(1)
    rows, keys = rng.integers(10_000, 90_000, 16), rng.integers(500, 9_000, 16)
    by_key = Feedback(times=[TaskTimes(rows, keys, keys * 1e-3)])
    by_row = Feedback(times=[TaskTimes(rows, keys, rows * 1e-6)])
    planner = make_planner("auto", 16, per_fragment=500.0)
    assert load_imbalance(planner.plan(histogram, feedback=by_row).loads(histogram)) < 1.01
    cut = planner.plan(histogram, feedback=by_key)
    assert load_imbalance(cut.cardinalities(histogram)) < 1.05


@pytest.mark.parametrize("field", ["keys", "seconds"])
def test_task_times_of_unequal_lengths_are_refused_by_field(field: str) -> None:
    """Rows, keys and seconds are of the same tasks; the error says which does not fit."""
    figures = {"rows": np.arange(100, 116), "keys": np.arange(10, 26), "seconds": np.linspace(0.1, 0.2, 16)}
    figures[field] = figures[field][:5]
    with pytest.raises(ConfigError, match=r"16 tasks") as caught:
        TaskTimes(**figures)
    assert caught.value.parameter == field


def test_auto_learns_from_tasks_of_another_number_of_partitions() -> None:
    """What a row and a key cost does not depend on how many tasks there were: times outlive a change of n."""
    rows, keys = np.array([100, 200, 300, 450] * 2) * 100, np.array([50, 90, 20, 60] * 2) * 100
    feedback = Feedback(times=[TaskTimes(rows, keys, 1e-6 * (rows + 100 * keys))])
    histogram = some_histogram(rows=1_000_000, keys=50_000, exponent=1.1)
    for n in (4, 16):
        planner = make_planner("auto", n, per_fragment=500.0)
        assert load_imbalance(planner.plan(histogram, feedback=feedback).cardinalities(histogram)) < 1.05


def test_auto_that_may_not_split_leaves_a_plan_that_splits() -> None:
    """A plan made when keys could be split is neither kept nor built on, however little there is to gain."""
    histogram = some_histogram(exponent=1.5)
    before = make_planner("balanced", 16).plan(histogram)
    assert before.splits
    auto = make_planner("auto", 16, splits=False)
    answer = auto.algorithm.place(histogram, before, None)
    assert isinstance(answer, Place)
    assert "as the plan in force does" in answer.reason
    decision = auto.decide(histogram, before)
    assert decision.changed
    assert not decision.plan.splits
    assert decision.plan.digest == auto.plan(histogram).digest


def test_uniform_stream_never_seen_is_even_over_balanced_hosts() -> None:
    """What balanced learned of one batch serves the next: routed loads within multinomial scatter."""
    plan = make_planner("balanced", 16).plan(some_histogram(rows=200_000, keys=100_000, exponent=0.0))
    out = plan.route(key_hashes(200_000, 9), spread_of(200_000))
    assert load_imbalance(np.bincount(out, minlength=16)) <= 1.05


@pytest.mark.parametrize("partitions", [1, 2, 5, 7, 12, 200])
@pytest.mark.parametrize("policy", ["balanced", "prompt", "hash"])
def test_the_places_of_hot_keys_are_counted_as_explain_names_them(policy: str, partitions: int) -> None:
    """A slot is no fragment: keys of five places have eight slots, and a slot may hold two."""
    of = Histogram.from_counts(np.arange(60, dtype=np.uint64) << np.uint64(50), np.r_[[7000, 5000, 3100], [100] * 57])
    plan = make_planner(policy, partitions).plan(of)
    places = [len(plan.explain(int(key)).partitions) for key in plan.hot.hashes]
    assert plan.fragments_held == sum(places)
