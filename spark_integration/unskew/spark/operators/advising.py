"""``sk.advise``: the facts of a run before it runs, for ``unskew.core.operators.advice`` and ``join_advice`` to judge.

Keys are counted, as for a plan; what is to be done with the rows is not done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram
from unskew.core.limits import MAX_PARTITIONS
from unskew.core.operators.advice import OPERATORS, SQL, Advice, Job, advise
from unskew.core.operators.job_seconds import costs_of
from unskew.core.operators.join_advice import SKEW_JOIN, SPREAD_NULLS, NullKeys, SkewJoin, advise_join
from unskew.core.operators.join_plan import HOWS, LEFT, RIGHT, cost_histogram
from unskew.core.operators.spark_shuffle import AQE, COALESCE, PARTITIONS, Coalescing, HeavyKeys
from unskew.core.operators.sql_advice import BYPASS, advise_sql
from unskew.core.plan.lookup import find_lookup
from unskew.spark.frame.jvm import (
    estimated_bytes,
    input_splits,
    local_cores,
    shuffle_partitions,
    slots_of,
    spark_version,
)
from unskew.spark.frame.keys import Columns, key_columns, key_of
from unskew.spark.in_flight.place import may_place
from unskew.spark.place.native import hot_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from unskew.spark.frame.histogram import Sampling
    from unskew.spark.operators.joins import Join

__all__ = ["WorkSeconds", "advise_on_frame", "advise_on_join", "bytes_in", "job_of", "names_of", "skew_join_of"]

_COLUMN = 5  # bytes: of a number of eight, as Spark's compression leaves it
_PART = 16  # of a slot's share: what a key must be for its place to matter
_BYPASSES = (4, 3)  # the Spark from which on rows need not be combined, and NULL keys may be spread
_INITIAL = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"


def job_of(df: DataFrame, partitions: int, size: int) -> Job:
    """The run as the session is set up. ``size``: bytes that are shuffled. Connect does not say how many slots there
    are: as many as partitions."""
    spark = df.sparkSession
    slots = slots_of(spark) or partitions
    merging = _coalescing(spark, size, slots)
    off = next((name for name in (AQE, COALESCE) if not _is_on(spark, name)), None)
    first = None if off is not None else spark.conf.get(_INITIAL, None)  # what is merged may have a number of its own
    many = shuffle_partitions(spark) if first is None else int(str(first))
    return Job(
        partitions,
        slots,
        shuffle_partitions=min(many, MAX_PARTITIONS),
        inputs=max(input_splits(df), 1),
        coalescing=merging if off is None else None,
        setting=PARTITIONS if first is None else _INITIAL,
        unused=None if off is None else (off, merging),
        cores=local_cores(spark),
    )


def _is_on(spark: SparkSession, name: str) -> bool:
    return str(spark.conf.get(name, "true")).lower() == "true"


def _coalescing(spark: SparkSession, size: int, slots: int) -> Coalescing:
    """How adaptive execution merges so many bytes, where it is on."""

    def setting(name: str, default: str) -> str:
        return str(spark.conf.get(f"spark.sql.adaptive.{name}", default)).lower()

    least = bytes_in(setting("coalescePartitions.minPartitionSize", "1m"))
    most = bytes_in(setting("advisoryPartitionSizeInBytes", "64m"))
    first = setting("coalescePartitions.parallelismFirst", "true") == "true"
    tasks = int(setting("coalescePartitions.minPartitionNum", str(slots if first else 1)))
    return Coalescing(size, least, most, tasks)


def bytes_in(text: str) -> int:
    """Spark's way to write a size: ``"64mb"``, ``"67108864b"``.

    >>> bytes_in("64MB"), bytes_in("1k"), bytes_in("7")
    (67108864, 1024, 7)
    """
    digits = text.strip().lower().removesuffix("b")
    power = "kmgtp".find(digits[-1:]) + 1 if digits[-1:].isalpha() else 0
    return int(float(digits.rstrip("kmgtp")) * 1024**power)


def _size(df: DataFrame, rows: int) -> int:
    """Bytes that the frame shuffles: by Spark's estimate, which for files is their own size, or by rows and columns."""
    return max(estimated_bytes(df) or 0, rows * _COLUMN * len(df.columns))


@dataclass(frozen=True)
class WorkSeconds:
    """What the user says that his own work costs, in seconds of a slot: for a row, and a group."""

    row: float | None = None
    key: float | None = None


def advise_on_frame(
    df: DataFrame, key: Columns, operator: str, partitions: int, counted: Callable[[], Histogram], work: WorkSeconds
) -> Advice:
    """``counted`` runs the jobs that count keys; it is not called where the answer is known without."""
    if operator not in OPERATORS:
        raise ConfigError("operator", operator, OPERATORS)
    costs_of(operator, work.row, work.key)  # refused before any job
    if operator == SQL:
        return _on_sql(df, key, partitions, counted)
    start = time.monotonic()
    histogram = counted()
    took = 0.0 if may_place(df, key_of(df, key).types) else time.monotonic() - start
    costs = costs_of(operator, work.row, work.key, took)
    job = job_of(df, partitions, _size(df, histogram.total))
    return advise(operator, histogram, replace(job, heavy=_heavy_keys(df, key, histogram, job.slots)), costs)


def _heavy_keys(df: DataFrame, key: Columns, histogram: Histogram, slots: int) -> HeavyKeys:
    """Where Spark's own hash puts the keys that are a good part of a slot's share; one job more."""
    heavy = np.flatnonzero(histogram.counts * _PART * slots >= max(histogram.total, 1))
    return spark_hashes(df, key_of(df, key).hash, key_columns(df, key), histogram.hashes[heavy])


def spark_hashes(df: DataFrame, key: Column, columns: Sequence[Column], hashes: NDArray[np.uint64]) -> HeavyKeys:
    """What Spark's shuffle hashes the keys with these key hashes to, of those that the frame has."""
    if not len(hashes):
        return HeavyKeys(hashes, np.zeros(0, np.int64))
    rows = df.select(key.alias("h"), F.hash(*columns).cast("bigint").alias("m"))
    table = rows.where(hot_column(find_lookup(hashes), hashes, F.col("h"))).distinct().toArrow()
    found = np.ascontiguousarray(table.column("h").to_numpy(), np.int64).view(np.uint64)
    return HeavyKeys(found, np.asarray(table.column("m").to_numpy(), np.int64))


def _on_sql(df: DataFrame, key: Columns, partitions: int, counted: Callable[[], Histogram]) -> Advice:
    """Keys are counted only where Spark does not combine rows."""
    bypass = spark_version(df) >= _BYPASSES and str(df.sparkSession.conf.get(BYPASS, "false")).lower() == "true"
    histogram = counted() if bypass else None
    size = _size(df, 0 if histogram is None else histogram.total)
    rows = size // (_COLUMN * len(df.columns)) if histogram is None else histogram.total
    job = job_of(df, partitions, size)
    if histogram is not None:
        job = replace(job, heavy=_heavy_keys(df, key, histogram, job.slots))
    return advise_sql(rows, job, histogram)


def names_of(key: Columns) -> str | list[str]:
    """The columns that both sides of a join have."""
    if isinstance(key, str):
        return key
    names = [key] if isinstance(key, Column) else list(key)
    plain = [name for name in names if isinstance(name, str)]
    if len(plain) < len(names):
        raise ConfigError("key", names, "names of columns that both sides have, as a join's on=")
    return plain


def advise_on_join(asked: Join, sampling: Sampling, work: WorkSeconds) -> Advice:
    """By both sides; nothing is counted where Spark's own plan says that no row is shuffled."""
    costs_of("join", work.row, work.key)  # refused before any job
    why = asked.broadcast_by_spark()
    if why is not None:
        return Advice("join", "spark", why)
    start = time.monotonic()
    rows = asked.counted(sampling)
    took = 0.0 if may_place(asked.frames[LEFT], asked.keys.types) else time.monotonic() - start
    costs = costs_of("join", work.row, work.key, took)
    sizes = {side: _size(asked.frames[side], counts.total) for side, counts in ((LEFT, rows.left), (RIGHT, rows.right))}
    job = job_of(asked.frames[LEFT], asked.partitions, sum(sizes.values()))
    cost = cost_histogram(rows, 1.0)
    heavy = cost.hashes[cost.counts * _PART * job.slots >= cost.total]
    job = replace(job, heavy=spark_hashes(*asked.keyed(RIGHT if asked.how == "right" else LEFT), heavy))
    aqe = skew_join_of(asked, sizes)
    return advise_join(rows, job, aqe=aqe, nulls=_null_keys(asked), costs=costs)


def skew_join_of(asked: Join, sizes: Mapping[str, int]) -> SkewJoin | None:
    """How AQE divides the sides, of so many bytes, as the session is set; None where it is off. What it may divide is
    what a plan may: a side whose copies need not be kept once."""
    spark = asked.frames[LEFT].sparkSession
    if not _is_on(spark, AQE):
        return None
    threshold = bytes_in(str(spark.conf.get(f"{SKEW_JOIN}.skewedPartitionThresholdInBytes", "256m")))
    piece = bytes_in(str(spark.conf.get("spark.sql.adaptive.advisoryPartitionSizeInBytes", "64m")))
    factor = float(str(spark.conf.get(f"{SKEW_JOIN}.skewedPartitionFactor", "5.0")))
    may = {side: sizes[side] for side in HOWS[asked.how]}
    return SkewJoin(may, _is_on(spark, f"{SKEW_JOIN}.enabled"), threshold, piece, factor)


def _null_keys(asked: Join) -> NullKeys:
    """One small job for each side that keeps rows with a NULL key and may have some."""
    df = asked.frames[LEFT]
    spread = None
    if spark_version(df) >= _BYPASSES:
        spread = str(df.sparkSession.conf.get(SPREAD_NULLS, "false")).lower() == "true"
    return NullKeys(asked.null_rows(), spread)
