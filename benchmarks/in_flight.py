"""Rows placed in flight beside Spark's own shuffle and beside plans that were counted first, in one run, in turns.

``shuffle``: a bare ``repartition`` of short rows, long and string keys, whole and cut, over Spark's own
``repartition(n, key)`` in pairs; beside it a plan that is counted and then placed. Mark: 1.5 in the median.

``operators``: ``group_apply``, ``aggregate`` and ``join`` where a row costs a wait, 16 slots; all costs counted. Marks:
in no cell slower than by a counted plan; the makespan replayed from the times of its tasks at most 1.10 of the limit,
by the clock 1.20. ``dear``: the same on text that is parsed, which costs about a second a pass: 1.3x faster than by a
counted plan.

Run: ``JAVA_HOME=$(bash tools/java.sh) python -m benchmarks.in_flight [shuffle operators dear] [--rows 10000000]
[--turns 15] [--limit 10] [--repeats 3]``; the default takes some twenty minutes.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.spark_gain import KEYS, LATENCY, STATE, Run, merge, partial, timed
from benchmarks.spark_join import AQE, SLOTS, frames, session
from unskew.core.operators.group_plan import group_partitions, group_plan
from unskew.core.planners import Origin
from unskew.spark import Unskew
from unskew.spark.frame.keys import key_of

MARK, REPLAYED, CLOCK, DEAR = 1.5, 1.10, 1.20, 1.3
WARM = 3  # pairs that do not count
COLUMNS = 60  # of the text: each is parsed as a number


def verdict(what: str, figure: float, mark: float, *, least: bool = False) -> bool:
    held = figure >= mark if least else figure <= mark
    print(f"    {what}: {figure:.2f}; mark {mark:g}: {'held' if held else 'MISSED'}", flush=True)
    return held


# -- a bare shuffle ---------------------------------------------------------------------------------------------------


def short_rows(spark: SparkSession, rows: int, kind: str) -> DataFrame:
    """Rows of a key, an id and a value; one key has a quarter of them, the next some percent."""
    key = F.floor(F.pow(F.lit(1e5), F.pow(F.rand(7), F.lit(2.0))))
    key = F.concat(F.lit("customer-"), key.cast("string")) if kind == "string" else key
    df = spark.range(0, rows, 1, 8).select("id", key.alias("k"), F.rand(3).alias("value")).cache()
    df.count()
    return df


def seconds_of(make: Callable[[], DataFrame]) -> float:
    start = time.perf_counter()
    make().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start


def shuffle(rows: int, turns: int, partitions: int) -> bool:
    spark = session(2)
    held = True
    try:
        for kind in ("long", "string"):
            df = short_rows(spark, rows, kind)
            for policy, name in (("kip", "whole"), ("balanced", "cut")):
                ratios = _pairs(spark, df, policy, partitions, turns)
                flight, plan = np.median(ratios[:, 0]), np.median(ratios[:, 1])
                low, high = np.quantile(ratios[:, 0], (0.25, 0.75))
                print(
                    f"  {kind} keys, {name}, {rows:,} rows, n = {partitions}: {flight:.2f} ({low:.2f} to {high:.2f}) of"
                )
                print(f"    repartition(n, key), a counted plan {plan:.2f}")
                held &= verdict("in flight / repartition(n, key)", float(flight), MARK)
            df.unpersist()
    finally:
        spark.stop()
    return held


def _pairs(spark: SparkSession, df: DataFrame, policy: str, partitions: int, turns: int) -> np.ndarray:
    """Of each turn in flight and a counted plan, over Spark's own."""

    def planned() -> DataFrame:
        sk = Unskew(spark, stream="shuffle", partitions=partitions, policy=policy)
        return sk.repartition(df, "k", sk.plan(df, "k", spread="id"))

    def flying() -> DataFrame:
        return Unskew(spark, stream="shuffle", partitions=partitions, policy=policy).repartition(df, "k")

    ratios = []
    for turn in range(WARM + turns):
        own = seconds_of(lambda: df.repartition(partitions, "k"))
        flight = seconds_of(flying)
        ratios.append((flight / own, seconds_of(planned) / own if turn % 3 == 0 else np.nan))
    found = np.array(ratios[WARM:])
    found[:, 1] = np.nanmedian(found[:, 1])
    return found


# -- operators --------------------------------------------------------------------------------------------------------


def group_ways(spark: SparkSession, events: DataFrame) -> dict[str, Callable[[], Run]]:
    def ours(*, planned: bool) -> DataFrame:
        sk, plan = Unskew(spark, stream="groups", partitions=SLOTS), None
        if planned:
            n = group_partitions(SLOTS, SLOTS)
            histogram = sk.histogram(events, "sku", spread=None)
            plan = group_plan(histogram, n, origin=Origin(key_types=key_of(events, "sku").types))
        return sk.group_apply(events, "sku", partial, STATE, plan, form="arrow")

    return {
        "in flight": lambda: timed(spark, lambda: ours(planned=False)),
        "plan": lambda: timed(spark, lambda: ours(planned=True)),
    }


def aggregate_ways(spark: SparkSession, events: DataFrame) -> dict[str, Callable[[], Run]]:
    def ours(*, planned: bool) -> Run:
        sk = Unskew(spark, stream="states", partitions=SLOTS)

        def result() -> DataFrame:
            plan = sk.plan(events, "sku", spread="event") if planned else None
            return sk.aggregate(events, "sku", partial, merge, STATE, plan, form="arrow")

        try:
            return timed(spark, result)
        finally:
            sk.release()  # else the next run finds the states of this one

    return {"in flight": lambda: ours(planned=False), "plan": lambda: ours(planned=True)}


def operators(limit: float, repeats: int) -> bool:
    spark = session()
    spark.conf.set(AQE, "true")
    held = True
    rows = round(limit * SLOTS / LATENCY)
    try:
        with tempfile.TemporaryDirectory(prefix="unskew-in-flight-") as name:
            warm, _ = frames(spark, Path(name) / "warm", 4_000, 1.0, 100)
            for ways in (group_ways, aggregate_ways):
                for run in ways(spark, warm).values():
                    run()
            for zipf in (1.0, 1.5):
                events, _ = frames(spark, Path(name) / f"{zipf}", rows, zipf, KEYS)
                heaviest = int(events.groupBy("sku").count().agg(F.max("count")).collect()[0][0]) * LATENCY
                held &= _cell(f"group_apply, Zipf {zipf}", group_ways(spark, events), max(limit, heaviest), repeats)
                held &= _cell(f"aggregate, Zipf {zipf}", aggregate_ways(spark, events), limit, repeats)
    finally:
        spark.stop()
    return held


def _cell(name: str, ways: dict[str, Callable[[], Run]], limit: float, repeats: int) -> bool:
    runs: dict[str, list[Run]] = {way: [] for way in ways}
    for turn in range(repeats):
        for way in list(ways)[:: 1 if turn % 2 == 0 else -1]:
            runs[way].append(ways[way]())
    took = {way: float(np.median([run.seconds for run in each])) for way, each in runs.items()}
    replayed = float(np.median([run.replayed for run in runs["in flight"]])) / limit
    print(f"  {name}: limit {limit:.1f} s; {', '.join(f'{way} {s:.2f} s' for way, s in took.items())}", flush=True)
    held = verdict("in flight / plan", took["in flight"] / took["plan"], 1.0)
    held &= verdict("makespan replayed / limit", replayed, REPLAYED)
    return verdict("by the clock / limit", took["in flight"] / limit, CLOCK) and held


def dear(limit: float, repeats: int) -> bool:
    """Events as text of many numbers, all of which are parsed in each pass."""
    spark = session()
    spark.conf.set(AQE, "true")
    rows = round(limit * SLOTS / LATENCY)
    held = True
    try:
        with tempfile.TemporaryDirectory(prefix="unskew-in-flight-") as name:
            events, _ = frames(spark, Path(name) / "events", rows, 1.5, KEYS)
            numbers = F.concat_ws(",", *(F.rand(seed) for seed in range(COLUMNS)))
            events.select(F.concat_ws(",", "sku", "event", numbers).alias("value")).write.text(f"{name}/text")
            split = F.split("value", ",")
            values = sum((split[at].cast("double") for at in range(2, COLUMNS + 2)), start=F.lit(0.0))
            text = spark.read.text(f"{name}/text").select(
                split[0].cast("long").alias("sku"), split[1].cast("long").alias("event"), values.alias("price")
            )
            took = min(seconds_of(lambda: text) for _ in range(3))
            print(f"  text of {rows:,} rows: {took:.2f} s a pass")
            for kind, ways in (("group_apply", group_ways), ("aggregate", aggregate_ways)):
                runs = {way: [run().seconds for _ in range(repeats)] for way, run in ways(spark, text).items()}
                medians = {way: float(np.median(each)) for way, each in runs.items()}
                print(f"  {kind} on text: {', '.join(f'{way} {s:.2f} s' for way, s in medians.items())}", flush=True)
                held &= verdict("plan / in flight", medians["plan"] / medians["in flight"], DEAR, least=True)
    finally:
        spark.stop()
    return held


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", default=["shuffle", "operators", "dear"])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--limit", type=float, default=10.0)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    parts: dict[str, Callable[[], bool]] = {
        "shuffle": lambda: shuffle(given.rows, given.turns, given.partitions),
        "operators": lambda: operators(given.limit, given.repeats),
        "dear": lambda: dear(given.limit, given.repeats),
    }
    held = True
    for part in given.part:
        print(part, flush=True)
        held &= parts[part]()
    return 0 if held else 1


if __name__ == "__main__":
    raise SystemExit(main())
