"""``sk.advise``: the facts of a run before it runs, for ``unskew.core.operators.advice`` and ``join_advice`` to judge.

Keys are counted, as for a plan; what is to be done with the rows is not done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import Column

from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram
from unskew.core.limits import MAX_PARTITIONS
from unskew.core.operators.advice import OPERATORS, Advice, Job, advise
from unskew.core.operators.join_advice import advise_join
from unskew.core.operators.join_plan import HOWS, LEFT, RIGHT
from unskew.core.operators.spark_shuffle import PARTITIONS, Coalescing
from unskew.spark.frame.jvm import estimated_bytes, input_splits, shuffle_partitions, slots_of
from unskew.spark.frame.keys import Columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from unskew.spark.frame.histogram import Sampling
    from unskew.spark.operators.joins import Join

__all__ = ["advise_on_frame", "advise_on_join", "bytes_in", "job_of", "names_of"]

_COLUMN = 8  # bytes
_INITIAL = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"


def job_of(df: DataFrame, partitions: int, size: int) -> Job:
    """The run as the session is set up. ``size``: bytes that are shuffled. Connect does not say how many slots there
    are: as many as partitions."""
    spark = df.sparkSession
    slots = slots_of(spark) or partitions
    merging = _coalescing(spark, size, slots)
    first = None if merging is None else spark.conf.get(_INITIAL, None)  # what is merged may have a number of its own
    many = shuffle_partitions(spark) if first is None else int(str(first))
    return Job(
        partitions,
        slots,
        shuffle_partitions=min(many, MAX_PARTITIONS),
        inputs=max(input_splits(df), 1),
        coalescing=merging,
        setting=PARTITIONS if first is None else _INITIAL,
    )


def _coalescing(spark: SparkSession, size: int, slots: int) -> Coalescing | None:
    """How adaptive execution merges so many bytes; None where it is off."""

    def setting(name: str, default: str) -> str:
        return str(spark.conf.get(f"spark.sql.adaptive.{name}", default)).lower()

    if "false" in (setting("enabled", "true"), setting("coalescePartitions.enabled", "true")):
        return None
    least = bytes_in(setting("coalescePartitions.minPartitionSize", "1m"))
    most = bytes_in(setting("advisoryPartitionSizeInBytes", "64m"))
    first = setting("coalescePartitions.parallelismFirst", "true") == "true"
    return Coalescing(size, least, most, slots if first else 1)


def bytes_in(text: str) -> int:
    """Spark's way to write a size: ``"64mb"``, ``"67108864b"``.

    >>> bytes_in("64MB"), bytes_in("1k"), bytes_in("7")
    (67108864, 1024, 7)
    """
    digits = text.strip().lower().removesuffix("b")
    power = "kmgtp".find(digits[-1:]) + 1 if digits[-1:].isalpha() else 0
    return int(float(digits.rstrip("kmgtp")) * 1024**power)


def _size(df: DataFrame, rows: int) -> int:
    """Bytes of the frame by Spark's estimate; without one by its rows and columns."""
    return estimated_bytes(df) or rows * _COLUMN * len(df.columns)


def advise_on_frame(df: DataFrame, operator: str, partitions: int, counted: Callable[[], Histogram]) -> Advice:
    """``counted`` runs the jobs that count keys; it is not called where the answer is known without."""
    if operator not in OPERATORS:
        raise ConfigError("operator", operator, OPERATORS)
    histogram = Histogram.empty() if operator == "sql" else counted()
    return advise(operator, histogram, job_of(df, partitions, _size(df, histogram.total)))


def names_of(key: Columns) -> str | list[str]:
    """The columns that both sides of a join have."""
    if isinstance(key, str):
        return key
    names = [key] if isinstance(key, Column) else list(key)
    plain = [name for name in names if isinstance(name, str)]
    if len(plain) < len(names):
        raise ConfigError("key", names, "names of columns that both sides have, as a join's on=")
    return plain


def advise_on_join(asked: Join, sampling: Sampling) -> Advice:
    """By both sides; nothing is counted where Spark's own plan says that no row is shuffled."""
    why = asked.broadcast_by_spark()
    if why is not None:
        return Advice("join", "spark", why)
    sizes = {side: asked.split_by_spark(side) for side in HOWS[asked.how]}
    aqe = {side: size for side, size in sizes.items() if size is not None}
    rows = asked.counted(sampling)
    size = sum(_size(asked.frames[side], counts.total) for side, counts in ((LEFT, rows.left), (RIGHT, rows.right)))
    return advise_join(rows, job_of(asked.frames[LEFT], asked.partitions, size), aqe=aqe)
