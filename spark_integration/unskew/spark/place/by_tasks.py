"""Frames placed by tasks: ``df`` through ``mapInArrow``, each partition routed by what its pin says (``executor``).

Here it is seen to that this can be done exactly: every column can go to Python and back, the key is the same when a
task runs again, and rows that have one spread hash are one row or are not taken for it. No job runs.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    FloatType,
    IntegerType,
    MapType,
    StructField,
    StructType,
    UserDefinedType,
    VariantType,
)

from unskew.core.errors import ConfigError
from unskew.core.stream_spec import UNKNOWN_PARTS
from unskew.spark.frame.jvm import input_partitions
from unskew.spark.frame.keys import (
    AUTO,
    SPREAD_SEED,
    Columns,
    check_new,
    helper,
    is_auto,
    key_columns,
    key_names,
    key_of,
    quoted,
    spread_of,
)
from unskew.spark.frame.lineage import SAME, unsteady
from unskew.spark.place.executor import TaskPlacement
from unskew.spark.place.repartition import direct_way, pre_images
from unskew.spark.place.task_pin import TaskPin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["place"]

_HASH, _SPREAD = "__unskew_hash", "__unskew_spread"
_MASK = 62  # nullable columns in one bigint
_NESTED = (ArrayType, StructType, MapType, VariantType, UserDefinedType)
_NOT_CARRIED = re.compile(r"(?:^|[:<,])interval(?: (?:year|month)\b|[>,]|$)")  # types that Arrow has no column of
_PLACED: WeakKeyDictionary[TaskPin, int] = WeakKeyDictionary()  # what frame each pin that reports is for


def place(df: DataFrame, pin: TaskPin, key: Columns, spread: Columns = AUTO, column: str | None = None) -> DataFrame:
    """``df`` with every row where its task decides under ``pin``; ``column`` as for ``repartition``. No job runs."""
    direct = direct_way(df)
    if column is not None:
        check_new(df, column)
    key_hash = key_of(df, key, plan=pin.plan).hash
    _check_carried(df)
    _check_first(df, pin)
    if pin.plan is None:
        _check_steady(df, key)
    needed = pin.plan is None or pin.plan.splits
    spread_hash, alike = _row_spread(df, spread) if needed else (None, False)
    name = helper(df.columns, "partition") if column is None else column
    hashes = [key_hash.alias(_HASH), *([] if spread_hash is None else [spread_hash.alias(_SPREAD)])]
    parts = input_partitions(df) or UNKNOWN_PARTS
    pinned = replace(pin, bound=replace(pin.bound, alike=alike), parts=parts)
    task = TaskPlacement(pinned, name, spread_hash is not None, None if direct else pre_images(pin.partitions))
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
    """Refuse a key that may change when a task runs again: where tasks decide, all rows of its partition may move."""
    levels = unsteady(df.select(*key_columns(df, key))) or []
    for name, level in zip(key_names(df, key), levels, strict=False):
        if level != SAME:
            raise ConfigError(
                "key",
                name,
                "a column that is the same if a task runs again (this one is drawn, or depends on the order of rows): "
                "where tasks decide, all rows of a partition may move then. Write the frame out first, or use a plan",
            )


def _check_first(df: DataFrame, pin: TaskPin) -> None:
    """The same frame may be placed again: its tasks report the same."""
    if pin.service is None:
        return
    frame = df.semanticHash()
    if _PLACED.setdefault(pin, frame) != frame:
        raise ConfigError(
            "pin", pin, "a pin of its own for each frame: this one has placed another, whose reports would be replaced"
        )


def _row_spread(df: DataFrame, spread: Columns) -> tuple[Column, bool]:
    """The spread hash, and whether two rows that have the same are the same row, so that one may stand for the other.

    That asks for more than the native face's hash: Spark's ``xxhash64`` passes over NULLs, so ('a', NULL) and (NULL,
    'a') have one hash, and -0.0 has that of 0.0. So which columns are NULL, and the sign of zeros, are hashed too.
    Nested columns have NULLs inside: with those, or with columns that have no hash, equal hashes are not equal rows.
    """
    spread_key = spread_of(df, spread)
    if not is_auto(spread):
        return spread_key.hash, False
    if spread_key.left_out or any(isinstance(f.dataType, _NESTED) for f in df.schema.fields):
        return spread_key.hash, False
    nullable = [f.name for f in df.schema.fields if f.nullable]
    extra = [_null_mask(nullable[at : at + _MASK]) for at in range(0, len(nullable), _MASK)] if nullable[1:] else []
    extra += [_zero(f.name) for f in df.schema.fields if isinstance(f.dataType, (FloatType, DoubleType))]
    if not extra:
        return spread_key.hash, True
    return F.xxhash64(F.lit(SPREAD_SEED), *(F.col(quoted(n)) for n in spread_key.names), *extra), True


def _null_mask(names: list[str]) -> Column:
    mask = F.lit(0).cast("bigint")
    for at, name in enumerate(names):
        mask = mask.bitwiseOR(F.when(F.col(quoted(name)).isNull(), F.lit(1 << at).cast("bigint")).otherwise(0))
    return mask


def _zero(name: str) -> Column:
    """A zero as text, which has its sign; NULL for all else."""
    return F.when(F.col(quoted(name)) == 0, F.col(quoted(name)).cast("string"))
