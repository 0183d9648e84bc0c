"""What counting a micro-batch before it is placed costs, by its parts: cache, second read, count, sampler.

One micro-batch of a query is worked on again and again, in turns: placed by hash (``repartition(n, key)``), by a plan,
sampled on top as a batch is that is not counted; counted alone; and counted, then placed: from the source, read twice,
from persisted rows, and from persisted rows that are sampled as well. Sources: ``wide`` (Parquet files of 22 columns),
``json`` (text that is parsed) and ``made`` (Spark's rate source, which the product does not read again). Seconds, and
processor seconds of Java, which other work on the machine changes less. Last: which of the two ``CountingTime`` takes.

Run: ``JAVA_HOME=$(bash tools/java.sh) python -m benchmarks.counting [--sources wide json made] [--rows N ...]
[--rounds 5]`` (8 minutes)
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.streaming_arms import KEYS, SLOTS, bench, median
from unskew.core.freshness.batch_price import CountingTime
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Plan
from unskew.spark import Unskew
from unskew.spark.demo.local import STEADY
from unskew.spark.frame.histogram import histogram_of, sampling_for
from unskew.spark.frame.jvm import unpersist
from unskew.spark.frame.keys import key_of, spread_of
from unskew.spark.frame.row_sampling import every_for, near_for
from unskew.spark.place.native import route_column
from unskew.spark.place.repartition import move_rows
from unskew.spark.streaming.batch_sampling import sampled

FILES, SHARE, COLUMNS = 4, 0.39, 20
EVENT = "id bigint, word string, seen struct<pages:array<int>,note:string>, at timestamp"
BEFORE, PERSISTED, AGAIN = "persisted, sampled", "persisted", "read again"


def write_source(folder: Path, source: str, rows: int) -> None:
    """A batch as four files; one key has 39 % of the rows."""
    rng = np.random.default_rng(rows)
    words = np.where(rng.random(rows) < SHARE, KEYS, rng.integers(0, KEYS, rows)).astype(str)
    table = pa.table({"id": np.arange(rows), "word": words.tolist()})
    for at in range(COLUMNS if source == "wide" else 0):
        more = rng.random(rows) if at % 2 else rng.integers(0, 1 << 40, rows).astype(str).tolist()
        table = table.append_column(f"column{at}", pa.array(more))
    folder.mkdir(parents=True)
    for at in range(FILES):
        part = table.slice(at * rows // FILES, -(-rows // FILES))
        if source == "wide":
            pq.write_table(part, folder / f"{at}.parquet")
        else:
            (folder / f"{at}.json").write_text("".join(map(_event, *part.to_pydict().values())))


def _event(number: int, word: str) -> str:
    seen = f'{{"pages":[1,2,3],"note":"what was seen by number {number}"}}'
    return f'{{"id":{number},"word":"{word}","seen":{seen},"at":"2026-01-01T00:00:00Z"}}\n'


def stream_of(spark: SparkSession, source: str, folder: Path, rows: int) -> DataFrame:
    if source == "wide":
        return spark.readStream.schema(spark.read.parquet(str(folder)).schema).parquet(str(folder))
    if source == "json":
        return spark.readStream.text(str(folder)).select(F.from_json("value", EVENT).alias("event")).select("event.*")
    made = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", FILES)
    word = f"if(pmod(xxhash64(value), 100) < {SHARE * 100}, '{KEYS}', string(pmod(xxhash64(value, 1), {KEYS}))) word"
    return made.load().selectExpr("value id", word, "timestamp")


class Parts:
    """The parts of a counted batch, on one micro-batch's frame."""

    def __init__(self, sk: Unskew, df: DataFrame, rows: int) -> None:
        self.sk, self.df, self.rows = sk, df, rows
        self.planner = sk.plans.planner(key_of(df, "word").types)
        self.plan = self.planner.plan(self.count(df), 0)

    def count(self, df: DataFrame) -> Histogram:
        return histogram_of(df, "word", SLOTS, "id", sampling_for(self.rows, SLOTS, self.sk.sampling))

    def place(self, df: DataFrame, plan: Plan, *, sample: bool = False) -> None:
        key, spread = key_of(df, "word").hash, spread_of(df, "id").hash
        if sample:
            df, _ = sampled(df, key, spread, SLOTS, every_for(self.rows, SLOTS), near_for(FILES, SLOTS))
        run(move_rows(df, route_column(plan, key, spread if plan.splits else None), SLOTS))

    def same(self, *, persisted: bool, sample: bool = False) -> None:
        """Counted, then placed."""
        df = self.df.persist() if persisted else self.df
        self.place(df, self.planner.plan(self.count(df), 0), sample=sample)
        if persisted:
            unpersist([df])

    @property
    def all(self) -> Mapping[str, Callable[[], object]]:
        return {
            "by hash": lambda: run(self.df.repartition(SLOTS, "word")),
            "by plan": lambda: self.place(self.df, self.plan),
            "sampled": lambda: self.place(self.df, self.plan, sample=True),
            "count alone": lambda: self.count(self.df),
            AGAIN: lambda: self.same(persisted=False),
            PERSISTED: lambda: self.same(persisted=True),
            BEFORE: lambda: self.same(persisted=True, sample=True),
        }


def run(df: DataFrame) -> None:
    df.write.format("noop").mode("overwrite").save()


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


Times = dict[str, list[tuple[float, float]]]


def measure(spark: SparkSession, sk: Unskew, source: str, rows: int, rounds: int, home: Path) -> Times:
    """Seconds and processor seconds of each part in each round; the first round is left out."""
    times, done = defaultdict(list), Event()
    inner: Any = spark
    pid = int(inner._jvm.java.lang.ProcessHandle.current().pid())

    def handle(df: DataFrame, _batch: int) -> None:
        if done.is_set():
            return
        parts = Parts(sk, df, rows).all
        for number in range(rounds + 1):
            for name in list(parts)[:: 1 if number % 2 else -1]:
                began, before = time.perf_counter(), processor_seconds(pid)
                parts[name]()
                if number:
                    times[name].append((time.perf_counter() - began, processor_seconds(pid) - before))
        done.set()

    if source != "made":
        write_source(home / "in", source, rows)
    query = stream_of(spark, source, home / "in", rows).writeStream.foreachBatch(handle)
    query = query.option("checkpointLocation", str(home / "checkpoint")).start()
    while not done.wait(0.5) and query.isActive:
        pass
    query.stop()
    if not done.is_set():
        raise RuntimeError(f"the query over {source} has failed: {query.exception()}")
    return dict(times)


def judge(source: str, rows: int, times: Times) -> bool:
    """Print the parts, and whether the rule follows the cheaper one."""
    seconds = {name: median([one for one, _ in each]) for name, each in times.items()}
    java = {name: median([one for _, one in each]) for name, each in times.items()}
    print(f"{source}, {rows:,} rows; by hash {seconds['by hash']:.2f} s, {java['by hash']:.2f} processor seconds")
    for name in times:
        print(f"   {name:18} {seconds[name] / seconds['by hash']:5.2f} x   {java[name] / java['by hash']:5.2f} x")
    counting = CountingTime()
    for at in range(2):
        for name in (PERSISTED, AGAIN):
            counting = counting.after(rows, 0.0, times[name][at][0], persisted=name == PERSISTED)
    taken, cheaper = PERSISTED if counting.persists else AGAIN, min((PERSISTED, AGAIN), key=seconds.__getitem__)
    met = seconds[taken] <= 1.10 * seconds[cheaper]
    print(
        f"   {'met   ' if met else 'MISSED'} the rule takes {taken!r}: {seconds[taken] / seconds[cheaper]:.2f} of the"
    )
    print(
        f"          cheaper (mark 1.10), {seconds[taken] / seconds[BEFORE]:.2f} of persisting and sampling", flush=True
    )
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sources", nargs="+", choices=("wide", "json", "made"), default=["wide", "json", "made"])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 150_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=5)
    given, met = parser.parse_args(), []
    with bench(FILES, STEADY) as (spark, folder), Unskew(spark, stream="counting", partitions=SLOTS) as sk:
        for source in given.sources:
            for rows in given.rows:
                times = measure(spark, sk, source, rows, max(given.rounds, 2), folder / f"{source}-{rows}")
                met.append(judge(source, rows, times))
    return 0 if all(met) else 1


if __name__ == "__main__":
    raise SystemExit(main())
