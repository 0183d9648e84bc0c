"""Which task each cell of a micro-batch goes to, where cells are a function of the rows' content.

A batch may run again after its driver's death, and each row must then be where it was: so nothing is cut by map tasks.
Cells are hosts of keys in pieces. Where keys may be cut, the line of all cells is: into as many even ranges as there
are partitions, which end between two hosts or within a heavy one. So each task has its share, no more hosts are cut
than there are tasks, and who handles a batch may count on their number. Where keys stay whole, hosts are shared out.
"""

from __future__ import annotations

import numpy as np

from unskew.core.arrays.types import F64
from unskew.core.errors import ConfigError
from unskew.core.in_flight.assign import CellRange, TaskRanges, assign
from unskew.core.in_flight.cell_loads import CellLoads

__all__ = ["assign_content"]

_HEAVY = 2.0  # times the mean host's load: a host that may be cut between its pieces


def assign_content(loads: CellLoads, partitions: int, slots: int, pieces: int, *, cut: bool) -> TaskRanges:
    """What each task reads, in the order in which tasks are to start: at most ``partitions`` tasks.

    Parameters
    ----------
    loads : The rows of each cell; ``pieces`` neighbouring cells are one host.
    partitions, slots : How many tasks are wanted, and how many run at once.
    cut : Whether the rows of a host may be in several tasks.
    """
    for name, value in (("partitions", partitions), ("pieces", pieces)):
        if value < 1:
            raise ConfigError(name, value, "1 or more")
    if loads.count % pieces or (pieces > 1 and not cut):
        raise ConfigError("pieces", pieces, f"a number that divides the {loads.count} cells, 1 where nothing is cut")
    if cut and loads.by_cell.any():
        ranges = sorted(_line(loads.by_cell, pieces, partitions), key=lambda one: (-one.load, one.first))
        return TaskRanges(loads.count, loads.tasks, tuple(ranges))
    wanted, found = partitions, assign(loads, partitions, slots, cut=False, most=partitions)
    while len(found.ranges) > partitions:  # many hosts are just above the largest size that is tried
        wanted = wanted * 3 // 4
        found = assign(loads, wanted, slots, cut=False, most=partitions)
    return found


def _line(by_cell: F64, pieces: int, tasks: int) -> list[CellRange]:
    """All cells in so many even ranges, each of which ends nearest to where it should: between two hosts, or between
    two pieces of a host that has twice what the mean host has, and more than chance gives one."""
    sums = np.cumsum(by_cell)
    by_host = by_cell.reshape(-1, pieces).sum(axis=1)
    within = np.repeat(by_host > _HEAVY * by_host.mean(), pieces)
    ends = np.flatnonzero(within | (np.arange(1, len(by_cell) + 1) % pieces == 0))
    marks = np.arange(1, tasks) * (sums[-1] / tasks)
    after = np.minimum(np.searchsorted(sums[ends], marks), len(ends) - 1)
    before = np.maximum(after - 1, 0)
    nearer = marks - sums[ends[before]] < sums[ends[after]] - marks
    cuts = np.unique(np.concatenate([[0], ends[np.where(nearer, before, after)] + 1, [len(by_cell)]]))
    upto = np.concatenate([[0.0], sums])[cuts]
    each = zip(cuts[:-1].tolist(), cuts[1:].tolist(), np.diff(upto).tolist(), strict=True)
    return [CellRange(first, last, load) for first, last, load in each]
