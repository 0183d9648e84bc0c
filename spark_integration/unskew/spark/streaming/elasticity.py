"""From Spark to the machine that decides on the number of partitions (``core.scaling.elastic``), and back.

What a batch took is what Spark says of it when it is done (``StreamingQueryListener``): from its trigger to its commit,
so that what Spark does around the handler counts too. How that was shared by the stages is read from Spark's own store.
Under Connect neither can be had where the handler runs: there the handler's time is the batch's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from unskew.core.scaling.elastic import Decider, Elastic, StageTimes
from unskew.spark.frame.jvm import StageTime, request_slots, run_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from unskew.core.scaling.values import ScaleDecision
    from unskew.spark.streaming.batch_sampling import BatchSample

__all__ = ["Progress", "Scaling", "stages_of"]

_log = logging.getLogger("unskew.spark")


def stages_of(times: Sequence[StageTime]) -> StageTimes:
    """How a batch's time was shared."""
    first = [one for one in times if not one.reads_shuffle]
    rest = sum(one.seconds for one in times if one.reads_shuffle)
    return StageTimes(sum(one.seconds for one in first), rest, max((one.tasks for one in first), default=0))


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
        self._decider.restart_at(partitions)

    def saw(self, batch: int, partitions: int, found: BatchSample, stages: StageTimes, seconds: float) -> int:
        """A batch that has run, in the thread that plans; the number of partitions from now on."""
        if self._listener is None:
            self._decider.add_seconds(batch, seconds)
        return self._followed(self._decider.add_rows(batch, partitions, found.rows, found.histogram.keys, stages))

    def _took(self, batch: int, seconds: float) -> None:
        """In Spark's thread of listeners, mostly after the batch was seen."""
        self._decide(lambda: self._followed(self._decider.add_seconds(batch, seconds)))

    def _followed(self, decision: ScaleDecision | None) -> int:
        if decision is not None and decision.action != "hold":
            _log.info("%d partitions from the next plan on; %s", decision.r, decision.reason)
        if self._elastic.executors and decision is not None and decision.action == "out":
            request_slots(self._spark, decision.r)
        return self._decider.partitions

    def close(self) -> None:
        if self._listener is not None:
            self._spark.streams.removeListener(self._listener)
            self._listener = None
