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
_TRIED = 2  # times that a way to read a counted batch twice is tried before the quicker one is taken
_TRIED_AGAIN = 32  # counted batches
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

    A counted batch's rows are needed twice: they are persisted (``persisted``), or read from their source again
    (``reread``). Each is tried twice, then the quicker one is taken; the other one is tried again now and then.

    ``read``: the seconds a row of reading a batch that is not counted, which a counted one reads as well. Until there
    was one it is taken to be that of the last counted batch.
    """

    persisted: tuple[float, ...] = ()
    reread: tuple[float, ...] = ()
    read: float | None = None
    read_counted: float = 0.0
    age: int = 0
    counted: int = 0

    def after(self, rows: int, reading: float, counting: float | None, *, persisted: bool = True) -> CountingTime:
        """With one more batch: seconds of the stages that read it, and of the count where it was counted."""
        if rows <= 0:
            return self
        if counting is None:
            return replace(self, read=reading / rows, age=self.age + 1)
        counts = (*(self.persisted if persisted else self.reread), (counting + reading) / rows)[-_KEPT:]
        new = replace(self, read_counted=reading / rows, age=0, counted=self.counted + 1)
        return replace(new, persisted=counts) if persisted else replace(new, reread=counts)

    @property
    def persists(self) -> bool:
        """Whether the next batch that is counted is persisted, where it could be read again."""
        if min(len(self.persisted), len(self.reread)) < _TRIED:
            return len(self.reread) > len(self.persisted)
        quicker = min(self.persisted) <= min(self.reread)
        return quicker != (self.counted % _TRIED_AGAIN == 0)

    def seconds(self, rows: float, default: float) -> float:
        """What counting so many rows would add; ``default`` where nothing was measured."""
        usual = min((_usual(counts) for counts in (self.persisted, self.reread) if counts), default=None)
        if usual is None:
            return default
        weight = _FADES**self.age
        saved = self.read_counted if self.read is None else self.read
        measured = max(usual - saved, 0.0) * rows
        return weight * measured + (1.0 - weight) * default


def _usual(counts: tuple[float, ...]) -> float:
    """A slow one among the last says less than a quick one."""
    return min(median(counts), counts[-1])
