"""Jobs whose event logs are read in tests: each row costs a slept time, so that what is found depends on no machine.

They run on any PySpark from 3.3 on: ``tools/make_event_logs.py`` runs them on older ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

HOT = 7
ROWS = 1_200
SECONDS = 0.002  # a row; slept, so that a busy machine changes little
KEYS = 40


def skewed(spark: Any, rows: int = ROWS) -> Any:
    """Four rows of five are of one user; ``shop`` is even."""
    user = f"CASE WHEN id % 5 > 0 THEN {HOT} ELSE id % {KEYS} END AS user"
    return spark.range(rows, numPartitions=2).selectExpr(user, f"id % {KEYS} AS shop", "id")


def slept(column: str = "id") -> str:
    """An expression that costs a row's time, in the JVM."""
    return f"concat(reflect('java.lang.Thread', 'sleep', {round(SECONDS * 1000)}L), {column}) AS slept"


def run(frame: Any) -> None:
    """All of its rows are made, none is kept."""
    frame.write.format("noop").mode("overwrite").save()


def join(spark: Any, key: str = "user") -> None:
    names = spark.range(KEYS).selectExpr("id AS uid", "concat('n', id) AS name")
    left = skewed(spark)
    run(left.join(names.hint("merge"), left[key] == names.uid).selectExpr("name", slept()))


def window(spark: Any, key: str = "user") -> None:
    run(
        skewed(spark)
        .selectExpr("id", f"row_number() OVER (PARTITION BY {key} ORDER BY id) AS n")
        .selectExpr(slept(), "n")
    )


def repartition(spark: Any, key: str = "user") -> None:
    run(skewed(spark).repartition(4, key).selectExpr(slept()))


def aggregate(spark: Any, key: str = "user") -> None:
    """Lists of a key's rows, each element of which costs its time."""
    lists = skewed(spark).groupBy(key).agg({"id": "collect_list"}).toDF(key, "ids")
    run(
        lists.selectExpr(
            f"transform(ids, x -> concat(reflect('java.lang.Thread', 'sleep', {round(SECONDS * 1000)}L), x))"
        )
    )


def groups(spark: Any, key: str = "user") -> None:
    seconds = SECONDS

    def work(rows: Any) -> Any:
        time.sleep(len(rows) * seconds)
        return rows.head(1)

    run(skewed(spark).groupBy(key).applyInPandas(work, "user long, shop long, id long"))


def records(spark: Any, key: str = "user") -> None:
    """Pairs grouped without SQL."""
    seconds = SECONDS
    hot = key == "user"

    def work(pair: Any) -> int:
        values = list(pair[1])
        time.sleep(len(values) * seconds)
        return len(values)

    pairs = [(HOT if hot and i % 5 else i % KEYS, str(i * 7919**9).zfill(100)) for i in range(ROWS)]
    spark.sparkContext.parallelize(pairs, 2).groupByKey(4).map(work).sum()


JOBS: Mapping[str, Callable[..., None]] = {
    "join": join, "window": window, "repartition": repartition, "aggregate": aggregate,
    "group_apply": groups, "rdd": records,
}  # fmt: skip
