"""``for_each_batch``: what Spark calls for each micro-batch of a query.

A batch is bound (``binding``), its rows are placed by what it is bound to, the user's function gets them, and what was
seen on the way goes to whoever decides for later batches (``planned``, ``learned``). Between the pin and the end of the
batch nothing is asked of anybody.

Under Spark Connect the object is pickled and runs in another process: all that it holds is configuration. What a life
of the driver adds, threads and connections among it, is made when the first batch comes (``_StartedQuery``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from unskew.core.errors import ConfigError
from unskew.core.freshness.trust import TrustRules
from unskew.core.planners import PLANNERS
from unskew.core.rounds.partition_agent import RoutingChoice
from unskew.core.scaling.elastic import Elastic
from unskew.spark.frame.jvm import freed, run_of
from unskew.spark.frame.keys import AUTO, Columns, key_columns, key_names, key_of, spread_of
from unskew.spark.planning import CurrentBatch
from unskew.spark.streaming.batch_sampling import Watch
from unskew.spark.streaming.binding import Binding, pin_folder
from unskew.spark.streaming.learned import Learned
from unskew.spark.streaming.planned import Planned
from unskew.spark.streaming.queries import check_checkpoint, check_remote, is_remote, source_of
from unskew.spark.streaming.settings import Fresh, StreamingSettings, names_only
from unskew.wire import StoredPin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unskew.spark.session import Unskew

__all__ = ["ForEachBatch", "Handle", "for_each_batch"]

Handle = Callable[["DataFrame", int], object]


class Way(Protocol):
    """Who decides what a batch is bound to, and places it."""

    def counts_first(self) -> bool:
        """Whether the batch that begins now is read before it is placed."""

    def begin(self, pinned: StoredPin, now: StoredPin) -> None:
        """A pin of an earlier life was found; ``now`` has the columns that rows would be placed by now."""

    def choose(self, df: DataFrame, batch: int, present: StoredPin | None) -> tuple[RoutingChoice, str]:
        """What a batch that nobody has begun is to be bound to, and why; the present bound where nothing changes."""

    def route(self, df: DataFrame, pinned: StoredPin, batch: int) -> tuple[DataFrame, Watch | None]:
        """The rows in their places, and what is noted of them, if anything is."""

    def seen(self, df: DataFrame, pinned: StoredPin, batch: int, watch: Watch | None, seconds: float) -> None:
        """The batch has run. Never waits."""

    def failed(self) -> None:
        """The batch has not run to its end, and may be run again by another life."""

    def settle(self, timeout: float) -> bool: ...

    def close(self) -> None: ...


class ForEachBatch:
    """What ``writeStream.foreachBatch`` takes."""

    def __init__(self, sk: Unskew, handle: Handle, settings: StreamingSettings) -> None:
        self._sk, self._handle, self.settings = sk, handle, settings
        self._life: _StartedQuery | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return ForEachBatch, (self._sk, self._handle, self.settings)

    def __call__(self, df: DataFrame, batch: int) -> None:
        run = run_of(df)
        if self._life is None or self._life.run != run:
            check_checkpoint(df, self.settings.checkpoint)
            self.close()
            self._life = _StartedQuery(self._sk, self.settings, df, run)
        self._life.place(df, batch, self._handle)

    def settle(self, timeout: float) -> bool:
        """Wait until what the last batch showed is worked off, no longer than this; whether it is. A stream need not:
        for tests, and for the end of a job that reports."""
        return self._life is None or self._life.way.settle(timeout)

    def close(self) -> None:
        """End the thread that plans. A query that still runs goes on by the plan it has."""
        if self._life is not None:
            self._life.close()


def for_each_batch(
    sk: Unskew,
    handle: Handle,
    key: Columns,
    checkpoint: str,
    name: str,
    *,
    spread: Columns = AUTO,
    fresh: Fresh = "previous",
    learn: bool = False,
    threshold: int = 10_000,
    deadline: float = 0.2,
    persist: bool = False,
    column: str | None = None,
    interval: float | None = None,
    elastic: Elastic | None = None,
    misses: int = 3,
) -> ForEachBatch:
    """For ``writeStream.foreachBatch``: each micro-batch is bound to one plan before its first task starts, its rows
    are placed by it, and ``handle(df, batch_id)`` gets them (docs/streaming.md).

    ``checkpoint``: the query's checkpointLocation, where pins are kept under ``name``. ``key`` and ``spread`` are names
    of columns. ``misses``: batches in a row whose rows lay otherwise than foretold, after which plans of the batches
    before are no longer used. The others: ``unskew.spark.streaming.settings``. What is wrong is said here, where the
    user stands, and not in the first batch.
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
        rules=TrustRules(misses),
    )
    if elastic is not None and not elastic.least <= sk.partitions <= elastic.most:
        raise ConfigError("elastic", elastic, f"bounds that the stream's {sk.partitions} partitions are within")
    made = ForEachBatch(sk, handle, settings)
    if is_remote(sk.spark):
        check_remote(sk.plans.service, made)
    return made


class _StartedQuery:
    """One run of the query, from the first batch that is seen of it. What an earlier run knew of pins is worth nothing:
    the query may have run elsewhere meanwhile. Where the run cannot be told (Connect) each has a process of its own."""

    def __init__(self, sk: Unskew, settings: StreamingSettings, df: DataFrame, run: str | None) -> None:
        plans = sk.plans
        types = key_of(df, settings.keys).types
        source = source_of(plans.application, settings.name, settings.checkpoint)
        told = _told(df, settings, plans.spec.policy)
        kinds = _kinds(df, settings, told)
        identity = StoredPin(
            RoutingChoice(plans.partitions),
            plans.stream,
            settings.name,
            settings.key,
            settings.spread,
            told=told,
            kinds=kinds,
        )
        self.run, self._sk, self._settings = run, sk, settings
        self._learns = True
        self._names, self._now = key_names(df, settings.keys), identity
        self._binding = Binding(pin_folder(settings.checkpoint, settings.name), identity)
        self.way: Way = (Learned if settings.learn else Planned)(sk, settings, source, types)

    def place(self, df: DataFrame, batch: int, handle: Handle) -> None:
        with self._kept(df) as kept:
            pinned = self._pinned(kept, batch)
            began = time.monotonic()
            routed, watch = self.way.route(kept, pinned, batch)
            told, deadline = self._settings.telling(pinned.told), self._settings.deadline
            try:
                with self._sk.plans.bind(CurrentBatch(pinned.bound.plan, self._names, told, deadline)):
                    handle(routed, batch)
            except BaseException:
                self.way.failed()
                raise
            if self._learns:
                self.way.seen(df, pinned, batch, watch, time.monotonic() - began)

    def close(self) -> None:
        self._learns = False
        self.way.close()

    def _pinned(self, df: DataFrame, batch: int) -> StoredPin:
        """The pin of this batch: the one that is there if anybody may have begun the batch, else the newest."""
        if not self._binding.free(batch):
            found = self._binding.bound(batch)
            if found is not None:
                self.way.begin(found, self._now)
                return found
        present = self._binding.present
        bound, reason = self.way.choose(df, batch, present)
        now = self._now
        if present is not None and bound is present.bound and (present.told, present.kinds) == (now.told, now.kinds):
            return self._binding.stay(batch)
        began = int(time.time() * 1000) if present is None else present.began
        return self._binding.bind(batch, bound, reason, began)

    @contextmanager
    def _kept(self, df: DataFrame) -> Iterator[DataFrame]:
        """The batch's rows, kept where they are read more than once."""
        counts_first = self.way.counts_first()
        if not (self._settings.persist or counts_first):
            yield df
            return
        kept = df.persist()
        try:
            yield kept
        finally:
            freed([kept])


def _kinds(df: DataFrame, settings: StreamingSettings, told: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that decide where tasks put a row, by name and type. "auto" looks at all of them, and at which may be
    NULL."""
    if settings.spread == (AUTO,):
        whole = df.schema.fields
        return tuple(f"{f.name} {f.dataType.simpleString()}{'' if f.nullable else ' NOT NULL'}" for f in whole)
    fields = df.select(*key_columns(df, settings.keys), *key_columns(df, list(told))).schema.fields
    return tuple(f"{f.name} {f.dataType.simpleString()}" for f in fields)


def _told(df: DataFrame, settings: StreamingSettings, policy: str) -> tuple[str, ...]:
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
