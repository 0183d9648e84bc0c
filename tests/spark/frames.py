"""What the tests of the native face share: key columns of every type, plans over them, and a watch over jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from unskew.core import Histogram, make_planner
from unskew.core.plan.plan import Plan
from unskew.spark.frame.jvm import physical_text
from unskew.spark.frame.physical import Node, nodes
from unskew.spark.place import repartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "KEYS",
    "as_spark_4_0",
    "hashes_in",
    "no_job",
    "plan_over",
    "python_workers",
    "setting",
    "shuffles",
    "typed_frame",
]

# SQL over a column ``k``, a skewed long; every type a key may have, with its edge values and NULLs.
KEYS = {
    "boolean": "k % 2 = 0",
    "tinyint": "cast(k % 128 as tinyint)",
    "smallint": "cast(-k as smallint)",
    "int": "cast(if(k = 1, -2147483648, k * 7) as int)",
    "bigint": "if(k = 1, -9223372036854775808, k)",
    "float": "if(k = 0, float('-0.0'), if(k = 1, float('0.0'), if(k = 2, float('NaN'), cast(k / 3 as float))))",
    "double": "if(k = 0, -0.0d, if(k = 1, 0.0d, if(k = 2, double('NaN'), k / 7d)))",
    "string": "if(k = 3, '', repeat(concat('schlüssel-', k), cast(k % 5 as int)))",
    "binary": "cast(concat('b', k) as binary)",
    "date": "date_add(date'1899-12-31', cast(k as int))",
    "timestamp": "timestamp_micros(k * 1234567 - 5000000)",
    "timestamp_ntz": "cast(timestamp_micros(-k * 7654321) as timestamp_ntz)",
    "decimal(9,2)": "cast(k / 4 as decimal(9,2))",
    "decimal(38,10)": "cast(cast(k as decimal(20,0)) * 12345678901234567 / 3 as decimal(38,10))",
    "void": "null",
}


def typed_frame(spark: SparkSession, rows: int = 4_000) -> DataFrame:
    """A column of each type, named c0, c1 ..., where one key in twelve is NULL; ``id`` tells the rows apart."""
    skewed = spark.range(rows).selectExpr(
        "id", "cast(floor(exp(pmod(hash(id), 1000) / 1000 * ln(400))) as bigint) - 1 k"
    )
    columns = [f"if(k % 12 = 11, null, {sql}) c{i}" for i, sql in enumerate(KEYS.values())]
    return skewed.selectExpr("id", "k", *columns)


def hashes_in(table: pa.Table, name: str) -> NDArray[np.uint64]:
    """A bigint column as hashes are kept here."""
    return np.ascontiguousarray(table.column(name).to_numpy(), np.int64).view(np.uint64)


def plan_over(hashes: NDArray[np.uint64], policy: str, partitions: int, **settings: object) -> Plan:
    return make_planner(policy, partitions, **settings).plan(Histogram.from_hashes(hashes))


@contextmanager
def setting(spark: SparkSession, **values: object) -> Iterator[None]:
    """Settings of the session for a while; dots are written as two underscores."""
    names = {name.replace("__", "."): str(value) for name, value in values.items()}
    before = {name: spark.conf.get(name, None) for name in names}
    try:
        for name, value in names.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


@contextmanager
def no_job(spark: SparkSession) -> Iterator[None]:
    """No Spark job may start inside."""
    context, group = spark.sparkContext, f"none-{uuid4()}"
    context.setJobGroup(group, "no job may start here")
    try:
        yield
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    assert list(context.statusTracker().getJobIdsForGroup(group)) == []


@contextmanager
def as_spark_4_0(*, older: bool = True) -> Iterator[None]:
    """Rows are placed as on Spark 4.0, without ``repartitionById``, whichever Spark runs."""
    with pytest.MonkeyPatch.context() as patch:
        if older:
            patch.setattr(repartition, "_BY_ID", (5, 0))
        yield


def shuffles(df: DataFrame) -> list[Node]:
    """The shuffles of a frame's physical plan, the last one first."""
    return [node for node in nodes(physical_text(df)) if node.name == "Exchange"]


def python_workers(df: DataFrame) -> list[Node]:
    """The nodes of a frame's physical plan that send rows through a Python worker."""
    python = re.compile(r"Python|ArrowEval|InArrow|InPandas|Pandas", re.IGNORECASE)
    return [node for node in nodes(physical_text(df)) if python.search(node.name)]
