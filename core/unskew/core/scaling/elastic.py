"""How many partitions the next batches have: Prompt's Algorithm 4 from measured batch times (``autoscale``).

What a batch took is known at another time than what it held, and either may be missing: a batch decides when both are
there. The number of map tasks is the source's own. So it is held fixed in the algorithm, which then changes the reduce
side, and says so where it would rather have changed the map side.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from unskew.core.errors import ConfigError
from unskew.core.limits import MAX_PARTITIONS
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
        if not 1 <= self.least <= self.most:
            raise ConfigError("least", self.least, f"1 to most = {self.most} partitions")
        if self.most > MAX_PARTITIONS:
            raise ConfigError("most", self.most, f"at most {MAX_PARTITIONS} partitions")
        self.rules(1)

    def within(self, partitions: int) -> int:
        """The number nearest to ``partitions`` that is allowed: a query may have been started with other bounds
        before."""
        return min(max(partitions, self.least), self.most)

    def rules(self, maps: int) -> ScaleRules:
        """The rules of Algorithm 4 for a job with so many map tasks, ``maps``."""
        return ScaleRules(
            thres=self.thres,
            step=self.step,
            d=self.d,
            increment=self.increment,
            min_p=maps,
            max_p=maps,
            min_r=self.least,
            max_r=self.most,
        )


@dataclass(frozen=True)
class StageTimes:
    """Seconds that a batch's stages took: those that read the source, and those behind a shuffle; and how many tasks
    read the source (0: not known)."""

    map_time: float = 0.0
    reduce_time: float = 0.0
    maps: int = 0


@dataclass(frozen=True, eq=False)
class _Seen:
    partitions: int
    rows: int
    keys: int
    stages: StageTimes


class Decider:
    """Of one query. What its batches took and what they held come one after the other, in either order."""

    def __init__(self, elastic: Elastic, interval: float, partitions: int) -> None:
        if not elastic.least <= partitions <= elastic.most:
            raise ConfigError("partitions", partitions, f"{elastic.least} to {elastic.most}, as elastic has it")
        self._elastic, self._interval = elastic, interval
        self._scaler = AutoScaler(ScaleState(p=1, r=partitions), elastic.rules(1))
        self._took: dict[int, float] = {}
        self._seen: dict[int, _Seen] = {}

    @property
    def partitions(self) -> int:
        """What the next plan is to be for."""
        return self._scaler.state.r

    def begin_at(self, partitions: int) -> None:
        """Begin anew, with what another query has decided on."""
        state = ScaleState(p=self._scaler.state.p, r=self._elastic.within(partitions))
        self._scaler = AutoScaler(state, self._scaler.rules)

    def took(self, batch: int, seconds: float) -> ScaleDecision | None:
        """How long a batch took, from its trigger to its commit."""
        self._took[batch] = seconds
        return self._step(batch)

    def seen(self, batch: int, partitions: int, rows: int, keys: int, stages: StageTimes) -> ScaleDecision | None:
        """Into how many partitions it was placed, what it held, and how its time was shared."""
        self._seen[batch] = _Seen(partitions, rows, keys, stages)
        return self._step(batch)

    def _step(self, batch: int) -> ScaleDecision | None:
        if batch not in self._took or batch not in self._seen:
            self._forget(batch)
            return None
        seconds, seen = self._took.pop(batch), self._seen.pop(batch)
        if seen.partitions != self.partitions:  # begun before the last change was made, of which it says nothing
            return None
        self._hold_maps(seen.stages.maps)
        parts = _parts(seen.stages, seconds)
        return self._scaler.handle(BatchStats(self._interval, seconds, *parts, seen.rows, seen.keys))

    def _hold_maps(self, maps: int) -> None:
        state = self._scaler.state
        if maps and maps != state.p:
            self._scaler = AutoScaler(replace(state, p=maps), self._elastic.rules(maps))

    def _forget(self, batch: int) -> None:
        """Of a batch that failed only one half ever comes."""
        for kept in (self._took, self._seen):
            for old in [one for one in kept if one < batch - _REMEMBERED]:
                del kept[old]


def _parts(stages: StageTimes, seconds: float) -> tuple[float, float]:
    """The two stages' parts of a batch's time. What is left of it, Spark's own work around them, no number of tasks
    makes shorter. Where nothing is known of stages all of it is the reduce stage's."""
    both = stages.map_time + stages.reduce_time
    if not both:
        return 0.0, seconds
    fits = min(seconds / both, 1.0)
    return fits * stages.map_time, fits * stages.reduce_time
