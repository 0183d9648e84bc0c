"""The laws of what tasks read of cells: every row once, loads that sum up, the largest first, keys whole if asked."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.core.errors import PlanError
from unskew.core.in_flight.assign import CellRange, TaskRanges, assign
from unskew.core.in_flight.cell_loads import CellLoads, packed_cell, unpacked_cells
from unskew.core.quality.measures import makespan


@st.composite
def cell_loads(draw: st.DrawFn) -> CellLoads:
    """None to some thousand sampled rows, from even to all in one cell, sorted by map task or not, of any weight."""
    count, tasks = draw(st.sampled_from([1, 2, 7, 64, 300])), draw(st.sampled_from([1, 2, 5, 40]))
    rows = draw(st.sampled_from([0, 1, 3, 50, 2_000]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    exponent = draw(st.sampled_from([0.0, 1.0, 3.0]))
    share = 1.0 / np.arange(1, count + 1) ** exponent
    cells = rng.permutation(count)[rng.choice(count, rows, p=share / share.sum())]
    maps = np.sort(rng.integers(0, tasks, rows)) if draw(st.booleans()) else rng.integers(0, tasks, rows)
    largest = draw(st.sampled_from([1.0, 1e-9, 1e15]))
    weights = largest * rng.choice([0.0, 0.1, 1.0, 8.0], rows) if draw(st.booleans()) else np.full(rows, largest)
    return CellLoads(cells, maps, weights, count, tasks)


asked = {
    "loads": cell_loads(),
    "partitions": st.sampled_from([1, 2, 3, 16, 200]),
    "slots": st.sampled_from([1, 2, 16, 100]),
    "cut": st.booleans(),
    "most": st.none() | st.sampled_from([1, 4, 64]),
}


def reads_of(found: TaskRanges) -> np.ndarray:
    """How many tasks read each map task's part of each cell."""
    times = np.zeros((found.cells, found.map_tasks), np.int64)
    for one in found.ranges:
        begin, end = one.maps or (0, found.map_tasks)
        times[one.first : one.last, begin:end] += 1
    return times


@settings(max_examples=150, deadline=None)
@given(**asked)
def test_every_row_is_read_once(loads: CellLoads, partitions: int, slots: int, cut: bool, most: int | None) -> None:
    """Each map task's part of each cell is in one task; whole means that no cell is in two; parts are of one cell."""
    found = assign(loads, partitions, slots, cut=cut, most=most)
    assert (reads_of(found) == 1).all()
    assert all(one.last == one.first + 1 for one in found.ranges if one.maps is not None)
    assert cut or not found.cuts
    assert all(
        found.ranges[task].first <= cell < found.ranges[task].last for cell, task in enumerate(found.task_of_cell)
    )


@settings(max_examples=150, deadline=None)
@given(**asked)
def test_loads_sum_up_and_the_largest_come_first(
    loads: CellLoads, partitions: int, slots: int, cut: bool, most: int | None
) -> None:
    """Each task's load is that of what it reads."""
    found = assign(loads, partitions, slots, cut=cut, most=most)
    total = float(loads.weights.sum())
    table = np.zeros((loads.count, loads.tasks))
    np.add.at(table, (loads.cells, loads.maps), loads.weights)
    for one in found.ranges:
        begin, end = one.maps or (0, loads.tasks)
        assert abs(table[one.first : one.last, begin:end].sum() - one.load) <= 1e-6 * total
    assert (np.diff(found.loads) <= 1e-9 * total).all()


@settings(max_examples=50, deadline=None)
@given(**asked)
def test_the_same_rows_give_the_same_tasks(
    loads: CellLoads, partitions: int, slots: int, cut: bool, most: int | None
) -> None:
    """No chance is in it, nor what was asked before."""
    again = CellLoads(loads.cells.copy(), loads.maps.copy(), loads.weights.copy(), loads.count, loads.tasks)
    first = assign(loads, partitions, slots, cut=cut, most=most)
    assert assign(again, partitions, slots, cut=cut, most=most).ranges == first.ranges
    assert assign(loads, partitions, slots, cut=cut, most=most).ranges == first.ranges


@settings(max_examples=100, deadline=None)
@given(loads=cell_loads(), partitions=st.sampled_from([2, 16, 200]), cut=st.booleans())
def test_no_task_is_much_above_its_share_but_for_what_cannot_be_cut(
    loads: CellLoads, partitions: int, cut: bool
) -> None:
    """The last one ends within Graham's bound: what cannot be cut, and an even share, together."""
    found = assign(loads, partitions, partitions, cut=cut)
    total = float(loads.weights.sum())
    table = np.zeros((loads.count, loads.tasks))
    np.add.at(table, (loads.cells, loads.maps), loads.weights)
    whole = float((table if cut else table.sum(axis=1)).max(initial=0.0))
    assert makespan(found.loads, partitions) <= (2.0 * total / partitions + 2.0 * whole) * (1 + 1e-9)


@given(
    st.lists(st.tuples(st.integers(0, (1 << 16) - 1), st.integers(0, (1 << 24) - 1), st.integers(0, 20)), max_size=50)
)
def test_words_are_read_as_they_were_written(rows: list[tuple[int, int, int]]) -> None:
    cells, maps, stands_for = unpacked_cells(np.array([packed_cell(*row) for row in rows], np.uint64), 1, 2)
    assert list(zip(cells.tolist(), maps.tolist(), np.log2(stands_for).tolist(), strict=True)) == rows


@given(st.integers(1, 40), st.integers(1, 6), st.data())
def test_any_cover_is_taken_and_any_hole_is_refused(cells: int, tasks: int, data: st.DataObject) -> None:
    """Ranges in any order; without any one of them there are rows that nobody reads."""
    marks = sorted({0, cells, *data.draw(st.lists(st.integers(0, cells), max_size=6))})
    ranges = []
    for first, last in pairwise(marks):
        cuts = sorted(
            {0, tasks, *(data.draw(st.lists(st.integers(0, tasks), max_size=3)) if last == first + 1 else [])}
        )
        parts = list(pairwise(cuts))
        ranges += [CellRange(first, last, maps=part if len(parts) > 1 else None) for part in parts]
    ranges = data.draw(st.permutations(ranges))
    assert (reads_of(TaskRanges(cells, tasks, tuple(ranges))) == 1).all()
    left_out = data.draw(st.integers(0, len(ranges) - 1))
    with pytest.raises(PlanError):
        TaskRanges(cells, tasks, tuple(ranges[:left_out] + ranges[left_out + 1 :]))
