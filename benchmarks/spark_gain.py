"""What the operators gain: unskew beside every way a Spark user has, in one run, on the same cores.

Work costs a fixed latency a row (a call to another service, say), slept once a group or Arrow batch, so 16 slots work
at once on any number of cores. The limit is work / slots; for opaque groups the heaviest group if that is more. Times
include our histogram and plan. Beside each: the makespan replayed from the measured times of its tasks on 16 slots,
which leaves out what this machine did between them, and the bytes that its stages shuffled.

The other ways: (a) Spark as it comes, AQE on; (b) without coalescing; (c) ``repartition(n, key)``; (d) salting by hand
with the best of 4, 8, 16 and 32; (e) twice and four times the partitions; (f) partial states on the input splits, then
merged.

Marks: ``aggregate`` at Zipf 1.5 within 1.15x of the limit and >= 3x faster than the best of (a)-(c), half the state
bytes of (f) or the advice says (f); ``group_apply`` at Zipf 1.0, over hash seeds, within 1.15x of its limit and >= 1.3x
faster than the best of (a)-(c) in the median; with even keys no more than 3 % slower than the best of (a)-(c). Joins
are in ``benchmarks.spark_join``.

Run: ``JAVA_HOME=$(bash tools/java.sh) python -m benchmarks.spark_gain [case ...] [--limit SECONDS] [--turns N]``
with ``--limit 10 --turns 3 --seeds 10`` for the full dose (hours); the default takes some minutes.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.spark_join import AQE, COALESCING, SLOTS, frames, session
from unskew.core.quality.measures import makespan
from unskew.spark import Unskew

LATENCY = 0.002
KEYS = 2_000
STATE = "sku long, rows long, state binary"
_STATE_BYTES = 256
Way = Callable[[], DataFrame]


@dataclass(frozen=True)
class Run:
    """One way, once: seconds on the clock, seconds replayed from its tasks, bytes shuffled by stage, rows out."""

    seconds: float
    replayed: float
    shuffled: tuple[int, ...]
    rows: int


def partial(rows: pa.Table) -> pa.Table:
    """A state of some rows of one key; each row costs its latency."""
    time.sleep(rows.num_rows * LATENCY)  # the work that is measured
    return _state(rows.column("sku")[0].as_py(), rows.num_rows)


def merge(states: pa.Table) -> pa.Table:
    return _state(states.column("sku")[0].as_py(), sum(states.column("rows").to_pylist()))


def _state(sku: int, rows: int) -> pa.Table:
    return pa.table({"sku": [sku], "rows": [rows], "state": [sku.to_bytes(8, "little") * (_STATE_BYTES // 8)]})


def timed(spark: SparkSession, way: Way, *, coalescing: bool = True) -> Run:
    """Run one way; its stages are told by its job group."""
    context, group = spark.sparkContext, f"run-{time.monotonic_ns()}"
    spark.conf.set(COALESCING, str(coalescing).lower())
    context.setJobGroup(group, group)
    start = time.perf_counter()
    try:
        rows = int(way().select("rows").toArrow().column("rows").to_numpy().sum())
        seconds = time.perf_counter() - start
    finally:
        spark.conf.unset(COALESCING)
        context.setLocalProperty("spark.jobGroup.id", None)
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = sorted({stage for job in jobs if job is not None for stage in job.stageIds})
    told = [one for one in (_stage(spark, stage) for stage in stages) if one is not None]
    return Run(seconds, sum(makespan(tasks, SLOTS) for tasks, _ in told), tuple(size for _, size in told if size), rows)


def _stage(spark: SparkSession, stage: int) -> tuple[list[float], int] | None:
    """Seconds of each task in the order of their ids, and bytes shuffled; None for a stage that was skipped."""
    store = spark.sparkContext._jsc.sc().statusStore()
    if spark.sparkContext.statusTracker().getStageInfo(stage).numCompletedTasks == 0:  # type: ignore[union-attr]  # a job's stages are known
        return None
    tasks = store.taskList(stage, 0, 10_000)
    each = [tasks.apply(i) for i in range(tasks.size())]
    each.sort(key=lambda task: task.index())
    metrics = [task.taskMetrics().get() for task in each if task.taskMetrics().isDefined()]
    written = sum(one.shuffleWriteMetrics().bytesWritten() for one in metrics)
    return [one.executorRunTime() / 1e3 for one in metrics], int(written)


def aggregate_ways(spark: SparkSession, events: DataFrame) -> dict[str, Callable[[], Run]]:
    def grouped(df: DataFrame, *more: str) -> DataFrame:
        return df.groupBy("sku", *more).applyInArrow(partial, STATE)

    def salted(salts: int) -> DataFrame:
        salt = events.withColumn("salt", F.pmod(F.hash("event"), F.lit(salts)))
        return grouped(salt, "salt").groupBy("sku").applyInArrow(merge, STATE)

    def ours(at: str = "plan") -> DataFrame:
        sk = Unskew(spark, stream="gain", partitions=SLOTS)
        return sk.aggregate(events, "sku", partial, merge, STATE, spread="event", form="arrow", at=at)

    ways: dict[str, Callable[[], Run]] = {
        "unskew": lambda: timed(spark, ours),
        **plain_ways(spark, events, grouped),
        "(f) at the input": lambda: timed(spark, lambda: ours("input")),
    }
    for salts in (4, 8, 16, 32):
        ways[f"(d) salt {salts}"] = lambda salts=salts: timed(spark, lambda: salted(salts), coalescing=False)
    return ways


def plain_ways(
    spark: SparkSession, events: DataFrame, grouped: Callable[[DataFrame], DataFrame]
) -> dict[str, Callable[[], Run]]:
    """(a), (b), (c) and (e)."""

    def by(n: int) -> Run:
        return timed(spark, lambda: grouped(events.repartition(n, "sku")))

    return {
        "(a) Spark, AQE": lambda: timed(spark, lambda: grouped(events)),
        "(b) no coalescing": lambda: timed(spark, lambda: grouped(events), coalescing=False),
        "(c) repartition(n)": lambda: by(SLOTS),
        "(e) 2 n": lambda: by(2 * SLOTS),
        "(e) 4 n": lambda: by(4 * SLOTS),
    }


def group_ways(spark: SparkSession, events: DataFrame) -> dict[str, Callable[[], Run]]:
    def ours() -> DataFrame:
        sk = Unskew(spark, stream="gain", partitions=SLOTS)
        return sk.group_apply(events, "sku", partial, STATE, form="arrow")

    plain = plain_ways(spark, events, lambda df: df.groupBy("sku").applyInArrow(partial, STATE))
    return {"unskew": lambda: timed(spark, ours), **plain}


def chosen_of(ways: dict[str, Callable[[], Run]], only: Sequence[str]) -> dict[str, Callable[[], Run]]:
    """Those whose names begin so: (a) takes minutes, for AQE makes one task of so few bytes."""
    return {name: way for name, way in ways.items() if not only or name.startswith(tuple(only))}


def in_turns(ways: dict[str, Callable[[], Run]], turns: int) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {name: [] for name in ways}
    for turn in range(turns):
        for name in list(ways)[:: 1 if turn % 2 == 0 else -1]:
            found[name].append(ways[name]())
    return found


def medians(found: dict[str, list[Run]]) -> dict[str, float]:
    return {name: float(np.median([run.seconds for run in runs])) for name, runs in found.items()}


def tell(found: dict[str, list[Run]], limit: float, rows: int) -> None:
    for name, runs in found.items():
        if any(run.rows != rows for run in runs):
            raise SystemExit(f"{name}: {runs[0].rows} rows came out, {rows} went in")
        of_limit = np.median([run.seconds for run in runs]) / limit
        replayed = np.median([run.replayed for run in runs]) / limit
        sizes = ", ".join(f"{size / 1e6:.2f}" for size in runs[-1].shuffled)
        print(
            f"  {name:20} {of_limit * limit:7.2f} s {of_limit:6.2f}x the limit, replayed {replayed:6.2f}x;"
            f" shuffled MB: {sizes}",
            flush=True,
        )


def best_of(seconds: dict[str, float]) -> float:
    return min(took for name, took in seconds.items() if name[:3] in ("(a)", "(b)", "(c)"))


def verdict(what: str, figure: float, mark: float, *, least: bool) -> None:
    met = figure >= mark if least else figure <= mark
    print(f"  {what}: {figure:.2f}; mark {'at least' if least else 'at most'} {mark:g}: {'met' if met else 'NOT met'}")


def aggregate(spark: SparkSession, folder: Path, limit: float, turns: int) -> None:
    rows = round(limit * SLOTS / LATENCY)
    events, _ = frames(spark, folder / "aggregate", rows, 1.5, KEYS)
    print(f"aggregate, Zipf 1.5, {rows:,} rows of {KEYS:,} keys, limit {limit:g} s", flush=True)
    found = in_turns(aggregate_ways(spark, events), turns)
    tell(found, limit, rows)
    took = medians(found)
    verdict("unskew / limit", took["unskew"] / limit, 1.15, least=False)
    verdict("best of (a)-(c) / unskew", best_of(took) / took["unskew"], 3.0, least=True)
    states = found["unskew"][-1].shuffled[-1] / found["(f) at the input"][-1].shuffled[-1]
    verdict("state bytes shuffled / those of (f)", states, 0.5, least=False)
    print(f"  advice: {Unskew(spark, stream='gain', partitions=SLOTS).advise(events, 'sku', 'aggregate')}", flush=True)


def groups(
    spark: SparkSession, folder: Path, limit: float, turns: int, seeds: int, only: Sequence[str], keys: int = 100_000
) -> None:
    rows = round(limit * SLOTS / LATENCY)
    of_limit, faster = [], []
    for seed in range(seeds):
        events, _ = frames(spark, folder / f"groups-{seed}", rows, 1.0, keys, seed)
        heaviest = int(events.groupBy("sku").count().agg(F.max("count")).head()[0])  # type: ignore[index]  # an aggregate has a row
        least = max(limit, heaviest * LATENCY)
        print(f"group_apply, Zipf 1.0, seed {seed}, {rows:,} rows, limit {least:.1f} s", flush=True)
        found = in_turns(chosen_of(group_ways(spark, events), only), turns)
        tell(found, least, rows)
        took = medians(found)
        of_limit.append(took["unskew"] / least)
        faster.append(best_of(took) / took["unskew"])
    verdict("unskew / limit, median over seeds", float(np.median(of_limit)), 1.15, least=False)
    verdict("best of (a)-(c) / unskew, median over seeds", float(np.median(faster)), 1.3, least=True)


def even(spark: SparkSession, folder: Path, limit: float, turns: int) -> None:
    rows = round(limit * SLOTS / LATENCY)
    events, _ = frames(spark, folder / "even", rows, 0.0, KEYS)
    for name, ways in (("aggregate", aggregate_ways), ("group_apply", group_ways)):
        chosen = {
            way: run for way, run in ways(spark, events).items() if way[:3] in ("uns", "(a)", "(b)", "(c)", "(f)")
        }
        print(f"{name}, even keys, {rows:,} rows of {KEYS:,} keys, limit {limit:g} s", flush=True)
        found = in_turns(chosen, turns)
        tell(found, limit, rows)
        took = medians(found)
        verdict("unskew / best of (a)-(c)", took["unskew"] / best_of(took), 1.03, least=False)
        print(f"  advice: {Unskew(spark, stream='gain', partitions=SLOTS).advise(events, 'sku', name)}", flush=True)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("case", nargs="*", default=["aggregate", "groups", "even"])
    asked.add_argument("--limit", type=float, default=4.0)
    asked.add_argument("--turns", type=int, default=1)
    asked.add_argument("--seeds", type=int, default=2)
    asked.add_argument("--ways", nargs="*", default=[], help="of group_apply, only these: unskew '(b)' '(c)' ...")
    told = asked.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = session()
    spark.conf.set(AQE, "true")
    try:
        with tempfile.TemporaryDirectory(prefix="unskew-gain-") as name:
            folder = Path(name)
            warm, _ = frames(spark, folder / "warm", 4_000, 1.0, 100)
            for run in (*aggregate_ways(spark, warm).values(), *group_ways(spark, warm).values()):
                run()
            cases = {
                "aggregate": lambda: aggregate(spark, folder, told.limit, told.turns),
                "groups": lambda: groups(spark, folder, told.limit, told.turns, told.seeds, told.ways),
                "even": lambda: even(spark, folder, told.limit, told.turns),
            }
            for case in told.case:
                cases[case]()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
