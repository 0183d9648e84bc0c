"""Is ``sk.advise`` right? Random jobs, each run in three ways: Spark as it is set, one setting changed, and unskew.

A job is an operator, a distribution of keys, a number of rows, what a row costs, and Spark's settings, all drawn by
``--seed``. The one setting is the one that the advice names; where it names none a rule that does not look at the data:
no coalescing, or AQE where it is off. unskew's time has all in it: deciding, placing, the work. The ways take turns,
and the median counts; a first run of each, which is not timed, checks that results are the same. The advice is right
where its choice is the fastest of the three or within 10 % of it; mark: 28 of 30.

A row's work is a busy loop on two slots, or a wait (a call to a service) on eight. The advice is given what a row costs
(``row_seconds=``) only where there is such work; else it goes by its own defaults.

Run: ``JAVA_HOME=$(bash tools/java.sh) python -m benchmarks.advice_jobs [--jobs 30] [--seed 1] [--repeats 3] [--json]``
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.spark_join import AQE, COALESCING, session
from unskew.core.operators.advice import Advice
from unskew.spark import Unskew

OPERATORS = ("group_apply", "sql", "join", "repartition")
SKEWS = ("zipf 0", "zipf 0.8", "zipf 1.2", "zipf 1.5", "one key", "nulls")
ROWS = (20_000, 200_000, 1_000_000)
WORK = (0.0, 5e-6, 50e-6)
SHARE = 0.4  # of the one key, or of NULL
SLOTS = {"busy": 2, "wait": 8}
MOST_WORK = 8.0  # seconds of work that all rows of a job with two slots take; three times as many with eight
MOST_OUT = 4_000_000  # rows that a join yields
FILES = 8
WITHIN, MARK = 1.10, 28 / 30
SHORT = 1.0  # seconds: a job that takes less is run twice as often
BYPASS, SPREAD_NULLS = "spark.sql.execution.bypassPartialAggregation", "spark.sql.shuffle.spreadNullJoinKeys.enabled"
SKEW = "spark.sql.adaptive.skewJoin"


@dataclass(frozen=True)
class JobCase:
    """One random job. ``work``: seconds a row; ``how``: of a join; ``both``: whether its right side is skewed, too."""

    operator: str
    skew: str
    rows: int
    keys: int
    kind: str
    work: float
    how: str
    both: bool
    settings: dict[str, str]
    seed: int

    def __str__(self) -> str:
        name = f"{self.how} join{', both sides' if self.both else ''}" if self.operator == "join" else self.operator
        work = f"{self.work * 1e6:g} us {self.kind}" if self.work else "no work"
        return f"{name}, {self.skew}, {self.rows:,} rows of {self.keys:,} keys, {work}, {SLOTS[self.kind]} slots"


@dataclass(frozen=True)
class Outcome:
    """Median seconds of each way, the advice, and its own time."""

    case: JobCase
    seconds: dict[str, float]
    choice: str
    setting: str
    advice: str
    advice_seconds: float
    predicted: dict[str, float | None]

    @property
    def ratio(self) -> float:
        return self.seconds[self.choice] / min(self.seconds.values())


def draw(rng: np.random.Generator, seed: int) -> JobCase:
    operator = str(rng.choice(OPERATORS))
    kind = str(rng.choice(list(SLOTS))) if operator != "sql" else "busy"
    work = float(rng.choice(WORK)) if operator != "sql" else 0.0
    fitting = [rows for rows in ROWS if rows * work <= MOST_WORK * (SLOTS[kind] // 4 + 1)]
    keys = int(rng.choice((50, 400, 2_000) if operator == "group_apply" else (1_000, 10_000, 100_000)))
    how = str(rng.choice(("inner", "left")))
    divides = bool(rng.random() > 0.5)
    settings = {
        AQE: str(rng.random() > 0.2).lower(),
        "spark.sql.shuffle.partitions": str(rng.choice((16, 64, 200))),
        f"{SKEW}.enabled": str(rng.random() > 0.5).lower(),
        f"{SKEW}.skewedPartitionThresholdInBytes": "2MB" if divides else "256MB",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "1MB" if divides else "64MB",
        BYPASS: str(rng.random() > 0.7).lower(),
    }
    skew = str(rng.choice(SKEWS))
    return JobCase(
        operator, skew, int(rng.choice(fitting)), keys, kind, work, how, bool(rng.random() < 0.4), settings, seed
    )


def keys_of(skew: str, rows: int, keys: int, rng: np.random.Generator) -> pa.Array:
    """The key of each row; key 0 is the heaviest."""
    exponent = float(skew.split()[1]) if skew.startswith("zipf") else 0.0 if skew == "one key" else 0.8
    share = np.arange(1, keys + 1, dtype=float) ** -exponent
    drawn = rng.choice(keys, rows, p=share / share.sum())
    some = rng.random(rows) < SHARE
    if skew == "one key":
        drawn[some] = 0
    return pa.array(drawn, pa.int64(), mask=some if skew == "nulls" else None)


def write_frame(spark: SparkSession, folder: Path, keys: pa.Array, rng: np.random.Generator) -> DataFrame:
    """Rows with these keys, an id and a value, in some files."""
    folder.mkdir(parents=True)
    table = pa.table({"k": keys, "id": np.arange(len(keys)), "value": rng.random(len(keys))})
    for number, part in enumerate(np.array_split(np.arange(len(keys)), FILES)):
        pq.write_table(table.slice(int(part[0]) if len(part) else 0, len(part)), folder / f"{number}.parquet")
    return spark.read.parquet(str(folder))


def right_keys(case: JobCase, left: pa.Array, rng: np.random.Generator) -> pa.Array:
    """One row a key; or skewed as the left side is, with as many rows as the output allows."""
    if not case.both:
        return pa.array(np.arange(case.keys), pa.int64())
    rows = case.keys
    counts = np.bincount(left.drop_null().to_numpy(), minlength=case.keys)
    skew = "zipf 0.8" if case.skew == "nulls" else case.skew
    most = min(MOST_OUT, MOST_WORK / case.work) if case.work else MOST_OUT
    while True:
        right = keys_of(skew, rows, case.keys, rng)
        if int(counts[right.to_numpy()].sum()) <= most or rows <= 100:
            return right
        rows //= 2


def labour(seconds: float, kind: str) -> None:
    """What the user's own work takes."""
    if kind == "wait":
        time.sleep(seconds)
        return
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


Ways = dict[str, Callable[[], DataFrame]]


def ways_of(case: JobCase, sk: Unskew, df: DataFrame, right: DataFrame | None) -> Ways:
    """Spark's own way and unskew's."""
    work, kind, n = case.work, case.kind, sk.partitions

    def group(rows: object) -> object:
        labour(len(rows) * work, kind)
        return rows.assign(n=len(rows)).head(1)[["k", "n", "value"]]

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            labour(batch.num_rows * work, kind)
            yield batch

    def after(frame: DataFrame) -> DataFrame:
        return frame.mapInArrow(each, frame.schema) if work or case.operator == "repartition" else frame

    if case.operator == "group_apply":
        schema = "k long, n long, value double"
        return {
            "spark": lambda: df.groupBy("k").applyInPandas(group, schema),
            "unskew": lambda: sk.group_apply(df, "k", group, schema),
        }
    if case.operator == "join":
        assert right is not None
        return {
            "spark": lambda: after(df.join(right, "k", case.how)),
            "unskew": lambda: after(sk.join(df, right, "k", case.how)),
        }
    if case.operator == "repartition":
        return {"spark": lambda: after(df.repartition(n, "k")), "unskew": lambda: after(sk.repartition(df, "k"))}
    return {"spark": lambda: summed(df), "unskew": lambda: in_pieces(sk, df)}


def summed(df: DataFrame) -> DataFrame:
    return df.groupBy("k").agg(F.sum("id").alias("ids"), F.count("value").alias("n"))


def in_pieces(sk: Unskew, df: DataFrame) -> DataFrame:
    """A plan under an aggregate of Spark's: pieces where the plan puts them, then merged."""
    sk.plan(df, "k", spread="id")
    pieces = sk.repartition(df, "k", column="at").groupBy("at", "k")
    states = pieces.agg(F.sum("id").alias("ids"), F.count("value").alias("n"))
    return states.groupBy("k").agg(F.sum("ids").alias("ids"), F.sum("n").alias("n"))


def checksum(df: DataFrame) -> tuple[object, ...]:
    """Of the rows that come out, whatever their order. A group's value is any of its rows'."""
    columns = [name for name in df.columns if name != "value"]
    whole = F.sum(F.xxhash64(*columns).cast("decimal(38,0)"))
    row = df.agg(F.count(F.lit(1)), whole).head()
    return tuple(row) if row is not None else ()


class Bench:
    """One job's ways under its settings."""

    def __init__(self, spark: SparkSession, folder: Path, case: JobCase) -> None:
        self.spark, self.folder, self.case = spark, folder, case
        rng = np.random.default_rng(case.seed)
        left = keys_of(case.skew, case.rows, case.keys, rng)
        self.df = write_frame(spark, folder / "left", left, rng)
        self.right = None
        if case.operator == "join":
            self.right = write_frame(spark, folder / "right", right_keys(case, left, rng), rng)
            self.right = self.right.select("k", F.col("value").alias("other"))
        self.sk = Unskew(spark, stream="advice", partitions=2 * SLOTS[case.kind])
        self.ways = ways_of(case, self.sk, self.df, self.right)
        self.files = case.operator == "join" and not case.work

    def advice(self) -> Advice:
        case = self.case
        cost = {"row_seconds": case.work} if case.work else {}
        return self.sk.advise(self.df, "k", case.operator, other=self.right, how=case.how, **cost)

    def under(self, settings: dict[str, str], run: Callable[[], object]) -> object:
        for name, value in settings.items():
            self.spark.conf.set(name, value)
        try:
            return run()
        finally:
            for name in settings:
                self.spark.conf.unset(name)

    def timed(self, name: str, settings: dict[str, str]) -> float:
        def run() -> float:
            start = time.perf_counter()
            writer = self.ways[name]().write.mode("overwrite")
            writer.parquet(str(self.folder / "out")) if self.files else writer.format("noop").save()
            return time.perf_counter() - start

        return float(self.under(settings, run))

    def outcome(self, repeats: int) -> Outcome:
        advice = self.under(self.case.settings, self.advice)  # what is slow the first time is Java
        start = time.perf_counter()
        advice = self.under(self.case.settings, self.advice)
        took = time.perf_counter() - start
        assert isinstance(advice, Advice)
        changed = advice.setting or fixed_setting(self.case)
        ways = {
            "spark": ("spark", self.case.settings),
            "setting": ("spark", {**self.case.settings, **dict([changed.split("=", 1)])}),
            "unskew": ("unskew", self.case.settings),
        }
        sums = {
            name: self.under(told, lambda way=way: checksum(self.ways[way]())) for name, (way, told) in ways.items()
        }
        if len(set(sums.values())) != 1:
            raise SystemExit(f"{self.case}: results differ: {sums}")
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        turns = repeats
        while len(seconds["spark"]) < turns:
            for name in list(ways)[:: 1 if len(seconds["spark"]) % 2 else -1]:
                way, told = ways[name]
                seconds[name].append(self.timed(way, told))
            if min(map(min, seconds.values())) < SHORT:
                turns = 2 * repeats - 1
        self.sk.release()
        choice = advice.choice if advice.setting is None else "setting"
        each = {name: float(np.median(times)) for name, times in seconds.items()}
        told = {"spark": advice.spark_seconds, "setting": advice.setting_seconds, "unskew": advice.unskew_seconds}
        return Outcome(self.case, each, choice, changed, str(advice), took, told)


def fixed_setting(case: JobCase) -> str:
    return f"{COALESCING}=false" if case.settings[AQE] == "true" else f"{AQE}=true"


def run(cases: list[JobCase], repeats: int, say: Callable[[str], None]) -> list[Outcome]:
    """Jobs with the same number of slots one after another: that number is a session's."""
    outcomes = []
    for kind, slots in SLOTS.items():
        mine = [case for case in cases if case.kind == kind]
        if not mine:
            continue
        spark = session(slots)
        try:
            for case in mine:
                with tempfile.TemporaryDirectory(prefix="unskew-advice-") as name:
                    outcomes.append(Bench(spark, Path(name), case).outcome(repeats))
                say(shown(len(outcomes), outcomes[-1]))
        finally:
            spark.stop()
    return outcomes


def shown(number: int, one: Outcome) -> str:
    times = ", ".join(f"{name} {seconds:.2f}" for name, seconds in one.seconds.items())
    mark = "right" if one.ratio <= WITHIN else "WRONG"
    on = ", ".join(f"{name.removeprefix('spark.sql.')}={value}" for name, value in one.case.settings.items())
    guess = ", ".join(f"{name} {seconds:.2f}" for name, seconds in one.predicted.items() if seconds is not None)
    lines = (
        f"{number:2} {mark} {one.ratio:.2f}: {one.case}",
        on,
        f"{times} s ({one.setting})",
        f"predicted {guess}; advice in {one.advice_seconds:.2f} s: {one.advice}",
    )
    return "\n     ".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", type=int, nargs="*", help="only these of the jobs, by number")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    cases = [draw(rng, given.seed * 1000 + number) for number in range(given.jobs)]
    if given.only:
        cases = [cases[number] for number in given.only]
    outcomes = run(
        cases, given.repeats, lambda text: print(text, file=sys.stderr if given.json else sys.stdout, flush=True)
    )
    right = sum(one.ratio <= WITHIN for one in outcomes)
    held = right >= MARK * len(outcomes) - 1e-9
    if given.json:
        print(json.dumps([{**asdict(one), "ratio": one.ratio} for one in outcomes], indent=1))
    else:
        print(
            f"{right} of {len(outcomes)} within 10 %; mark {MARK * len(outcomes):.0f}: {'held' if held else 'missed'}"
        )
    return 0 if held else 1


if __name__ == "__main__":
    raise SystemExit(main())
