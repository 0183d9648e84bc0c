"""Batches whose tasks learn: each routes its partition by a Q-table that is pinned, and reports (``place.executor``).

A batch is bound to the newest table that has come from the service by the time it begins; where that is the table of
the batch before, nothing is written. The batch's own number is in the random numbers all the same: what one batch
explores another does not repeat, and a batch that runs again does. Tasks report in batches for which a sync is due
(``round_participant``), in no others.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from unskew.core.dalton.qtable import QTable
from unskew.core.errors import ConfigError, PlanError
from unskew.core.rounds.partition_agent import RoutingChoice
from unskew.spark.place.by_tasks import place
from unskew.spark.place.task_pin import TaskPin
from unskew.spark.streaming.round_participant import RoundParticipant
from unskew.spark.streaming.settings import StreamingSettings
from unskew.wire import StoredPin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unskew.spark.planning import Session
    from unskew.spark.streaming.batch_sampling import RowSampler

__all__ = ["LearningPlacer"]

_log = logging.getLogger("unskew.spark")
_LEAST = 0.05  # seconds that a task takes to report at all


class LearningPlacer:
    """Which Q-table a batch is bound to, and when its tasks report."""

    def __init__(self, sk: Session, settings: StreamingSettings, source: str, types: tuple[str, ...]) -> None:
        self._plans, self._settings, self._source, self._types = sk.plans, settings, source, types
        self._participant = self._join()

    def _join(self) -> RoundParticipant | None:
        """Take part in the rounds of the stream, with as many partitions as it has now."""
        plans = self._plans
        if plans.link.client is None:
            _log.warning(
                "stream %s: learn=True without service=: tasks place each batch by its own rows, and nothing is "
                "learned from batch to batch. Without a service plans do as well, and need no Python: learn=False",
                plans.stream.name,
            )
            return None
        spec = plans.spec_for(self._types)
        stream, pace = plans.stream, self._settings.pace

        def owns() -> bool:
            return stream.owned and stream.partitions == spec.partitions

        return RoundParticipant(plans.link, stream.name, spec, self._source, pace, owns)

    def begin(self, pin: StoredPin, now: StoredPin) -> None:
        """The batch has a pin of an earlier run: go on from its table."""
        if (pin.spread_columns and pin.spread_columns != now.spread_columns) or (pin.kinds and pin.kinds != now.kinds):
            before, columns = pin.kinds or pin.spread_columns, now.kinds if pin.kinds else now.spread_columns
            raise PlanError(
                f"batch {pin.bound.batch} of {pin.name} may have been begun with its rows placed by "
                f"{', '.join(before)}, and now it would be by {', '.join(columns)}: its tasks would place them "
                "otherwise. Let the job as it was end this batch; a query that was stopped between two batches binds "
                "anew by another name="
            )
        self.go_on(pin)

    def go_on(self, pin: StoredPin) -> None:
        """Batches before this one went by the pin: its table is the first to go on from."""
        if pin.bound.plan is not None or pin.bound.cells is not None:
            raise ConfigError("learn", "True", f"False: the pins of {pin.name} have a plan and no Q-table")
        if self._participant is not None:
            self._participant.follow(pin.bound.version)

    def counts_first(self, df: DataFrame, batch: int, now: StoredPin) -> bool:  # noqa: ARG002 - the plan placer needs all
        """Never: tasks count what they route."""
        return False

    def reads_again(self, df: DataFrame) -> bool:  # noqa: ARG002 - as above
        """Nothing is counted first."""
        return True

    def choose(self, _df: DataFrame, batch: int, present: StoredPin | None) -> tuple[RoutingChoice, str]:
        """The newest table, else the last one, else none: chosen once, here (DESIGN, promise 4)."""
        spec, participant = self._plans.stream.spec, self._participant
        partitions = spec.partitions  # an elastic query of the session may change it at any time
        if present is None and participant is not None:
            participant.meet(self._settings.deadline)
        empty = RoutingChoice(partitions, table=QTable.empty(partitions), batch=batch, seed=spec.seed)
        answer = None if participant is None else participant.answer
        if answer is not None and (present is None or answer.version > present.bound.version):
            return empty.after(answer), f"round {answer.epoch}: {len(answer.table)} hot keys in {answer.records} rows"
        old = None if present is None else present.bound.table
        if present is None or old is None:
            return empty, "nothing is learned yet"
        if old.workers != partitions:
            resized = replace(present.bound, partitions=partitions, table=old.resized(partitions), batch=batch)
            return replace(resized, seed=spec.seed), "another number of partitions"
        return present.bound, present.reason

    def route(self, df: DataFrame, pin: StoredPin, batch: int) -> tuple[DataFrame, RowSampler | None]:
        """The rows in their places; nothing samples them, for their tasks count."""
        settings, plans = self._settings, self._plans
        task_pin = TaskPin(
            plans.stream.name,
            replace(pin.bound, batch=batch),
            self._source,
            run=time.time_ns() // 1000,
            began=pin.began,
            patience=max(settings.deadline, _LEAST),
        )
        self._rejoin(pin.bound.version)
        participant = self._participant
        fits = participant is not None and participant.partitions == pin.bound.partitions
        if participant is not None and fits and participant.due():
            task_pin = replace(task_pin, service=plans.link.url, access=plans.link.access, sync=True)
            task_pin = replace(task_pin, session=participant.session, dsync=participant.dsync)
        return place(df, task_pin, settings.keys, settings.spread_columns, column=settings.column), None

    def _rejoin(self, version: tuple[int, int]) -> None:
        """An elastic query of the session has changed the number of partitions: rounds of the old one are over."""
        if self._participant is None or self._participant.partitions == self._plans.stream.partitions:
            return
        self._participant.close()
        self._participant = self._join()
        if self._participant is not None:
            self._participant.follow(version)

    def finished(
        self, _df: DataFrame, _pin: StoredPin, _batch: int, _sampler: RowSampler | None, seconds: float
    ) -> None:
        """The tasks have reported: close their round, beside what follows."""
        if self._participant is not None:
            self._participant.ended(seconds)

    def failed(self) -> None:
        """Nobody is to wait for this batch."""
        if self._participant is not None:
            self._participant.failed()

    def settle(self, timeout: float) -> bool:
        return self._participant is None or self._participant.settle(timeout)

    def close(self) -> None:
        if self._participant is not None:
            self._participant.close()
