"""Which cells of both sides of a join each task reads, decided between the map stages and the first reduce task.

Both sides are written into the same cells by their keys. A task reads the same cells of both; of a heavy cell several
tasks read a part each of one side, and all of the other side's rows. A cell costs what ``join_plan`` says a key does:
rows of both sides and, times ``work``, the rows that come out. Of these what the cut side brings is divided among the
parts, and the other side's rows are read by each; ``Bounds.replication`` bounds how much that may be.

What comes out is estimated from two samples. A key is known on a side that was sampled whole, or has some rows in its
sample. Where it is known on both sides that says it; where it is not, it is taken to have what such keys have on
average, weighed by the other side's rows, each key's up to a bound: no key's luck decides. So an estimate is right on
average, and a hot key whose one partner is not in the sample costs what hot keys cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unskew.core.arrays.frozen import derived
from unskew.core.arrays.types import F64, I64, U64, Mask
from unskew.core.errors import ConfigError
from unskew.core.in_flight.assign import TaskRanges, assign
from unskew.core.in_flight.cell_loads import CellLoads
from unskew.core.operators.join_plan import HOWS, LEFT, RIGHT, Bounds, rows_out
from unskew.core.quality.measures import makespan

__all__ = ["JoinCells", "SideRows", "join_cells"]

_OTHER = {LEFT: RIGHT, RIGHT: LEFT}
_KNOWN = 8  # rows in a sample from which its count of a key is taken as it is


@dataclass(frozen=True, eq=False)
class SideRows:
    """What passed of one side: so many ``rows``; of each sampled one its key's hash, and in ``loads`` its cell and the
    rows that it stands for."""

    rows: int
    keys: U64
    loads: CellLoads

    def __post_init__(self) -> None:
        if len(self.keys) != len(self.loads.cells):
            raise ConfigError("keys", len(self.keys), f"one for each of the {len(self.loads.cells)} sampled rows")

    @derived
    def whole(self) -> bool:
        """Whether every row was sampled."""
        return len(self.keys) == self.rows


@dataclass(frozen=True, eq=False)
class JoinCells:
    """What each task reads, the side whose heavy cells are cut, and what is expected of it, in rows."""

    ranges: TaskRanges
    how: str
    side: str
    left: int
    right: int
    output: int
    copied: int

    def __str__(self) -> str:
        loads, cut = self.ranges.loads, int(self.ranges.cut_tasks.sum())
        worst = loads.max() / loads.mean() if loads.any() else 1.0
        cells = len({one.first for one in self.ranges.ranges if one.maps})
        reason = "as planned" if HOWS[self.how] else "keys stay whole, as both sides keep rows without partner"
        return (
            f"{self.how} join of {self.left:,} with {self.right:,} rows into about {self.output:,}, placed in flight: "
            f"{reason}\n"
            f"  {cut} tasks have parts of {cells} heavy cells of the {self.side} side, {self.copied:,} rows of the "
            f"other read again for them; the others whole cells of {self.ranges.cells:,}\n"
            f"  heaviest of {len(loads)} tasks {worst:.2f} times the mean of rows in and out"
        )


def join_cells(
    how: str,
    left: SideRows,
    right: SideRows,
    partitions: int,
    slots: int,
    bounds: Bounds,
    side: str | None = None,
) -> JoinCells:
    """What each task reads.

    Parameters
    ----------
    how : The join, by Spark's name (``join_plan.HOWS``).
    left, right : What passed of both sides; their cells are as many.
    partitions, slots : How many tasks are wanted, and how many run at once.
    bounds : What an output row costs, and how much may be read several times.
    side : The side to cut, where there is a choice; by default the one by which the join ends first.

    Returns
    -------
    JoinCells : With ranges that cut what map tasks of its ``side`` have written.
    """
    if left.loads.count != right.loads.count:
        raise ConfigError("right", f"{right.loads.count} cells", f"as many as the left side's {left.loads.count}")
    if side is not None and side not in HOWS[how]:
        raise ConfigError("side", side, HOWS[how] or "None: a full join cuts no side")
    sides = {LEFT: left, RIGHT: right}
    output = _output_by_cell(how, left, right)
    tried = [(one, _cut_by(one, sides, bounds.work * output)) for one in ((side,) if side else HOWS[how] or (LEFT,))]
    share, cut = bounds.replication, bool(HOWS[how])
    made = [(one, assign(loads, partitions, slots, cut=cut, copies=share)) for one, loads in tried]
    best, ranges = min(made, key=lambda each: makespan(each[1].loads, slots))
    return JoinCells(ranges, how, best, left.rows, right.rows, round(float(output.sum())), _copied(ranges))


def _cut_by(side: str, sides: dict[str, SideRows], work: F64) -> CellLoads:
    """What cells cost, by the rows of the side that is cut: the other side's rows are shared by the parts. So is what
    comes out of a cell where the side has no sampled row to divide it by."""
    loads, other = sides[side].loads, sides[_OTHER[side]].loads.by_cell
    rows = loads.by_cell
    some = rows > 0
    each = 1.0 + np.divide(work, rows, out=np.zeros(len(rows)), where=some)
    return replace(loads, weights=loads.weights * each[loads.cells], shared=other + np.where(some, 0.0, work))


def _copied(ranges: TaskRanges) -> int:
    """Rows that are read again."""
    shared: dict[int, list[float]] = {}
    for one in ranges.ranges:
        if one.maps:
            shared.setdefault(one.first, []).append(one.shared)
    return round(sum(sum(each[1:]) for each in shared.values()))


# -- what comes out -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _KeyRows:
    """Of each key in either sample what one side has: rows as estimated, how many are in the sample, and which keys
    are known."""

    rows: F64
    sampled: I64
    known: Mask

    @property
    def lacks(self) -> Mask:
        """Keys that this side is known not to have."""
        return np.asarray(self.known & (self.rows == 0), np.bool_)

    def typical(self, other: _KeyRows) -> float:
        """Rows of a key that is not known here, as the other side's rows meet them."""
        weights = np.where(self.known, 0, np.minimum(other.sampled, _KNOWN))
        whole = float(weights.sum())
        return float((weights * self.rows).sum()) / whole if whole else 0.0


def _output_by_cell(how: str, left: SideRows, right: SideRows) -> F64:
    """The rows that come out of each cell."""
    both, at = np.unique(np.concatenate([left.keys, right.keys]), return_inverse=True)
    cell_of = np.zeros(len(both), np.int64)
    cell_of[at] = np.concatenate([left.loads.cells, right.loads.cells])
    one = _of_keys(left, at[: len(left.keys)], len(both))
    other = _of_keys(right, at[len(left.keys) :], len(both))
    neither = ~one.known & ~other.known  # counted by the rows of one side, the one that is kept
    by_right = other.known | (neither & (how == "right"))
    lefts = np.where(one.known | other.lacks | (neither & ~by_right), one.rows, one.typical(other))
    rights = np.where(by_right | one.lacks, other.rows, other.typical(one))
    out = rows_out(how, lefts, rights, lefts * rights)
    return np.bincount(cell_of, out, left.loads.count).astype(np.float64)


def _of_keys(side: SideRows, at: I64, count: int) -> _KeyRows:
    """``at``: which key each sampled row has."""
    sampled = np.bincount(at, minlength=count)
    rows = np.bincount(at, side.loads.weights, count).astype(np.float64)
    return _KeyRows(rows, sampled, (sampled >= _KNOWN) | side.whole)
