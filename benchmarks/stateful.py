"""Keyed state (``sk.stateful``): what a batch reads and writes, what a re-plan moves, and what a small batch costs.

1. ``bytes``: 1,000 events on 1,000 and on 200,000 keys of state, in 16 partitions. Read, written (state, output and
   manifest) and shuffled, to the byte, medians over batches. Mark: with 200,000 keys at most 3 times (a batch on 1,000
   keys, plus the blocks that hold the touched keys). By size of block; keys drawn evenly, the worst case, and skewed.
2. ``drift``: Zipf 1.0 over 200,000 keys, the 200 hottest replaced every ten batches. Marks: a re-plan moves less than a
   quarter of the state; from the second batch after a change on the fullest partition has at most 1.2 times
   max(mean, heaviest key).
3. ``fixed``: a batch of 1,000 rows beside a plain ``foreachBatch`` that runs the same function, without a state, by
   ``applyInPandas`` and collects; in turns, medians.

Run: ``JAVA_HOME=$(bash tools/java.sh) python -m benchmarks.stateful [bytes|drift|fixed ...]``
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from unskew.core import Histogram, hash_keys, make_planner
from unskew.core.operators.keyed_plan import (
    KIP,
    LISTED,
    first_plan,
    history_of,
    keys_added,
    next_plan,
    shortened,
    with_batch,
)
from unskew.core.operators.keyed_state import holding
from unskew.core.planners import Origin
from unskew.spark import Unskew
from unskew.spark.stateful import Stateful
from unskew.spark.stateful.blocks import Reader
from unskew.spark.stateful.manifest_log import Log, state_folder
from unskew.wire.manifests import Manifest, manifest_to_bytes

PARTITIONS, EVENTS, SMALL, LARGE = 16, 1_000, 1_000, 200_000
SCHEMA, STATE = "user bigint, n bigint", "n bigint, last bigint"


def count(rows: pa.Table, states: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Rows of a key so far and its last event; all keys of a task at once."""
    new = rows.append_column("n", pa.array(np.ones(rows.num_rows, np.int64))).rename_columns(["user", "last", "n"])
    both = pa.concat_tables([states.select(["user", "last", "n"]), new])
    found = both.group_by("user").aggregate([("n", "sum"), ("last", "max")]).rename_columns(["user", "n", "last"])
    return found.select(["user", "n"]), found


def nothing(*_: object) -> None:
    """A handler that does nothing."""


def collected(out: DataFrame, _: int) -> None:
    out.collect()


def count_one(key: tuple[Any, ...], rows: pd.DataFrame, state: dict[str, Any] | None) -> tuple[Any, Any]:
    n = (state["n"] if state else 0) + len(rows)
    return [(key[0], n)], (n, int(rows["id"].max()))


@contextmanager
def session() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").config("spark.log.level", "OFF").getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


# -- bytes ------------------------------------------------------------------------------------------------------


def shuffled(spark: SparkSession, run: Any) -> int:
    """The bytes that the jobs of ``run`` write to shuffles."""
    context: Any = spark.sparkContext
    group = f"run-{time.monotonic_ns()}"
    context.setJobGroup(group, group)
    run()
    tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
    stages = {stage for job in tracker.getJobIdsForGroup(group) for stage in tracker.getJobInfo(job).stageIds}
    return sum(int(store.lastStageAttempt(stage).shuffleWriteBytes()) for stage in stages)


def touched(log: Log, before: Manifest, users: np.ndarray[Any, Any]) -> int:
    """The bytes of the blocks that these keys are in: what no lay-out with such blocks can do without."""
    hashes = np.unique(hash_keys(users))
    place = before.plan.place(hashes)
    reader, total = Reader(log.folder.sub("data"), pa.schema([])), 0
    for partition, part in enumerate(before.parts):
        index = reader.index(part)
        total += int(index["length"][holding(index, hashes[place == partition])].sum())
    return total


def drawn(rng: np.random.Generator, keys: int, exponent: float) -> np.ndarray[Any, Any]:
    if not exponent:
        return rng.integers(0, keys, EVENTS)
    share = 1.0 / np.arange(1, keys + 1) ** exponent
    return np.random.default_rng(1).permutation(keys)[rng.choice(keys, EVENTS, p=share / share.sum())]


def bytes_of(spark: SparkSession, keys: int, block: int, exponent: float, batches: int = 24) -> dict[str, float]:
    """Medians over the second half of the batches, when the files of state are of all ages."""
    rng = np.random.default_rng(keys)
    found: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        sk = Unskew(spark, stream="bench", partitions=PARTITIONS)
        query = sk.stateful(nothing, "user", count, SCHEMA, STATE, folder, "q", form="table", block=block)
        query(spark.range(keys).selectExpr("id user", "id"), 0)
        log = Log(state_folder(folder, "q"))
        for batch in range(1, batches + 1):
            users = drawn(rng, keys, exponent)
            before = log.read(batch - 1)
            need = touched(log, before, users)
            frame = spark.createDataFrame(pd.DataFrame({"user": users, "id": np.arange(EVENTS)}))
            moved = shuffled(spark, lambda f=frame, b=batch: query(f, b))
            after = log.read(batch)
            figures, manifest = after.figures, len(manifest_to_bytes(after))
            each = {
                "read": figures.bytes_read,
                "written": figures.bytes_written,
                "output": figures.bytes_output,
                "manifest": manifest,
                "shuffled": moved,
            }
            found.append({**each, "all": sum(each.values()), "touched": need, "moved keys": figures.moved})
    settled = found[batches // 2 :]
    middle = {name: median(one[name] for one in settled) for name in settled[0]}
    return {**middle, "largest": max(one["all"] for one in settled)}


def show_bytes(spark: SparkSession) -> None:
    print(f"{EVENTS:,} events, {PARTITIONS} partitions; kilobytes a batch, medians")
    names = ("read", "written", "output", "manifest", "shuffled", "all", "touched", "largest")
    print(
        f"{'keys drawn':>12} {'block':>6} {'state':>8} "
        + " ".join(f"{name:>9}" for name in names)
        + "  of the mark's 3"
    )
    for exponent, block in ((0.0, 32), (1.0, 32), (0.0, 16), (0.0, 64)):
        small = bytes_of(spark, SMALL, block, exponent)
        large = bytes_of(spark, LARGE, block, exponent)
        ratio = large["all"] / (small["all"] + large["touched"])
        for keys, each, told in ((SMALL, small, ""), (LARGE, large, f"{ratio:6.2f}")):
            label = f"Zipf {exponent}" if exponent else "evenly"
            cells = " ".join(f"{each[name] / 1000:9.1f}" for name in names)
            print(f"{label:>12} {block:6} {keys:8,} {cells}  {told}", flush=True)


# -- drift ------------------------------------------------------------------------------------------------------


def drift(rows: int, seed: int, batches: int = 60, every: int = 10) -> tuple[list[float], list[float]]:
    """Of each batch the fullest partition over max(mean, heaviest key); of each re-plan the share of keys moved."""
    rng = np.random.default_rng(seed)
    hashes, order = rng.integers(0, 2**64 - 1, LARGE, np.uint64), rng.permutation(LARGE)
    share = 1.0 / np.arange(1, LARGE + 1)
    planner, origin = make_planner("kip", PARTITIONS, **KIP), Origin("s", key_types=("bigint",))
    plan, record, ratios, moves = first_plan(planner, origin), history_of(), [], []
    state, keys = Histogram.from_hashes(hashes), keys_added(np.zeros(0, np.uint64), hashes)
    for batch in range(batches):
        if batch % every == 0:
            cold = rng.choice(np.arange(200, LARGE), 200, replace=False)
            order[:200], order[cold] = order[cold].copy(), order[:200].copy()
        seen = hashes[order[rng.choice(LARGE, rows, p=share / share.sum())]]
        place = plan.route(seen)
        loads = np.bincount(place, minlength=PARTITIONS)
        ratios.append(float(loads.max() / max(loads.mean(), Histogram.from_hashes(seen).counts.max())))
        parts = [shortened(Histogram.from_hashes(seen[place == p]), LISTED) for p in range(PARTITIONS)]
        record = with_batch(record, parts, PARTITIONS)
        decided = next_plan(planner, plan, record, keys, origin)
        if decided.changed:
            moves.append(decided.plan.moved_share(plan, state))
        plan = decided.plan
    return [ratio for batch, ratio in enumerate(ratios) if batch % every >= 2], moves


def show_drift() -> None:
    print(f"\n200 hottest of {LARGE:,} keys replaced every 10 batches, {PARTITIONS} partitions, 5 seeds of 60 batches")
    for rows in (1_000, 10_000, 100_000):
        runs = [drift(rows, seed) for seed in range(5)]
        ratios, moves = np.concatenate([one[0] for one in runs]), np.concatenate([one[1] for one in runs])
        even = [np.bincount(np.random.default_rng(one).integers(0, PARTITIONS, rows)).max() for one in range(99)]
        print(
            f"{rows:8,} rows: fullest {np.median(ratios):.2f}, p90 {np.quantile(ratios, 0.9):.2f}, most "
            f"{ratios.max():.2f} (rows thrown evenly: {np.median(even) * PARTITIONS / rows:.2f}); {len(moves) / 5:.1f} "
            f"re-plans, each moves {np.mean(moves):.1%}, at most {max(moves):.1%}"
        )


# -- fixed ------------------------------------------------------------------------------------------------------


def show_fixed(spark: SparkSession, turns: int = 7) -> None:
    """Medians of paired batches."""

    def plain(frame: DataFrame) -> None:
        def fn(key: tuple[Any, ...], rows: pd.DataFrame) -> pd.DataFrame:
            return pd.DataFrame({"user": [key[0]], "n": [len(rows)]})

        frame.groupBy("user").applyInPandas(fn, SCHEMA).collect()

    print(f"\na batch of {EVENTS:,} rows of some 500 keys; seconds, medians of {turns}")
    for partitions in (4, 16):
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        for aqe in ("true", "false"):
            spark.conf.set("spark.sql.adaptive.enabled", aqe)
            with tempfile.TemporaryDirectory() as folder:
                sk = Unskew(spark, stream="bench", partitions=partitions)

                def made(form: str, fn: Any, sk: Unskew = sk, folder: str = folder) -> Stateful:
                    return sk.stateful(collected, "user", fn, SCHEMA, STATE, str(Path(folder) / form), "q", form=form)

                ways: dict[str, Any] = {
                    "plain": lambda frame, _: plain(frame),
                    "pandas": made("pandas", count_one),
                    "table": made("table", count),
                }
                took: dict[str, list[float]] = {name: [] for name in ways}
                for batch in range(turns + 2):
                    users = drawn(np.random.default_rng(batch), 2_000, 0.8)
                    frame = spark.createDataFrame(pd.DataFrame({"user": users, "id": np.arange(EVENTS)}))
                    for name, run in ways.items():
                        begin = time.perf_counter()
                        run(frame, batch)
                        took[name].append(time.perf_counter() - begin)
                middle = {name: median(each[2:]) for name, each in took.items()}
                told = ", ".join(f"{name} {seconds:.2f}" for name, seconds in middle.items())
                print(f"{partitions:3} partitions, AQE {aqe:5}: {told}", flush=True)


def main() -> None:
    wanted = sys.argv[1:] or ["bytes", "drift", "fixed"]
    if "drift" in wanted:
        show_drift()
    if {"bytes", "fixed"} & set(wanted):
        with session() as spark:
            if "bytes" in wanted:
                show_bytes(spark)
            if "fixed" in wanted:
                show_fixed(spark)


if __name__ == "__main__":
    main()
