"""What placing rows by a plan costs in Spark, beside Spark's own ``repartition(n, key)`` on the same rows in one run.

Marks: ``repartition`` by a native plan with 64 hot keys at most 1.10x, string and long keys; the histogram (sampled hot
keys, exact tail counts by host) at most 0.6x of that shuffle, also where all keys are distinct; building the Column at
most 50 ms at n = 2,048. 10 M rows, n = 64, two local cores.

Runs are interleaved and the median of the paired ratios counts, in wall time and in the executors' CPU time, which is
what other work on the machine does not touch. Frames are cached, so that the shuffle and not the source is measured.

Run: ``JAVA_HOME=$(bash tools/java.sh) python -m benchmarks.spark_native``; all of it takes half an hour and more. By
parts: ``--part repartition --key long --runs 15 --rows 10000000``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from unskew.core import Histogram, make_planner
from unskew.core.plan.plan import Plan
from unskew.spark.frame.histogram import histogram_of
from unskew.spark.frame.keys import key_of, spread_of
from unskew.spark.place.native import route_column
from unskew.spark.place.repartition import repartition

N = 64
WARM = 2
PARTS = ("building", "expressions", "repartition", "histogram")
KEYS = ("long", "string", "distinct")
Cost = tuple[float, float]
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "6g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(N),
    "spark.ui.showConsoleProgress": "false",
}


def session() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("unskew-spark-native")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def cost(spark: SparkSession, work: Callable[[], object]) -> Cost:
    """Wall seconds, and CPU seconds of all tasks it started."""
    context: Any = spark.sparkContext
    group = f"cost-{time.monotonic_ns()}"
    context.setJobGroup(group, group)
    start = time.perf_counter()
    work()
    wall = time.perf_counter() - start
    jvm = context._jsc.sc()
    jvm.listenerBus().waitUntilEmpty()
    stages = {s for job in context.statusTracker().getJobIdsForGroup(group) for s in _stages(context, job)}
    return wall, sum(jvm.statusStore().lastStageAttempt(stage).executorCpuTime() for stage in stages) / 1e9


def _stages(context: Any, job: int) -> list[int]:
    return list(context.statusTracker().getJobInfo(job).stageIds)


def sink(df: DataFrame) -> Callable[[], object]:
    return lambda: df.write.format("noop").mode("overwrite").save()


def paired(spark: SparkSession, works: dict[str, Callable[[], object]], peer: str, pairs: int) -> dict[str, str]:
    """Each beside the peer: medians of the paired ratios, wall and CPU."""
    runs: dict[str, list[Cost]] = {name: [] for name in works}
    for turn in range(pairs + WARM):
        order = list(works) if turn % 2 else list(works)[::-1]
        for name in order:
            found = cost(spark, works[name])
            if turn >= WARM:
                runs[name].append(found)
    base = np.array(runs[peer])
    told = {}
    for name, each in runs.items():
        own = np.array(each)
        wall, cpu = np.median(own / base, axis=0)
        told[name] = (
            f"{wall:5.2f}x wall, {cpu:5.2f}x CPU   ({np.median(own[:, 0]):5.2f} s, {np.median(own[:, 1]):5.2f} s)"
        )
    return told


def frame(spark: SparkSession, rows: int, keys: int = 1_000_000) -> DataFrame:
    """Zipf 1.0 in a long and a string column, a long that is never the same, and an id; cached."""
    drawn = spark.range(0, rows, 1, 4).selectExpr("id", f"cast(floor(exp(rand(1) * ln({keys}))) as bigint) long")
    made = drawn.selectExpr("id", "long", "concat('user-', long) string", "xxhash64(id) distinct").cache()
    made.count()
    return made


def hashes(df: DataFrame, key: str) -> np.ndarray:
    return np.ascontiguousarray(df.select(F.xxhash64(key).alias("h")).toArrow()["h"].to_numpy()).view(np.uint64)


def sixty_four(df: DataFrame, key: str) -> dict[str, Plan]:
    """Plans with 64 hot keys: all whole; those worth it split."""
    histogram = Histogram.from_hashes(hashes(df.sample(0.1, 20_260_101), key))
    whole = make_planner("kip", N, factor=1.0).plan(histogram)
    return {"whole": whole, "split": make_planner("prompt", N, listed=64).plan(histogram)}


def shuffles(spark: SparkSession, df: DataFrame, pairs: int, keys: Sequence[str]) -> None:
    print(f"repartition of {df.count():,} rows into {N} (mark: 1.10x), {pairs} runs", flush=True)
    for key in _of(keys, "long", "string"):
        rows = df.select("id", key)
        plans = sixty_four(df, key)
        works = {"spark": sink(rows.repartition(N, key))}
        for name, plan in plans.items():
            works[name] = sink(repartition(rows, plan, key, "id"))
        told = paired(spark, works, "spark", pairs)
        for name, line in told.items():
            about = f"{len(plans[name].hot)} hot, {len(plans[name].hot.slots.bits)} split" if name in plans else ""
            print(f"  {key:8} {name:6} {line}  {about}", flush=True)


def histograms(spark: SparkSession, df: DataFrame, pairs: int, keys: Sequence[str]) -> None:
    print(f"histogram beside the same shuffle (mark: 0.60x), {pairs} runs", flush=True)
    for key in _of(keys, "long", "string", "distinct"):
        rows = df.select("id", key)
        works = {
            "spark": sink(rows.repartition(N, key)),
            "histogram": partial(histogram_of, rows, key, N, "id"),
        }
        print(f"  {key:8} {paired(spark, works, 'spark', pairs)['histogram']}", flush=True)


def expressions(spark: SparkSession, df: DataFrame, rounds: int, keys: Sequence[str]) -> None:
    """CPU a row of evaluating one expression, the scan taken off: where the time goes."""
    print("one expression, ns CPU a row, the scan taken off", flush=True)
    rows = df.count()
    for key in _of(keys, "long", "string"):
        plans, hashed, spread = sixty_four(df, key), key_of(df, key).hash, spread_of(df, "id").hash
        tried: dict[str, Column] = {
            "nothing": F.lit(0),
            "spark's pmod(hash, n)": F.pmod(F.hash(key), F.lit(N)),
            "xxhash64": hashed,
            **{f"route, {name}": route_column(plan, hashed, spread) for name, plan in plans.items()},
        }
        best = dict.fromkeys(tried, np.inf)
        for _ in range(rounds):
            for name, column in tried.items():
                query = df.agg(F.max(key), F.max("id"), F.max(column))
                best[name] = min(best[name], cost(spark, query.collect)[1])
        for name, value in best.items():
            if name != "nothing":
                print(f"  {key:8} {name:22} {(value - best['nothing']) / rows * 1e9:6.1f}", flush=True)


def building(spark: SparkSession) -> None:
    print("building the Column, median of 15 (mark at n = 2,048: 50 ms)", flush=True)
    rng = np.random.default_rng(3)
    drawn = np.floor(np.exp(rng.random(2_000_000) * np.log(1e6))).astype(np.int64)
    distinct = np.unique(rng.integers(0, 2**64, 1_000_100, dtype=np.uint64))
    histogram = Histogram.from_hashes(distinct[drawn])
    df = spark.range(1)
    for n in (64, 2048):
        for policy in ("kip", "balanced", "prompt"):
            plan = make_planner(policy, n).plan(histogram)
            took = [_seconds(partial(_routed, plan)) for _ in range(15)]
            planned = _seconds(partial(_planned, df, plan))
            print(
                f"  n {n:5} {policy:8} {np.median(took) * 1e3:6.1f} ms, planned by Spark in {planned * 1e3:6.0f} ms   "
                f"{len(plan.hot)} hot, {len(plan.hot.slots.bits)} split",
                flush=True,
            )


def _routed(plan: Plan) -> Column:
    return route_column(plan, F.xxhash64("id"), F.xxhash64("id"))


def _planned(df: Any, plan: Plan) -> None:
    df.select(_routed(plan))._jdf.queryExecution().executedPlan()


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _of(asked: Sequence[str], *known: str) -> list[str]:
    return [name for name in known if not asked or name in asked]


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What placing rows by a plan costs in Spark.")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this one; may be given more than once")
    parser.add_argument("--key", action="append", default=[], choices=KEYS, help="only this key column")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, help="of each, interleaved: 15; 5 of the expressions and the histogram")
    return parser.parse_args()


def main() -> None:
    told = asked()
    parts = told.part or PARTS
    spark = session()
    if "building" in parts:
        building(spark)
    if set(parts) - {"building"}:
        df = frame(spark, told.rows)
        if "expressions" in parts:
            expressions(spark, df, told.runs or 5, told.key)
        if "repartition" in parts:
            shuffles(spark, df, told.runs or 15, told.key)
        if "histogram" in parts:
            histograms(spark, df, told.runs or 5, told.key)
    spark.stop()


if __name__ == "__main__":
    main()
