"""Which cells each task reads, so that the last task ends as early as can be: the decision between the map stage of a
shuffle and its first reduce task (KIP / DR for a batch that is already running; Prompt's plan of a batch by its own
statistics).

A task of Spark's reads one range of neighbouring cells, or of one cell what some neighbouring map tasks have written.
So light cells are shared out as ranges, a heavy cell is a task of its own, and where keys may be cut it is several:
each reads what some of the map tasks have of it. Where keys must stay whole nothing ends before its heaviest cell.

Tasks start by number, as slots become free, so the largest come first, and tasks that are smaller than a slot's share
fill what the large ones leave. How small is tried: of some sizes the one whose makespan is least, a task's start
included.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from unskew.core.arrays.frozen import derived
from unskew.core.arrays.types import F64, I64, Mask
from unskew.core.errors import ConfigError, PlanError
from unskew.core.in_flight.cell_loads import CellLoads
from unskew.core.quality.measures import makespan

__all__ = ["CellRange", "TaskRanges", "assign"]

_SIZES = (0.25, 0.33, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.05, 1.1, 1.2, 1.35, 1.5, 2.0)  # of a mean task
_PART_SIZES = (1.0, 0.5, 0.25)  # of a task's
_ROUNDING, _ROUNDED = 1e-9, 1.0 + 1e-9
_SLACK = 1.02  # fewer tasks, but not fewer than are wanted, are taken where they end this little later
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
            of_one = not one.maps or (begin < end <= self.map_tasks and one.last == one.first + 1)
            if one.first != at or begin != part or not one.first < one.last or not of_one:
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

    @property
    def cut_cells(self) -> I64:
        """The cell of each task that has only a part of it."""
        return np.array([one.first for one in self.ranges if one.maps is not None], np.int64)

    @derived
    def task_of_cell(self) -> I64:
        """The task that reads each cell; of a cut one the first of them."""
        tasks = np.zeros(self.cells, np.int64)
        for task in range(len(self.ranges) - 1, -1, -1):
            tasks[self.ranges[task].first : self.ranges[task].last] = task
        return tasks


def assign(loads: CellLoads, partitions: int, slots: int, *, cut: bool, most: int | None = None) -> TaskRanges:
    """What each task reads.

    Parameters
    ----------
    loads : The rows of each cell.
    partitions, slots : How many tasks are wanted, and how many run at once.
    cut : Whether the rows of a key may be in several tasks.
    most : Tasks that there may be at most, heavy cells and their parts not counted; by default four a slot, or twice
        as many as are wanted.

    Returns
    -------
    TaskRanges : In the order in which tasks are to start.
    """
    for name, value in (("partitions", partitions), ("slots", slots)):
        if value < 1:
            raise ConfigError(name, value, "1 or more")
    total = float(loads.by_cell.sum())
    if not total:
        return TaskRanges(loads.count, loads.tasks, (CellRange(0, loads.count),))
    mean, cut = total / partitions, cut and loads.tasks > 1
    ways = product(_PART_SIZES if cut else (1.0,), _SIZES)
    tried = [_Tasks.of(loads, size * mean, part, cut=cut) for part, size in ways]
    limit = max(most or max(4 * slots, 2 * partitions), min(map(len, tried)))
    best = _best([one for one in tried if len(one) <= limit], mean, slots)
    return TaskRanges(loads.count, loads.tasks, best.ranges())


def _best(tried: list[_Tasks], mean: float, slots: int) -> _Tasks:
    """The fewest tasks of those that end soonest; no larger ones than are wanted, if those end as soon."""
    ends = [one.end(START * mean, slots) for one in tried]
    near = [one for one, end in zip(tried, ends, strict=True) if end <= _SLACK * min(ends)]
    return min([one for one in near if one.size <= _ROUNDED * mean] or near, key=len)


@dataclass(frozen=True, eq=False)
class _Tasks:
    """One way to share the cells out: tasks of about this ``size``, those that read cells from ``first`` to before
    ``last``, and then parts of heavy cells, which read of one cell what the map tasks from ``begin`` to before ``end``
    have written."""

    size: float
    first: I64
    last: I64
    begin: I64
    end_map: I64
    loads: F64
    map_tasks: int

    def __len__(self) -> int:
        return len(self.loads)

    @classmethod
    def of(cls, loads: CellLoads, size: float, part: float, *, cut: bool) -> _Tasks:
        """Light cells in ranges of about this size, heavy ones alone or in parts of that share of it."""
        by_cell, parts = loads.by_cell, loads.parts
        heavy = np.flatnonzero(by_cell > size)
        begins, ends = np.concatenate([[0], heavy + 1]), np.concatenate([heavy, [loads.count]])
        some = begins < ends
        _, first, last, light = _cut(by_cell, begins[some], ends[some], size)
        if not cut:
            none = np.zeros(len(first) + len(heavy), np.int64)
            alone = np.concatenate([light, by_cell[heavy]])
            return cls(size, _joined(first, heavy), _joined(last, heavy + 1), none, none, alone, loads.tasks)
        begins, ends = parts.starts[heavy], parts.starts[heavy + 1]
        which, left, right, each = _cut(parts.loads, begins, ends, size * part)
        # A part begins with the map task where it was cut, the first with the first map task of all.
        begin = np.where(left == begins[which], 0, parts.maps[left])
        end = np.where(right == ends[which], loads.tasks, parts.maps[np.minimum(right, len(parts.maps) - 1)])
        none, cells = np.zeros(len(first), np.int64), heavy[which]
        return cls(
            size,
            _joined(first, cells),
            _joined(last, cells + 1),
            _joined(none, begin),
            _joined(none, end),
            np.concatenate([light, each]),
            loads.tasks,
        )

    def end(self, start: float, slots: int) -> float:
        """When the last task ends. Spark prefers to run parts of a cell where their map tasks ran: so they may start
        first, as the largest, or, where no such host is free, last. The later end of the two counts."""
        loads, part = self.loads + start, self._part
        largest = -np.sort(-loads)
        light, parts = -np.sort(-loads[~part]), -np.sort(-loads[part])
        last = makespan(np.concatenate([light, parts]), slots) if len(parts) else 0.0
        return max(makespan(largest, slots), last)

    @property
    def _part(self) -> Mask:
        return np.asarray(self.end_map - self.begin, np.int64) % max(self.map_tasks, 1) > 0

    def ranges(self) -> tuple[CellRange, ...]:
        """What each task reads, the largest first."""
        order = np.lexsort((self.begin, self.first, -self.loads)).tolist()
        first, last, part = self.first.tolist(), self.last.tolist(), self._part.tolist()
        begin, end, loads = self.begin.tolist(), self.end_map.tolist(), self.loads.tolist()
        return tuple(
            CellRange(first[at], last[at], loads[at], (begin[at], end[at]) if part[at] else None) for at in order
        )


def _joined(one: I64, other: I64) -> I64:
    return np.concatenate([one, other]).astype(np.int64)


def _cut(loads: F64, begins: I64, ends: I64, size: float) -> tuple[I64, I64, I64, F64]:
    """Groups of neighbours, each from ``begins`` to before ``ends``, cut into even pieces of about this size: the group
    of each piece, where it begins and ends, and its load."""
    sums = np.concatenate([[0.0], np.cumsum(loads)])
    whole = sums[ends] - sums[begins]
    count = np.clip(np.ceil(whole / size - _ROUNDING), 1, ends - begins).astype(np.int64)
    group = np.repeat(np.arange(len(begins)), count)
    step = np.arange(len(group)) - np.repeat(np.cumsum(count) - count, count)
    marks = sums[begins[group]] + whole[group] * step / count[group]
    above = np.maximum(np.searchsorted(sums, marks), 1)
    nearest = np.where(marks - sums[above - 1] < sums[np.minimum(above, len(loads))] - marks, above - 1, above)
    first = np.where(step == 0, begins[group], np.clip(nearest, begins[group], ends[group]))
    new = (first < ends[group]) & ((step == 0) | (first > np.roll(first, 1)))
    group, first = group[new].astype(np.int64), first[new].astype(np.int64)
    last = np.where(np.append(group[1:] != group[:-1], True), ends[group], np.append(first[1:], 0))
    return group, first, last, sums[last] - sums[first]
