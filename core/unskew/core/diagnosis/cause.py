"""Why the tasks of a stage are unlike, and how sure that is: rows that are unevenly placed, or something else.

A task that reads ten times the records and takes ten times as long waits for its rows. One that reads as many as the
others waits for something else: garbage collection, spilling, the network, a slow host, or rows that cost unlike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.core.arrays.types import Mask
from unskew.core.diagnosis.lost_time import LostTime
from unskew.core.diagnosis.stage_run import StageRun, TaskColumns

__all__ = ["COSTLY", "FEW", "ROWS", "SURENESS", "Cause", "cause_of"]

ROWS, FEW, GC, FETCH, HOST, SPILL, COSTLY = "rows", "few tasks", "gc", "fetch", "slow host", "spill", "costly rows"
SURENESS = ("sure", "likely", "unsure")

_MOSTLY, _PARTLY = 0.7, 0.4  # of the lost time that what tasks read explains
_SHARE = 0.25  # of the long tasks' time from which something that is no work is the cause
_LONG = 1.5  # times the median


@dataclass(frozen=True)
class Cause:
    """``kind``: what made the tasks unlike, ``rows`` for skew; ``sureness`` and the reasons for it."""

    kind: str
    sureness: str
    reasons: tuple[str, ...]

    def doubted(self, reason: str) -> Cause:
        """The same, less sure by one step."""
        step = min(SURENESS.index(self.sureness) + 1, len(SURENESS) - 1)
        return Cause(self.kind, SURENESS[step], (*self.reasons, reason))


def cause_of(run: StageRun, lost: LostTime) -> Cause:
    """Why this stage lost time.

    >>> from unskew.core.diagnosis.lost_time import lost_time
    >>> tasks = TaskColumns.of([9.0, 1.0, 1.0, 1.0], [10, 10, 10, 10], gc=[8.0, 0.0, 0.0, 0.0])
    >>> run = StageRun(0, 0, "", 4, tasks, 2, 0.0, 9.0)
    >>> cause_of(run, lost_time(run)).kind
    'gc'
    """
    if lost.uneven < lost.total / 2:
        return Cause(FEW, "sure", (f"{_tasks(len(run.tasks))} on {run.slots} slots",))
    if lost.explained >= _PARTLY:
        return _by_rows(run, lost)
    return _not_by_rows(run.tasks)


def _by_rows(run: StageRun, lost: LostTime) -> Cause:
    tasks, longest = run.tasks, int(run.tasks.seconds.argmax())
    reasons = [f"the longest task {_more(tasks, longest)}"]
    if lost.explained < _MOSTLY:
        reasons.append(f"what tasks read explains {lost.explained:.0%} of the lost time")
    long = _long(tasks)
    if tasks.spilled[long].sum() > 0 and tasks.spilled[~long].sum() == 0:
        reasons.append("only long tasks spill, for they hold more rows")
    cause = Cause(ROWS, SURENESS[0], tuple(reasons[:1]))
    for doubt in reasons[1:2] if lost.explained < _MOSTLY else ():
        cause = cause.doubted(doubt)
    return Cause(cause.kind, cause.sureness, tuple(reasons))


def _more(tasks: TaskColumns, longest: int) -> str:
    """What the longest task read beside the median one: records, or bytes where they tell more."""
    ratios = {}
    for name, volume in (("records", tasks.records), ("bytes", tasks.bytes)):
        middle = float(np.median(volume))
        if middle > 0:
            ratios[name] = float(volume[longest]) / middle
    slower = _times(tasks.seconds[longest], float(np.median(tasks.seconds)))
    if not ratios:
        return f"has nearly all of the rows and takes {slower} the median"
    name = max(ratios, key=lambda one: ratios[one])
    return f"read {ratios[name]:,.1f} times the {name} of the median task and took {slower} as long"


def _times(value: float, middle: float) -> str:
    return f"{value / middle:,.1f} times" if middle > 0 else "many times"


def _not_by_rows(tasks: TaskColumns) -> Cause:
    long = _long(tasks)
    seconds = float(tasks.seconds[long].sum()) or 1.0
    for kind, column, words in ((GC, tasks.gc, "in garbage collection"), (FETCH, tasks.fetch, "waiting for blocks")):
        share = float(column[long].sum()) / seconds
        if share >= _SHARE:
            return Cause(kind, SURENESS[0], (f"the long tasks spent {share:.0%} of their time {words}",))
    if _one_host(tasks, long):
        return Cause(HOST, SURENESS[1], ("the long tasks ran on one host, and read no more than the others",))
    if tasks.spilled[long].sum() > 0 and tasks.spilled[~long].sum() == 0:
        return Cause(SPILL, SURENESS[1], ("only the long tasks spilled, and read no more than the others",))
    return Cause(COSTLY, SURENESS[2], ("the long tasks read no more than the others: rows that cost unlike, or noise",))


def _one_host(tasks: TaskColumns, long: Mask) -> bool:
    """The long tasks are all on one host, and that host's other tasks are not the only ones there are."""
    hosts = np.unique(tasks.host[long])
    return len(hosts) == 1 and bool((tasks.host != hosts[0]).any()) and int(long.sum()) > 1


def _long(tasks: TaskColumns) -> Mask:
    """The tasks that others wait for; at least the longest."""
    seconds = tasks.seconds
    return seconds >= min(_LONG * float(np.median(seconds)), float(seconds.max()))


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count:,} tasks"
