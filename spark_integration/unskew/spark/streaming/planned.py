"""Batches that go by a plan: placed by Spark itself, no row passes through Python."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from unskew.client import NotThereError
from unskew.core.errors import ConfigError, UnskewError
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Plan
from unskew.core.planners import PLANNERS
from unskew.core.rounds.partition_agent import RoutingChoice
from unskew.spark.frame.histogram import histogram_of
from unskew.spark.frame.jvm import Jobs, input_splits, jobs_of, rows_before, stage_times
from unskew.spark.frame.keys import AUTO, key_of, spread_of
from unskew.spark.place.native import route_column
from unskew.spark.place.repartition import moved
from unskew.spark.streaming.batch_sampling import Watch, every_for, near_for, watched
from unskew.spark.streaming.elasticity import Scaling, stages_of
from unskew.spark.streaming.forecasts import BatchRun, Forecasts, Next
from unskew.spark.streaming.settings import StreamingSettings
from unskew.wire import StoredPin

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from unskew.spark.session import Unskew

__all__ = ["Planned"]

_log = logging.getLogger("unskew.spark")
_LOOKED = 16  # batches from one that is counted to the next, where they are small


class Planned:
    """Which plan a batch is bound to, and what it shows for the plans of later ones."""

    def __init__(self, sk: Unskew, settings: StreamingSettings, source: str, types: tuple[str, ...]) -> None:
        self._sk, self._settings, self._source, self._types = sk, settings, source, types
        self._forecasts: Forecasts | None = None
        self._next: Next | None = None  # what was ready when the batch in hand began
        self._rows = 0  # of the last batch that was seen
        self._tasks = 0  # that read it
        self._known: tuple[Column, Column | None] | None = None
        self._by: tuple[str, ...] = ()  # what the spread hash is of
        self._target: tuple[Plan, Column] | None = None
        self._scaling: Scaling | None = None
        self._decides = False  # on the number of partitions
        self._jobs = -1  # the last one of the batch before

    def counts_first(self) -> bool:
        """Whether the batch that begins now is counted before it is placed: decided here, for ``choose`` too."""
        self._next = None if self._forecasts is None else self._forecasts.next
        return self._counts()

    def _counts(self) -> bool:
        mode = "previous" if self._next is None else self._next.mode
        return mode == "same" or (mode == "previous" and self._settings.fresh == "same")

    def begin(self, pinned: StoredPin, now: StoredPin) -> None:  # noqa: ARG002 - a way's
        """A pin was found: the first plan to go on from."""
        if self._forecasts is None:
            self._forecasts = self._made(_plan_of(pinned))

    def choose(self, df: DataFrame, batch: int, present: StoredPin | None) -> tuple[RoutingChoice, str]:
        """Newest plan, last plan, plain hash: walked once, here (DESIGN, promise 4)."""
        if self._forecasts is None:
            self._forecasts = self._made(self._latest() or self._sk.plans.by_hash(self._types))
        found = self._next or self._forecasts.next
        plan, reason = found.plan, found.reason
        if self._counts():
            plan, reason = self._forecasts.count(self._counted(df), batch), "counted before it was placed"
        if present is not None and plan == present.bound.plan:
            return present.bound, reason
        return RoutingChoice(plan.partitions, plan, batch=batch, seed=self._sk.plans.spec.seed), reason

    def route(self, df: DataFrame, pinned: StoredPin, batch: int) -> tuple[DataFrame, Watch | None]:
        settings, plan = self._settings, _plan_of(pinned)
        if self._scaling is None and settings.elastic is not None and self._forecasts is not None:
            now = settings.elastic.within(plan.partitions)
            self._scaling = Scaling(self._sk.spark, df, settings.elastic, settings.pace, now, self._rescale, self._end)
        if self._known is None or self._by != pinned.told:
            self._known, self._by, self._target = self._looked(df, pinned.told), pinned.told, None
        key, spread = self._known
        if self._target is None or self._target[0] != plan:
            key_of(df, settings.keys, plan=plan)  # refuses keys of other types than the plan's
            self._target = plan, route_column(plan, key, spread if plan.splits else None)
        watch = None
        if not self._is_small(df, batch):
            counted = spread if plan.splits or PLANNERS[self._sk.plans.spec.policy].splits else None
            # A plan for more partitions has more hosts, and batches of before are in its record.
            most = plan.partitions if settings.elastic is None else max(settings.elastic.most, plan.partitions)
            self._tasks = self._tasks or input_splits(df)
            df, watch = watched(df, key, counted, most, every_for(self._rows, most), near_for(self._tasks, most))
        return moved(df, self._target[1], plan.partitions, column=settings.column), watch

    def _looked(self, df: DataFrame, told: tuple[str, ...]) -> tuple[Column, Column | None]:
        """Key hash and spread hash, checked: a query's batches all have the same columns. Where the job's next version
        has not all that "auto" stood for, it is what "auto" stands for now: all tasks of the batch run again."""
        key, columns = key_of(df, self._settings.keys).hash, self._settings.telling(told)
        if not told:
            return key, None
        gone = [name for name in told if name not in df.columns] if self._settings.told == AUTO else []
        if gone:
            _log.warning("rows of split keys are told apart without %s, which the stream has no more", ", ".join(gone))
        return key, spread_of(df, AUTO if gone else columns).hash

    def _is_small(self, df: DataFrame, batch: int) -> bool:
        """Whether the batch is likely to have too few rows to plan from: then they are not counted either. Spark tells
        how many rows the source gave, of which the query may have made many more: so what was last counted must be
        few, too, and now and then it is counted again."""
        if self._scaling is not None or self._rows >= self._settings.threshold or not batch % _LOOKED:
            return False
        rows = rows_before(df)
        return rows is not None and 2 * rows < self._settings.threshold

    def seen(self, df: DataFrame, pinned: StoredPin, batch: int, watch: Watch | None, seconds: float) -> None:
        """Hand over what the batch showed, to be worked on beside the next one; and which jobs were its, for by then
        there are others."""
        if watch is None:
            return
        jobs = jobs_of(df, self._jobs)
        self._jobs = jobs.last
        if self._forecasts is not None:
            self._forecasts.learn(lambda: self._ran(df, jobs, pinned, batch, watch, seconds))

    def _ran(
        self, df: DataFrame, jobs: Jobs, pinned: StoredPin, batch: int, watch: Watch, seconds: float
    ) -> BatchRun | None:
        found = watch.found()
        if found is None:
            return None
        self._rows = found.rows
        stages = stages_of(stage_times(df, jobs))
        self._tasks = stages.maps or self._tasks
        plan = _plan_of(pinned)
        partitions = 0
        if self._scaling is not None:
            partitions = self._obeyed(self._scaling.saw(batch, plan.partitions, found, stages, seconds))
        return BatchRun(
            pinned.began + batch,
            plan,
            found,
            self._settings.interval or 0.0,
            seconds,
            stages.map_time,
            stages.reduce_time,
            partitions,
        )

    def _rescale(self, decide: Callable[[], int]) -> None:
        if self._forecasts is not None:
            self._forecasts.rescale(lambda: self._obeyed(decide()))

    def _obeyed(self, partitions: int) -> int:
        """Of two queries of a session that would decide the one that began last does, as long as it runs: each would
        take back what the other has done."""
        plans, before = self._sk.plans, self._decides
        self._decides = plans.decider is self
        if self._decides and not before and self._scaling is not None:
            self._scaling.begin_at(plans.partitions)
            return 0
        return partitions if self._decides else 0

    def failed(self) -> None:
        """Nothing waits for it."""

    def settle(self, timeout: float) -> bool:
        return self._forecasts is None or self._forecasts.settle(timeout)

    def close(self) -> None:
        self._end()
        if self._forecasts is not None:
            self._forecasts.close()

    def _end(self) -> None:
        """The query has ended, though nobody may have closed its handler. What its last batch showed is worked off."""
        self._sk.plans.decided(self)
        if self._scaling is not None:
            self._scaling.close()
        if self._forecasts is not None:
            self._forecasts.end()

    def _made(self, first: Plan) -> Forecasts:
        settings = self._settings
        if settings.elastic is not None:
            self._decides = True
            self._sk.plans.will_decide(self)
            self._sk.plans.resize(settings.elastic.within(first.partitions))
        return Forecasts(self._sk.plans, self._source, self._types, first, settings.rules, settings.threshold)

    def _counted(self, df: DataFrame) -> Histogram:
        return histogram_of(df, self._settings.keys, self._sk.partitions, self._settings.told, self._sk.sampling)

    def _latest(self) -> Plan | None:
        """What the service has for this stream, if it says so within the deadline."""
        client, sk = self._sk.client, self._sk
        if client is None or not self._settings.deadline:
            return None
        try:
            plan = client.get_plan(sk.stream, timeout=self._settings.deadline).plan
        except NotThereError:
            return None
        except UnskewError as why:  # a service that says no, or something else than a plan, is none
            _log.warning("stream %s begins by plain hash: %s", sk.stream, why)
            return None
        elastic, n = self._settings.elastic, plan.partitions
        fits = n == sk.partitions if elastic is None else elastic.least <= n <= elastic.most
        return plan if fits and plan.key_types == self._types else None


def _plan_of(pinned: StoredPin) -> Plan:
    if pinned.bound.plan is None:
        raise ConfigError("learn", "False", f"True: the pins of {pinned.name} have a Q-table and no plan")
    return pinned.bound.plan
