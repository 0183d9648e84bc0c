"""The planners' promises over random shapes of streams: a small dose in `make test`, all in `make test-long`."""

from __future__ import annotations

import numpy as np
import pytest

from tests.planning import key_hashes, spread_of
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Plan
from unskew.core.planners import make_planner
from unskew.wire import plan_from_bytes, plan_to_bytes

SHAPES = ("uniform", "zipf", "cliff", "ties", "powers", "giants", "few")
# Seeds of one test: each test of its own would be collected by every worker of every run, the long ones, too.
DOSES = [range(42), *(pytest.param(range(at, at + 89), marks=pytest.mark.long) for at in range(42, 2000, 89))]


def shaped(seed: int) -> tuple[Histogram, int]:
    """A random histogram of one of the shapes that planners find hard, and a number of partitions for it."""
    rng = np.random.default_rng(seed)
    shape, n = SHAPES[seed % len(SHAPES)], int(2 ** rng.uniform(1, 10))
    keys = int(10 ** rng.uniform(2, 5))
    counts = {
        "uniform": lambda: np.full(keys, rng.integers(1, 50)),
        "zipf": lambda: (1e6 / np.arange(1, keys + 1) ** rng.uniform(0.3, 2.5)).astype(np.int64) + 1,
        "cliff": lambda: np.where(np.arange(keys) < keys // 10, rng.integers(20, 200), 1),
        "ties": lambda: rng.choice([1, 7, 50, 1000], keys, p=[0.7, 0.2, 0.09, 0.01]),
        "powers": lambda: 2 ** rng.integers(0, 20, keys),
        "giants": lambda: np.concatenate([rng.integers(10**6, 10**8, 2), np.ones(keys, np.int64)]),
        "few": lambda: rng.integers(1, 10**6, int(rng.integers(1, 3 * n))),
    }[shape]()
    return Histogram.from_counts(key_hashes(len(counts), seed), counts), n


def checked(histogram: Histogram, plan: Plan) -> np.ndarray:
    """What holds for every plan; returns its loads."""
    loads = plan.loads(histogram)
    assert int(loads.sum()) == histogram.total
    assert plan_from_bytes(plan_to_bytes(plan)) == plan
    some = np.random.default_rng(1).permutation(histogram.hashes)[:200]
    spread = spread_of(len(some))
    routes = [plan.route_one(int(key), int(s)) for key, s in zip(some, spread, strict=True)]
    assert plan.route(some, spread).tolist() == routes
    return loads


@pytest.mark.parametrize("seeds", DOSES, ids=str)
def test_balanced_is_within_one_row_wherever_the_plan_can_hold_it(seeds: range) -> None:
    """Every partition within one row of even, and at most n - 1 cuts; but a stream of equal keys that needs more of
    them listed than a plan can hold is within one key."""
    for seed in seeds:
        histogram, n = shaped(seed)
        plan = make_planner("balanced", n).plan(histogram)
        loads = checked(histogram, plan)
        assert loads.max() - histogram.total / n <= max(1, int(np.median(histogram.counts))), seed
        assert plan.cardinalities(histogram).sum() <= histogram.keys + n - 1, seed


@pytest.mark.parametrize("seeds", DOSES, ids=str)
def test_prompt_blocks_are_within_one_cut_of_even(seeds: range) -> None:
    """BSI <= 1, or ceil(N / K) where a block was over its size before the residual pass."""
    for seed in seeds:
        histogram, n = shaped(seed)
        loads = checked(histogram, make_planner("prompt", n).plan(histogram))
        assert loads.max() - histogram.total / n <= max(1, -(-histogram.total // histogram.keys)), seed


@pytest.mark.parametrize("seeds", DOSES, ids=str)
def test_kip_keeps_keys_whole_and_near_the_floor(seeds: range) -> None:
    """No key is split, and the heaviest partition is within 1.2 of what cannot be avoided: the mean, the heaviest key,
    or where keys are few and large, what a greedy packing of them reaches; and a host of unlisted keys is one piece."""
    for seed in seeds:
        histogram, n = shaped(seed)
        plan = make_planner("kip", n).plan(histogram)
        loads = checked(histogram, plan)
        assert not plan.splits, seed
        greedy = np.zeros(n)
        for count in np.sort(histogram.counts)[::-1][: 4 * n].tolist():
            greedy[np.argmin(greedy)] += count
        floor = max(histogram.total / n, float(greedy.max()))
        host = histogram.fold(np.isin(histogram.hashes, plan.hot.hashes), plan.tail_bits).rows.max()
        assert loads.max() <= 1.2 * floor + host, seed
