"""A join where one article has a third of all events: before and after.

python examples/skewed_join.py [events]
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from unskew.spark import Unskew

PARTITIONS = 8


def session() -> SparkSession:
    return (
        SparkSession.builder.master("local[2]")
        .appName("skewed-join")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(PARTITIONS))
        # The articles of this example would be broadcast, which is right: then there is no skew, and sk.join says so.
        .config("spark.sql.autoBroadcastJoinThreshold", "-1")
        .getOrCreate()
    )


def frames(spark: SparkSession, rows: int) -> tuple[DataFrame, DataFrame]:
    """Events, a third of them of article 0; and the articles."""
    events = spark.range(0, rows, 1, 4).selectExpr(
        "id event", "if(id % 3 = 0, 0, cast(pmod(hash(id), 5000) as int)) sku", "id % 90 price"
    )
    articles = spark.range(5000).selectExpr("id sku", "concat('article ', id) name")
    return events, articles


def loads(df: DataFrame) -> list[int]:
    """Rows by partition."""
    counts = {row["p"]: row["count"] for row in df.groupBy(sf.spark_partition_id().alias("p")).count().collect()}
    return [counts.get(p, 0) for p in range(PARTITIONS)]


def show(title: str, rows: list[int]) -> None:
    print(f"\n{title}: the fullest partition has {max(rows) * len(rows) / sum(rows):.2f} times the mean")
    for p, count in enumerate(rows):
        print(f"  {p}  {count:8,}  {'#' * round(40 * count / sum(rows))}")


def main(count: int = 200_000) -> None:
    spark = session()
    events, articles = frames(spark, count)

    before = events.repartition(PARTITIONS, "sku").join(articles.repartition(PARTITIONS, "sku"), "sku")
    show("before, by hash of the key", loads(before))

    with Unskew(spark, stream="sales", partitions=PARTITIONS) as sk:
        plan = sk.plan_join(events, articles, on="sku", spread="event")
        print(f"\n{plan}")
        after = sk.join(events, articles, on="sku", spread="event", plan=plan)  # without plan= it makes one itself
        show("after, by the plan", loads(after))
        rows = [df.groupBy("sku", "name").agg(sf.count("*").alias("n"), sf.sum("price")) for df in (before, after)]
        print(f"\nthe same rows: {rows[0].exceptAll(rows[1]).isEmpty() and rows[1].exceptAll(rows[0]).isEmpty()}")
    spark.stop()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
