"""Plans for joins: by what keys cost, on the better side, with few copies."""

from __future__ import annotations

import numpy as np
import pytest

from tests.join_rows import HASHES, rows_of
from unskew.core.operators.join_plan import Bounds, JoinPlan, join_plan, side_of


def worst(plan: JoinPlan) -> float:
    loads = np.array(plan.plan.info.loads)
    return float(loads.max() / loads.mean())


def test_work_is_even_where_rows_would_not_be() -> None:
    """A key of few rows and many pairs is split; a key of many rows without partner is what it is."""
    rows = rows_of([50_000, 2_000, 10, 10, 10, 10], [0, 3_000, 1, 1, 1, 1])
    made = join_plan(rows, "left", 8, Bounds())
    assert worst(made) < 1.01
    assert HASHES[1] in made.plan.hot.split_hashes
    assert made.output == 2_000 * 3_000 + 40 + 4096
    held = dict(zip(made.plan.hot.split_hashes.tolist(), map(len, made.plan.hot.slots.places), strict=True))
    assert held[int(HASHES[1])] == 8
    assert made.replicated >= 3_000 * 7


@pytest.mark.parametrize(
    ("how", "output"),
    [("left", 1_100), ("right", 1_009), ("full", 1_109), ("left_semi", 100), ("left_anti", 100)],
)
def test_rows_that_come_out_are_those_of_the_join(how: str, output: int) -> None:
    """Of the listed keys; of the unlisted all find a partner."""
    rows = rows_of([100, 0, 100, 0, 0, 0], [10, 9, 0, 0, 0, 0], how)
    made = join_plan(rows, "right" if how == "right" else "left", 4, Bounds())
    assert made.output - output == (0 if how == "left_anti" else 4096)


def test_copies_are_bounded() -> None:
    """A key with many rows on the other side stays whole where copies would cost more than the bound."""
    rows = rows_of([40_000, 40_000, 9, 9, 9, 9], [1, 20_000, 1, 1, 1, 1], "left_semi")
    free, bound = (join_plan(rows, "left", 8, Bounds(replication=share)) for share in (100.0, 0.1))
    assert free.replicated > 20_000
    assert bound.replicated <= 0.1 * (bound.left + bound.right + bound.output)
    assert set(bound.plan.hot.split_hashes) < set(free.plan.hot.split_hashes)
    assert HASHES[0] in bound.plan.hot.split_hashes
    assert join_plan(rows, "left", 8, Bounds(replication=0.0)).replicated == 0


def test_an_inner_join_splits_the_heavier_side() -> None:
    """Of the heavy keys, and of those that can be split."""
    assert side_of(rows_of([5_000, 10, 1, 1, 1, 1], [10, 900, 1, 1, 1, 1]), 1.0, 8) == "left"
    assert side_of(rows_of([500, 10, 1, 1, 1, 1], [10, 9_000, 1, 1, 1, 1]), 1.0, 8) == "right"
    told = rows_of([5_000, 10, 1, 1, 1, 1], [10, 900, 1, 1, 1, 1])
    told.spread["left"] = np.zeros(6, np.int64)
    assert side_of(told, 1.0, 8) == "right"


def test_products_beyond_64_bits_are_planned() -> None:
    """Costs are scaled: 10^11 rows on both sides of one key."""
    made = join_plan(rows_of([10**11] + [1] * 5, [10**11] + [1] * 5), "left", 16, Bounds(replication=1e9))
    assert worst(made) < 1.01


def test_a_full_join_is_planned_with_whole_keys() -> None:
    """By kip: the heavy one alone."""
    made = join_plan(rows_of([5_000] + [1] * 5, [9] + [1] * 5, "full"), "left", 4, Bounds())
    assert (made.plan.splits, made.plan.info.policy, made.replicated) == (False, "kip", 0)
    assert "stay whole" in str(made)
