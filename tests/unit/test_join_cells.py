"""Which cells of a join's sides each task reads: costs as ``join_plan`` has them, one side cut, copies bounded."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.core.errors import ConfigError
from unskew.core.in_flight.cell_loads import CellLoads
from unskew.core.operators.join_cells import JoinCells, SideRows, join_cells
from unskew.core.operators.join_plan import HOWS, Bounds
from unskew.core.quality.measures import makespan

CELLS = 64


def side(rows: list[int], tasks: int = 8, every: int = 1, seed: int = 3) -> SideRows:
    """So many rows of key 0, 1, ..., each in its own cell, by the map tasks in turns; one in so many sampled."""
    keys = np.repeat(np.arange(len(rows)), rows)
    taken = np.random.default_rng(seed).random(len(keys)) * every < 1.0
    at = np.flatnonzero(taken)
    loads = CellLoads(keys[at] % CELLS, at % tasks, np.full(len(at), float(every)), CELLS, tasks)
    return SideRows(len(keys), keys[at].astype(np.uint64), loads)


def decided(how: str, left: SideRows, right: SideRows, *, asked: str | None = None, **bounds: float) -> JoinCells:
    return join_cells(how, left, right, 8, 4, Bounds(**bounds), asked)


def cut_cells(made: JoinCells) -> set[int]:
    return {one.first for one in made.ranges.ranges if one.maps}


def test_a_key_of_few_rows_and_many_pairs_is_cut() -> None:
    """Into as many parts as it needs, each with all of the other side's rows."""
    made = decided("inner", side([500, 200, 10, 10]), side([0, 300, 1, 1]))
    assert made.output == 200 * 300 + 20
    assert cut_cells(made) == {1}
    assert makespan(made.ranges.loads, 4) < 1.1 * made.ranges.loads.sum() / 4
    assert made.copied == {"left": 300, "right": 200}[made.side] * (made.ranges.cut_tasks.sum() - 1)


@pytest.mark.parametrize(
    ("how", "output"),
    [("inner", 900), ("left", 1_000), ("right", 907), ("full", 1_007), ("left_semi", 100), ("left_anti", 100)],
)
def test_what_comes_out_is_exact_where_all_rows_were_sampled(how: str, output: int) -> None:
    """Key 0 meets nine rows, key 1 none, key 2 is on the right side alone."""
    assert decided(how, side([100, 100, 0]), side([9, 0, 7])).output == output


@pytest.mark.parametrize("how", HOWS)
def test_a_side_is_cut_only_where_its_copies_do_no_harm(how: str) -> None:
    """No side of a full join; the side that keeps its rows, of others; of an inner one any that was asked for."""
    left, right = side([400] + [1] * 60), side([300] + [1] * 60)
    made = decided(how, left, right, replication=9.0)
    assert made.ranges.cuts == bool(HOWS[how])
    assert made.side in HOWS[how] or how == "full"
    for asked in HOWS[how]:
        assert decided(how, left, right, asked=asked).side == asked
    wrong = "right" if how == "left" else "left" if how in ("right", "full") else None
    if wrong:
        with pytest.raises(ConfigError, match="side"):
            decided(how, left, right, asked=wrong)


def test_the_side_is_the_one_that_ends_first() -> None:
    """One map task wrote all of the left side: nothing of it can be cut."""
    assert decided("inner", side([400], tasks=1), side([300])).side == "right"
    assert decided("inner", side([400]), side([300], tasks=1)).side == "left"


@pytest.mark.parametrize("share", [0.0, 0.05, 0.25])
def test_copies_are_bounded(share: float) -> None:
    """Anti joins bring out little beside what they read, so copies weigh most."""
    left, right = side([4_000, 4_000] + [9] * 60), side([1, 2_000] + [1] * 60)
    free, made = (decided("left_anti", left, right, replication=each) for each in (100.0, share))
    assert made.copied <= share * (made.left + made.right + made.output) + 1e-6
    assert made.copied <= free.copied
    if share:
        assert 0 in cut_cells(made), "a copy of it is one row"


def test_a_sample_says_what_hot_keys_cost() -> None:
    """One row in sixteen of a side with one row a key: whether a hot key's partner was sampled changes nothing."""
    keys = 20_000
    hot = [30_000] + [1] * (keys - 1)
    left = side(hot, every=16)
    for seed in range(6):
        made = decided("inner", left, side([1] * keys, every=16, seed=seed))
        assert made.output == pytest.approx(50_000, rel=0.25)
        cost = sum(one.load for one in made.ranges.ranges if one.first == 0)
        assert cost == pytest.approx(60_000, rel=0.25)


def test_nothing_at_all_is_one_task() -> None:
    """And cells that differ in number are refused."""
    none = side([])
    assert len(decided("left", none, none).ranges.ranges) == 1
    other = SideRows(0, none.keys, CellLoads(none.loads.cells, none.loads.maps, none.loads.weights, 32, 1))
    with pytest.raises(ConfigError, match="32 cells"):
        decided("left", none, other)
