"""A plan as Spark SQL expressions: the rule of ``core.plan.plan`` compiled, equal to it to the bit.

Each table of the plan is one string literal that Spark parses once, when it optimises the query: tasks carry the
finished array. (``lit`` of a numpy array makes a call into the JVM an entry: 2 s a plan; ``split`` and ``cast`` make
twice the calls of ``from_json``.) There are only shifts, ``xor``, ``and`` and compares, so nothing overflows in ANSI
mode.

Two things of Spark shape the expression. A common subexpression is evaluated once a row only where every row passes:
so the hot key's word and the spread hash stand there, and are NULL for rows that do not need them. And an expression is
a tree: what is used twice is carried twice, so the tail, the largest table, stands in it once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from unskew.core.errors import PlanError
from unskew.core.plan.hot_keys import SPLIT, HotKeys, SplitSlots
from unskew.core.plan.lookup import Lookup
from unskew.core.plan.plan import Plan
from unskew.core.plan.slots import UNITS_BITS
from unskew.spark.frame.keys import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["bucket_column", "hot_column", "never_null", "replicated", "route_column", "table", "table_text"]

_LAST = np.uint64(2**63 - 1)


def route_column(plan: Plan, key_hash: Column, spread: Column | None = None) -> Column:
    """The partition of each row as an int, never NULL where the hashes are not."""
    if plan.splits and spread is None:
        raise PlanError(
            "this plan splits keys, so each row needs a spread hash: give spread= columns that tell the rows of one "
            "key apart, or plan with a policy that keeps keys whole (kip)"
        )
    if not plan.splits or spread is None:
        return place_column(plan, key_hash)
    bucket = bucket_column(plan.hot.lookup, key_hash)
    home = _home(plan, key_hash, bucket)
    return F.coalesce(_split(plan.hot, home, bucket, spread), home, _tail(plan, key_hash))


def place_column(plan: Plan, key_hash: Column) -> Column:
    """``Plan.place`` in SQL: the partition of the key, or -1 - j where it is the j-th split key."""
    tail = _tail(plan, key_hash)
    if len(plan.hot) == 0:
        return tail
    return F.coalesce(_home(plan, key_hash, bucket_column(plan.hot.lookup, key_hash)), tail)


def replicated(df: DataFrame, plan: Plan, key_hash: Column, column: str, spare: str) -> DataFrame:
    """The other side of split keys: ``df`` with ``column``, the partition of each row, and each row of a split key once
    for each partition that holds a fragment of it. ``spare`` is a name that is free.

    Only rows of split keys find an array of partitions to explode; all others explode NULL, which is one row and
    allocates nothing.
    """
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


def _tail(plan: Plan, key_hash: Column) -> Column:
    """The partition of a key that has no route of its own."""
    return F.get(table(plan.tail, "int"), F.shiftrightunsigned(key_hash, 64 - plan.tail_bits))


def _home(plan: Plan, key_hash: Column, bucket: Column) -> Column:
    """The partition of a hot key that is whole, below 0 for one that is split, NULL for every other key."""
    keys, home = plan.hot.table
    return F.when(F.get(table(keys.view(np.int64), "bigint"), bucket) == key_hash, F.get(table(home, "int"), bucket))


def hot_column(lookup: Lookup, hashes: NDArray[np.uint64], key_hash: Column) -> Column:
    """Whether the key is one of these, for which ``lookup`` was found."""
    keys = np.full(lookup.buckets, hashes[0], np.uint64)  # an empty bucket holds a key of another one
    keys[lookup.bucket(hashes)] = hashes
    return F.get(table(keys.view(np.int64), "bigint"), bucket_column(lookup, key_hash)) == key_hash


def bucket_column(lookup: Lookup, key_hash: Column) -> Column:
    """``Lookup.bucket`` in SQL."""
    keys = F.xxhash64(key_hash) if lookup.remix else key_hash
    at = F.shiftrightunsigned(keys, lookup.shift) if lookup.shift else keys
    if len(lookup.displacement) > 1:
        group = keys.bitwiseAND(len(lookup.displacement) - 1)
        at = at.bitwiseXOR(F.get(table(lookup.displacement, "bigint"), group))
    elif lookup.displacement[0]:
        at = at.bitwiseXOR(int(lookup.displacement[0]))
    return at.bitwiseAND(lookup.buckets - 1)


def _split(hot: HotKeys, home: Column, bucket: Column, spread: Column) -> Column:
    """The partition of a row of a split key: its slot decides, and on which side of the cut it is. Else NULL."""
    either, cut = _slot_tables(hot.slots)
    half = F.when(home < 0, F.shiftrightunsigned(spread, 1))
    slot = _slot(hot, half, bucket)
    above = F.when(half >= F.get(table(cut, "bigint"), slot), 1).otherwise(0)
    return F.get(table(either, "int"), F.shiftleft(slot, 1) + above)


def _slot(hot: HotKeys, half: Column, bucket: Column) -> Column:
    """``offset + (half >>> shift)`` by the key's bucket; what is the same for all split keys is no table."""
    offset, shift = hot.split_table
    used = UNITS_BITS - np.unique(hot.slots.bits).astype(np.int64)
    by = F.lit(int(used[0])) if len(used) == 1 else F.get(table(shift, "int"), bucket)
    slot = F.call_function("shiftrightunsigned", half, by)
    return slot if len(hot.slots.bits) == 1 else slot + F.get(table(offset, "int"), bucket)


def _slot_tables(slots: SplitSlots) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Partition by ``2 slot + above``, and cut. No spread is above a cut at 2^63, which no bigint holds: the first
    partition has both sides there."""
    whole = slots.cut > _LAST
    second = np.where(whole, slots.first, slots.second)
    either = np.stack([slots.first, second], axis=1).reshape(-1)
    return either, np.minimum(slots.cut, _LAST).astype(np.int64)


def table_text(values: NDArray[Any]) -> str:
    """As it stands in the literal, and, in brackets, in a physical plan."""
    return ",".join(map(str, values.tolist()))


def table(values: NDArray[Any], kind: str) -> Column:
    """A table of numbers from one foldable literal."""
    return F.from_json(F.lit(f"[{table_text(values)}]"), f"array<{kind}>")
