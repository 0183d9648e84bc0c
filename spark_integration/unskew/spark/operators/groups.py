"""``group_apply``: opaque groups, placed so that no task waits for another's heavy groups.

A function of a whole group cannot be split, so the best there is: heavy groups alone, the rest packed evenly around
them, and the heavy ones first: Spark starts tasks by number. Without a plan the rows are placed in flight; with one
(``core.operators.group_plan``) by a native exchange. Either gives a column that is the task, then comes
``groupBy(task, key)``: the function sees what a plain ``groupBy(key)`` shows.

A group is in a Python worker whole, and a killed worker names none, so groups that will not fit are named before they
run. A group's size is its rows times the bytes of a row, measured on a few hundred rows of the heavy keys in Arrow's
form; as pandas three times that, at least, for Arrow's copy is there too and a string is an object. A worker may have
``memory=``, or a core's part of ``spark.executor.pyspark.memory`` or of the executor's memory overhead; in local mode
of what the machine has left. Where none is known nothing is said.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from unskew.core.errors import ConfigError, PlanError
from unskew.core.in_flight.layout import fine_cells
from unskew.core.plan.lookup import find_lookup
from unskew.core.plan.plan import Plan
from unskew.spark.caller_frame import warn
from unskew.spark.frame.jvm import slots_of
from unskew.spark.frame.keys import Columns, helper, key_columns, key_of, same_each_time
from unskew.spark.in_flight.place import PlacedRows, Placing
from unskew.spark.operators.user_functions import FORMS, Function, arity, whole
from unskew.spark.place.native import hot_column
from unskew.spark.place.repartition import repartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = [
    "GroupMemoryWarning",
    "Groups",
    "applied",
    "bytes_of",
    "groups_of",
    "groups_placing",
    "run_groups",
    "run_placed_groups",
]

_COPIES = {"pandas": 3.0, "arrow": 1.0}
_SAMPLE = 500
_LARGE_ROW = 64 << 10  # rows are seldom larger: groups that would fit even then are not measured
_NAMED = 10
_LEAST_OVERHEAD = 384 << 20
_UNITS = {"": 0, "b": 0, "k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30, "t": 40, "tb": 40}


class GroupMemoryWarning(UserWarning):
    """Groups that will probably not fit in the memory of a Python worker.

    >>> import warnings
    >>> from unskew.spark import GroupMemoryWarning
    >>> warnings.simplefilter("error", GroupMemoryWarning)  # stop before the job runs
    """


@dataclass(frozen=True, eq=False)
class Groups:
    """A checked call: nothing has run yet."""

    df: DataFrame
    key: Columns
    fn: Function
    schema: StructType | str
    form: str
    memory: _Memory


def groups_of(
    df: DataFrame, key: Columns, fn: Function, schema: StructType | str, form: str, memory: int | str | None
) -> Groups:
    """The call, once everything about it that can be wrong has been looked at. No job runs."""
    if form not in FORMS:
        raise ConfigError("form", form, FORMS)
    arity("fn", fn)
    hashed = key_of(df, key)
    same_each_time(df, hashed.hash)
    groups = Groups(df, key, fn, schema, form, _Memory.of(df.sparkSession, memory, slots_of(df.sparkSession)))
    applied(df.groupBy(*key_columns(df, key)), fn, schema, form).schema  # noqa: B018 - Spark looks at it, runs nothing
    return groups


def run_groups(call: Groups, plan: Plan) -> DataFrame:
    """The result of the function for each group of ``call.df``, each group whole in one task."""
    if plan.splits:
        raise PlanError(
            f"plan {plan.version} ({plan.info.policy or 'no policy named'}) splits {len(plan.hot.slots.bits)} keys; "
            "group_apply needs each group whole in one task: leave plan out, make one with a policy that keeps keys "
            "whole (kip), or use aggregate for a state that can be merged"
        )
    at = helper(call.df.columns, "partition")
    placed = repartition(call.df, plan, call.key, column=at)
    _warn_of_large(call.df, call, plan.hot.hashes, plan.hot.rows)
    return _by_task(call, placed, at)


def groups_placing(call: Groups, partitions: int) -> Placing:
    """How groups are placed in flight: whole, by fine cells, so that a heavy one is all but alone."""
    return Placing(partitions, fine_cells(partitions), cut=False, column=helper(call.df.columns, "task"))


def run_placed_groups(call: Groups, df: DataFrame, placed: PlacedRows) -> DataFrame:
    """The same for groups that were placed in flight, by ``groups_placing``."""
    _warn_of_large(df, call, placed.histogram.hashes, placed.histogram.counts)
    return _by_task(call, df, df.columns[-1])


def _by_task(call: Groups, placed: DataFrame, at: str) -> DataFrame:
    grouped = placed.groupBy(placed[at], *key_columns(placed, call.key))
    return applied(grouped, whole(call.fn, call.form, columns=1, in_key=1), call.schema, call.form)


def applied(grouped: Any, fn: Function, schema: StructType | str, form: str) -> DataFrame:
    made: DataFrame = (grouped.applyInPandas if form == "pandas" else grouped.applyInArrow)(fn, schema)
    return made


# -- what a worker may have ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Memory:
    """What one Python worker may have (None: not known), and which setting says so."""

    bytes: int | None
    source: str

    @classmethod
    def of(cls, spark: SparkSession, given: int | str | None, slots: int | None) -> _Memory:
        if given is not None:
            return cls(bytes_of("memory", given), "memory=")
        cores, local = _cores(spark, slots)
        name = "spark.executor.pyspark.memory"
        shared = spark.conf.get(name, None)
        if shared is not None:
            return cls(bytes_of(name, shared, "m") // cores, name)
        if local:
            left = _available()
            each = None if left is None or slots is None else left // slots
            return cls(each, "the memory that this machine has left")
        return cls(_overhead(spark) // cores, "the executors' memory overhead")


def bytes_of(name: str, given: int | str, unit: str = "b") -> int:
    """A size as Spark writes them (``512m``, ``2g``); a bare number is in ``unit``."""
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", str(given).lower())
    if isinstance(given, bool) or match is None or match.group(2) not in _UNITS or int(match.group(1)) == 0:
        raise ConfigError(name, given, "a number of bytes above 0, or a size such as 512m or 2g")
    return int(match.group(1)) << _UNITS[match.group(2) or unit]


def _cores(spark: SparkSession, slots: int | None) -> tuple[int, bool]:
    """Workers of an executor, and whether executors are this machine's."""
    master = str(spark.conf.get("spark.master", "") or "")
    cluster = re.fullmatch(r"local-cluster\[\s*\d+\s*,\s*(\d+)\s*,\s*\d+\s*\]", master)
    if cluster:
        return int(cluster.group(1)), False
    local = master.startswith("local")
    given = spark.conf.get("spark.executor.cores", None)
    return max(int(given) if given and not local else (slots or 1) if local else 1, 1), local


def _overhead(spark: SparkSession) -> int:
    given = spark.conf.get("spark.executor.memoryOverhead", None)
    if given is not None:
        return bytes_of("spark.executor.memoryOverhead", given, "m")
    memory = bytes_of("spark.executor.memory", spark.conf.get("spark.executor.memory", "1g") or "1g", "m")
    share = float(spark.conf.get("spark.executor.memoryOverheadFactor", "0.1") or 0.1)
    return max(int(memory * share), _LEAST_OVERHEAD)


def _available() -> int | None:
    """Bytes that this machine can still give, where it says so."""
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return None
    match = re.search(r"^MemAvailable:\s*(\d+) kB", meminfo.read_text(), re.MULTILINE)
    return int(match.group(1)) << 10 if match else None


def _warn_of_large(df: DataFrame, call: Groups, hashes: NDArray[np.uint64], rows: NDArray[np.int64]) -> None:
    """Warn of the groups with so many ``rows`` that will not fit, read from ``df``. A job runs only if one might not (a
    few hundred of its rows), and another only if one will not (its name)."""
    memory, form, key = call.memory, call.form, call.key
    if memory.bytes is None or len(rows) == 0 or int(rows.max()) * _LARGE_ROW * _COPIES[form] <= memory.bytes:
        return
    heavy = np.flatnonzero(rows * _LARGE_ROW * _COPIES[form] > memory.bytes)
    row = _bytes_of_row(df, key, hashes[heavy]) * _COPIES[form]
    large = np.flatnonzero(rows * row > memory.bytes)
    if len(large) == 0:
        return
    large = large[np.argsort(-rows[large], kind="stable")]
    names = _names(df, key, hashes[large[:_NAMED]])
    groups = [
        f"{names.get(int(hashes[i]), 'not seen again')} ({int(rows[i]):,} rows, {_size(rows[i] * row)})"
        for i in large[:_NAMED].tolist()
    ]
    more = f" and {len(large) - _NAMED} more" if len(large) > _NAMED else ""
    warn(
        f"{len(large)} group(s) may not fit in a Python worker's {_size(memory.bytes)} ({memory.source}): "
        f"{', '.join(groups)}{more}, as {form}. Select fewer columns, give workers more memory "
        "(spark.executor.pyspark.memory, fewer cores an executor), use form='arrow', or aggregate if the groups' state "
        "can be merged",
        GroupMemoryWarning,
    )


def _bytes_of_row(df: DataFrame, key: Columns, hashes: NDArray[np.uint64]) -> float:
    some = df.where(hot_column(find_lookup(hashes), hashes, key_of(df, key).hash)).limit(_SAMPLE).toArrow()
    return some.nbytes / some.num_rows if some.num_rows else 0.0


def _names(df: DataFrame, key: Columns, hashes: NDArray[np.uint64]) -> dict[int, str]:
    """The keys that have these hashes, as text."""
    hashes = np.sort(hashes)
    key_hash = key_of(df, key).hash
    shown = F.to_json(F.struct(*key_columns(df, key)), {"ignoreNullFields": "false"})
    rows = df.select(key_hash.alias("h"), shown.alias("k")).where(hot_column(find_lookup(hashes), hashes, F.col("h")))
    found = rows.groupBy("h").agg(F.first("k").alias("k")).collect()
    return {row["h"] % 2**64: row["k"] for row in found}


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:,.1f} GiB"
