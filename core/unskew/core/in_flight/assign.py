"""Which cells each task reads, so that the last task ends as early as can be: the decision between the map stage of a
shuffle and its first reduce task (KIP / DR for a batch that is already running; Prompt's plan of a batch by its own
statistics).

A task of Spark's reads one range of neighbouring cells, or of one cell what some neighbouring map tasks have written.
So light cells are shared out as ranges, a heavy cell is a task of its own, and where keys may be cut it is several:
each reads what some of the map tasks have of it. Where keys must stay whole nothing ends before its heaviest cell.
What the parts of a cell share (``CellLoads.shared``) each of them costs again, which is bounded: the cells for which it
is least are cut first.

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
    the map tasks from the first number to before the second have written. ``load``: how much that is, as estimated;
    ``shared``: of that what the other parts of its cell have as well."""

    first: int
    last: int
    load: float = 0.0
    maps: tuple[int, int] | None = None
    shared: float = 0.0


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


def assign(
    loads: CellLoads,
    partitions: int,
    slots: int,
    *,
    cut: bool,
    most: int | None = None,
    copies: float = float("inf"),
) -> TaskRanges:
    """What each task reads.

    Parameters
    ----------
    loads : The rows of each cell.
    partitions, slots : How many tasks are wanted, and how many run at once.
    cut : Whether the rows of a key may be in several tasks.
    most : Tasks that there may be at most, heavy cells and their parts not counted; by default four a slot, or twice
        as many as are wanted.
    copies : How much may be shared by several parts of cells, in all, as a share of all loads.

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
    bound = copies * total if cut else None
    tried = [_CellShares.of(loads, size * mean, part, bound) for part, size in ways]
    limit = max(most or max(4 * slots, 2 * partitions), min(map(len, tried)))
    best = _best([one for one in tried if len(one) <= limit], mean, slots)
    return TaskRanges(loads.count, loads.tasks, best.ranges())


def _best(tried: list[_CellShares], mean: float, slots: int) -> _CellShares:
    """The fewest tasks of those that end soonest; no larger ones than are wanted, if those end as soon."""
    ends = [one.end(START * mean, slots) for one in tried]
    near = [one for one, end in zip(tried, ends, strict=True) if end <= _SLACK * min(ends)]
    return min([one for one in near if one.size <= _ROUNDED * mean] or near, key=len)


@dataclass(frozen=True, eq=False)
class _CellShares:
    """One way to share the cells out: tasks of about this ``size``, those that read cells from ``first`` to before
    ``last``, and then parts of heavy cells, which read of one cell what the map tasks from ``begin`` to before
    ``end_map`` have written."""

    size: float
    first: I64
    last: I64
    begin: I64
    end_map: I64
    loads: F64
    shared: F64
    map_tasks: int

    def __len__(self) -> int:
        return len(self.loads)

    @classmethod
    def of(cls, loads: CellLoads, size: float, part: float, copies: float | None) -> _CellShares:
        """Light cells in ranges of about this size, heavy ones in parts of that share of it, as far as they may be
        copied; None: heavy ones alone."""
        by_cell = loads.by_cell
        heavy = np.flatnonzero(by_cell > size)
        begins, ends = np.concatenate([[0], heavy + 1]), np.concatenate([heavy, [loads.count]])
        some = begins < ends
        light = _cut(by_cell, begins[some], ends[some], size)
        none = np.zeros(len(light.group), np.int64)
        if copies is None:
            parts = _Parts(heavy, np.zeros(len(heavy), np.int64), np.zeros(len(heavy), np.int64), by_cell[heavy])
        else:
            parts = _Parts.of(loads, heavy, size * part, copies)
        return cls(
            size,
            _joined(light.first, parts.cell),
            _joined(light.last, parts.cell + 1),
            _joined(none, parts.begin),
            _joined(none, parts.end),
            np.concatenate([light.loads, parts.loads]),
            np.concatenate([none.astype(np.float64), loads.shared_of(parts.cell)]),
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
        begin, end, loads, shared = (each.tolist() for each in (self.begin, self.end_map, self.loads, self.shared))
        return tuple(
            CellRange(first[at], last[at], loads[at], (begin[at], end[at]), shared[at])
            if part[at]
            else CellRange(first[at], last[at], loads[at])
            for at in order
        )


@dataclass(frozen=True, eq=False)
class _Parts:
    """Parts of heavy cells: of ``cell`` what the map tasks from ``begin`` to before ``end`` have written."""

    cell: I64
    begin: I64
    end: I64
    loads: F64

    @classmethod
    def of(cls, loads: CellLoads, heavy: I64, size: float, copies: float) -> _Parts:
        """Parts of about this size. A part has as much of its own as it shares: smaller ones would have more work in
        all, and hardly end sooner."""
        parts, shared = loads.parts, loads.shared_of(heavy)
        begins, ends = parts.starts[heavy], parts.starts[heavy + 1]
        pieces = _cut(parts.loads, begins, ends, np.maximum(size - shared, shared), _most_parts(loads, heavy, copies))
        left, right = pieces.first, pieces.last
        # A part begins with the map task where it was cut, the first with the first map task of all.
        first, final = left == begins[pieces.group], right == ends[pieces.group]
        maps = np.append(parts.maps, 0)  # of which a cell without a sampled row has none
        begin, end = np.where(first, 0, maps[left]), np.where(final, loads.tasks, maps[right])
        return cls(heavy[pieces.group], begin, end, pieces.loads + shared[pieces.group])


def _most_parts(loads: CellLoads, heavy: I64, copies: float) -> F64:
    """In how many parts each heavy cell may be, so that no more is copied in all: those that share least come first,
    each as many as its load asks for."""
    shared = loads.shared_of(heavy)
    most = np.full(len(heavy), np.inf)
    sharing = np.flatnonzero(shared > 0)
    if not len(sharing) or not np.isfinite(copies):
        return most
    whole = loads.by_cell[heavy[sharing]]
    order = sharing[np.argsort(shared[sharing] / whole, kind="stable")]
    wanted = np.ceil(loads.by_cell[heavy[order]] / shared[order])  # beyond it a part shares more than it has
    before = np.concatenate([[0.0], np.cumsum(shared[order] * (wanted - 1))[:-1]])
    most[order] = 1.0 + np.floor(np.maximum(copies - before, 0.0) / shared[order])
    return most


def _joined(one: I64, other: I64) -> I64:
    return np.concatenate([one, other]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class _Pieces:
    """Pieces of groups of neighbours: the group of each, where it begins and ends, and its load."""

    group: I64
    first: I64
    last: I64
    loads: F64


def _cut(loads: F64, begins: I64, ends: I64, size: float | F64, most: F64 | float = np.inf) -> _Pieces:
    """Groups of neighbours, each from ``begins`` to before ``ends``, cut into even pieces of about this size, at most
    so many."""
    sums = np.concatenate([[0.0], np.cumsum(loads)])
    whole = sums[ends] - sums[begins]
    count = np.minimum(np.ceil(whole / size - _ROUNDING), np.minimum(ends - begins, most))
    count = np.maximum(count, 1).astype(np.int64)
    group = np.repeat(np.arange(len(begins)), count)
    step = np.arange(len(group)) - np.repeat(np.cumsum(count) - count, count)
    marks = sums[begins[group]] + whole[group] * step / count[group]
    above = np.maximum(np.searchsorted(sums, marks), 1)
    nearest = np.where(marks - sums[above - 1] < sums[np.minimum(above, len(loads))] - marks, above - 1, above)
    first = np.where(step == 0, begins[group], np.clip(nearest, begins[group], ends[group]))
    new = (step == 0) | ((first < ends[group]) & (first > np.roll(first, 1)))
    group, first = group[new].astype(np.int64), first[new].astype(np.int64)
    last = np.where(np.append(group[1:] != group[:-1], True), ends[group], np.append(first[1:], 0))
    return _Pieces(group, first, last, sums[last] - sums[first])
