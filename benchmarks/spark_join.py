"""A skewed join with dear work after it, where AQE cannot act: ours beside Spark's ways, interleaved in one run.

Zipf 1.5 events are joined with a table of one row a key; each joined row costs a fixed latency, slept once per Arrow
batch, as a call to another service would. 16 slots on whatever cores there are. The rows are small, so that no
partition reaches the size from which AQE splits one: it is the number of rows that makes a task long.

Mark: at least 3x faster than (b), AQE with coalescing off. Limit: work / slots. Making the plan is part of our time.
Also printed (``even``, ``copies``): what the join costs beside Spark's where keys are even and no work comes after it,
and what copying costs a row of the replicated side that is not copied.

Run: ``JAVA_HOME=$(bash tools/java.sh) python -m benchmarks.spark_join``; by parts: ``--part gain --runs 1``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from unskew.core.operators.join_plan import RIGHT, JoinPlan
from unskew.spark import Unskew
from unskew.spark.operators.joins import Join
from unskew.spark.place.native import place_column, replicated

SLOTS = 16
KEYS = 10_000
FILES = 16
PARTS = ("gain", "even", "copies")
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}
AQE = "spark.sql.adaptive.enabled"
COALESCING = "spark.sql.adaptive.coalescePartitions.enabled"

Work = Callable[[], object]


def session(slots: int = SLOTS) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers: this Python and what is installed in it
    builder = SparkSession.builder.master(f"local[{slots}]").appName("unskew-spark-join")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def frames(
    spark: SparkSession, folder: Path, rows: int, exponent: float, keys: int = KEYS, seed: int = 11
) -> tuple[DataFrame, DataFrame]:
    """Events with Zipf keys in so many Parquet files, and a table of all keys."""
    rng = np.random.default_rng(seed)
    share = np.arange(1, keys + 1) ** -exponent
    drawn = rng.choice(keys, rows, p=share / share.sum())
    events = pa.table({"sku": rng.permutation(keys)[drawn], "event": np.arange(rows), "price": rng.random(rows)})
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(FILES):
        pq.write_table(
            events.slice(i * rows // FILES, (i + 1) * rows // FILES - i * rows // FILES), folder / f"{i}.parquet"
        )
    dim = spark.range(0, keys, 1, FILES).selectExpr("id sku", "concat('article ', id) name")
    return spark.read.parquet(str(folder)), dim


def slept(joined: DataFrame, latency: float) -> DataFrame:
    """Each row costs ``latency`` seconds, slept once per Arrow batch; only counts come out."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(batch.num_rows * latency)  # the work that is measured
            yield pa.RecordBatch.from_pydict({"rows": pa.array([batch.num_rows], pa.int64())})

    return joined.mapInArrow(work, "rows long")


def join_case(
    spark: SparkSession, events: DataFrame, dim: DataFrame, latency: float, slots: int = SLOTS
) -> dict[str, Work]:
    """The same join and work by name of who places the rows; each returns the number of rows that it worked on."""

    def run(joined: Callable[[], DataFrame], *, coalescing: bool = True) -> int:
        spark.conf.set(COALESCING, str(coalescing).lower())
        try:
            return int(slept(joined(), latency).agg(F.sum("rows")).head()[0])  # type: ignore[index]  # an aggregate has a row
        finally:
            spark.conf.unset(COALESCING)

    sk = Unskew(spark, stream="join", partitions=slots)
    plan = sk.plan_join(events, dim, "sku", spread="event")

    def ours(given: JoinPlan | None = None) -> DataFrame:
        return sk.join(events, dim, "sku", plan=given, spread="event")

    def by_key() -> DataFrame:
        return events.repartition(slots, "sku").join(dim.repartition(slots, "sku"), "sku")

    return {
        "unskew": lambda: run(ours),
        "by a plan made before": lambda: run(lambda: ours(plan)),
        "(a) Spark, AQE": lambda: run(lambda: events.join(dim, "sku")),
        "(b) AQE, no coalescing": lambda: run(lambda: events.join(dim, "sku"), coalescing=False),
        "(c) repartition(n, key)": lambda: run(by_key),
    }


def seconds(work: Work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def paired(works: dict[str, Work], pairs: int) -> dict[str, list[float]]:
    """Seconds of each, in turn, the order turned round each time."""
    took: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(pairs):
        for name in list(works)[:: 1 if turn % 2 else -1]:
            took[name].append(seconds(works[name]))
    return took


def tell(took: dict[str, list[float]], limit: float | None = None) -> None:
    ours = np.array(took["unskew"])
    for name, each in took.items():
        beside = np.median(np.array(each) / ours)
        of_limit = "" if limit is None else f", {np.median(each) / limit:5.2f}x the limit"
        print(f"  {name:24} {np.median(each):7.2f} s, {beside:5.2f}x unskew{of_limit}", flush=True)


def gain(spark: SparkSession, folder: Path, rows: int, latency: float, pairs: int) -> None:
    events, dim = frames(spark, folder / "skewed", rows, 1.5)
    limit = rows * latency / SLOTS
    print(
        f"join at Zipf 1.5, {rows:,} rows, {latency * 1e3:g} ms a row, {SLOTS} slots: limit {limit:.1f} s", flush=True
    )
    works = join_case(spark, events, dim, latency)
    for work in join_case(spark, events.limit(1000), dim, 0.0).values():
        work()
    took = paired(works, pairs)
    tell(took, limit)
    gained = np.median(np.array(took["(b) AQE, no coalescing"]) / np.array(took["unskew"]))
    print(f"  {gained:.2f}x faster than (b); mark 3x: {'met' if gained >= 3 else 'NOT met'}", flush=True)


def even_keys(spark: SparkSession, folder: Path, pairs: int) -> None:
    """No skew and no work: what the plan and the expressions cost."""
    events, dim = frames(spark, folder / "even", 4_000_000, 0.0, 200_000)
    sk = Unskew(spark, stream="even", partitions=SLOTS)
    plan = sk.plan_join(events, dim, "sku", spread="event")

    def sink(joined: DataFrame) -> None:
        joined.write.format("noop").mode("overwrite").save()

    works: dict[str, Work] = {
        "unskew": lambda: sink(sk.join(events, dim, "sku", plan=plan, spread="event")),
        "with its plan made": lambda: sink(sk.join(events, dim, "sku", spread="event")),
        "(a) Spark, AQE": lambda: sink(events.join(dim, "sku")),
        "(c) repartition(n, key)": lambda: sink(
            events.repartition(SLOTS, "sku").join(dim.repartition(SLOTS, "sku"), "sku")
        ),
    }
    print("even keys, 4 M rows with 200,000, no work after the join", flush=True)
    paired(works, 2)
    tell(paired(works, pairs))


def copying(spark: SparkSession, folder: Path, pairs: int) -> None:
    """Rows of the replicated side whose key is not split, with explode and without."""
    events, dim = frames(spark, folder / "copies", 200_000, 1.5, 4_000)
    asked = Join.of(events, dim, "sku", partitions=SLOTS, spread="event")
    made = asked.plan()
    wide = spark.range(0, 20_000_000, 1, SLOTS).selectExpr("id sku").where(f"sku > {KEYS}")
    side = Join.of(events, wide, "sku", partitions=SLOTS, spread="event")

    def sink(df: DataFrame) -> None:
        df.agg(F.max("sku"), F.max("p")).collect()

    hashed = side._hash(RIGHT)
    works: dict[str, Work] = {
        "unskew": lambda: sink(replicated(wide, made.plan, hashed, "p", "q")),
        "only its place": lambda: sink(wide.withColumn("p", place_column(made.plan, hashed))),
        "only read": lambda: sink(wide.withColumn("p", F.lit(1))),
    }
    print(
        f"20 M rows to copy where their key is split (none is; {len(made.plan.hot.slots.bits)} keys are split)",
        flush=True,
    )
    paired(works, 2)
    tell(paired(works, pairs))


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A skewed join, where AQE cannot act.")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this one; may be given more than once")
    parser.add_argument("--rows", type=int, default=80_000, help="of the join with work after it")
    parser.add_argument("--latency", type=float, default=2.0, help="of each of its rows, in ms")
    parser.add_argument("--runs", type=int, help="of each, interleaved: 3 of the gain, 5 of the rest")
    return parser.parse_args()


def main() -> None:
    told = asked()
    parts = told.part or PARTS
    folder = Path(tempfile.mkdtemp(prefix="unskew-join-"))
    spark = session()
    try:
        if "gain" in parts:
            gain(spark, folder, told.rows, told.latency / 1e3, told.runs or 3)
        if "even" in parts:
            even_keys(spark, folder, told.runs or 5)
        if "copies" in parts:
            copying(spark, folder, told.runs or 5)
    finally:
        spark.stop()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
