"""The executor face, driver side: pins, and frames placed by tasks (DESIGN section 7).

A pin is made once a batch, before its first task starts. It carries the plan, or the newest Q-table that the service
has; where that does not answer in time, the last one known, and before the first the empty one. From then on nothing
that is looked up decides anything.

How partitions learn together: each task is a partitioner of the stream (``<source>/<partition>``), and so is the
driver, which has no rows. Tasks report while they run, as guests of the driver, which reports when it makes the next
pin, as the last one. With that the round is complete, is merged at once, and its answer is the next pin's Q-table: one
round a batch, whatever the number of tasks. (In streams: ``streaming.syncs``.)
"""

from __future__ import annotations

import logging
import re
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    MapType,
    StructField,
    StructType,
    UserDefinedType,
    VariantType,
)

from unskew.client import Breaker, Client, NotThereError, RefusedError, Synced
from unskew.client.errors import UNSERVED
from unskew.core.errors import ConfigError
from unskew.core.partition_agent import REPORTED, Bound
from unskew.core.plan import Plan
from unskew.core.qtable import QTable
from unskew.core.sketches.frequent import FrequentItems
from unskew.core.stream import UNKNOWN_PARTS, Part
from unskew.core.sync import Answer, Report
from unskew.spark.executor import Pin, Placing
from unskew.spark.jvm import input_partitions
from unskew.spark.keys import AUTO, SPREAD_SEED, Columns, is_auto, key_columns, key_names, key_of, quoted, spread_of
from unskew.spark.lineage import SAME, unsteady
from unskew.spark.repartition import direct_way, pre_images

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unskew.spark.planning import Plans

__all__ = ["Pins", "drivers_report", "place"]

_HASH, _SPREAD, _PARTITION = "__unskew_hash", "__unskew_spread", "__unskew_partition"
_log = logging.getLogger("unskew.spark")
_WAIT, _TIMEOUT = 0.5, 2.0
_MASK = 62  # nullable columns told in one bigint
_NOT_CARRIED = re.compile(r"(?:^|[:<,])interval(?: (?:year|month)\b|[>,]|$)")  # types that Arrow has no column of
_LONGEST_SOURCE = 200 - len(f"/{UNKNOWN_PARTS}")  # of what a name may have
_PLACED: WeakKeyDictionary[Pin, int] = WeakKeyDictionary()  # what frame each pin that reports is for


@dataclass(eq=False)
class Pins:
    """Makes the pins of one stream, in a driver. Remembers the newest global Q-table that it was told of."""

    plans: Plans
    answer: Answer | None = field(default=None, init=False)
    _session: int = field(default_factory=lambda: time.time_ns() // 1000, init=False)
    _breaker: Breaker = field(default_factory=lambda: Breaker(failures=1, cooldown=5.0), init=False)
    _lock: threading.Lock = field(
        default_factory=threading.Lock, init=False
    )  # handlers of two queries have two threads

    def pin(self, source: str, plan: Plan | None, batch: int, *, learn: bool, sync: bool | None = None) -> Pin:
        """The pin of a batch. Where it learns it waits for the service a second or two at most."""
        if learn == (plan is not None):
            raise ConfigError("learn", learn, "a plan to route by, or learn=True, not both")
        plans, client = self.plans, self.plans.client
        if sync and not (learn and client is not None):
            raise ConfigError("sync", sync, "True only with learn=True and a service")
        Part(source, batch)  # refuses what a report could not name
        if len(source) > _LONGEST_SOURCE:
            raise ConfigError("source", source, f"at most {_LONGEST_SOURCE} characters: tasks add their number")
        bound = Bound(plans.partitions, plan, batch=batch, seed=plans.spec.seed)
        due = learn and client is not None if sync is None else sync
        if learn:
            if due:
                self._hear(source, batch)
            bound = self._learned(bound)
        return Pin(
            plans.stream,
            bound,
            source,
            None if client is None else client.url,
            plans.access,
            sync=due,
            session=self._session,
            dsync=self._dsync,
            run=time.time_ns() // 1000,
            began=plans.began,
        )

    @property
    def _dsync(self) -> float:
        return self.plans.spec.dsync if self.answer is None else self.answer.dsync

    def _learned(self, bound: Bound) -> Bound:
        found = self.answer
        if found is None:
            return replace(bound, table=QTable.empty(bound.partitions))
        same = found.table.workers == bound.partitions
        table = found.table if same else found.table.resized(bound.partitions)
        return replace(bound, table=table, records=found.records, version=found.version)

    def _hear(self, source: str, batch: int) -> None:
        """Close the round of the batch before, and take its answer."""
        plans = self.plans
        with self._lock:
            if plans.client is None or not plans.patience or not self._breaker.allow(time.monotonic()):
                return
        known = (0, 0) if self.answer is None else self.answer.version
        try:
            news = self._synced(plans.client, self._report(source, batch), known).answer
        except UNSERVED as why:
            with self._lock:
                self._breaker.failure(time.monotonic())
            plans.alone(why, "this batch goes by what was learned before")
            return
        except RefusedError as why:
            if not plans.decides:
                raise
            # A number that was decided here a moment ago, and that the thread that plans will tell the service.
            _log.info("stream %s: a batch goes by what was learned before. %s", plans.stream, why)
            return
        with self._lock:
            self._breaker.success()
        if news is not None and news.version > known and news.table.workers == plans.partitions:
            self.answer = news

    def _synced(self, client: Client, report: Report, known: tuple[int, int]) -> Synced:
        """Where the stream is not there yet, it is made."""
        stream, given = self.plans.stream, min(_TIMEOUT, self.plans.patience / 3.0)  # of each call that there may be
        try:
            return client.sync(stream, report, wait=min(_WAIT, given), known=known, timeout=given)
        except NotThereError:
            client.put_stream(stream, self.plans.spec, timeout=given)
            return client.sync(stream, report, wait=min(_WAIT, given), known=known, timeout=given)

    def _report(self, source: str, batch: int) -> Report:
        return drivers_report(source, self._session, batch + 1, self.plans.partitions, self._dsync)


def drivers_report(source: str, session: int, seq: int, workers: int, dsync: float, *, longer: bool = False) -> Report:
    """The driver has no rows."""
    return Report(
        agent=f"{source}/driver",
        session=session,
        seq=seq,
        table=QTable.empty(workers),
        records=0,
        frequent=FrequentItems(REPORTED),
        loads=np.zeros(workers, np.int64),
        dsync=dsync,
        longer=longer,
    )


def place(
    df: DataFrame,
    pin: Pin,
    key: Columns,
    spread: Columns = AUTO,
    column: str | None = None,
    *,
    by_id: bool | None = None,
) -> DataFrame:
    """``df`` with every row in the partition that its task decides under ``pin``. No job runs here.

    ``column`` and ``by_id`` are as for ``repartition``: an int column by this name that is different for every
    partition; one of the two ways in which Spark places rows.
    """
    direct = direct_way(df, by_id=by_id)
    if column is not None and column.casefold() in (name.casefold() for name in df.columns):
        raise ConfigError("column", column, "a name that the frame does not have yet")
    found = key_of(df, key, plan=pin.plan)
    _check_carried(df)
    _check_first(df, pin)
    if pin.learn:
        _check_steady(df, key)
    needed = pin.plan is None or pin.plan.splits
    told, alike = _told_apart(df, spread) if needed else (None, False)
    name = _PARTITION if column is None else column
    hashes = [found.hash.alias(_HASH), *([] if told is None else [told.alias(_SPREAD)])]
    parts = input_partitions(df) or UNKNOWN_PARTS
    pinned = replace(pin, bound=replace(pin.bound, alike=alike), parts=parts)
    task = Placing(pinned, name, told is not None, None if direct else pre_images(pin.partitions))
    schema = StructType([*df.schema.fields, StructField(name, IntegerType())])
    hashed = df.select("*", *hashes)
    # By position: mapInArrow looks columns up by name, and cannot find one with a dot in it or of two of one name.
    where = hashed.toDF(*(f"c{at}" for at in range(len(hashed.columns)))).mapInArrow(task, schema)
    target = F.col(quoted(name))
    placed = where.repartitionById(pin.partitions, target) if direct else where.repartition(pin.partitions, target)
    return placed if column is not None else placed.drop(name)


def _check_carried(df: DataFrame) -> None:
    """Every column goes to Python and back."""
    for one in df.schema.fields:
        name = one.dataType.simpleString()
        if _NOT_CARRIED.search(name):
            allowed = (
                "a type that Spark hands to Python: cast it, drop it, or use repartition(), where no row goes there"
            )
            raise ConfigError(f"column {one.name}", name, allowed)


def _check_steady(df: DataFrame, key: Columns) -> None:
    """By a plan a key that is another one in a second run moves its own row; who learns may move a partition."""
    levels = unsteady(df.select(*key_columns(df, key))) or []
    for name, level in zip(key_names(df, key), levels, strict=False):
        if level != SAME:
            raise ConfigError(
                "key",
                name,
                "a column that is the same if a task runs again (this one is drawn, or depends on the order of rows): "
                "where tasks learn, all rows of a partition may move then. Write the frame out first, or use a plan",
            )


def _check_first(df: DataFrame, pin: Pin) -> None:
    """The same frame may be placed again: its tasks report the same."""
    if pin.service is None:
        return
    frame = df.semanticHash()
    if _PLACED.setdefault(pin, frame) != frame:
        raise ConfigError(
            "pin", pin, "a pin of its own for each frame: this one has placed another, whose reports would be replaced"
        )


def _told_apart(df: DataFrame, spread: Columns) -> tuple[Column, bool]:
    """The spread hash, and whether two rows that have the same are the same row, so that one may stand for the other.

    That asks for more than the native face's hash: Spark's ``xxhash64`` passes over NULLs, so ('a', NULL) and (NULL,
    'a') have one hash, and -0.0 has that of 0.0. So which columns are NULL, and the sign of zeros, are hashed too.
    Nested columns have NULLs inside: with those, or with columns that have no hash, equal hashes are not equal rows.
    """
    told = spread_of(df, spread)
    if not is_auto(spread):
        return told.hash, False
    if told.left_out or any(_nested(f.dataType) for f in df.schema.fields):
        return told.hash, False
    nullable = [f.name for f in df.schema.fields if f.nullable]
    extra = [_null_mask(nullable[at : at + _MASK]) for at in range(0, len(nullable), _MASK)] if nullable[1:] else []
    extra += [_zero(f.name) for f in df.schema.fields if isinstance(f.dataType, (FloatType, DoubleType))]
    if not extra:
        return told.hash, True
    return F.xxhash64(F.lit(SPREAD_SEED), *(F.col(quoted(n)) for n in told.names), *extra), True


def _null_mask(names: list[str]) -> Column:
    mask = F.lit(0).cast("bigint")
    for at, name in enumerate(names):
        mask = mask.bitwiseOR(F.when(F.col(quoted(name)).isNull(), F.lit(1 << at).cast("bigint")).otherwise(0))
    return mask


def _zero(name: str) -> Column:
    """A zero as text, which has its sign; NULL for all else."""
    return F.when(F.col(quoted(name)) == 0, F.col(quoted(name)).cast("string"))


def _nested(kind: DataType) -> bool:
    return isinstance(kind, (ArrayType, StructType, MapType, VariantType, UserDefinedType))
