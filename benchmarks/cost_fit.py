"""What rows and keys cost, fitted from the tasks of a real Spark stream, and what ``auto`` makes of it.

Half of the rows are of twelve heavy keys, half of keys that have two; keys stay whole. A row costs a fixed wait in a
Python task, and a key another one: nothing, as much as a row, or as twenty rows. What is fitted is printed beside what
is true. Where a key costs twenty rows the same batches run three ways in turn: Spark's own
``repartition(n, key)``, ``auto`` without task times (its facts are without them), and ``auto`` as it ships.

Marks: a key's cost within a quarter of the truth (of a row's, where that is more), and ``auto`` at most 0.9 of itself
without times. The first two batches are left out: Java is slow at first.

Before that, without Spark, plain least squares and the fit over the same made-up tasks: 8 batches of 16, a tenth of
noise, one task in twenty ten times as long, a hundred times each.

Run: ``JAVA_HOME=$(bash tools/java.sh) python -m benchmarks.cost_fit`` (2 minutes; ``--simulated`` without Spark)
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession

from benchmarks.streaming_arms import I64, bench, median, write_batch
from unskew.core.quality.cost_fit import CostFit, TaskTimes, fit_cost
from unskew.spark import Unskew
from unskew.spark.demo.queries import Query, checkpoint_of
from unskew.spark.streaming import plan_placer
from unskew.spark.streaming.foreach import ForEachBatch

SLOTS = 16
WARM = 2
HEAVY = np.repeat(np.arange(12), np.arange(6, 18))
WITHIN, BETTER = 0.25, 0.9


def keys_of(number: int, rows: int) -> I64:
    """The rows of a batch: half in twelve keys of unlike weight, half in about one key for two rows."""
    rng = np.random.default_rng(number)
    return np.where(rng.random(rows) < 0.5, rng.choice(HEAVY, rows), 1_000 + rng.integers(0, rows // 4, rows))


def work_of(row: float, key: float) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    """Waits so long for each row of a partition and for each key."""

    def work(parts: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        words: set[str] = set()
        for part in parts:
            before = len(words)
            words.update(part["word"])
            time.sleep(row * len(part) + key * (len(words) - before))
            yield pd.DataFrame({"rows": [len(part)]})

    return work


@dataclass(eq=False)
class Way:
    """One way as a streaming query; ``times``: whether its facts have task times."""

    query: Query
    sk: Unskew | None = None
    planned: ForEachBatch | None = None
    times: bool = True
    took: list[float] = field(default_factory=list)

    def run(self, folder: Path, number: int) -> None:
        with ExitStack() as stack:
            if not self.times:
                stack.enter_context(patch.object(plan_placer, "partition_times", lambda *_: None))
            self.took.append(self.query.run(folder / "source", number))
            if self.planned is not None:
                self.planned.settle(60.0)

    @property
    def fit(self) -> CostFit | None:
        return None if self.sk is None else self.sk.plans.stream.cost


def way_of(stack: ExitStack, spark: SparkSession, home: Path, work: Callable[[DataFrame], None], *, times: bool) -> Way:
    """``auto`` with keys that stay whole."""
    home.mkdir()
    sk = stack.enter_context(
        Unskew(spark, stream=f"bench-{home.name}", partitions=SLOTS, policy="auto", parameters={"splits": False})
    )
    planned = sk.for_each_batch(lambda df, _: work(df), "word", str(checkpoint_of(home)), "q", threshold=1)
    stack.callback(planned.close)
    return Way(stack.enter_context(Query(spark, home, planned)), sk, planned, times)


def hash_of(stack: ExitStack, spark: SparkSession, home: Path, work: Callable[[DataFrame], None]) -> Way:
    """Spark's own way."""
    home.mkdir()
    return Way(stack.enter_context(Query(spark, home, lambda df, _: work(df.repartition(SLOTS, "word")))))


def run(
    spark: SparkSession, folder: Path, waits: tuple[float, float], batches: int, rows: int, *, more: bool
) -> dict[str, Way]:
    """``auto``, and the other ways, too, if there are to be ``more``, over the same batches."""
    folder.mkdir()
    python = work_of(*waits)

    def work(df: DataFrame) -> None:
        df.select("word").mapInPandas(python, "rows long").write.format("noop").mode("overwrite").save()

    with ExitStack() as stack:
        ways = {"auto": way_of(stack, spark, folder / "auto", work, times=True)}
        if more:
            ways["without times"] = way_of(stack, spark, folder / "without", work, times=False)
            ways["hash"] = hash_of(stack, spark, folder / "hash", work)
        for number in range(batches):
            write_batch(folder / "source", number, keys_of(number, rows), (1.0,) * 4)
            for one in list(ways.values())[:: 1 if number % 2 else -1]:
                one.run(folder, number)
        return ways


def made_up(kind: str, per_key: float, seed: int) -> list[TaskTimes]:
    """Batches whose tasks are all alike, one of which has a heavy key, or which have unlike rows and keys."""
    rng, batches = np.random.default_rng(seed), []
    for _ in range(8):
        rows, keys = rng.integers(9_990, 10_010, 16), rng.integers(595, 606, 16)
        if kind == "one heavy key":
            rows[0], keys[0] = 50_000, 1
        elif kind == "unlike":
            rows, keys = rng.integers(100, 2_000, 16), rng.integers(1, 400, 16)
        slow = np.where(rng.random(16) < 0.05, 10.0, 1.0)
        batches.append(TaskTimes(rows, keys, 1e-5 * (rows + per_key * keys) * rng.lognormal(0.0, 0.1, 16) * slow))
    return batches


def plain(batches: list[TaskTimes]) -> float:
    """The cost of a key in rows, by least squares."""
    table = np.concatenate([np.stack([one.rows, one.keys], axis=1) for one in batches])
    row, key = np.linalg.lstsq(table, np.concatenate([one.seconds for one in batches]), rcond=None)[0]
    return float(key / row)


def simulated() -> bool:
    """Print both fits of a key's cost, from the 5th to the 95th of a hundred; whether what is told is near."""
    met = []
    for kind in ("alike", "one heavy key", "unlike"):
        for per_key in (0.0, 1.0, 20.0):
            tries = [made_up(kind, per_key, seed) for seed in range(100)]
            squares = np.percentile([plain(one) for one in tries], (5, 95))
            told = [fit.model.per_key for fit in map(fit_cost, tries) if fit.tells_keys]
            near = [abs(one - per_key) <= WITHIN * max(per_key, 1.0) for one in told]
            met.append(not told or float(np.mean(near)) >= 0.95)
            fits = " to ".join(f"{one:.2f}" for one in np.percentile(told, (5, 95))) if told else "-"
            print(
                f"{'met   ' if met[-1] else 'MISSED'} tasks {kind}, a key costs {per_key:g} rows: least squares "
                f"{squares[0]:.1f} to {squares[1]:.1f}, fit {fits}, left at the prior in {100 - len(told)} of 100"
            )
    return all(met)


def judge(per_key: float, row: float, fit: CostFit | None) -> bool:
    """Print what is fitted beside what is true; whether it is within the mark."""
    if fit is None:
        print(f"   MISSED a key of {per_key:g} rows: no task times were read")
        return False
    off = abs(fit.model.per_key - per_key) / max(per_key, 1.0)
    print(f"a key costs {per_key:g} rows of {row * 1e6:.0f} us; fitted {fit.model.per_key:.2f}, by {fit.text}")
    print(f"   start of a task {fit.start * 1e3:.0f} ms; not told: {', '.join(fit.unsure) or 'nothing'}")
    print(f"   {'met   ' if off <= WITHIN else 'MISSED'} off by {off:.2f} (mark {WITHIN})", flush=True)
    return off <= WITHIN


def compare(ways: dict[str, Way]) -> bool:
    """Print what each way took; whether the fit was worth it."""
    medians = {name: median(way.took[WARM:]) for name, way in ways.items()}
    for name, way in ways.items():
        print(f"   {name}: median {medians[name]:.2f} s, " + " ".join(f"{took:.2f}" for took in way.took))
    ratio = medians["auto"] / medians["without times"]
    best = min(medians, key=medians.__getitem__)
    print(f"   {'met   ' if ratio <= BETTER else 'MISSED'} auto / auto without times {ratio:.2f} (mark {BETTER})")
    print(f"   the quickest is {best}; auto takes {medians['auto'] / medians[best]:.2f} of it")
    return ratio <= BETTER


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=16_000, help="a batch")
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--row", type=float, default=1e-4, help="seconds a row")
    parser.add_argument("--simulated", action="store_true", help="without Spark only")
    given = parser.parse_args()
    met = [simulated()]
    if given.simulated:
        return 0 if all(met) else 1
    with bench(SLOTS) as (spark, folder):
        for per_key in (0.0, 1.0, 20.0):
            waits, dear = (given.row, per_key * given.row), per_key == 20.0
            ways = run(spark, folder / f"{per_key:g}", waits, given.batches, given.rows, more=dear)
            met.append(judge(per_key, given.row, ways["auto"].fit))
            if dear:
                met.append(compare(ways))
    return 0 if all(met) else 1


if __name__ == "__main__":
    raise SystemExit(main())
