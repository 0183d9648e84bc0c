"""What a unit of cost is worth in seconds, and what counting a batch first takes, from the batches that were measured.

``PlanCost`` counts in rows and keys; Spark tells how long tasks ran. A unit's price is what all tasks of a batch ran
for, over all of their units: what Spark takes to start a stage is in no task, and falls on every way alike. Where no
batch has been measured (Connect) costs are in even shares of the batch, and counting is taken to cost a tenth of one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median

__all__ = ["COUNT_SHARE", "BatchPrice", "CountingTime"]

COUNT_SHARE = 0.10  # of an even share: what counting a batch is taken to cost until it has been measured
_KEPT = 5  # counts that are remembered
_FADES = 0.85  # a batch: the weight of what was measured, while nothing is counted


@dataclass(frozen=True)
class BatchPrice:
    """A batch's ``unit``, and what counting it takes on top, in the same currency; ``timed``: in seconds."""

    unit: float
    count: float
    timed: bool = False


@dataclass(frozen=True)
class CountingTime:
    """The seconds a row that counting adds, of the last batches that were counted. The longer none was, the less they
    say: counting is then taken to cost what it costs by default, and tried again where that would pay.

    ``read``: the seconds a row of reading a batch that is not counted, which a counted one saves: its rows are
    persisted. Until there was one it is taken to be that of reading persisted rows.
    """

    counts: tuple[float, ...] = ()
    read: float | None = None
    read_persisted: float = 0.0
    age: int = 0

    def after(self, rows: int, reading: float, counting: float | None) -> CountingTime:
        """With one more batch: seconds of the stages that read it, and of the count where it was counted."""
        if rows <= 0:
            return self
        if counting is None:
            return replace(self, read=reading / rows, age=self.age + 1)
        counts = (*self.counts, (counting + reading) / rows)[-_KEPT:]
        return replace(self, counts=counts, read_persisted=reading / rows, age=0)

    def seconds(self, rows: float, default: float) -> float:
        """What counting so many rows would add; ``default`` where nothing was measured."""
        if not self.counts:
            return default
        weight = _FADES**self.age
        usual = min(median(self.counts), self.counts[-1])  # a slow one among the last says less than a quick one
        saved = self.read_persisted if self.read is None else self.read
        measured = max(usual - saved, 0.0) * rows
        return weight * measured + (1.0 - weight) * default
