"""What a unit of cost is worth in seconds, and what counting a batch first takes, from the batches that were measured.

``PlanCost`` counts in rows and keys; Spark tells how long tasks ran. A unit's price is what all tasks of a batch ran
for, over all of their units: what Spark takes to start a stage is in no task, and falls on every way alike. Where no
batch has been measured (Connect) costs are in even shares of the batch, and counting is taken to cost a tenth of one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median

__all__ = ["COUNT_SHARE", "BatchPrice", "CountingTime", "FlightTime"]

COUNT_SHARE = 0.10  # of an even share: what counting a batch is taken to cost until it has been measured
_FLIGHT_SHARE, _FLIGHT_START = 0.05, 0.15  # the same of placing it in flight, and seconds however few its rows are
_KEPT = 5  # counts that are remembered
_TRIED = 2  # times that a way to read a counted batch twice is tried before the quicker one is taken
_TRIED_AGAIN = 32  # counted batches
_FADES = 0.85  # a batch: the weight of what was measured, while nothing is counted


@dataclass(frozen=True)
class BatchPrice:
    """A batch's ``unit``, and what counting it takes on top, in the same currency; ``timed``: in seconds. ``flight``:
    what placing it in flight takes on top."""

    unit: float
    count: float
    timed: bool = False
    flight: float = _FLIGHT_SHARE


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

    @property
    def older(self) -> CountingTime:
        """With one more batch of which neither a count nor a read of its own is known."""
        return replace(self, age=self.age + 1)

    @property
    def reading(self) -> float:
        """The seconds a row that a batch takes to be read, whichever way it goes."""
        return self.read_counted if self.read is None else self.read

    def seconds(self, rows: float, default: float) -> float:
        """What counting so many rows would add; ``default`` where nothing was measured."""
        usual = min((_usual(counts) for counts in (self.persisted, self.reread) if counts), default=None)
        return _on_top(usual, self.reading, rows, self.age, default)


@dataclass(frozen=True)
class FlightTime:
    """The seconds a row that placing in flight takes, of the last batches that were placed so: their map stage, which
    reads them, and the driver's part. They fade as those of ``CountingTime`` do."""

    taken: tuple[float, ...] = ()
    age: int = 0

    def after(self, rows: int, seconds: float | None) -> FlightTime:
        """With one more batch: the seconds, None where it was placed in another way."""
        if rows <= 0:
            return self
        if seconds is None:
            return replace(self, age=self.age + 1)
        return FlightTime((*self.taken, seconds / rows)[-_KEPT:])

    def seconds(self, rows: float, even: float, reading: float) -> float:
        """What placing so many rows in flight would add to reading them, by ``reading`` seconds a row; ``even``: those
        of the batch's even share."""
        usual = _usual(self.taken) if self.taken else None
        return _on_top(usual, reading, rows, self.age, _FLIGHT_SHARE * even + _FLIGHT_START)


def _on_top(usual: float | None, reading: float, rows: float, age: int, default: float) -> float:
    """What so many rows take by what is usual, less what they take anyway; the older that is, the nearer to the
    default."""
    if usual is None:
        return default
    weight = _FADES**age
    return weight * max(usual - reading, 0.0) * rows + (1.0 - weight) * default


def _usual(counts: tuple[float, ...]) -> float:
    """A slow one among the last says less than a quick one."""
    return min(median(counts), counts[-1])
