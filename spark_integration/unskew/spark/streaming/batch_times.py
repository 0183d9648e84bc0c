"""From Spark to the machine that decides on the number of partitions (``core.scaling.elastic``), and back.

Spark says what a batch took when it is done (``StreamingQueryListener``): from its trigger to its commit, so that
Spark's work around the handler counts too. How the stages shared that time is read from Spark's own store. Under
Connect neither can be had where the handler runs: there the handler's time is the batch's.
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

from unskew.core.scaling.elastic import Elastic, StageTimes
from unskew.spark.frame.jvm import StageTime, request_slots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from unskew.core.scaling.values import ScaleDecision

__all__ = ["ProgressListener", "follow", "stages_of"]

_log = logging.getLogger("unskew.spark")


def stages_of(times: Sequence[StageTime]) -> StageTimes:
    """How a batch's time was shared."""
    first = [one for one in times if not one.reads_shuffle]
    rest = [one for one in times if one.reads_shuffle]
    return StageTimes(
        sum(one.seconds for one in first),
        sum(one.seconds for one in rest),
        max((one.tasks for one in first), default=0),
        sum(one.work for one in rest),
    )


def follow(spark: SparkSession, elastic: Elastic, decision: ScaleDecision) -> None:
    """Log a decision, and ask Spark for the executors that it needs."""
    if decision.action == "hold":
        return
    _log.info("%d partitions from the next plan on; %s", decision.r, decision.reason)
    if elastic.executors and decision.action == "out":
        request_slots(spark, decision.r)


class ProgressListener(StreamingQueryListener):
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
