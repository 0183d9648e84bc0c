"""Which cells each task reads, so that the last task ends as early as can be: the decision between the map stage of a
shuffle and its first reduce task (KIP / DR for a batch that is already running; Prompt's plan of a batch by its own
statistics).

A task of Spark's reads one range of neighbouring cells, or of one cell what some neighbouring map tasks have written.
So light cells are shared out as ranges, a heavy cell is a task of its own, and where keys may be cut it is several:
each reads what some of the map tasks have of it. Where keys must stay whole nothing ends before its heaviest cell.

Where a row must be in the same task when it is placed again, cells are hosts of keys cut into ``pieces`` by the rows'
content, and nothing is cut by map tasks. Where keys may be cut, the line of all cells is: into ranges that are even,
and end between two hosts or within a heavy one. Each task then has its share, and no more hosts are cut than there are
tasks.

Tasks start by number, as slots become free, so the largest come first, and tasks that are smaller than a slot's share
fill what the large ones leave. How small is tried: of some sizes the one whose makespan is least, a task's start
included.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from unskew.core.arrays.frozen import derived
from unskew.core.arrays.types import F64, I64, Mask
from unskew.core.errors import ConfigError, PlanError
from unskew.core.in_flight.cell_loads import CellLoads
from unskew.core.quality.measures import makespan

__all__ = ["CellRange", "TaskRanges", "assign"]

_SIZES = (0.25, 0.33, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.03, 1.06, 1.1, 1.2, 1.35, 1.5, 2.0)  # of a mean task
_SLACK = 1.02  # fewer tasks, but not fewer than are wanted, are taken where they end this little later
_HEAVY = 2.0  # times the mean host's load: a host that may be cut between its pieces
START = 0.01  # what a task's start costs, in mean tasks


@dataclass(frozen=True)
class CellRange:
    """What one task reads: the cells from ``first`` to before ``last``. With ``maps`` it is one cell, and of that what
    the map tasks from the first number to before the second have written. ``load``: how much that is, as estimated."""

    first: int
    last: int
    load: float = 0.0
    maps: tuple[int, int] | None = None


@dataclass(frozen=True, eq=False)
class TaskRanges:
    """What each task reads, in the order in which tasks start. Every row is in one range.

    Raises
    ------
    PlanError : A cell, or a map task's part of it, is in no range or in two.

    Examples
    --------
    >>> TaskRanges(4, 2, (CellRange(2, 4), CellRange(0, 2))).task_of_cell.tolist()
    [1, 1, 0, 0]
    """

    cells: int
    map_tasks: int
    ranges: tuple[CellRange, ...]

    def __post_init__(self) -> None:
        at, ordered = 0, sorted(self.ranges, key=lambda one: (one.first, one.maps or (0, 0)))
        part = 0  # map tasks of the cell at ``at`` that are covered
        for one in ordered:
            begin, end = one.maps or (0, self.map_tasks)
            if one.first != at or begin != part or not one.first < one.last or (one.maps and not begin < end):
                raise PlanError(
                    f"cells from {one.first} to {one.last} of map tasks {begin} to {end}: cell {at} comes next"
                )
            at, part = (one.first, end) if one.maps and end < self.map_tasks else (one.last, 0)
        if at != self.cells or part:
            raise PlanError(f"{self.cells - at} cells are read by no task")

    @property
    def cuts(self) -> bool:
        """Whether the rows of a cell are in several tasks."""
        return any(one.maps is not None for one in self.ranges)

    @derived
    def loads(self) -> F64:
        """The estimated load of each task."""
        return np.array([one.load for one in self.ranges])

    @derived
    def cut_tasks(self) -> Mask:
        """Whether a task has only a part of its cell."""
        return np.array([one.maps is not None for one in self.ranges], np.bool_)

    @derived
    def task_of_cell(self) -> I64:
        """The task that reads each cell; of a cut one the first of them."""
        tasks = np.zeros(self.cells, np.int64)
        for task in range(len(self.ranges) - 1, -1, -1):
            tasks[self.ranges[task].first : self.ranges[task].last] = task
        return tasks


def assign(
    loads: CellLoads, partitions: int, slots: int, *, cut: bool, most: int | None = None, pieces: int | None = None
) -> TaskRanges:
    """What each task reads.

    Parameters
    ----------
    loads : The rows of each cell.
    partitions, slots : How many tasks are wanted, and how many run at once.
    cut : Whether the rows of a key may be in several tasks.
    most : Tasks that there may be at most, heavy cells and their parts not counted; by default four a slot, or twice
        as many as are wanted.
    pieces : Neighbouring cells that are one host; a host that is cut is cut between them. None: cells are cut by map
        tasks.

    Returns
    -------
    TaskRanges : In the order in which tasks are to start.
    """
    for name, value in (("partitions", partitions), ("slots", slots), ("pieces", 1 if pieces is None else pieces)):
        if value < 1:
            raise ConfigError(name, value, "1 or more")
    if loads.count % (pieces or 1):
        raise ConfigError("pieces", pieces, f"a number that divides the {loads.count} cells")
    total = float(loads.by_cell.sum())
    if not total:
        return TaskRanges(loads.count, loads.tasks, (CellRange(0, loads.count),))
    mean, limit = total / partitions, most or max(4 * slots, 2 * partitions)
    sizes = [size for size in _SIZES if size <= 1.0 or not cut or pieces is None]  # a line is as even with all tasks
    tried = [(size, _ranges(loads, size * mean, pieces, cut=cut)) for size in sizes]
    fitting = [(size, each) for size, each in tried if len(each) <= max(limit, len(tried[-1][1]))]
    ends = [makespan(np.array([one.load for one in each]) + START * mean, slots) for _, each in fitting]
    near = [at for at, end in enumerate(ends) if end <= _SLACK * min(ends)]
    best = max((at for at in near if fitting[at][0] <= 1.0), default=near[0])
    return TaskRanges(loads.count, loads.tasks, tuple(fitting[best][1]))


def _ranges(loads: CellLoads, size: float, pieces: int | None, *, cut: bool) -> list[CellRange]:
    """Tasks of about this size, the largest first."""
    each = pieces or 1
    if cut and pieces is not None:
        return sorted(_line(loads.by_cell, each, size), key=lambda one: (-one.load, one.first))
    by_host = loads.by_cell.reshape(-1, each).sum(axis=1)
    heavy = np.flatnonzero(by_host > size)
    ranges = [CellRange(one.first * each, one.last * each, one.load) for one in _between(by_host, heavy, size)]
    for host in heavy.tolist():
        if cut and loads.tasks > 1 and pieces is None:
            ranges += _parts(loads.by_map(host), host, size)
        else:
            ranges.append(CellRange(host * each, (host + 1) * each, float(by_host[host])))
    return sorted(ranges, key=lambda one: (-one.load, one.first, one.maps or (0, 0)))


def _line(by_cell: F64, pieces: int, size: float) -> Iterator[CellRange]:
    """All cells in ranges of about this size, each of which ends nearest to where it should: between two hosts, or
    between two pieces of a host that has twice what the mean host has, and more than chance gives one."""
    sums = np.cumsum(by_cell)
    by_host = by_cell.reshape(-1, pieces).sum(axis=1)
    within = np.repeat(by_host > _HEAVY * by_host.mean(), pieces)
    ends = np.flatnonzero(within | (np.arange(1, len(by_cell) + 1) % pieces == 0))
    tasks = max(round(float(sums[-1]) / size), 1)
    marks = np.arange(1, tasks) * (sums[-1] / tasks)
    after = np.searchsorted(sums[ends], marks)
    before = np.maximum(after - 1, 0)
    nearer = marks - sums[ends[before]] < sums[ends[after]] - marks
    cuts = np.unique(np.concatenate([[0], ends[np.where(nearer, before, after)] + 1, [len(by_cell)]]))
    upto = np.concatenate([[0.0], sums])[cuts]
    for at in range(len(cuts) - 1):
        yield CellRange(int(cuts[at]), int(cuts[at + 1]), float(upto[at + 1] - upto[at]))


def _between(by_cell: F64, heavy: I64, size: float) -> Iterator[CellRange]:
    """The light cells between the heavy ones, in as few ranges of this size as hold them, alike in load."""
    sums = np.concatenate([[0.0], np.cumsum(by_cell)])
    begins, ends = np.concatenate([[0], heavy + 1]), np.concatenate([heavy, [len(by_cell)]])
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        if begin < end:
            yield from _alike(sums, begin, end, size)


def _alike(sums: F64, begin: int, end: int, size: float) -> Iterator[CellRange]:
    """The cells from ``begin`` to ``end`` as ranges of about the same load, none above ``size``: heavy ones are not
    among them."""
    left, at = float(sums[end] - sums[begin]), begin
    while at < end:
        share = left / max(np.ceil(left / size - 1e-9), 1.0)
        near = int(np.searchsorted(sums, sums[at] + share, side="right")) - 1
        over = (
            near + 1 <= end
            and sums[near + 1] - sums[at] <= size
            and sums[near + 1] - sums[at] - share < share - (sums[near] - sums[at])
        )
        last = min(max(near + over, at + 1), end)
        if not left - (sums[last] - sums[at]) > 1e-9 * size:
            last = end  # what is left has no rows
        load = float(sums[last] - sums[at])
        yield CellRange(at, last, load)
        left, at = left - load, last


def _parts(by_map: F64, cell: int, size: float) -> list[CellRange]:
    """A heavy cell in parts of about this size, each of neighbouring map tasks."""
    sums = np.concatenate([[0.0], np.cumsum(by_map)])
    count = min(int(np.ceil(sums[-1] / size - 1e-9)), len(by_map))
    marks = np.searchsorted(sums, np.arange(1, count) * (sums[-1] / count))
    lower = np.maximum(marks - 1, 0)
    nearer = np.abs(sums[lower] - np.arange(1, count) * (sums[-1] / count)) < np.abs(
        sums[marks] - np.arange(1, count) * (sums[-1] / count)
    )
    cuts = np.unique(np.concatenate([[0], np.where(nearer, lower, marks), [len(by_map)]]))
    if len(cuts) == 2:
        return [CellRange(cell, cell + 1, float(sums[-1]))]
    parts = zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)
    return [CellRange(cell, cell + 1, float(sums[b] - sums[a]), (a, b)) for a, b in parts]
