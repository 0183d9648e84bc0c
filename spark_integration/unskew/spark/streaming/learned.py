"""Batches whose tasks learn: each routes its partition by a Q-table that is pinned, and reports (``executor``).

The newest table that the service has told of by the time a batch begins is what it is bound to; where that is the one
of the batch before, nothing is written. Within such an interval the batch's own number is in the random numbers, so
that what one batch explores another does not repeat, and a batch that runs again does.

A batch reports where a sync is due (``syncs``). Tasks of other batches say nothing to anybody.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from unskew.core.dalton.qtable import QTable
from unskew.core.errors import ConfigError, PlanError
from unskew.core.rounds.partition_agent import RoutingChoice
from unskew.spark.place.by_tasks import place
from unskew.spark.place.executor import TaskPin
from unskew.spark.streaming.round_participant import RoundParticipant
from unskew.spark.streaming.settings import StreamingSettings
from unskew.wire import StoredPin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unskew.spark.session import Unskew
    from unskew.spark.streaming.batch_sampling import Watch

__all__ = ["Learned"]

_LEAST = 0.05  # seconds that a task takes to report at all


class Learned:
    """Which Q-table a batch is bound to, and when its tasks report."""

    def __init__(self, sk: Unskew, settings: StreamingSettings, source: str, types: tuple[str, ...]) -> None:
        self._sk, self._settings, self._source, self._types = sk, settings, source, types
        self._syncs = self._joined()

    def _joined(self) -> RoundParticipant | None:
        """Among the partitioners of the stream, as many partitions as it has now."""
        client, sk = self._sk.client, self._sk
        if client is None:
            return None
        return RoundParticipant(
            client, sk.stream, replace(sk.plans.spec, key_types=self._types), self._source, self._settings.pace
        )

    def begin(self, pinned: StoredPin, now: StoredPin) -> None:
        """A pin was found: what to go on from."""
        if (pinned.told and pinned.told != now.told) or (pinned.kinds and pinned.kinds != now.kinds):
            was, told = pinned.kinds or pinned.told, now.kinds if pinned.kinds else now.told
            raise PlanError(
                f"batch {pinned.bound.batch} of {pinned.name} may have been begun with its rows placed by "
                f"{', '.join(was)}, and now it would be by {', '.join(told)}: its tasks would place them otherwise. "
                "Let the job as it was end this batch; a query that was stopped between two batches binds anew by "
                "another name="
            )
        if pinned.bound.plan is not None:
            raise ConfigError("learn", "True", f"False: the pins of {pinned.name} have a plan and no Q-table")
        if self._syncs is not None:
            self._syncs.follow(pinned.bound.version)

    def counts_first(self) -> bool:
        """Never: tasks count what they route."""
        return False

    def choose(self, _df: DataFrame, batch: int, present: StoredPin | None) -> tuple[RoutingChoice, str]:
        """Newest table, last table, none: walked once, here (DESIGN, promise 4)."""
        plans, syncs = self._sk.plans, self._syncs
        partitions = plans.partitions  # an elastic query of the session may change it at any time
        if present is None and syncs is not None:
            syncs.meet(self._settings.deadline)
        empty = RoutingChoice(partitions, table=QTable.empty(partitions), batch=batch, seed=plans.spec.seed)
        found = None if syncs is None else syncs.answer
        if found is not None and (present is None or found.version > present.bound.version):
            same = found.table.workers == partitions
            table = found.table if same else found.table.resized(partitions)
            learned = replace(empty, table=table, records=found.records, version=found.version)
            return learned, f"round {found.epoch}: {len(found.table)} hot keys in {found.records} rows"
        old = None if present is None else present.bound.table
        if present is None or old is None:
            return empty, "nothing is learned yet"
        if old.workers != partitions:
            resized = replace(empty, table=old.resized(partitions), records=present.bound.records)
            return replace(resized, version=present.bound.version), "another number of partitions"
        return present.bound, present.reason

    def route(self, df: DataFrame, pinned: StoredPin, batch: int) -> tuple[DataFrame, Watch | None]:
        settings = self._settings
        pin = TaskPin(
            self._sk.stream,
            replace(pinned.bound, batch=batch),
            self._source,
            run=time.time_ns() // 1000,
            began=pinned.began,
            patience=max(settings.deadline, _LEAST),
        )
        self._rejoin(pinned.bound.version)
        syncs, client = self._syncs, self._sk.client
        fits = syncs is not None and syncs.partitions == pinned.bound.partitions
        if syncs is not None and client is not None and fits and syncs.due():
            pin = replace(pin, service=client.url, access=self._sk.plans.access, sync=True)
            pin = replace(pin, session=syncs.session, dsync=syncs.dsync)
        return place(df, pin, settings.keys, settings.told, column=settings.column), None

    def _rejoin(self, version: tuple[int, int]) -> None:
        """An elastic query of the session has changed the number of partitions: rounds of the old one are over."""
        if self._syncs is None or self._syncs.partitions == self._sk.partitions:
            return
        self._syncs.close()
        self._syncs = self._joined()
        if self._syncs is not None:
            self._syncs.follow(version)

    def seen(self, _df: DataFrame, _pinned: StoredPin, _batch: int, _watch: Watch | None, seconds: float) -> None:
        """The tasks have reported: close their round, beside what follows."""
        if self._syncs is not None:
            self._syncs.ended(seconds)

    def failed(self) -> None:
        """Nobody is to wait for this batch."""
        if self._syncs is not None:
            self._syncs.failed()

    def settle(self, timeout: float) -> bool:
        return self._syncs is None or self._syncs.settle(timeout)

    def close(self) -> None:
        if self._syncs is not None:
            self._syncs.close()
