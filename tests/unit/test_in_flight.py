"""Which cells each task reads: edges, sizes, and what a heavy cell costs."""

from __future__ import annotations

import time

import numpy as np
import pytest

from unskew.core.errors import ConfigError, PlanError
from unskew.core.in_flight.assign import CellRange, TaskRanges, assign
from unskew.core.in_flight.cell_loads import CellLoads, packed_cell, unpacked_cells
from unskew.core.in_flight.layout import MOST_CELLS, coarse_cells, fine_cells
from unskew.core.quality.measures import makespan


def loads_of(by_cell: list[float] | np.ndarray, tasks: int = 4) -> CellLoads:
    """Each cell's load, spread evenly over the map tasks."""
    count = len(by_cell)
    cells, maps = np.repeat(np.arange(count), tasks), np.tile(np.arange(tasks), count)
    return CellLoads(cells, maps, np.repeat(np.asarray(by_cell, np.float64) / max(tasks, 1), tasks), count, tasks)


def zipf_loads(exponent: float, cells: int, tasks: int, *, keys: int = 100_000) -> CellLoads:
    """Keys of Zipf's law in cells by chance, the largest cells' rows in every map task."""
    rng = np.random.default_rng(int(exponent * 10))
    counts = 1.0 / np.arange(1, keys + 1) ** exponent
    by_cell = np.bincount(rng.integers(0, cells, keys), counts, cells)
    return loads_of(by_cell * 1e6 / by_cell.sum(), tasks)


# -- edges ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize("tasks", [0, 1, 7])
def test_no_rows_are_one_task(cut: bool, tasks: int) -> None:
    """Also where no map task has run, as of a frame without partitions."""
    none = np.zeros(0, np.int64)
    found = assign(CellLoads(none, none, np.zeros(0), 64, tasks), 8, 2, cut=cut)
    assert found.ranges == (CellRange(0, 64),)
    assert not found.cuts
    assert found.task_of_cell.tolist() == [0] * 64


@pytest.mark.parametrize(("cut", "wanted"), [(False, 1), (True, 4)])
def test_all_rows_in_one_cell(cut: bool, wanted: int) -> None:
    """Whole it is one task, and the empty cells beside it cost next to nothing; cut it is as many as there are map
    tasks, at most."""
    by_cell = np.zeros(64)
    by_cell[17] = 1000.0
    found = assign(loads_of(by_cell), 8, 2, cut=cut)
    assert sum(one.load > 0 for one in found.ranges) == wanted
    assert max(found.loads) == pytest.approx(1000.0 / wanted)
    assert found.cuts is cut
    assert set(found.cut_cells.tolist()) <= {17}


def test_one_map_task_cannot_be_cut() -> None:
    """A part of a cell is what some map tasks have written of it: of one there is no part."""
    found = assign(loads_of([10.0, 1000.0, 10.0], 1), 8, 2, cut=True)
    assert not found.cuts


def test_one_cell_is_one_task_or_one_for_some_map_tasks() -> None:
    assert assign(loads_of([5.0]), 4, 2, cut=False).ranges == (CellRange(0, 1, 5.0),)
    parts = assign(loads_of([8.0]), 4, 2, cut=True).ranges
    assert sorted(one.maps or (-1, -1) for one in parts) == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_a_cell_of_one_map_task_alone_is_not_cut() -> None:
    """Neighbouring map tasks have a part each: where one of them wrote all of it nothing is gained."""
    loads = CellLoads(np.array([0, 0, 1, 2, 3]), np.array([2, 2, 0, 1, 3]), np.array([50.0, 50.0, 1.0, 1.0, 1.0]), 4, 4)
    found = assign(loads, 4, 2, cut=True)
    assert found.loads.sum() == pytest.approx(103.0)
    assert found.loads.max() == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("partitions", "slots", "name"), [(0, 1, "partitions"), (1, 0, "slots"), (-3, 4, "partitions")]
)
def test_less_than_one_task_or_slot_is_refused(partitions: int, slots: int, name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        assign(loads_of([1.0]), partitions, slots, cut=False)


def test_a_sample_whose_columns_differ_in_length_is_refused() -> None:
    with pytest.raises(ConfigError, match="one for each of the 2 sampled rows"):
        CellLoads(np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(3), 4, 1)


@pytest.mark.parametrize(
    "ranges",
    [
        [],
        [CellRange(0, 3)],
        [CellRange(0, 2), CellRange(1, 4)],
        [CellRange(0, 4), CellRange(0, 4)],
        [CellRange(0, 5)],
        [CellRange(1, 4)],
        [CellRange(0, 4), CellRange(4, 4)],
        [CellRange(0, 1, maps=(0, 2)), CellRange(1, 4)],
        [CellRange(0, 1, maps=(0, 2)), CellRange(0, 1, maps=(1, 3)), CellRange(1, 4)],
        [CellRange(0, 1, maps=(1, 3)), CellRange(1, 4)],
        [CellRange(0, 1, maps=(0, 2)), CellRange(0, 1, maps=(2, 9)), CellRange(1, 4)],
        [CellRange(0, 4, maps=(0, 2)), CellRange(0, 4, maps=(2, 3))],
        [CellRange(0, 1), CellRange(0, 1, maps=(0, 3)), CellRange(1, 4)],
    ],
)
def test_rows_that_no_task_reads_or_two_are_refused(ranges: list[CellRange]) -> None:
    """Of four cells that three map tasks have written. A part is of one cell, and of map tasks that there are."""
    with pytest.raises(PlanError, match="cells"):
        TaskRanges(4, 3, tuple(ranges))


def test_what_is_said_of_ranges() -> None:
    found = TaskRanges(
        4, 3, (CellRange(1, 2, 5.0, (1, 3)), CellRange(2, 4, 3.0), CellRange(0, 1, 2.0), CellRange(1, 2, 1.0, (0, 1)))
    )
    assert found.cuts
    assert found.loads.tolist() == [5.0, 3.0, 2.0, 1.0]
    assert found.cut_tasks.tolist() == [True, False, False, True]
    assert found.cut_cells.tolist() == [1, 1]
    assert found.task_of_cell.tolist() == [2, 0, 1, 1]


# -- what is decided ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("n", [8, 16, 64])
@pytest.mark.parametrize("cut", [True, False])
def test_the_last_task_ends_about_as_early_as_it_can(exponent: float, n: int, cut: bool) -> None:
    """On n slots: within 12 % of an even share where keys are cut; where they stay whole, of that or the heaviest cell,
    for nothing ends before it."""
    loads = zipf_loads(exponent, fine_cells(n), 64)
    total, heaviest = float(loads.by_cell.sum()), float(loads.by_cell.max())
    found = assign(loads, n, n, cut=cut)
    least = total / n if cut else max(total / n, heaviest)
    assert makespan(found.loads, n) <= 1.12 * least


@pytest.mark.parametrize("slots", [2, 4, 16])
@pytest.mark.parametrize("cut", [True, False])
def test_fewer_slots_than_tasks_are_filled(slots: int, cut: bool) -> None:
    """Tasks come by descending load, so that small ones fill what large ones leave."""
    loads = zipf_loads(1.0, fine_cells(64), 64)
    total, heaviest = float(loads.by_cell.sum()), float(loads.by_cell.max())
    found = assign(loads, 64, slots, cut=cut)
    assert makespan(found.loads, slots) <= 1.06 * (total / slots if cut else max(total / slots, heaviest))


def test_tasks_are_no_more_than_asked_for() -> None:
    """``most`` bounds the tasks of light cells; the heavy ones have their own on top."""
    even = loads_of(np.ones(2048))
    assert len(assign(even, 16, 16, cut=True, most=16).ranges) <= 16
    skewed = zipf_loads(1.5, 2048, 64)
    heavy = int(np.count_nonzero(skewed.by_cell > 2 * skewed.by_cell.sum() / 16))
    assert len(assign(skewed, 16, 16, cut=False, most=16).ranges) <= 16 + 2 * heavy


def test_tasks_of_a_wide_shuffle_are_decided_on_in_half_a_second() -> None:
    """2,048 partitions, 65,536 cells, 10,000 map tasks, 400,000 sampled rows of Zipf 1.5; in processor seconds."""
    rng = np.random.default_rng(3)
    rows = 400_000
    cells = (rng.zipf(1.5, rows) * 40_503 + 17) % MOST_CELLS
    sample = CellLoads(cells, rng.integers(0, 10_000, rows), np.ones(rows), MOST_CELLS, 10_000)
    took = []
    for cut in (True, False):
        fresh = CellLoads(sample.cells, sample.maps, sample.weights, sample.count, sample.tasks)
        began = time.process_time()
        assign(fresh, 2_048, 2_048, cut=cut)
        took.append(time.process_time() - began)
    assert max(took) < 0.5


# -- words and cells ------------------------------------------------------------------------------------------


def test_a_word_holds_the_largest_of_each() -> None:
    """65,536 cells, sixteen million map tasks, and more levels than there are."""
    given = [(0, 0, 0), (MOST_CELLS - 1, (1 << 24) - 1, 12), (5, 9, 1)]
    cells, maps, stands_for = unpacked_cells(np.array([packed_cell(*one) for one in given], np.uint64), 2, 8)
    assert list(zip(cells.tolist(), maps.tolist(), strict=True)) == [one[:2] for one in given]
    assert stands_for.tolist() == [2.0, 2.0 * 8**12, 16.0]


@pytest.mark.parametrize("partitions", [1, 2, 63, 64, 200, 2_048, 1_000_000])
def test_cells_are_never_more_than_spark_keeps_numbers_for(partitions: int) -> None:
    assert 1 <= coarse_cells(partitions, cut=True) <= coarse_cells(partitions, cut=False) <= MOST_CELLS
    assert 2_048 <= fine_cells(partitions) <= MOST_CELLS


def test_cells_that_cost_only_what_their_parts_share_are_not_cut() -> None:
    """As of a join whose cut side has no rows."""
    none, shared = np.zeros(0, np.int64), np.array([10.0, 0.0, 30.0, 1.0])
    found = assign(CellLoads(none, none, np.zeros(0), 4, 5, shared), 4, 4, cut=True)
    assert not found.cuts
    assert found.loads.sum() == 41.0


def test_copies_are_bounded() -> None:
    """A cell is cut as often as its copies allow: three parts share a hundred rows each, of a bound of two hundred."""
    loads = CellLoads(np.zeros(8, np.int64), np.arange(8), np.full(8, 200.0), 4, 8, np.array([100.0, 0, 0, 0]))
    for copies, parts in ((0.0, 1), (200 / 1700, 3), (np.inf, 4)):
        found = assign(loads, 4, 4, cut=True, copies=copies)
        assert sum(one.first == 0 for one in found.ranges) == parts
