"""A model for each customer, where one customer has a tenth of all orders: by Spark alone, and with unskew.

``applyInPandas`` needs all rows of a customer in one task. Spark groups customers by hash, so a large one shares its
task with others, and that task may start last. ``sk.group_apply`` gives large ones tasks of their own and starts them
first.

    python examples/skewed_groups.py [orders]
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np
import pandas as pd
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from unskew.spark import Unskew

SLOTS = 8
SCHEMA = "customer string, orders long, slope double, intercept double, task int"


def fit(orders: pd.DataFrame) -> pd.DataFrame:
    """The trend of one customer's orders. Each order costs a look-up in another system, which takes a while."""
    time.sleep(len(orders) * 2e-4)  # the other system
    day, price = orders["day"] - orders["day"].mean(), orders["price"]
    slope = float(np.dot(day, price) / max(np.dot(day, day), 1.0))
    at_zero = float(price.mean() - slope * orders["day"].mean())
    context = TaskContext.get()
    task = -1 if context is None else context.partitionId()  # only to show which task had which customer
    row = (orders["customer"].iloc[0], len(orders), round(slope, 6), round(at_zero, 6), task)
    return pd.DataFrame([row], columns=["customer", "orders", "slope", "intercept", "task"])


def orders_of(spark: SparkSession, rows: int) -> DataFrame:
    """The larger a customer is, the fewer there are like it."""
    return spark.range(0, rows, 1, SLOTS).selectExpr(
        "concat('customer-', cast(floor(pow(2000, pmod(hash(id), 100000) / 100000)) as int)) customer",
        "pmod(hash(id, 1), 365) day",
        "pmod(hash(id, 2), 1000) + pmod(hash(id, 1), 365) / 10 price",
    )


def run(name: str, fitted: DataFrame) -> pd.DataFrame:
    """Print the seconds and the orders of the fullest task; the models."""
    start = time.perf_counter()
    models = fitted.toPandas()
    seconds = time.perf_counter() - start
    loads = models.groupby("task")["orders"].sum()
    print(f"{name}: {seconds:.1f} s; the fullest of {len(loads)} tasks had {loads.max():,} orders")
    return models.drop(columns="task").sort_values("customer", ignore_index=True)


def main(rows: int = 120_000) -> None:
    builder = SparkSession.builder.master(f"local[{SLOTS}]").appName("skewed groups")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    orders = orders_of(spark, rows).persist()
    heaviest = orders.groupBy("customer").count().agg(sf.max("count")).collect()[0][0]
    print(f"{rows:,} orders, {heaviest:,} of one customer, {SLOTS} tasks at a time")

    alone = run("by Spark alone", orders.groupBy("customer").applyInPandas(fit, SCHEMA))
    with Unskew(spark, stream="models", partitions=3 * SLOTS) as sk:
        ours = run("with unskew", sk.group_apply(orders, key="customer", fn=fit, schema=SCHEMA))
    print("same models:", alone.equals(ours))
    spark.stop()


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # tasks run in this Python too
    main(*map(int, sys.argv[1:]))
