"""The other side of split keys: each of its rows copied to exactly the partitions that hold a fragment of its key.

Where a key's fragments are is one more table of the plan, an array of arrays in one foldable literal. A row looks up
its place first: a partition, or, below 0, which of the split keys it has. Only rows below 0 find an array to explode;
all others explode NULL, which is one row and allocates nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from unskew.core.plan.hot_keys import SPLIT
from unskew.core.plan.plan import Plan
from unskew.spark.frame.keys import quoted
from unskew.spark.place.native import place_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["never_null", "replicated"]


def replicated(df: DataFrame, plan: Plan, key_hash: Column, column: str, spare: str) -> DataFrame:
    """``df`` with ``column``, the partition of each row, and each row of a split key once for each partition that holds
    a fragment of it. ``spare`` is a name that is free."""
    placed = df.withColumn(column, never_null(place_column(plan, key_hash)))
    if not plan.splits:
        return placed
    where = ",".join(f"[{','.join(map(str, each))}]" for each in plan.hot.slots.places)
    held = F.from_json(F.lit(f"[{where}]"), "array<array<int>>")
    at, one = F.col(quoted(column)), F.col(quoted(spare))
    each = placed.select("*", F.explode_outer(F.get(held, F.lit(SPLIT) - at)).alias(spare))
    return each.withColumn(column, never_null(F.coalesce(one, at))).drop(spare)


def never_null(place: Column) -> Column:
    """Tell Spark that this is never NULL: else a join filters by it, and evaluates all of it twice a row."""
    return F.coalesce(place, F.lit(0))
