"""Rows moved to the partitions that a plan gives them: one native exchange, no Python worker.

From Spark 4.1 by ``repartitionById``. Spark 4.0 places rows by its own hash only, so there each partition is given as
the int whose hash it is: Murmur3 of one int can be inverted (``core.keys.murmur3``), and ``pmod(hash, n)`` of it is the
partition itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from unskew.core.arrays.mixing import SEED
from unskew.core.errors import PlanError
from unskew.core.keys.murmur3 import invert_u32
from unskew.core.plan.plan import Plan
from unskew.spark.frame.jvm import spark_version
from unskew.spark.frame.keys import AUTO, Columns, check_new, key_of, quoted, spread_of
from unskew.spark.place.native import route_column, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["direct_way", "move_rows", "pre_images", "repartition", "routed"]

_BY_ID = (4, 1)


def routed(df: DataFrame, plan: Plan, key: Columns, spread: Columns = AUTO) -> Column:
    """The partition of each row of ``df``, its key and spread columns checked. No job runs."""
    hashed = key_of(df, key, plan=plan)
    return route_column(plan, hashed.hash, spread_of(df, spread).hash if plan.splits else None)


def repartition(
    df: DataFrame,
    plan: Plan,
    key: Columns,
    spread: Columns = AUTO,
    *,
    column: str | None = None,
    by_id: bool | None = None,
) -> DataFrame:
    """``df`` with every row in the partition that ``plan`` gives it.

    ``column`` adds an int column by this name that is different for every partition: what groups by it and the key
    needs no further shuffle. ``by_id`` forces one of the two ways.
    """
    return move_rows(df, routed(df, plan, key, spread), plan.partitions, column=column, by_id=by_id)


def move_rows(
    df: DataFrame, target: Column, partitions: int, *, column: str | None = None, by_id: bool | None = None
) -> DataFrame:
    """``df`` with every row in the partition that ``target`` says."""
    direct = direct_way(df, by_id=by_id)
    if not direct:
        target = F.get(table(pre_images(partitions), "int"), target)
    if column is not None:
        check_new(df, column)
        df, target = df.withColumn(column, target), F.col(quoted(column))
    return df.repartitionById(partitions, target) if direct else df.repartition(partitions, target)


def direct_way(df: DataFrame, *, by_id: bool | None = None) -> bool:
    """Whether rows are placed by ``repartitionById``: as ``by_id`` says, else where Spark has it."""
    version = spark_version(df)
    if by_id and version < _BY_ID:
        raise PlanError(f"repartitionById needs Spark 4.1 and this is {version[0]}.{version[1]}; leave by_id out")
    return version >= _BY_ID if by_id is None else by_id


def pre_images(partitions: int) -> NDArray[np.int32]:
    """By partition the int that Spark's ``hash`` turns into its number."""
    return invert_u32(np.arange(partitions, dtype=np.uint32), np.array([SEED], np.uint32)).view(np.int32)
