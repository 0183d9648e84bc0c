"""``for_each_batch``: what Spark calls for each micro-batch of a query.

A batch is bound (``pin_log``), its rows are placed by what it is bound to (``plan_placer``, ``learning_placer``), the
user's function gets them, and the facts of the batch decide for later batches. Between the pin and the end of the batch
the service is not asked. Under Spark Connect the object is pickled and runs in another process: it holds only
configuration. Threads and connections are made when a run of the query starts (``_StartedQuery``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from unskew.core.errors import ConfigError
from unskew.core.freshness.ways import Fresh
from unskew.core.planners import PLANNERS
from unskew.core.rounds.partition_agent import RoutingChoice
from unskew.core.scaling.elastic import Elastic
from unskew.spark.frame.histogram import weight_of
from unskew.spark.frame.jvm import end_of, run_of, unpersist
from unskew.spark.frame.keys import AUTO, Columns, key_columns, key_names, key_of, spread_of
from unskew.spark.session_stream import CurrentBatch
from unskew.spark.streaming.clean_end import RunEnd, note_ended_runs
from unskew.spark.streaming.learning_placer import LearningPlacer
from unskew.spark.streaming.pin_log import PinLog, pin_folder
from unskew.spark.streaming.plan_placer import PlanPlacer
from unskew.spark.streaming.settings import StreamingSettings, check_checkpoint, check_remote, names_only, source_of
from unskew.wire import StoredPin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unskew.spark.planning import Session

__all__ = ["ForEachBatch", "Handle", "for_each_batch"]

Handle = Callable[["DataFrame", int], object]


class ForEachBatch:
    """What ``writeStream.foreachBatch`` takes."""

    def __init__(self, sk: Session, handle: Handle, settings: StreamingSettings) -> None:
        self._sk, self._handle, self.settings = sk, handle, settings
        self._query: _StartedQuery | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return ForEachBatch, (self._sk, self._handle, self.settings)

    def __call__(self, df: DataFrame, batch: int) -> None:
        run = run_of(df)
        if self._query is None or self._query.run != run:
            check_checkpoint(df, self.settings.checkpoint)
            self.close()  # and notes which runs have ended: this one may be the next of such a one
            self._query = _StartedQuery(self._sk, self.settings, df, run)
        self._query.place(df, batch, self._handle)

    def settle(self, timeout: float) -> bool:
        """Wait until the last batch has been planned from, no longer than this; whether it has. A stream need not: for
        tests, and for the end of a job that reports."""
        return self._query is None or self._query.placer.settle(timeout)

    def close(self) -> None:
        """End the thread that plans. A query that still runs goes on by the plan it has."""
        if self._query is not None:
            self._query.close()
        note_ended_runs()


def for_each_batch(
    sk: Session,
    handle: Handle,
    key: Columns,
    checkpoint: str,
    name: str,
    *,
    spread: Columns = AUTO,
    fresh: Fresh = "auto",
    learn: bool = False,
    threshold: int = 10_000,
    deadline: float = 0.2,
    persist: bool = False,
    column: str | None = None,
    interval: float | None = None,
    elastic: Elastic | None = None,
    weight: str | None = None,
) -> ForEachBatch:
    """For ``writeStream.foreachBatch``: each micro-batch is bound to one plan before its first task starts, its rows
    are placed by it, and ``handle(df, batch_id)`` gets them (docs/streaming.md).

    Parameters
    ----------
    key, spread : Names of columns: the key, and what tells the rows of one key apart.
    checkpoint, name : The query's checkpointLocation, and the name that its pins are kept under there.
    fresh
        ``"previous"``: plans come from the batches before. ``"same"``: a batch is counted before it is placed.
        ``"inflight"``: it is placed by its own rows while it is read, into at most as many partitions; where Spark does
        not let that be done (Connect) as for ``"same"``. ``"auto"``: each batch goes by whichever would have
        been cheapest so far, in seconds; the first is counted.
    learn : Tasks decide by a pinned Q-table, and report what they learn.
    threshold : Batches with fewer rows are not planned from.
    deadline : The longest that a batch waits for a service, in seconds.
    persist : Keep the rows while the handler runs, for one that reads them more than once.
    column : The name of an int column to add, different for every partition.
    interval : Seconds from one batch to the next, as the trigger has it.
    elastic : Change the number of partitions by measured batch times.
    weight
        What a row weighs, where rows do not cost alike: a column's name or an expression in SQL (``"size(items)"``).
        Plans even out weight then, not rows. No pin has it: a plan decides where rows go, whatever it was made from.

    Returns
    -------
    ForEachBatch : Give it to ``foreachBatch``; ``close()`` it when the query has ended.

    Raises
    ------
    ConfigError : A setting is wrong, or the handler cannot be pickled under Spark Connect: before the query starts.

    Examples
    --------
    >>> each = sk.for_each_batch(lambda df, batch: print(batch, df.count()), "user", folder, "clicks")
    >>> each(clicks, 0)  # Spark does: writeStream.foreachBatch(each).option("checkpointLocation", folder).start()
    0 600
    >>> each.close()
    """
    if not callable(handle):
        raise ConfigError("handle", handle, "a function of (df, batch_id)")
    settings = StreamingSettings(
        names_only("key", key),
        checkpoint,
        name,
        names_only("spread", spread),
        fresh=fresh,
        learn=learn,
        threshold=threshold,
        deadline=deadline,
        persist=persist,
        column=column,
        interval=interval,
        elastic=elastic,
        weight=weight,
    )
    partitions = sk.plans.stream.partitions
    if elastic is not None and not elastic.least <= partitions <= elastic.most:
        raise ConfigError("elastic", elastic, f"bounds that the stream's {partitions} partitions are within")
    each = ForEachBatch(sk, handle, settings)
    check_remote(sk.spark, each, embedded=sk.plans.link.embedded)
    return each


class _StartedQuery:
    """One run of the query, from the first batch of it that is handled here. What an earlier run knew of pins does not
    count: the query may have run elsewhere meanwhile. Under Connect each run has a process of its own."""

    def __init__(self, sk: Session, settings: StreamingSettings, df: DataFrame, run: str | None) -> None:
        stream = sk.plans.stream
        types = key_of(df, settings.keys).types
        if settings.weight is not None:
            weight_of(df, settings.weight)  # refuses what is no number, before any job
        source = source_of(stream.application, settings.name, settings.checkpoint)
        spread = _spread_names(df, settings, stream.spec.policy)
        self.run, self._sk, self._settings = run, sk, settings
        self._closed = False
        self._key = key_names(df, settings.keys)
        self._now = StoredPin(
            RoutingChoice(stream.partitions),
            stream.name,
            settings.name,
            settings.key,
            settings.spread,
            spread_columns=spread,
            kinds=_kinds(df, settings, spread),
        )
        self._binding = PinLog(pin_folder(settings.checkpoint, settings.name), self._now)
        kind: type[LearningPlacer | PlanPlacer] = LearningPlacer if settings.learn else PlanPlacer
        self.placer = kind(sk, settings, source, types)
        ended_with = end_of(df)
        if ended_with is not None:
            RunEnd(self._binding, ended_with)

    def place(self, df: DataFrame, batch: int, handle: Handle) -> None:
        settings, stored = self._settings, self._stored(batch)
        counted = stored is None and self.placer.counts_first(df, batch, self._now)
        with self._persisted(df, twice=counted and not self.placer.reads_again(df)) as rows:
            pin = self._bound(rows, batch) if stored is None else stored
            began = time.monotonic()
            routed, sampler = self.placer.route(rows, pin, batch)
            spread = settings.spread_of_pin(pin.spread_columns)
            by = pin.bound
            current = CurrentBatch(by.plan, self._key, spread, settings.deadline, [], counted, by.cells is not None)
            try:
                with self._sk.plans.context.bind(current):
                    handle(routed, batch)
            except BaseException:
                self.placer.failed()
                raise
            if not self._closed:
                self.placer.finished(df, pin, batch, sampler, time.monotonic() - began)

    def close(self) -> None:
        self._closed = True
        self.placer.close()

    def _stored(self, batch: int) -> StoredPin | None:
        """The pin of this batch that is there, if anybody may have begun it."""
        if self._binding.free(batch):
            return None
        stored = self._binding.bound(batch)
        if stored is not None:
            self.placer.begin(stored, self._now)
        elif self._binding.present is not None:
            self.placer.go_on(self._binding.present)
        return stored

    def _bound(self, df: DataFrame, batch: int) -> StoredPin:
        """A pin for a batch that nobody has begun: the newest choice."""
        present, now = self._binding.present, self._now
        choice, reason = self.placer.choose(df, batch, present)
        if (
            present is not None
            and choice is present.bound
            and (present.spread_columns, present.kinds) == (now.spread_columns, now.kinds)
        ):
            return self._binding.stay(batch)
        began = int(time.time() * 1000) if present is None else present.began
        return self._binding.bind(batch, choice, reason, began)

    @contextmanager
    def _persisted(self, df: DataFrame, *, twice: bool) -> Iterator[DataFrame]:
        """The batch's rows, persisted where what made them is not to run ``twice``."""
        if not (self._settings.persist or twice):
            yield df
            return
        rows = df.persist()
        try:
            yield rows
        finally:
            unpersist([rows])


def _kinds(df: DataFrame, settings: StreamingSettings, spread: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that decide where tasks put a row, by name and type; for "auto" all, and which may be NULL."""
    if settings.spread == (AUTO,):
        fields = df.schema.fields
        return tuple(f"{f.name} {f.dataType.simpleString()}{'' if f.nullable else ' NOT NULL'}" for f in fields)
    fields = df.select(*key_columns(df, settings.keys), *key_columns(df, list(spread))).schema.fields
    return tuple(f"{f.name} {f.dataType.simpleString()}" for f in fields)


def _spread_names(df: DataFrame, settings: StreamingSettings, policy: str) -> tuple[str, ...]:
    """What tells the rows of a split key apart, by name: what "auto" stands for may be other columns tomorrow. A policy
    that keeps keys whole can do without; a pin, or a service with a policy of its own, may have a plan that cannot."""
    if settings.spread != (AUTO,):
        return settings.spread
    try:
        return spread_of(df, AUTO).names
    except ConfigError:
        if PLANNERS[policy].splits:
            raise
        return ()
