"""How many partitions the next batches have: Prompt's Algorithm 4 from measured batch times (``core.autoscale``).

What a batch took is what Spark says of it when it is done (``StreamingQueryListener``): from its trigger to its commit,
so that what Spark does around the handler counts too. How that was shared by the stages is read from Spark's own store.
Under Connect neither can be had where the handler runs: there the handler's time is the batch's.

The number of map tasks is the source's own. So it is held fixed in the algorithm, which then changes the reduce side,
and says so where it would rather have changed the map side.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from unskew.core.autoscale import AutoScaler, BatchStats, ScaleDecision, ScaleRules, ScaleState
from unskew.core.errors import ConfigError
from unskew.core.limits import MAX_PARTITIONS
from unskew.spark.jvm import StageTime, request_slots, run_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from unskew.spark.streaming.observed import Found

__all__ = ["Decider", "Elastic", "Progress", "Scaling", "Stages", "stages_of"]

_log = logging.getLogger("unskew.spark")
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
        """The nearest number that is allowed: a query may have been started with other bounds before."""
        return min(max(partitions, self.least), self.most)

    def rules(self, maps: int) -> ScaleRules:
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
class Stages:
    """Seconds that a batch's stages took: those that read the source, and those behind a shuffle; and how many tasks
    read the source (0: not known)."""

    map_time: float = 0.0
    reduce_time: float = 0.0
    maps: int = 0


def stages_of(times: Sequence[StageTime]) -> Stages:
    """How a batch's time was shared."""
    first = [one for one in times if not one.reads_shuffle]
    rest = sum(one.seconds for one in times if one.reads_shuffle)
    return Stages(sum(one.seconds for one in first), rest, max((one.tasks for one in first), default=0))


@dataclass(frozen=True, eq=False)
class _Seen:
    partitions: int
    rows: int
    keys: int
    stages: Stages


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

    def seen(self, batch: int, partitions: int, found: Found, stages: Stages) -> ScaleDecision | None:
        """Into how many partitions it was placed, what it held, and how its time was shared."""
        self._seen[batch] = _Seen(partitions, found.rows, found.histogram.keys, stages)
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
        decision = self._scaler.handle(BatchStats(self._interval, seconds, *parts, seen.rows, seen.keys))
        if decision.action != "hold":
            _log.info("batch %d: %d partitions from the next plan on; %s", batch, decision.r, decision.reason)
        return decision

    def _hold_maps(self, maps: int) -> None:
        state = self._scaler.state
        if maps and maps != state.p:
            self._scaler = AutoScaler(replace(state, p=maps), self._elastic.rules(maps))

    def _forget(self, batch: int) -> None:
        """Of a batch that failed only one half ever comes."""
        for kept in (self._took, self._seen):
            for old in [one for one in kept if one < batch - _REMEMBERED]:
                del kept[old]


def _parts(stages: Stages, seconds: float) -> tuple[float, float]:
    """The two stages' parts of a batch's time. What is left of it, Spark's own work around them, no number of tasks
    makes shorter. Where nothing is known of stages all of it is the reduce stage's."""
    both = stages.map_time + stages.reduce_time
    if not both:
        return 0.0, seconds
    fits = min(seconds / both, 1.0)
    return fits * stages.map_time, fits * stages.reduce_time


class Progress(StreamingQueryListener):
    """Tells how long each batch of one run of a query took, and when there will be no more."""

    def __init__(self, run: str, took: Callable[[int, float], object], ended: Callable[[], None]) -> None:
        self._run, self._took, self._ended = run, took, ended

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to do."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - as above
        progress = event.progress
        seconds = (progress.durationMs or {}).get("triggerExecution", 0) / 1000.0
        if str(progress.runId) == self._run and progress.numInputRows > 0:
            self._took(int(progress.batchId), seconds)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - as above
        if str(event.runId) == self._run:
            self._ended()


class Scaling:
    """The decisions tied to a query: who says what a batch took, and what becomes of the advice. ``decide`` has a
    function called in the thread that plans, which returns the number of partitions from then on; ``ended`` is called
    when the query stops, which nobody need have closed."""

    def __init__(
        self,
        spark: SparkSession,
        df: DataFrame,
        elastic: Elastic,
        interval: float,
        partitions: int,
        decide: Callable[[Callable[[], int]], None],
        ended: Callable[[], None],
    ) -> None:
        self._spark, self._elastic, self._decide = spark, elastic, decide
        self._decider = Decider(elastic, interval, partitions)
        run = run_of(df)
        self._listener = None if run is None else Progress(run, self._took, ended)
        if self._listener is not None:
            spark.streams.addListener(self._listener)

    def begin_at(self, partitions: int) -> None:
        self._decider.begin_at(partitions)

    def saw(self, batch: int, partitions: int, found: Found, stages: Stages, seconds: float) -> int:
        """A batch that has run, in the thread that plans; the number of partitions from now on."""
        if self._listener is None:
            self._decider.took(batch, seconds)
        return self._followed(self._decider.seen(batch, partitions, found, stages))

    def _took(self, batch: int, seconds: float) -> None:
        """In Spark's thread of listeners, mostly after the batch was seen."""
        self._decide(lambda: self._followed(self._decider.took(batch, seconds)))

    def _followed(self, decision: ScaleDecision | None) -> int:
        if self._elastic.executors and decision is not None and decision.action == "out":
            request_slots(self._spark, decision.r)
        return self._decider.partitions

    def close(self) -> None:
        if self._listener is not None:
            self._spark.streams.removeListener(self._listener)
            self._listener = None
