"""Batches that go by a plan, or by their own rows in flight: placed by Spark itself, no row passes through Python.

All of this runs in the handler's thread. What the next batch is bound to comes from the thread that plans ahead, as one
value, read once when the batch begins.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unskew.client import Client, NotThereError
from unskew.core.errors import ConfigError
from unskew.core.freshness.plan_ahead import BatchFacts, NextBatch, PlanAhead
from unskew.core.freshness.ways import OWN_ROWS
from unskew.core.histogram.sampling import sample_for
from unskew.core.in_flight.cell_table import CellTable
from unskew.core.plan.plan import Plan
from unskew.core.planners import PLANNERS
from unskew.core.rounds.partition_agent import RoutingChoice
from unskew.core.scaling.elastic import Decider
from unskew.spark.frame.histogram import histogram_of, sampling_for, weight_of
from unskew.spark.frame.jvm import Jobs, input_splits, jobs_of, rows_before, run_of, slots_of, stage_times
from unskew.spark.frame.keys import AUTO, key_of, spread_of
from unskew.spark.frame.lineage import read_from_files
from unskew.spark.frame.row_sampling import every_for, near_for
from unskew.spark.in_flight.place import table_column
from unskew.spark.place.native import route_column
from unskew.spark.place.repartition import move_rows
from unskew.spark.streaming.batch_flight import BatchFlight, FlownBatch
from unskew.spark.streaming.batch_sampling import BatchSample, RowSampler, sampled
from unskew.spark.streaming.batch_times import ProgressListener, stages_of
from unskew.spark.streaming.partition_times import partition_times
from unskew.spark.streaming.plan_ahead_thread import PlanAheadThread
from unskew.spark.streaming.settings import StreamingSettings
from unskew.wire import StoredPin

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from unskew.core.histogram.histogram import Histogram
    from unskew.spark.planning import Session
    from unskew.spark.service_link import Left

__all__ = ["PlanPlacer"]

_log = logging.getLogger("unskew.spark")
_SMALL_IN_A_ROW = 16  # of small batches one in so many is counted


@dataclass(frozen=True, eq=False)
class _Count:
    """What counting a batch before it was placed gave, and the seconds that it took; ``persisted``: its rows, too. Of a
    batch ``in_flight`` they are the seconds of reading and placing it."""

    sample: BatchSample
    seconds: float
    persisted: bool = False
    in_flight: bool = False


@dataclass(frozen=True, eq=False)
class _RanBatch:
    """A batch whose handler has returned, and which of Spark's jobs were its own: soon there will be others. Where it
    is ``weighed``, task times say nothing of rows."""

    df: DataFrame
    jobs: Jobs
    pin: StoredPin
    batch: int
    sampler: RowSampler | None
    interval: float
    seconds: float
    timed_by_spark: bool
    count: _Count | None
    plans: Mapping[str, Plan]
    weighed: bool
    flies: bool

    def facts(self) -> BatchFacts | None:
        sampler, count = self.sampler, self.count
        sample = count.sample if count is not None else None if sampler is None else sampler.sample()
        if sample is None:
            return None
        plan, stages = _placed_by(self.pin), stage_times(self.df, self.jobs)
        flown = count is not None and count.in_flight
        return BatchFacts(
            self.batch,
            self.pin.began + self.batch,
            plan,
            sample.rows,
            sample.sampled,
            sample.histogram,
            stages_of(stages),
            self.interval,
            self.seconds,
            None if self.timed_by_spark else self.seconds,
            None if count is None or flown else count.seconds,
            slots_of(self.df.sparkSession),
            self.plans,
            None if self.weighed else partition_times(self.df, stages, plan, sample.histogram),
            persisted=count is not None and count.persisted,
            in_flight=count.seconds if count is not None and flown else None,
            flies=self.flies,
        )


class PlanPlacer:
    """Which plan a batch is bound to, and how its rows are placed and sampled."""

    def __init__(self, sk: Session, settings: StreamingSettings, source: str, types: tuple[str, ...]) -> None:
        self._sk, self._settings, self._source, self._types = sk, settings, source, types
        self._thread: PlanAheadThread | None = None
        self._next: NextBatch | None = None  # None in the first batch
        self._counts = self._persists = False  # whether the present batch is counted first, and persisted for that
        self._count: _Count | None = None  # of the present batch
        self._flight = BatchFlight(settings)
        self._flown: FlownBatch | None = None  # the present batch, where it is placed in flight
        self._splits = 0  # tasks that read a batch, by its frame
        self._hashes: tuple[tuple[str, ...], Column, Column | None] | None = None
        self._plain: bool | None = None  # whether what makes a batch's rows may run twice; None: not looked at
        self._route: tuple[Plan | CellTable, Column] | None = None
        self._listener: ProgressListener | None = None
        self._timed_by_spark = False
        self._last_job = -1  # of the batch before

    # -- which plan -------------------------------------------------------------------------------------------

    def counts_first(self, df: DataFrame, batch: int, now: StoredPin) -> bool:
        """Whether the batch that begins now, which is not bound yet, is counted before it is placed: decided here, for
        ``choose`` too. One that goes in flight is read here, and not bound before its rows are known; ``now`` has the
        columns that it will be bound by."""
        self._next, self._flown = self._begun().next, None
        asked, own = self._settings.fresh in OWN_ROWS, self._next.way in OWN_ROWS
        own = own and (asked or not self._is_small(df, batch))
        planner = self._sk.plans.planner(self._types)
        if own and self._next.way == "inflight" and self._flight.flies(df, planner):
            key, spread = self._hashes_for(df, now.spread_columns)
            self._flown = self._flight.place(df, key, spread, planner, self._rows)
        self._counts = own and self._flown is None
        return self._counts

    def reads_again(self, df: DataFrame) -> bool:
        """Whether the counted batch in hand is read from its source twice, rather than persisted: where that is the
        cheaper, and nothing but files and Spark's own expressions make its rows."""
        if self._plain is None:
            self._plain = read_from_files(df)
        self._persists = self._settings.persist or not self._plain or self._next is None or self._next.persist
        return not self._persists

    def begin(self, pin: StoredPin, now: StoredPin) -> None:  # noqa: ARG002 - the learning placer needs it
        """The batch has a pin of an earlier run: its plan is the first to go on from."""
        _placed_by(pin)
        self._next, self._count, self._flown = self._begun(pin.bound.plan).next, None, None

    def go_on(self, pin: StoredPin) -> None:
        """Batches before this one went by the pin: the service's plan is the first to go on from, else the pin's."""
        _placed_by(pin)
        self._begun(self._latest() or pin.bound.plan or self._sk.plans.planner(self._types).by_hash())

    def choose(self, df: DataFrame, batch: int, present: StoredPin | None) -> tuple[RoutingChoice, str]:
        """The newest plan, else the last one, else plain hash: chosen once, here (DESIGN, promise 4)."""
        planner, before = self._sk.plans.planner(self._types), self._begun().next if self._next is None else self._next
        plan, reason, self._count = before.plan, before.reason, None
        if self._flown is not None:
            self._count, table = _Count(self._flown.sample, self._flown.seconds, in_flight=True), self._flown.table
            choice = RoutingChoice(table.partitions, batch=batch, seed=planner.spec.seed, cells=table)
            return choice, f"placed in flight: {reason}"
        if self._counts:
            began = time.monotonic()
            histogram = self._counted(df, self._most(planner.spec.partitions))
            plan = planner.after(plan, histogram, batch, before.feedback)
            reason = f"counted before it was placed: {reason}"
            sample = BatchSample(histogram.total, histogram.total, histogram)
            self._count = _Count(sample, time.monotonic() - began, self._persists)
            self._last_job = jobs_of(df, self._last_job).last  # what counts is no stage of the batch
        if present is not None and plan == present.bound.plan:
            return present.bound, reason
        return RoutingChoice(plan.partitions, plan, batch=batch, seed=planner.spec.seed), reason

    def _counted(self, df: DataFrame, partitions: int) -> Histogram:
        """The batch's histogram, counted now; by rows where its weights are not finite or none is above 0."""
        settings, sampling = self._settings, sampling_for(self._rows, partitions, self._sk.sampling)
        if settings.weight is not None:
            try:
                return histogram_of(
                    df, settings.keys, partitions, settings.spread_columns, sampling, weight=settings.weight
                )
            except ConfigError as why:
                _log.warning("a batch is counted by rows: %s", why)
        return histogram_of(df, settings.keys, partitions, settings.spread_columns, sampling)

    def _most(self, partitions: int) -> int:
        """For how many partitions batches are counted: as many as there may be. A plan for more has more hosts, and
        batches of before are in its record."""
        elastic = self._settings.elastic
        return partitions if elastic is None else max(elastic.most, partitions)

    def _begun(self, first: Plan | None = None) -> PlanAheadThread:
        """The thread that plans ahead, which starts with the query's first batch here."""
        if self._thread is None:
            self._thread = self._start(first or self._latest() or self._sk.plans.planner(self._types).by_hash())
        return self._thread

    def _start(self, first: Plan) -> PlanAheadThread:
        settings, plans, decider = self._settings, self._sk.plans, None
        if settings.elastic is not None:
            partitions = settings.elastic.within(first.partitions)
            plans.stream.resize(partitions)
            decider = Decider(settings.elastic, settings.pace, partitions)
        planner = plans.planner(self._types)
        machine = PlanAhead(planner, first, settings.fresh, threshold=settings.threshold, decider=decider)
        return PlanAheadThread(plans, self._source, self._types, machine, settings.elastic)

    def _latest(self) -> Plan | None:
        """What the service has for this stream, if it says so within the deadline."""
        name, deadline, elastic = self._sk.plans.stream.name, self._settings.deadline, self._settings.elastic

        def get(client: Client, left: Left) -> Plan | None:
            try:
                return client.get_plan(name, timeout=left()).plan
            except NotThereError:
                return None

        link = self._sk.plans.link
        alone = f"stream {name} begins by plain hash"
        plan = link.ask_in_background(get, alone, within=deadline, counted=False) if deadline else None
        if plan is None or plan.key_types != self._types:
            return None
        n = plan.partitions
        fits = n == self._sk.plans.stream.partitions if elastic is None else elastic.least <= n <= elastic.most
        return plan if fits else None

    # -- the batch --------------------------------------------------------------------------------------------

    def route(self, df: DataFrame, pin: StoredPin, batch: int) -> tuple[DataFrame, RowSampler | None]:
        settings, by = self._settings, _placed_by(pin)
        self._listen(df)
        if self._flown is not None and by is self._flown.table:
            return self._flown.placed.df, None
        key, spread = self._hashes_for(df, pin.spread_columns)
        if self._route is None or self._route[0] != by:
            key_of(df, settings.keys, plan=by)  # refuses keys of other types than the plan's
            split = spread if by.splits else None
            self._route = (
                by,
                table_column(by, key, split) if isinstance(by, CellTable) else route_column(by, key, split),
            )
        sampler = None
        if self._count is None and not self._is_small(df, batch):
            counted = spread if by.splits or PLANNERS[self._sk.plans.stream.spec.policy].splits else None
            df, sampler = self._sampled(df, key, counted, self._most(by.partitions))
        return move_rows(df, self._route[1], by.partitions, column=settings.column), sampler

    def _hashes_for(self, df: DataFrame, columns: tuple[str, ...]) -> tuple[Column, Column | None]:
        """Key hash and spread hash by these columns, made once."""
        if self._hashes is None or self._hashes[0] != columns:
            self._hashes, self._route = (columns, *self._hashes_of(df, columns)), None
        return self._hashes[1:]

    def _hashes_of(self, df: DataFrame, columns: tuple[str, ...]) -> tuple[Column, Column | None]:
        """Key hash and spread hash, checked: a query's batches all have the same columns. Where the job's next version
        has not all that "auto" stood for, it is what "auto" stands for now: all tasks of the batch run again."""
        settings, key = self._settings, key_of(df, self._settings.keys).hash
        if not columns:
            return key, None
        gone = [name for name in columns if name not in df.columns] if settings.spread_columns == AUTO else []
        if gone:
            _log.warning("rows of split keys are told apart without %s, which the stream has no more", ", ".join(gone))
        return key, spread_of(df, AUTO if gone else settings.spread_of_pin(columns)).hash

    def _sampled(self, df: DataFrame, key: Column, spread: Column | None, most: int) -> tuple[DataFrame, RowSampler]:
        """The frame, sampled while its job runs: by what the batch before had."""
        settings, before = self._settings, self._next
        tasks = 0 if before is None else before.tasks
        if not tasks:
            self._splits = tasks = self._splits or input_splits(df)
        weight = None if settings.weight is None else weight_of(df, settings.weight)
        enough = sample_for(most)
        return sampled(df, key, spread, most, every_for(self._rows, enough), near_for(tasks, enough), weight)

    @property
    def _rows(self) -> int:
        return 0 if self._next is None else self._next.rows

    def _is_small(self, df: DataFrame, batch: int) -> bool:
        """Whether the batch is likely to have too few rows to plan from: then they are not sampled either. Spark tells
        how many rows the source gave, of which the query may have made many more: so the last sampled batch must have
        had few, too, and now and then one is sampled again."""
        threshold = self._settings.threshold
        if self._settings.elastic is not None or self._rows >= threshold or not batch % _SMALL_IN_A_ROW:
            return False
        rows = rows_before(df)
        return rows is not None and 2 * rows < threshold

    # -- after it ---------------------------------------------------------------------------------------------

    def finished(self, df: DataFrame, pin: StoredPin, batch: int, sampler: RowSampler | None, seconds: float) -> None:
        """Hand the batch to the thread that plans for later ones."""
        if (sampler is None and self._count is None) or self._thread is None:
            return
        jobs = jobs_of(df, self._last_job)
        self._last_job, self._flown = jobs.last, None  # with its frame goes the shuffle
        interval = self._settings.interval or 0.0
        plans = {} if self._next is None else self._next.plans
        timed, weighed = self._timed_by_spark, self._settings.weight is not None
        flies = self._flight.flies(df, self._sk.plans.planner(self._types))
        ran = _RanBatch(df, jobs, pin, batch, sampler, interval, seconds, timed, self._count, plans, weighed, flies)
        self._thread.finished(ran)

    def failed(self) -> None:
        """Nothing waits for it."""
        self._flown = None

    def settle(self, timeout: float) -> bool:
        return self._thread is None or self._thread.settle(timeout)

    def close(self) -> None:
        if self._thread is not None:
            self._end(self._thread, give_up=True)

    # -- Spark's listener -------------------------------------------------------------------------------------

    def _listen(self, df: DataFrame) -> None:
        """With ``elastic=`` Spark says how long each batch took, and when the query ends, closed or not."""
        thread = self._thread
        if thread is None or self._settings.elastic is None or self._timed_by_spark:
            return
        run = run_of(df)
        if run is None:
            return
        self._timed_by_spark = True
        self._listener = ProgressListener(run, thread.took, lambda: self._end(thread))
        self._sk.spark.streams.addListener(self._listener)

    def _end(self, thread: PlanAheadThread, *, give_up: bool = False) -> None:
        thread.end(give_up=give_up)
        listener, self._listener = self._listener, None
        if listener is not None:
            self._sk.spark.streams.removeListener(listener)


def _placed_by(pin: StoredPin) -> Plan | CellTable:
    by = pin.bound.plan or pin.bound.cells
    if by is None:
        raise ConfigError("learn", "False", f"True: the pins of {pin.name} have a Q-table and no plan")
    return by
