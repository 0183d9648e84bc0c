"""Each measure on an example small enough to do by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from unskew.core import quality
from unskew.core.errors import ConfigError
from unskew.core.quality.measures import LinearCost

# Prompt's Figure 1 in small: 10 rows of keys a (6), b (3), c (1) over 3 blocks; a is split over 0 and 1.
KEYS = np.array([1, 1, 1, 1, 1, 1, 2, 2, 2, 3], np.uint64)
OUT = np.array([0, 0, 0, 0, 1, 1, 2, 2, 2, 2], np.int32)


def test_imbalance_is_largest_over_mean() -> None:
    assert quality.imbalance(OUT, 3) == pytest.approx(4 / (10 / 3))
    assert quality.imbalance(OUT, 4) == pytest.approx(4 / (10 / 4))
    assert quality.imbalance(np.zeros(0, np.int32), 4) == 1.0


def test_imbalance_with_capacities_compares_like_with_like() -> None:
    """A partition of twice the capacity may hold twice the rows."""
    assert quality.load_imbalance([200, 100, 100], [2, 1, 1]) == pytest.approx(1.0)
    assert quality.load_imbalance([100, 200, 100], [2, 1, 1]) == pytest.approx(2.0)


def test_replication_counts_pairs_over_keys() -> None:
    assert quality.replication(KEYS, OUT) == pytest.approx(4 / 3)
    assert quality.fragment_count(KEYS, OUT) == 4
    assert quality.replication(KEYS[:0], OUT[:0]) == 1.0


def test_block_metrics_by_hand() -> None:
    """Loads 4, 2, 4; distinct keys 1, 1, 2: BSI 4 - 10/3, BCI 2 - 4/3, KSR 4/3."""
    m = quality.block_metrics(KEYS, OUT, 3)
    assert m.bsi == pytest.approx(2 / 3)
    assert m.bci == pytest.approx(2 / 3)
    assert m.ksr == pytest.approx(4 / 3)
    assert m.mpi == pytest.approx((0.2 + 0.5 + 1 / 3) / 3)


def test_holistic_costs_by_hand() -> None:
    """I = 4 - 10/3; CI = 2 - 4/3; scaled loads 1, 0, 1 and keys 0, 0, 1 give H = .5, 0, 1 and HI = 1 - .5."""
    c = quality.holistic(KEYS, OUT, 3)
    assert c.i == pytest.approx(2 / 3)
    assert c.ci == pytest.approx(2 / 3)
    assert c.hi == pytest.approx(0.5)
    assert (c.gamma, c.gamma_max, c.affordable) == (4, 4, True)
    assert quality.holistic(KEYS, OUT, 3, reducers=2).gamma_max == 3  # keys 1 and 3 meet: 2 + 1 partial results


def test_holistic_even_loads_scale_to_zero() -> None:
    """Eq. 7 and 8 divide by max - min; where that is 0 the scaled load is 0."""
    c = quality.holistic(np.array([1, 2], np.uint64), np.array([0, 1]), 2)
    assert (c.i, c.ci, c.hi) == (0.0, 0.0, 0.0)


def test_aggregation_may_cost_more_than_it_saves() -> None:
    """Eq. 3: four single-row keys on two workers give four partial results against a largest task of two."""
    c = quality.holistic(np.arange(4, dtype=np.uint64), np.array([0, 0, 1, 1]), 2)
    assert not c.affordable


NOTHING = np.zeros(0, np.int64)
NO_KEYS = np.zeros(0, np.uint64)


def test_nothing_is_perfectly_even() -> None:
    """No rows and no partitions: every measure has its best value, without a warning."""
    assert quality.load_imbalance([]) == quality.load_imbalance([], []) == 1.0
    assert quality.load_imbalance([0, 0], [1, 2]) == 1.0
    assert quality.imbalance(NOTHING, 2, [1, 2]) == 1.0
    assert quality.moved_share(NOTHING, NOTHING) == quality.moved_share(NOTHING, NOTHING, []) == 0.0
    assert quality.replication(NO_KEYS, NOTHING) == 1.0
    assert quality.fragment_count(NO_KEYS, NOTHING) == 0
    assert quality.cardinalities(NO_KEYS, NOTHING, 2).tolist() == [0, 0]
    even = quality.BlockMetrics(0.0, 0.0, 1.0, 0.0)
    assert quality.block_metrics(NO_KEYS, NOTHING, 2) == even
    assert quality.metrics_of(NOTHING, NOTHING, 0) == quality.metrics_of(NOTHING, NOTHING, 5) == even
    assert quality.holistic(NO_KEYS, NOTHING, 2) == quality.Costs(0.0, 0.0, 0.0, 0, 0, affordable=True)
    assert LinearCost().tasks([], []).size == 0


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("relative", lambda: quality.load_imbalance([1, 2, 3], [1, 2])),
        ("relative", lambda: quality.load_imbalance([1, 2, 3], [1])),
        ("relative", lambda: quality.load_imbalance([1, 2, 3], [])),
        ("relative", lambda: quality.load_imbalance([], [1, 2])),
        ("relative", lambda: quality.load_imbalance([1, 2], [1, 0])),
        ("relative", lambda: quality.load_imbalance([1, 2], [1, np.nan])),
        ("relative", lambda: quality.imbalance(OUT, 3, [1, 1])),
        ("partitions", lambda: quality.imbalance(OUT, 2)),
        ("partitions", lambda: quality.loads(OUT - 1, 3)),
        ("partitions", lambda: quality.cardinalities(KEYS, OUT, 2)),
        ("partitions", lambda: quality.replication(KEYS, OUT[:3])),
        ("partitions", lambda: quality.replication(KEYS[:0], OUT)),
        ("partitions", lambda: quality.fragment_count(KEYS, OUT[:1])),
        ("n", lambda: quality.loads(OUT[:0], 0)),
        ("keys", lambda: quality.metrics_of(np.array([1, 2]), np.array([1]), 2)),
        ("weights", lambda: quality.block_metrics(KEYS, OUT, 3, weights=(0.5, 0.5))),  # type: ignore[arg-type]
        ("reducers", lambda: quality.holistic(KEYS, OUT, 3, reducers=0)),
        ("after", lambda: quality.moved_share(OUT, OUT[:1])),
        ("rows", lambda: quality.moved_share(OUT, OUT, rows=[1])),
        ("keys", lambda: LinearCost().tasks([1, 2], [1])),
        ("slots", lambda: quality.makespan([], slots=0)),
    ],
)
def test_what_does_not_fit_is_refused_by_name(name: str, call: Callable[[], object]) -> None:
    """Other lengths, partitions that do not exist, capacities that nothing can be divided by."""
    with pytest.raises(ConfigError) as caught:
        call()
    assert caught.value.parameter == name


def test_moved_share() -> None:
    before, after = np.array([0, 1, 2]), np.array([0, 2, 2])
    assert quality.moved_share(before, after) == pytest.approx(1 / 3)
    assert quality.moved_share(before, after, rows=[1, 8, 1]) == pytest.approx(0.8)


def test_makespan_with_and_without_enough_slots() -> None:
    """List scheduling in id order: 3, 3, 4 on two slots ends at 7, not at the 5 of a perfect split."""
    assert quality.makespan([3, 3, 4]) == 4
    assert quality.makespan([3, 3, 4], slots=2) == 7
    assert quality.makespan([3, 3, 4], slots=1) == 10
    assert quality.makespan([]) == 0
    with pytest.raises(ConfigError, match="slots"):
        quality.makespan([1, 2], slots=0)


def test_a_cost_is_never_negative() -> None:
    with pytest.raises(ConfigError, match="per_key"):
        LinearCost(per_key=-1)
