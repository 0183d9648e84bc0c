"""Every verb of ``Unskew`` on Spark Connect, in a process of its own; prints a line of JSON for each.

``python -m tests.spark.connect_job CONNECT`` is a client of the server there, so nothing here has a JVM at hand.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import SparkSession

from unskew.core.errors import ConfigError
from unskew.spark import Unskew

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS, PARTITIONS = 20_000, 8
STATE = "word string, n long"


def partial(rows: pa.Table) -> pa.Table:
    return pa.table({"word": rows.column("word").slice(0, 1), "n": [rows.num_rows]})


def merge(states: pa.Table) -> pa.Table:
    return pa.table({"word": states.column("word").slice(0, 1), "n": [sum(states.column("n").to_pylist())]})


def words(counted: DataFrame) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in counted.collect():
        found[row["word"]] += row["n"]
    return found


def refused(ask: Callable[[], object]) -> str:
    try:
        ask()
    except ConfigError as why:
        return str(why)
    return ""


def verbs(spark: SparkSession, rows: DataFrame, sk: Unskew) -> dict[str, Callable[[], Any]]:
    """What each is asked, and what is told of it."""
    right = rows.groupBy("word").count()
    placed = sk.repartition(rows, "word")
    expected = words(rows.groupBy("word").count().withColumnRenamed("count", "n"))

    def by_partition(df: DataFrame) -> list[int]:
        sizes = df.groupBy("partition").count().collect()
        return [sum(row["count"] for row in sizes), max(row["count"] for row in sizes)]

    def joined() -> int:
        plan = sk.plan_join(rows, right, "word", "left")
        return sk.join(rows, right, "word", "left", plan=plan).where("count is not null").count()

    return {
        "connect": lambda: type(spark).__module__,
        "route": lambda: by_partition(rows.select(sk.route("word", spread="id"))),
        "repartition": lambda: by_partition(sk.repartition(rows, "word", column="partition")),
        "dropped_exchange": lambda: sk.dropped_exchange(placed),
        "place": lambda: by_partition(sk.place(rows, "word", column="partition")),
        "place learning": lambda: sk.place(rows, "word", learn=True).count(),
        "group_apply": lambda: words(sk.group_apply(rows, "word", partial, STATE, form="arrow")) == expected,
        "aggregate": lambda: (
            words(sk.aggregate(rows, "word", partial, merge, STATE, spread="id", form="arrow")) == expected
        ),
        "join": joined,
        "advise": lambda: sk.advise(rows, "word", "repartition", row_seconds=1e-3).choice,
        "partition_by": lambda: refused(lambda: sk.partition_by(rows, key=str)),  # type: ignore[arg-type, type-var]
    }


def main(connect: str) -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warnings.simplefilter("ignore")
    spark = SparkSession.builder.remote(connect).getOrCreate()
    try:
        spark.conf.set("spark.sql.shuffle.partitions", "4")
        rows = spark.range(0, ROWS, 1, 2).selectExpr("id", "if(id % 2 = 0, 'hot', concat('k', id % 900)) word")
        with Unskew(spark, stream="words", partitions=PARTITIONS, policy="balanced", service="embedded") as sk:
            sk.plan(rows, "word", spread="id")
            for name, ask in verbs(spark, rows, sk).items():
                sys.stdout.write(json.dumps([name, ask()]) + "\n")
    finally:
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
