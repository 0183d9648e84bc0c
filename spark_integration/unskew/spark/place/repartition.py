"""Rows moved to the partitions that a plan gives them: one native exchange, no Python worker.

From Spark 4.1 by ``repartitionById``. Spark 4.0 places rows by its own hash only, so there each partition is given as
the int whose hash it is: Murmur3 of one int can be inverted (``core.keys.murmur3_inverse``), and ``pmod(hash, n)`` of
it is the partition itself. Where Spark hashes other columns before that int, it is a salt (``salt_column``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from unskew.core.arrays.mixing import SEED
from unskew.core.keys.murmur3_inverse import INVERSE_C1, INVERSE_C2, ROTATED, invert_u32, unmixed_u32
from unskew.core.plan.plan import Plan
from unskew.spark.frame.jvm import spark_version
from unskew.spark.frame.keys import AUTO, Columns, check_new, key_of, quoted, spread_of
from unskew.spark.place.native import route_column, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["direct_way", "move_rows", "partition_value", "pre_images", "repartition", "routed", "salt_column"]

_BY_ID = (4, 1)
_WORD = 0xFFFFFFFF
_SIGN = 1 << 31


def routed(df: DataFrame, plan: Plan, key: Columns, spread: Columns = AUTO) -> Column:
    """The partition of each row of ``df``, its key and spread columns checked. No job runs."""
    hashed = key_of(df, key, plan=plan)
    return route_column(plan, hashed.hash, spread_of(df, spread).hash if plan.splits else None)


def repartition(
    df: DataFrame, plan: Plan, key: Columns, spread: Columns = AUTO, *, column: str | None = None
) -> DataFrame:
    """``df`` with every row in the partition that ``plan`` gives it.

    ``column`` adds an int column by this name that is different for every partition: what groups by it and the key
    needs no further shuffle.
    """
    return move_rows(df, routed(df, plan, key, spread), plan.partitions, column=column)


def move_rows(df: DataFrame, target: Column, partitions: int, *, column: str | None = None) -> DataFrame:
    """``df`` with every row in the partition that ``target`` says."""
    direct, target = direct_way(df), partition_value(df, target, partitions)
    if column is not None:
        check_new(df, column)
        df, target = df.withColumn(column, target), F.col(quoted(column))
    return df.repartitionById(partitions, target) if direct else df.repartition(partitions, target)


def partition_value(df: DataFrame, target: Column, partitions: int) -> Column:
    """The int that stands for a partition in the shuffle and in the column that a caller asks for: its number, or where
    rows are placed by Spark's hash the int with that hash."""
    return target if direct_way(df) else F.get(table(pre_images(partitions), "int"), target)


def direct_way(df: DataFrame) -> bool:
    """Whether rows are placed by ``repartitionById``."""
    return spark_version(df) >= _BY_ID


def pre_images(partitions: int) -> NDArray[np.int32]:
    """By partition the int that Spark's ``hash`` turns into its number."""
    return invert_u32(np.arange(partitions, dtype=np.uint32), np.array([SEED], np.uint32)).view(np.int32)


def salt_column(partitions: int, target: Column, others: Sequence[Column]) -> Column:
    """The int after ``others`` for which Spark's hash partitioning into so many partitions chooses ``target``.

    Each column's hash is the seed of the next one. The steps after the seed are the same for all rows of a partition,
    so they are a table by partition; what is left for each row is one ``xor``, two products and a rotation. The tree
    holds ``target`` and ``others`` twice, for the rotation.
    """
    words = unmixed_u32(np.arange(partitions, dtype=np.uint32)).astype(np.int64)
    seed = F.hash(*others).cast("bigint").bitwiseAND(_WORD)
    mixed = _times(F.get(table(words, "bigint"), target).bitwiseXOR(seed), int(INVERSE_C2))
    rotated = F.shiftright(mixed, ROTATED).bitwiseOR(F.shiftleft(mixed, 32 - ROTATED).bitwiseAND(_WORD))
    return (_times(rotated, int(INVERSE_C1)).bitwiseXOR(_SIGN) - _SIGN).cast("int")


def _times(word: Column, by: int) -> Column:
    """The product modulo 2^32. By the factor of that residue nearest 0, at most 2^31 in size, so that no product of it
    with a word leaves a bigint: ANSI mode would raise."""
    return (word * ((by ^ _SIGN) - _SIGN)).bitwiseAND(_WORD)
