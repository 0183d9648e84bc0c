"""``sk.advise``: the facts of a run before it runs, for ``unskew.core.operators.advice`` and ``join_advice`` to judge.

Keys are counted, as for a plan; what is to be done with the rows is not done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import Column

from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram
from unskew.core.operators.advice import OPERATORS, Advice, Job, advise
from unskew.core.operators.join_advice import advise_join
from unskew.core.operators.join_plan import HOWS, LEFT
from unskew.spark.frame.jvm import input_splits, shuffle_partitions, slots_of
from unskew.spark.frame.keys import Columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unskew.spark.frame.histogram import Sampling
    from unskew.spark.operators.joins import Join

__all__ = ["advise_on_frame", "advise_on_join", "job_of", "names_of"]


def job_of(df: DataFrame, partitions: int) -> Job:
    """The run as the session is set up. Connect does not say how many slots there are: as many as partitions."""
    spark = df.sparkSession
    return Job(
        partitions,
        slots_of(spark) or partitions,
        shuffle_partitions=shuffle_partitions(spark),
        inputs=max(input_splits(df), 1),
    )


def advise_on_frame(df: DataFrame, operator: str, partitions: int, counted: Callable[[], Histogram]) -> Advice:
    """``counted`` runs the jobs that count keys; it is not called where the answer is known without."""
    if operator not in OPERATORS:
        raise ConfigError("operator", operator, OPERATORS)
    return advise(operator, Histogram.empty() if operator == "sql" else counted(), job_of(df, partitions))


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
    return advise_join(asked.counted(sampling), job_of(asked.frames[LEFT], asked.partitions), aqe=aqe)
