"""How many partitions a stream's next batches have: Prompt's Algorithm 4 (``autoscale``) on measured batch times.

The time of a batch and its rows arrive separately, in either order, and either may be missing: a batch is evaluated
when both have come. The source decides the number of map tasks, so the algorithm holds it fixed and changes the reduce
side; its reason says so where it would rather have changed the map side.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from unskew.core.errors import ConfigError
from unskew.core.limits import MAX_PARTITIONS
from unskew.core.parameters import check_range
from unskew.core.scaling.autoscale import AutoScaler
from unskew.core.scaling.values import BatchStats, ScaleDecision, ScaleRules, ScaleState

__all__ = ["Decider", "Elastic", "StageTimes"]

_REMEMBERED = 64  # batches that wait for the other half of what is known of them


@dataclass(frozen=True)
class Elastic:
    """From ``least`` to ``most`` partitions. A batch's time over the interval is to stay below ``thres`` and above
    ``thres - step``; after ``d`` batches on the wrong side there are more or fewer, by multiples of ``increment``.
    ``executors``: ask Spark for more of them, where it allocates them dynamically."""

    least: int = 1
    most: int = 1024
    thres: float = 0.9
    step: float = 0.1
    d: int = 5
    increment: int = 1
    executors: bool = False

    def __post_init__(self) -> None:
        check_range("least", self.least, 1, self.most, f"1 to most = {self.most} partitions")
        if self.most > MAX_PARTITIONS:
            raise ConfigError("most", self.most, f"at most {MAX_PARTITIONS} partitions")
        self.rules(1)

    def within(self, partitions: int) -> int:
        """The allowed number nearest to ``partitions``; a query may have been started with other bounds before."""
        return min(max(partitions, self.least), self.most)

    def rules(self, maps: int) -> ScaleRules:
        """The rules of Algorithm 4 for a job with so many map tasks, ``maps``."""
        return ScaleRules(
            self.thres, self.step, self.d, increment=self.increment,
            min_p=maps, max_p=maps, min_r=self.least, max_r=self.most,
        )  # fmt: skip


@dataclass(frozen=True)
class StageTimes:
    """Seconds of a batch's stages that read the source and of those after a shuffle, how many tasks read the source (0:
    not known), and for how many seconds all tasks after a shuffle ran."""

    map_time: float = 0.0
    reduce_time: float = 0.0
    maps: int = 0
    reduce_work: float = 0.0


@dataclass(frozen=True, eq=False)
class _BatchRows:
    partitions: int
    rows: int
    keys: int
    stages: StageTimes


class Decider:
    """Decides for one query; the seconds and the rows of a batch may be added in either order."""

    def __init__(self, elastic: Elastic, interval: float, partitions: int) -> None:
        if not elastic.least <= partitions <= elastic.most:
            raise ConfigError("partitions", partitions, f"{elastic.least} to {elastic.most}, as elastic has it")
        self._elastic, self._interval = elastic, interval
        self._scaler = AutoScaler(ScaleState(p=1, r=partitions), elastic.rules(1))
        self._seconds: dict[int, float] = {}
        self._batches: dict[int, _BatchRows] = {}

    @property
    def partitions(self) -> int:
        """How many partitions the next plan should have."""
        return self._scaler.state.r

    def restart_at(self, partitions: int) -> None:
        """Start anew from the number of partitions that another query has decided on."""
        state = ScaleState(p=self._scaler.state.p, r=self._elastic.within(partitions))
        self._scaler = AutoScaler(state, self._scaler.rules)

    def add_seconds(self, batch: int, seconds: float) -> ScaleDecision | None:
        """Add the time of a batch, from its trigger to its commit."""
        self._seconds[batch] = seconds
        return self._step(batch)

    def add_rows(self, batch: int, partitions: int, rows: int, keys: int, stages: StageTimes) -> ScaleDecision | None:
        """Add a batch's number of partitions, its rows and keys, and its stage times."""
        self._batches[batch] = _BatchRows(partitions, rows, keys, stages)
        return self._step(batch)

    def _step(self, batch: int) -> ScaleDecision | None:
        if batch not in self._seconds or batch not in self._batches:
            self._forget(batch)
            return None
        seconds, stats = self._seconds.pop(batch), self._batches.pop(batch)
        if stats.partitions != self.partitions:  # it started before the last change of the number
            return None
        self._hold_maps(stats.stages.maps)
        parts = _parts(stats.stages, seconds)
        return self._scaler.handle(BatchStats(self._interval, seconds, *parts, stats.rows, stats.keys))

    def _hold_maps(self, maps: int) -> None:
        state = self._scaler.state
        if maps and maps != state.p:
            self._scaler = AutoScaler(replace(state, p=maps), self._elastic.rules(maps))

    def _forget(self, batch: int) -> None:
        """Drop old batches of which only one half has come: they failed."""
        for pending in (self._seconds, self._batches):
            for old in [number for number in pending if number < batch - _REMEMBERED]:
                del pending[old]


def _parts(stages: StageTimes, seconds: float) -> tuple[float, float]:
    """The two stages' shares of a batch's time; all of it is the reduce stage's where stage times are not known.

    The rest of the time is Spark's own work, which more tasks do not make shorter.
    """
    both = stages.map_time + stages.reduce_time
    if not both:
        return 0.0, seconds
    fits = min(seconds / both, 1.0)
    return fits * stages.map_time, fits * stages.reduce_time
