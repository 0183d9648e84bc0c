"""Cells by the rows' content: hosts of keys in pieces, and the table by which a batch that runs again is placed."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from unskew.core.errors import ConfigError, PlanError
from unskew.core.histogram.histogram import Histogram, host_of
from unskew.core.in_flight.assign import CellRange, TaskRanges
from unskew.core.in_flight.assign_content import assign_content
from unskew.core.in_flight.cell_loads import CellLoads
from unskew.core.in_flight.cell_table import CellTable
from unskew.core.in_flight.layout import MOST_CELLS, ContentLayout, content_cells
from unskew.core.quality.measures import makespan

N = 16
LAYOUT = content_cells(N, cut=True)


def hashes_of(rows: int, share: float = 0.39, keys: int = 5_000) -> tuple[np.ndarray, np.ndarray]:
    """Key hashes of which one has this share, and spread hashes."""
    rng = np.random.default_rng(5)
    names = rng.integers(0, 1 << 64, keys, np.uint64)
    picked = names[np.where(rng.random(rows) < share, 0, rng.integers(1, keys, rows))]
    return picked, rng.integers(0, 1 << 64, rows, np.uint64)


def loads_of(keys: np.ndarray, spread: np.ndarray, layout: ContentLayout) -> CellLoads:
    """Each row counted."""
    one = CellTable(layout, tuple(range(layout.cells)))
    cells = one.route(keys, spread).astype(np.int64)
    return CellLoads(cells, np.zeros(len(cells), np.int64), np.ones(len(cells)), layout.cells, 3)


def test_the_line_of_cells_is_cut_within_the_heavy_host_and_tasks_are_even() -> None:
    keys, spread = hashes_of(200_000)
    ranges = assign_content(loads_of(keys, spread, LAYOUT), N, N, LAYOUT.pieces, cut=True)
    assert not ranges.cuts
    table = CellTable.of(ranges, LAYOUT)
    rows = np.bincount(table.route(keys, spread), minlength=table.partitions)
    assert rows.tolist() == ranges.loads.tolist(), "the loads were of every row"
    assert makespan(rows.astype(float), N) < 1.1 * len(keys) / N
    assert table.partitions == N, "each has its share"
    assert (np.diff(ranges.loads) <= 0).all(), "the largest start first"


def test_light_hosts_are_never_divided() -> None:
    keys, spread = hashes_of(200_000)
    table = CellTable.of(assign_content(loads_of(keys, spread, LAYOUT), N, N, LAYOUT.pieces, cut=True), LAYOUT)
    hosts = host_of(keys, LAYOUT.hosts.bit_length() - 1)
    tasks = table.task_of_cell.reshape(LAYOUT.hosts, LAYOUT.pieces)
    cut = np.flatnonzero(tasks.min(axis=1) != tasks.max(axis=1))
    assert cut.tolist() == [np.bincount(hosts).argmax()]
    light = keys[hosts != cut[0]]
    nothing = np.zeros(len(light), np.uint64)
    assert table.route(light, ~nothing).tolist() == table.route(light, nothing).tolist()


def test_keys_that_stay_whole_have_one_task() -> None:
    layout = ContentLayout(64, 1)
    keys, spread = hashes_of(50_000)
    table = CellTable.of(assign_content(loads_of(keys, spread, layout), N, N, 1, cut=False), layout)
    assert not table.splits
    assert table.route(keys).tolist() == table.route(keys, spread).tolist()


def test_a_batch_without_rows_is_one_task() -> None:
    nothing = CellLoads(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), LAYOUT.cells, 1)
    table = CellTable.of(assign_content(nothing, N, N, LAYOUT.pieces, cut=True), LAYOUT)
    assert (table.partitions, table.splits) == (1, False)
    assert table.loads(Histogram.empty()).tolist() == [0]


def test_pieces_divide_the_cells() -> None:
    loads = CellLoads(np.zeros(1, np.int64), np.zeros(1, np.int64), np.ones(1), 10, 1)
    for wrong in (0, 3):
        with pytest.raises(ConfigError, match="pieces"):
            assign_content(loads, N, N, wrong, cut=True)


def test_a_table_says_what_each_task_will_have() -> None:
    """By a histogram alone; every row counted once. A heavy key is in each of its tasks."""
    keys, spread = hashes_of(200_000)
    table = CellTable.of(assign_content(loads_of(keys, spread, LAYOUT), N, N, LAYOUT.pieces, cut=True), LAYOUT)
    histogram = Histogram.from_hashes(keys)
    task = table.route(keys, spread)
    rows = np.bincount(task, minlength=table.partitions)
    assert table.loads(histogram).sum() == len(keys)
    assert np.abs(table.loads(histogram) - rows).max() < 0.05 * len(keys) / N
    pairs = np.unique(np.stack([keys, task.astype(np.uint64)]), axis=1)[1]
    held = np.bincount(pairs.astype(np.int64), minlength=table.partitions)
    assert np.abs(table.cardinalities(histogram) - held).max() <= 0.1 * held.max()
    short = histogram.shortened(100, 12)
    assert table.loads(short).sum() == len(keys)
    assert np.abs(table.cardinalities(short) - held).max() <= 0.25 * held.max()


def test_a_table_is_a_value() -> None:
    table = CellTable(ContentLayout(4, 2), (4, 0, 5), ("string",))
    again = pickle.loads(pickle.dumps(table))
    assert (again.layout, again.firsts, again.key_types) == (table.layout, table.firsts, table.key_types)


@pytest.mark.parametrize(
    ("layout", "firsts", "says"),
    [
        (ContentLayout(3), (0,), "power of two"),
        (ContentLayout(MOST_CELLS, 2), (0,), "at most"),
        (ContentLayout(4), (1,), "must be in one"),
        (ContentLayout(4), (0, 2, 2), "must be in one"),
        (ContentLayout(4), (0, 4), "must be in one"),
        (ContentLayout(4), (), "must be in one"),
    ],
)
def test_a_table_that_does_not_place_every_row_is_refused(
    layout: ContentLayout, firsts: tuple[int, ...], says: str
) -> None:
    with pytest.raises(PlanError, match=says):
        CellTable(layout, firsts)


def test_ranges_by_map_tasks_are_no_table_and_cut_keys_need_a_spread_hash() -> None:
    parts = TaskRanges(1, 2, (CellRange(0, 1, 1.0, (0, 1)), CellRange(0, 1, 1.0, (1, 2))))
    with pytest.raises(PlanError, match="map tasks"):
        CellTable.of(parts, ContentLayout(1))
    with pytest.raises(PlanError, match="spread hash"):
        CellTable(ContentLayout(2, 2), (0, 1)).route(np.zeros(1, np.uint64))


@pytest.mark.parametrize("partitions", [1, 4, 16, 64, 200, 1_000, 4_096])
@pytest.mark.parametrize("rows", [0, 1, 10_000, 1_000_000])
@pytest.mark.parametrize("cut", [True, False])
def test_layouts_are_bounded_powers_of_two(partitions: int, rows: int, cut: bool) -> None:
    layout = content_cells(partitions, rows, cut=cut)
    CellTable(layout, (0,))
    assert layout.hosts >= partitions
    assert (layout.pieces > 1) == cut
    if rows and cut:
        assert layout.cells <= max(2 * rows, 64 * partitions)
    if cut:
        assert layout.cells <= max(1 << 15, 8 * partitions * 2)
