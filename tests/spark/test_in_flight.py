"""Rows placed in flight: the rows that came, each once; and what Spark is told of where they are is true.

A frame is compared with what Spark makes of the same rows without us, as a multiset. Keys whole and cut, AQE on and
off.
"""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pandas as pd
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from tests.doses import new_seeds, some_of
from tests.servers import wait_for
from tests.spark.failures.gates import Gate
from tests.spark.frames import KEYS, setting, shuffles, typed_frame
from unskew.core.in_flight.assign import TaskRanges
from unskew.spark import Unskew
from unskew.spark.frame.jvm import expected_rows
from unskew.spark.in_flight import place
from unskew.spark.in_flight.cell_sample import SampledCells

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

long = pytest.mark.long
ADAPTIVE = pytest.mark.parametrize("adaptive", ["true", "false"])
MOSTLY_ADAPTIVE = pytest.mark.parametrize("adaptive", ["true", pytest.param("false", marks=long)])  # what takes long
WHOLE, CUT = "kip", "prompt"
SEEN = "key string, rows bigint, ids bigint"
MOST_CALLS = 200  # of the JVM, to place a frame of few columns; there were 326
_EXACT = ("float", "double")  # keys that are counted first


@pytest.fixture(scope="module")
def sessions(spark: SparkSession) -> dict[str, Unskew]:
    """One whose policy keeps keys whole, one whose policy may cut them."""
    return {policy: Unskew(spark, stream=f"in-flight-{policy}", partitions=5, policy=policy) for policy in (WHOLE, CUT)}


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    """A key with 40 % of the rows, many light ones, NULLs."""
    return skewed(spark, 4_000)


def skewed(spark: SparkSession, count: int, *, parts: int = 4) -> DataFrame:
    key = "case when id % 5 < 2 then 0 when id % 31 = 7 then null else id % 200 end"
    return spark.range(0, count, 1, parts).selectExpr("id", f"{key} k", "concat('v', id % 13) v")


def placed_by(sk: Unskew, df: DataFrame, key: Any, **more: Any) -> DataFrame:
    """Placed in flight, and not in any other way."""
    sk._placed = None
    made = sk.repartition(df, key, **more)
    assert sk.placed is not None, "the rows were counted first"
    return made


def multiset(df: DataFrame) -> Counter[str]:
    """All rows, each as often as it is there; what has no order of its own is written as text."""
    return Counter(repr(row) for row in df.collect())


def same(one: DataFrame, other: DataFrame) -> None:
    found, wanted = multiset(one), multiset(other)
    assert found == wanted, list(((found - wanted) + (wanted - found)).items())[:5]


# -- the rows that came ---------------------------------------------------------------------------------------


@MOSTLY_ADAPTIVE
@pytest.mark.parametrize("policy", some_of([WHOLE, CUT], WHOLE))
def test_every_key_type_with_its_edges(
    spark: SparkSession, sessions: dict[str, Unskew], policy: str, adaptive: str
) -> None:
    """NULLs, both zeros, NaN, the largest numbers: the rows are those that came, and with whole keys each key is in one
    task. Keys of floats are counted first."""
    frame = typed_frame(spark, 700).cache()
    try:
        with setting(spark, spark__sql__adaptive__enabled=adaptive):
            chosen = list(KEYS) if adaptive == "true" else ["double", "string", "decimal(38,10)", "void"]
            for kind in chosen:
                name, sk = f"c{list(KEYS).index(kind)}", sessions[policy]
                sk._placed = None
                found = sk.repartition(frame.select("id", name), name)
                assert (sk.placed is None) is (kind in _EXACT), kind
                table = found.select("id", F.hash(name).alias("h"), F.spark_partition_id().alias("at")).toPandas()
                assert sorted(table["id"]) == list(range(700)), kind
                if policy == WHOLE:
                    assert (table.groupby("h")["at"].nunique() == 1).all(), kind
    finally:
        frame.unpersist()


def sources(spark: SparkSession, folder: Path) -> dict[str, Callable[[], DataFrame]]:
    """Frames of many makes, each with a column ``k``."""
    few = skewed(spark, 600)

    def stored() -> DataFrame:
        few.write.mode("overwrite").parquet(str(folder / "rows"))
        return spark.read.parquet(str(folder / "rows"))

    other = few.selectExpr("id", "k other")
    empty = spark.createDataFrame(spark.sparkContext.emptyRDD(), "id long, k long, v string")
    nested = ("named_struct('a', k, 'b', array(id, null)) s", "map(v, k) m", "array(named_struct('x', v)) l")
    return {
        "parquet": stored,
        "parquet, filtered": lambda: stored().where("k = 0 and id % 3 = 1"),
        "range": lambda: spark.range(500).withColumn("k", F.col("id") % 7),
        "joined": lambda: few.join(other, "id"),
        "joined by broadcast": lambda: few.join(F.broadcast(other), "id"),
        "product": lambda: few.limit(40).crossJoin(other.limit(20).select("other")),
        "aggregated": lambda: few.groupBy("k").agg(F.count("*").alias("n"), F.collect_set("v").alias("vs")),
        "aggregated without keys": lambda: few.agg(F.max("k").alias("k"), F.sum("id").alias("s")),
        "cached": few.cache,
        "union": lambda: few.union(few).unionByName(few.selectExpr("v", "k", "id")),
        "limit": lambda: few.orderBy("id").limit(77),
        "sorted": lambda: few.orderBy(F.desc("k"), "id"),
        "round robin": lambda: few.repartition(7),
        "by the key": lambda: few.repartition(6, "k"),
        "by the key, as many as cells": lambda: few.repartition(20, "k"),
        "coalesced": lambda: few.coalesce(1),
        "window": lambda: few.selectExpr("*", "row_number() over (partition by v order by id) r"),
        "subquery": lambda: few.where("id > (select 17)"),
        "exploded": lambda: few.selectExpr("id", "k", "explode(sequence(1, 3)) x"),
        "python": lambda: few.mapInPandas(lambda parts: parts, few.schema),
        "nested": lambda: few.selectExpr("id", "k", *nested),
        "variant": lambda: few.selectExpr("id", "k", "parse_json(concat('{\"a\":', id, '}')) x"),
        "wide": lambda: few.selectExpr("id", "k", *(f"id + {at} c{at}" for at in range(150))),
        "long rows": lambda: few.limit(60).selectExpr("id", "k", "repeat(v, 40000) x"),
        "duplicates": lambda: few.selectExpr("1 id", "k % 2 k"),
        "a key that is NULL": lambda: few.selectExpr("id", "cast(null as string) k"),
        "two names alike": lambda: few.selectExpr("id", "k", "v x", "id x"),
        "odd names": lambda: few.selectExpr("id", "k", "v `a.b`", "v `__unskew_sample`", "id `__unskew_row`"),
        "one row": lambda: few.where("id = 3"),
        "no rows": lambda: few.where("id < 0"),
        "no rows, as Spark knows": lambda: few.where("false"),
        "no rows after a join": lambda: few.where("id < 0").join(other, "id"),
        "no partitions": lambda: empty,
        "one partition": lambda: few.coalesce(1),
    }


FEW_MAKES = (
    "cached",
    "by the key, as many as cells",
    "subquery",
    "python",
    "nested",
    "long rows",
    "odd names",
    "no rows, as Spark knows",
    "no partitions",
)
"""The dearest to get wrong; ``test_groups_of_any_make`` has others."""


@pytest.mark.parametrize(
    ("few", "adaptive"),
    [(FEW_MAKES, "true"), pytest.param(None, "true", marks=long), pytest.param(None, "false", marks=long)],
    ids=["few", "true", "false"],
)
def test_rows_of_any_make(
    spark: SparkSession, sessions: dict[str, Unskew], tmp_path: Path, few: tuple[str, ...] | None, adaptive: str
) -> None:
    """Files, joins, aggregates, caches, unions, limits, other placements, no rows: the same rows, the same schema."""
    makes = sources(spark, tmp_path)
    with setting(spark, spark__sql__adaptive__enabled=adaptive):
        for at, name in enumerate(few or makes):
            df, sk = makes[name](), sessions[(WHOLE, CUT)[at % 2]]
            made = sk.repartition(df, df["k"])
            assert made.schema == df.schema, name
            assert multiset(made) == multiset(df), name
    spark.catalog.clearCache()


def seen(key: Any, group: Any) -> Any:
    return pd.DataFrame({"key": [repr(key)], "rows": [len(group)], "ids": [sum(map(int, group["id"]))]})


@MOSTLY_ADAPTIVE
def test_groups_of_any_make(spark: SparkSession, sessions: dict[str, Unskew], tmp_path: Path, adaptive: str) -> None:
    """``group_apply`` shows a function what Spark's own ``applyInPandas`` does, all makes compared in one job."""
    names = ["joined", "aggregated", "no rows", "a key that is NULL"]
    makes = {name: make for name, make in sources(spark, tmp_path).items() if name in names}
    ours, plain = [], []
    with setting(spark, spark__sql__adaptive__enabled=adaptive):
        for name, make in makes.items():
            df = make().select("id", "k") if name != "aggregated" else make().selectExpr("n id", "k")
            sk = sessions[WHOLE]
            sk._placed = None
            ours.append(sk.group_apply(df, "k", seen, SEEN).withColumn("make", F.lit(name)))
            assert sk.placed is not None, name
            plain.append(df.groupBy("k").applyInPandas(seen, SEEN).withColumn("make", F.lit(name)))
        found, wanted = ours[0], plain[0]
        for one, other in zip(ours[1:], plain[1:], strict=True):
            found, wanted = found.unionAll(one), wanted.unionAll(other)
        same(found, wanted)


def random_frame(spark: SparkSession, seed: int) -> tuple[DataFrame, list[str]]:
    """Some rows in some partitions, of some skew, with one to three key columns of any types."""
    rng = random.Random(seed)
    count, parts = rng.choice([0, 1, 2, 17, 300, 1_500]), rng.choice([1, 2, 3, 9])
    exponent = rng.choice([0.3, 1.0, 4.0])
    base = spark.range(0, count, 1, parts).selectExpr(
        "id",
        f"cast(pow(pmod(xxhash64(id, {seed}), 1000) / 1000, {2 * exponent}) * {rng.choice([1, 30, 500])} as bigint) k",
    )
    kinds = rng.sample(list(KEYS), rng.choice([1, 1, 2, 3]))
    nulls = rng.choice([2, 12, 1_000_000])
    keys = [f"if(pmod(k, {nulls}) = {nulls - 1}, null, {KEYS[kind]}) c{at}" for at, kind in enumerate(kinds)]
    payload = rng.choice(["id x", "array(id, null) x", "named_struct('a', id, 'b', string(id)) x", "map(id, k) x"])
    df = base.selectExpr("id", "k", payload, *keys)
    if rng.random() < 0.3:
        df = df.repartition(rng.choice([1, 3]))
    if rng.random() < 0.2:
        df = df.unionAll(df)
    return df, [f"c{at}" for at in range(len(kinds))]


def check_random(spark: SparkSession, sessions: dict[str, Unskew], seed: int) -> None:
    df, keys = random_frame(spark, seed)
    sk = sessions[(WHOLE, CUT)[seed % 2]]
    with setting(spark, spark__sql__adaptive__enabled=("true", "false")[seed // 2 % 2]):
        made = sk.repartition(df, keys)
        same(made, df)
        same(made.groupBy(*keys).agg(F.count("*"), F.sum("id")), df.groupBy(*keys).agg(F.count("*"), F.sum("id")))
        if seed % 3 == 0:
            part = df.select("id", *keys)
            same(sk.group_apply(part, keys, seen, SEEN), part.groupBy(*keys).applyInPandas(seen, SEEN))


def test_some_random_frames(spark: SparkSession, sessions: dict[str, Unskew]) -> None:
    """A small dose, of the same seeds each time."""
    for seed in (1, 6):  # keys cut with AQE on, whole with AQE off and by groups
        check_random(spark, sessions, seed)


@pytest.mark.long
def test_three_hundred_random_frames(spark: SparkSession, sessions: dict[str, Unskew]) -> None:
    """The full dose, of new seeds each time."""
    new_seeds(300, lambda seed: check_random(spark, sessions, seed))


# -- what Spark is told ---------------------------------------------------------------------------------------

QUERIES: dict[str, Callable[[DataFrame, DataFrame, DataFrame], DataFrame]] = {
    "grouped": lambda one, _, __: one.groupBy("k").agg(F.count("*"), F.sum("id")),
    "grouped by more": lambda one, _, __: one.groupBy("k", "v").count(),
    "grouped by another": lambda one, _, __: one.groupBy("v").count(),
    "distinct": lambda one, _, __: one.select("k").distinct(),
    "duplicates dropped": lambda one, _, __: one.dropDuplicates(["k"]).select("k"),
    "distinct counted": lambda one, _, __: one.groupBy("k").agg(F.countDistinct("v"), F.countDistinct("id")),
    "window": lambda one, _, __: one.selectExpr("*", "sum(id) over (partition by k order by id) s"),
    "window over all": lambda one, _, __: one.selectExpr("*", "count(1) over (partition by k) n").where("n < 9"),
    "joined with another": lambda one, two, _: one.join(two, "k").groupBy("k").count(),
    "left join": lambda one, two, _: one.join(two.where("k > 30").select("k").distinct(), "k", "left_anti"),
    "outer join": lambda one, two, _: one.join(two.where("k > 30"), "k", "full").groupBy("k").count(),
    "joined with itself": lambda one, _, __: one.join(one, "k").groupBy("k").count(),
    "joined by alias": lambda one, _, __: one.alias("a").join(one.alias("b"), F.expr("a.k = b.k and a.id = b.id")),
    "joined with a shuffled one": lambda one, _, rows: one.join(rows.repartition(5, "k"), "k").groupBy("k").count(),
    "joined with as many as cells": lambda one, _, rows: one.join(rows.repartition(20, "k"), "k").groupBy("k").count(),
    "joined with the source": lambda one, _, rows: one.join(rows, "id").select("id"),
    "joined with its groups": lambda one, _, __: one.join(one.groupBy("k").count(), "k"),
    "union": lambda one, two, _: one.union(two).groupBy("k").count(),
    "union with itself": lambda one, _, __: one.union(one).groupBy("k").count(),
    "union, joined": lambda one, two, _: one.union(two).join(two, "k").groupBy("k").count(),
    "intersected": lambda one, two, _: one.select("k").intersect(two.select("k")),
    "less": lambda one, two, _: one.select("id", "k").exceptAll(two.select("id", "k")),
    "coalesced": lambda one, _, __: one.coalesce(2).groupBy("k").count(),
    "placed again": lambda one, _, __: one.repartition(3, "k").groupBy("k").count(),
    "renamed": lambda one, _, __: one.selectExpr("k as other", "id").groupBy("other").agg(F.sum("id")),
    "changed": lambda one, _, __: one.withColumn("k", F.col("k") % 3).groupBy("k").count(),
    "changed, joined": lambda one, two, _: one.withColumn("k", F.col("k") % 50).join(two, "k").groupBy("k").count(),
    "sorted": lambda one, _, __: one.orderBy("k", "id").limit(50),
    "pivot": lambda one, _, __: one.groupBy("k").pivot("v", ["v1", "v2"]).count(),
    "cogrouped": lambda one, two, _: (
        one.groupBy("k").cogroup(two.groupBy("k")).applyInPandas(both, "k bigint, n bigint")
    ),
}


def both(key: Any, left: Any, right: Any) -> Any:
    return pd.DataFrame({"k": [key[0]], "n": [len(left) * 100_000 + len(right)]})


FEW_QUERIES = ("grouped", "window", "left join", "joined with itself", "joined with its groups", "union", "cogrouped")
"""Of cut keys Spark is told nothing, so that it asks for a shuffle of its own each time."""
SOME_QUERIES = (
    *FEW_QUERIES,
    "distinct counted",
    "joined with another",
    "outer join",
    "joined with as many as cells",
    "union, joined",
    "placed again",
    "changed, joined",
)


@pytest.mark.parametrize(
    ("policy", "column", "adaptive", "names"),
    [
        (WHOLE, None, "true", SOME_QUERIES),
        (CUT, "at", "false", FEW_QUERIES[:4]),
        *(
            pytest.param(*each, tuple(QUERIES), marks=long)
            for each in product((WHOLE, CUT), (None, "at"), ("true", "false"))
        ),
    ],
)
def test_what_is_asked_of_a_placed_frame_is_what_spark_says(
    spark: SparkSession,
    sessions: dict[str, Unskew],
    policy: str,
    column: str | None,
    adaptive: str,
    names: tuple[str, ...],
) -> None:
    """Whatever uses where rows are: groups, windows, all kinds of joins with frames placed alike or otherwise, unions,
    sets. No broadcast, so that every join asks where rows are. All questions in one job."""
    one, two = skewed(spark, 500), skewed(spark, 300, parts=2).where("k is null or k % 3 > 0")
    sk = sessions[policy]
    with setting(spark, spark__sql__adaptive__enabled=adaptive, spark__sql__autoBroadcastJoinThreshold=-1):
        placed = [placed_by(sk, df, "k", column=column) for df in (one, two)]
        if column is not None:
            placed = [df.drop(column) for df in placed]
        ours, plain = (
            [
                QUERIES[name](left, right, one).select(F.lit(name).alias("q"), F.to_json(F.struct("*")).alias("row"))
                for name in names
            ]
            for left, right in (placed, (one, two))
        )
        for begin in range(0, len(ours), 10):
            found, wanted = union(ours[begin : begin + 10]), union(plain[begin : begin + 10])
            same(found, wanted)


def union(frames: list[DataFrame]) -> DataFrame:
    made = frames[0]
    for one in frames[1:]:
        made = made.unionAll(one)
    return made


@MOSTLY_ADAPTIVE
def test_whole_keys_are_grouped_without_another_shuffle(
    spark: SparkSession, sessions: dict[str, Unskew], rows: DataFrame, adaptive: str
) -> None:
    """Spark is told; of cut ones it is not, as it would be untrue."""
    with setting(spark, spark__sql__adaptive__enabled=adaptive):
        whole, cut = (placed_by(sessions[policy], rows, "k") for policy in (WHOLE, CUT))
        assert sessions[CUT].placed is not None
        assert sessions[CUT].placed.ranges.cuts
        assert shuffles(whole.groupBy("k").count()) == []
        assert len(shuffles(cut.groupBy("k").count())) == 1
        numbered = placed_by(sessions[CUT], rows, "k", column="at")
        assert shuffles(numbered.groupBy("at", "k").count()) == []
        same(numbered.groupBy("k").count(), rows.groupBy("k").count())


@MOSTLY_ADAPTIVE
def test_the_column_is_the_task(
    spark: SparkSession, sessions: dict[str, Unskew], rows: DataFrame, adaptive: str
) -> None:
    """A row's number is that of the partition it is in, joined with itself or not."""
    with setting(spark, spark__sql__adaptive__enabled=adaptive, spark__sql__autoBroadcastJoinThreshold=-1):
        made = placed_by(sessions[CUT], rows, "k", column="at")
        assert made.where(F.col("at") != F.spark_partition_id()).count() == 0
        pairs = (
            made.groupBy("at").agg(F.count("*").alias("n")).join(made.groupBy("at").agg(F.sum("id").alias("s")), "at")
        )
        found = {row.at: (row.n, row.s) for row in pairs.collect()}
        assert sum(n for n, _ in found.values()) == 4_000
        assert sum(s for _, s in found.values()) == sum(range(4_000))
        two = [
            placed_by(sessions[CUT], rows, "k", column="at"),
            placed_by(sessions[CUT], rows.where("k = 0"), "k", column="at"),
        ]
        plain = [spark.createDataFrame(df.toPandas().convert_dtypes()) for df in two]
        same(
            two[0].join(two[1], "at").groupBy("at").count(),
            plain[0].join(plain[1], "at").selectExpr("int(at) at").groupBy("at").count(),
        )


@pytest.mark.parametrize("policy", some_of([WHOLE, CUT], CUT))
def test_a_frame_is_used_twice_cached_or_never(
    spark: SparkSession, sessions: dict[str, Unskew], rows: DataFrame, policy: str
) -> None:
    """Each use reads the same shuffle: the source is read once, when the frame is placed."""
    read = spark.sparkContext.accumulator(0)

    def counted(parts: Any) -> Any:
        for part in parts:
            read.add(len(part))
            yield part

    source = rows.mapInPandas(counted, rows.schema)
    made = placed_by(sessions[policy], source, "k")
    assert read.value == 4_000
    wanted = multiset(rows)
    assert multiset(made) == wanted
    assert multiset(made) == wanted
    made.cache()
    try:
        assert multiset(made) == wanted
        assert made.groupBy("k").count().count() == rows.groupBy("k").count().count()
        assert multiset(made.join(made.select("id"), "id")) == wanted
    finally:
        made.unpersist()
    assert read.value == 4_000
    placed_by(sessions[policy], rows, "k")  # never used


def test_columns_of_the_source_are_those_of_the_placed_frame(
    spark: SparkSession, sessions: dict[str, Unskew], rows: DataFrame
) -> None:
    """As with Spark's own ``repartition``: ``df["k"]``, aliases, a view."""
    for policy in (WHOLE, CUT):
        made = placed_by(sessions[policy], rows, rows["k"])
        same(made.select(rows["k"], rows.v), rows.select("k", "v"))
        same(made.where(rows["k"] == 7).groupBy(rows["k"]).count(), rows.where("k = 7").groupBy("k").count())
        same(made.alias("m").select("m.k", "m.id"), rows.select("k", "id"))
        made.createOrReplaceTempView("made_in_flight")
        same(
            spark.sql("select k, count(*) n from made_in_flight group by k"),
            rows.groupBy("k").agg(F.count("*").alias("n")),
        )
        spark.catalog.dropTempView("made_in_flight")


def test_a_key_may_be_an_expression(sessions: dict[str, Unskew], rows: DataFrame) -> None:
    for policy in (WHOLE, CUT):
        made = placed_by(sessions[policy], rows, [F.upper("v"), F.col("k") % 4])
        same(made, rows)
        by = [F.upper("v").alias("u"), (F.col("k") % 4).alias("m")]
        same(made.groupBy(*by).count(), rows.groupBy(*by).count())


# -- what is counted ------------------------------------------------------------------------------------------


def spread_of(df: DataFrame) -> list[int]:
    """The rows of each partition that has any, the largest first."""
    counts = df.groupBy(F.spark_partition_id().alias("at")).count().select("count").collect()
    return sorted((row["count"] for row in counts), reverse=True)


def test_far_fewer_rows_than_spark_expects_are_placed_evenly_all_the_same(
    spark: SparkSession, sessions: dict[str, Unskew], tmp_path: Path
) -> None:
    """Spark takes a join for the product of its sides, a filtered file for the whole one, a text for many short values:
    the sample is not as thin as that would say."""
    spark.range(0, 40_000, 1, 4).selectExpr("id", "id % 500 k", "repeat(concat('v', id), 200) v").write.parquet(
        str(tmp_path / "t")
    )
    stored = spark.read.parquet(str(tmp_path / "t"))
    frames = {
        "a join": stored.join(stored.selectExpr("id", "k other"), "id"),
        "a filter": stored.where("id % 50 < 3 and v is not null"),
        "long values": stored,
        "groups": stored.groupBy("id", "k").count(),
    }
    for name, df in frames.items():
        made = placed_by(sessions[CUT], df, "k")
        counts = spread_of(made)
        assert 4 <= len(counts) <= 16, name
        assert counts[0] <= 2.5 * sum(counts) / len(counts), name


def test_rows_are_expected_where_spark_can_know(spark: SparkSession, rows: DataFrame) -> None:
    """By its own count; nothing where rows are filtered, joined, grouped or made first."""
    long = spark.range(0, 5_000, 1, 3)
    assert expected_rows(long) == 5_000
    assert expected_rows(long.selectExpr("id + 1 k").repartition(3).orderBy("k")) == 5_000
    assert expected_rows(long.union(long)) == 10_000
    for df in (
        long.where("id % 2 = 0"),
        long.join(long.selectExpr("id", "id b"), "id"),
        long.groupBy(F.col("id") % 7).count(),
        long.selectExpr("explode(sequence(0, id))"),
        long.limit(3),
    ):
        assert expected_rows(df) == 0


@pytest.mark.parametrize("rows_expected", [0, 200_000, 10**10])
def test_a_sample_counts_late_rows_of_a_task_as_much_as_early_ones(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, rows_expected: int
) -> None:
    """Keys that come one after another in their task, each as often, whatever was expected: each level's rows stand
    for as many as they are."""
    samples = []
    of = SampledCells.of
    monkeypatch.setattr(SampledCells, "of", lambda self, stage: samples.append(of(self, stage)) or samples[-1])
    monkeypatch.setattr(place, "expected_rows", lambda _: rows_expected)
    df = spark.range(0, 1_200_000, 1, 2).selectExpr("id div 60000 k")
    sk = Unskew(spark, stream="late", partitions=16, policy=WHOLE)
    placed_by(sk, df, "k")
    histogram = samples[0].histogram
    assert samples[0].rows == 1_200_000
    assert len(histogram.hashes) == 20
    tolerance = 0.5 if rows_expected > 10**6 else 0.2
    assert histogram.counts.tolist() == pytest.approx([60_000] * 20, rel=tolerance)
    assert len(samples[0].loads.cells) < 150_000


def test_what_the_user_observes_is_told(spark: SparkSession, sessions: dict[str, Unskew], rows: DataFrame) -> None:
    """A frame that is observed below is read once, when it is placed: then its observation is there."""
    for adaptive in ("true", "false"):
        with setting(spark, spark__sql__adaptive__enabled=adaptive):
            watch: Any = Observation()
            placed_by(sessions[WHOLE], rows.observe(watch, F.count("*").alias("n"), F.max("id").alias("m")), "k")
            assert watch._jo.future().isCompleted()
            assert watch.get == {"n": 4_000, "m": 3_999}


def test_what_was_decided_is_shown(sessions: dict[str, Unskew], rows: DataFrame) -> None:
    """Tasks by descending load, the heavy key by its share, cut or not; as the rows lie in truth."""
    for policy in (WHOLE, CUT):
        sk = sessions[policy]
        made = placed_by(sk, rows, "k")
        decided = sk.placed
        assert decided is not None
        assert isinstance(decided.ranges, TaskRanges)
        assert decided.rows == 4_000
        assert list(decided.loads) == sorted(decided.loads, reverse=True)
        assert f"4,000 rows in {len(decided.loads)} tasks" in str(decided)
        assert decided.ranges.cuts is (policy == CUT)
        counts = {row["at"]: row["count"] for row in made.groupBy(F.spark_partition_id().alias("at")).count().collect()}
        lying = np.array([counts.get(at, 0) for at in range(len(decided.loads))])
        assert lying.tolist() == list(decided.loads), "every row of so few is in the sample"


@pytest.mark.parametrize("policy", [WHOLE, CUT])
def test_a_placement_asks_the_jvm_seldom(
    spark: SparkSession, sessions: dict[str, Unskew], rows: DataFrame, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """A small frame pays for each call. What Python lets go of counts for nothing: when that is told is chance."""
    client: Any = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]  # classic Spark has one
    send, sent = client.send_command, []

    def counted(command: str, *more: Any, **named: Any) -> Any:
        sent.append(command)
        return send(command, *more, **named)

    monkeypatch.setattr(client, "send_command", counted)
    placed_by(sessions[policy], rows, "k")
    asked = [command for command in sent if not command.startswith("m\n")]
    assert 0 < len(asked) <= MOST_CALLS


# -- what cannot be placed in flight, and what fails ----------------------------------------------------------


def test_where_spark_is_other_than_expected_rows_are_counted_first(
    spark: SparkSession,
    sessions: dict[str, Unskew],
    rows: DataFrame,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One clear line, once, and the same rows."""
    monkeypatch.setattr(place, "_logged", set())
    monkeypatch.setattr("unskew.spark.in_flight.map_stage._exchange", refuse)
    sk = sessions[CUT]
    sk._placed = None
    for _ in range(2):
        same(sk.repartition(rows, "k"), rows)
    assert sk.placed is None
    assert caplog.text.count("rows are counted before they are placed") == 1


def refuse(plan: Any, cells: int) -> Any:
    from unskew.spark.in_flight.map_stage import NotAsExpectedError

    raise NotAsExpectedError("another Spark")


@ADAPTIVE
def test_the_users_own_failure_is_raised_as_spark_raises_it(
    spark: SparkSession, sessions: dict[str, Unskew], rows: DataFrame, adaptive: str
) -> None:
    """And nothing is left that runs or is half done: the next frame is placed as ever."""
    with setting(spark, spark__sql__adaptive__enabled=adaptive, spark__sql__ansi__enabled="true"):
        wrong = rows.selectExpr("id", "k", "1 / (id - 77) x")
        with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
            sessions[CUT].repartition(wrong, "k")
        same(placed_by(sessions[CUT], rows, "k"), rows)


@ADAPTIVE
def test_the_map_stage_is_a_job_of_the_callers_that_is_named_and_cancelled(
    spark: SparkSession, sessions: dict[str, Unskew], rows: DataFrame, tmp_path: Path, adaptive: str
) -> None:
    """Its group's, with a description of its own; cancelled it ends the call with Spark's own error, leaving no job."""
    context, group = spark.sparkContext, f"group-{uuid4()}"
    context.setLocalProperty("spark.job.description", None)  # another test's
    gate = Gate(str(tmp_path), held=(0,))

    failed: list[BaseException] = []

    def place_it() -> None:
        context.setJobGroup(group, group, True)
        context.setLocalProperty("spark.job.description", None)
        try:
            sessions[CUT].repartition(rows.mapInArrow(gate.passing(), rows.schema), "k")
        except Exception as why:  # noqa: BLE001 - what Spark raises, whatever it is
            failed.append(why)
        finally:
            context.setLocalProperty("spark.jobGroup.id", None)

    with setting(spark, spark__sql__adaptive__enabled=adaptive):
        thread = Thread(target=place_it)
        thread.start()
        try:
            gate.await_held()
            tracker: Any = context.statusTracker()
            jobs = tracker.getJobIdsForGroup(group)
            assert len(jobs) == 1
            description = context._jsc.sc().statusStore().job(jobs[0]).description()
            assert "unskew repartition: rows into 10 cells" in str(description)
            context.cancelJobGroup(group)
            thread.join(60.0)
        finally:
            gate.open()
            thread.join(60.0)
    assert not thread.is_alive()
    assert len(failed) == 1
    assert "cancel" in str(failed[0]).lower()
    wait_for("its end", lambda: not set(jobs) & set(tracker.getActiveJobsIds()), 60.0)
    assert context.getLocalProperty("spark.job.description") is None
    same(placed_by(sessions[CUT], rows, "k"), rows)


def test_a_frame_that_nobody_has_is_let_go(spark: SparkSession, rows: DataFrame) -> None:
    """The frame, its shuffle and its session's memory of it: nothing on Java's side holds them any more."""
    sk = Unskew(spark, stream="let-go", partitions=3, policy=CUT)
    jvm: Any = spark._jvm
    made = placed_by(sk, rows, "k")
    rdd: Any = made._jdf.queryExecution().analyzed().rdd()
    watched = jvm.java.lang.ref.WeakReference(rdd)
    assert watched.get() is not None
    del made, rdd
    sk._placed = None
    sk.close()

    def gone() -> bool:
        gc.collect()
        jvm.System.gc()
        return watched.get() is None

    wait_for("Java to let go", gone, 60.0)
