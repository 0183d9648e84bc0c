"""A join without a plan is placed by what comes: Spark's own rows, no third shuffle, and no task with more than it was
promised."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from tests.doses import diagonal, new_seeds, some_of
from tests.spark.frames import KEYS, as_spark_4_0, no_job, python_workers, setting, shuffles
from tests.spark.test_join import PAIRS, multiset, skewed
from unskew.core.operators.join_plan import HOWS, LEFT, RIGHT, Bounds
from unskew.core.quality.measures import makespan
from unskew.spark import Unskew
from unskew.spark.in_flight import join_sides
from unskew.spark.in_flight.join_sides import PlacedJoin
from unskew.spark.in_flight.map_stage import NotAsExpectedError
from unskew.spark.operators.join_keys import On
from unskew.spark.operators.joins import Join
from unskew.spark.place.repartition import direct_way

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

N = 5
FRAMES = {
    "one hot key": ("if(id % 5 < 2, 0, id % 37)", "id % 40"),
    "NULL heavy": ("if(id % 5 < 3, null, id % 37)", "if(id % 3 = 0, null, id % 40)"),
    "both sides hot": ("if(id % 2 = 0, 0, id % 37)", "if(id % 3 = 0, 0, id % 40)"),
    "int against bigint": ("cast(if(id % 2 = 0, 0, id % 37) as int)", "id % 40"),
    "strings": ("concat('schlüssel-', if(id % 2 = 0, 0, id % 37))", "concat('schlüssel-', id % 40)"),
}


@pytest.fixture(autouse=True)
def no_broadcast(spark: SparkSession) -> Iterator[None]:
    """Frames as small as a test's would be broadcast."""
    with setting(spark, spark__sql__autoBroadcastJoinThreshold=-1, spark__sql__adaptive__enabled="false"):
        yield


@pytest.fixture
def sk(spark: SparkSession) -> Iterator[Unskew]:
    with Unskew(spark, stream="s", partitions=N) as made:
        yield made


def sides(spark: SparkSession, name: str, left: int = 260, right: int = 90) -> tuple[DataFrame, DataFrame]:
    """Two frames that share a key ``k``; made by several tasks, so there is something to cut."""
    one, other = FRAMES[name]
    rows, others = spark.range(0, left, 1, 8), spark.range(0, right, 1, 6)
    return rows.selectExpr(f"{one} k", "id v"), others.selectExpr(f"{other} k", "id w")


def same(sk: Unskew, left: DataFrame, right: DataFrame, on: On, how: str, **more: Any) -> DataFrame:
    """Ours, which has Spark's own schema and rows, and was placed in flight."""
    before = sk.placed
    ours, theirs = sk.join(left, right, on, how, **more), Join.of(left, right, on, how, partitions=N).by_spark()
    assert isinstance(sk.placed, PlacedJoin)
    assert sk.placed is not before
    assert ours.schema == theirs.schema
    assert multiset(ours) == multiset(theirs)
    return ours


@pytest.mark.parametrize(("name", "how"), diagonal(FRAMES, HOWS))
def test_the_rows_are_those_of_sparks_own_join(spark: SparkSession, sk: Unskew, name: str, how: str) -> None:
    """Every type of join, by AQE on and off in turns."""
    adaptive = "true" if (list(FRAMES).index(name) + list(HOWS).index(how)) % 2 else "false"
    with setting(spark, spark__sql__adaptive__enabled=adaptive):
        same(sk, *sides(spark, name), "k", how)


@pytest.mark.parametrize(
    ("older", "adaptive", "how"),
    some_of(
        product([False, True], ["true", "false"], HOWS),
        (False, "true", "inner"),
        (True, "false", "left"),
        (False, "false", "full"),
    ),
)
def test_no_exchange_above_what_is_placed(
    spark: SparkSession, sk: Unskew, how: str, adaptive: str, older: bool
) -> None:
    """Neither before the query runs nor after, though the hot key is cut where the join lets it."""
    with as_spark_4_0(older=older), setting(spark, spark__sql__adaptive__enabled=adaptive):
        joined = sk.join(*sides(spark, "both sides hot"), "k", how)
        assert isinstance(sk.placed, PlacedJoin)
        assert sk.placed.ranges.cuts == bool(HOWS[how])
        for _ in range(2):
            assert shuffles(joined) == []
            assert python_workers(joined) == []
            joined.collect()
        assert joined.rdd.getNumPartitions() == len(sk.placed.ranges.ranges)


def random_join(spark: SparkSession, seed: int) -> tuple[DataFrame, DataFrame, On, str]:
    """Two frames of some rows in some tasks, of some skew, with one or two keys of any types, wide or nested; and how
    they are joined."""
    rng = random.Random(seed)
    how, kinds = list(HOWS)[seed % len(HOWS)], rng.sample([*KEYS], rng.choice([1, 1, 2]))
    names = [f"k{at}" for at in range(len(kinds))]
    nulls, distinct = rng.choice([2, 12, 1_000_000]), rng.choice([1, 30, 500])

    def side(count: int, other: str) -> DataFrame:
        skew = f"pow(pmod(xxhash64(id, {rng.randrange(99)}), 1000) / 1000, {rng.choice([0.5, 2.0, 6.0])})"
        base = spark.range(0, count, 1, rng.choice([1, 2, 5])).selectExpr("id", f"bigint({skew} * {distinct}) k")
        keys = [
            f"if(pmod(k, {nulls}) = {nulls - 1}, null, {KEYS[kind]}) {name}"
            for kind, name in zip(kinds, names, strict=True)
        ]
        payload = rng.choice(["id", "array(id, null)", "named_struct('a', id, 'b', string(id))", "map('x', id)"])
        wide = [f"id + {at} {other}{at}" for at in range(rng.choice([0, 0, 0, 40]))]
        df = base.selectExpr(*keys, f"{payload} {other}", *wide)
        df = df.repartition(rng.choice([1, 3])) if rng.random() < 0.2 else df
        return df.unionAll(df) if rng.random() < 0.2 else df

    counts = rng.choice([(0, 40), (40, 0), (1, 1), (200, 1), (1, 200), (120, 40), (40, 120)])
    left, right = side(counts[0], "v"), side(counts[1], "w")
    if rng.random() < 0.5:
        return left, right, names, how
    others = [f"z{at}" for at in range(len(names))]
    renamed = right.withColumnsRenamed(dict(zip(names, others, strict=True)))
    return left, renamed, list(zip(names, others, strict=True)), how


def check_random(spark: SparkSession, sk: Unskew, seed: int) -> None:
    left, right, on, how = random_join(spark, seed)
    with setting(spark, spark__sql__adaptive__enabled=("true", "false")[seed // len(HOWS) % 2]):
        asked = Join.of(left, right, on, how, partitions=N)
        ours, theirs = sk.join(left, right, on, how), asked.by_spark()
        assert ours.schema == theirs.schema
        found, wanted = multiset(ours), multiset(theirs)
        assert found == wanted, list(((found - wanted) + (wanted - found)).items())[:5]


def test_some_random_frames(spark: SparkSession, sk: Unskew) -> None:
    """A small dose, of the same seeds each time."""
    for seed in (1, 3):
        check_random(spark, sk, seed)


@pytest.mark.long
def test_three_hundred_random_frames(spark: SparkSession, sk: Unskew) -> None:
    """The full dose, of new seeds each time: each type of join fifty times."""
    new_seeds(300, lambda seed: check_random(spark, sk, seed))


@pytest.mark.parametrize("side", [LEFT, RIGHT])
def test_an_inner_join_cuts_either_side(spark: SparkSession, sk: Unskew, side: str) -> None:
    """The side that was asked for; the other one is read several times."""
    same(sk, *sides(spark, "both sides hot"), "k", "inner", side=side)
    assert isinstance(sk.placed, PlacedJoin)
    assert sk.placed.cells.side == side
    assert sk.placed.cells.copied > 0


@pytest.mark.parametrize(
    ("name", "how"),
    diagonal(["one hot key", "NULL heavy", "both sides hot"], ["inner", "left", "right", "left_anti"]),
)
def test_no_task_has_more_than_was_promised(spark: SparkSession, sk: Unskew, name: str, how: str) -> None:
    """All rows of such frames are in the sample, so what a cut cell's parts have is all that is estimated; and with
    that the slots end at about the same time."""
    left, right = sides(spark, name, 4_000, 400)
    joined = sk.join(left, right, "k", how, bounds=Bounds(work=1.0, replication=1.0))
    placed = sk.placed
    assert isinstance(placed, PlacedJoin)
    out = np.zeros(len(placed.loads))
    for row in joined.groupBy(F.spark_partition_id().alias("p")).count().collect():
        out[row["p"]] = row["count"]
    assert out.sum() == joined.count() == placed.cells.output
    assert (out <= np.array(placed.loads) + 1).all()
    assert makespan(placed.loads, placed.slots) <= 1.15 * sum(placed.loads) / placed.slots, str(placed)


def test_rows_with_a_null_are_spread_where_they_are_kept(spark: SparkSession, sk: Unskew) -> None:
    """Nine of ten rows: no task has them all."""
    rows = spark.range(0, 5_000, 1, 2).selectExpr("if(id % 10 = 0, id % 900, null) k", "id")
    joined = same(sk, rows, spark.range(900).selectExpr("id k"), "k", "left_anti")
    loads = [row["count"] for row in joined.groupBy(F.spark_partition_id()).count().collect()]
    assert sum(loads) == 4_500
    assert max(loads) < 1.3 * 4_500 / N


@pytest.mark.parametrize("name", some_of(PAIRS, "two scales", "date and timestamp", "string and int"))
def test_keys_of_two_types_meet(spark: SparkSession, sk: Unskew, name: str) -> None:
    """Floats too. Before ``repartitionById`` Spark shuffles these again: it compares them in another form than it
    hashes them."""
    one, other = PAIRS[name]
    left, right = skewed(spark, one, 200), skewed(spark, other, 60, "w")
    joined = same(sk, left, right, "k", list(HOWS)[list(PAIRS).index(name) % 6])
    floats = set(Join.of(left, right, "k", partitions=N).keys.types) & {"float", "double"}
    assert len(shuffles(joined)) == (2 if floats and not direct_way(left) else 0)


@pytest.mark.parametrize("how", some_of(HOWS, "full"))
def test_keys_of_several_columns_by_names_and_by_pairs(spark: SparkSession, sk: Unskew, how: str) -> None:
    """With NULLs in parts, and a column that both frames have."""
    left = skewed(spark, "n", 200).selectExpr("v", "cast(k as int) a", "if(v % 9 = 0, null, 'x') `b.c`")
    right = skewed(spark, "n", 70).selectExpr("'x' `b.c`", "if(v % 8 = 1, null, k) A", "v", "'r' side")
    same(sk, left, right, ["a", "b.c"], how)
    same(sk, left, right.withColumnRenamed("A", "z"), [("a", "z"), ("b.c", "b.c")], how)


@pytest.mark.parametrize(
    ("name", "how"),
    some_of(product(["int against bigint", "NULL heavy"], ["full", "left_anti"]), ("NULL heavy", "full")),
)
def test_the_way_of_spark_4_0_gives_the_same_rows(spark: SparkSession, sk: Unskew, name: str, how: str) -> None:
    """There Spark is told of the key's hash with a salt after it, which is what it would be."""
    with as_spark_4_0():
        same(sk, *sides(spark, name), "k", how)


@pytest.mark.parametrize("how", some_of(HOWS, "left"))
def test_sides_without_rows_and_a_frame_with_itself(spark: SparkSession, sk: Unskew, how: str) -> None:
    """Either side, both; by a name, and by a pair of one frame's columns."""
    rows = skewed(spark, "n", 60)
    none = rows.where("v < 0")
    for left, right in ((none, rows), (rows, none), (none, none), (rows, rows.where("v > 20"))):
        same(sk, left, right, "k", how)
    same(sk, rows, rows, [("k", "v")], how)


def test_columns_and_aliases_are_those_of_sparks_own_join(spark: SparkSession, sk: Unskew) -> None:
    """Also where only the alias tells two columns apart."""
    left = skewed(spark, "n", 100).withColumn("v.x", F.lit(1)).alias("e")
    right = skewed(spark, "n", 50).alias("d")
    joined = same(sk, left, right, "K", "left")
    assert joined.columns == ["k", "v", "v.x", "v"]
    wanted = ["k", F.col("e.v").alias("a"), F.col("d.v").alias("b"), "`v.x`"]
    assert multiset(joined.select(*wanted)) == multiset(left.join(right, "k", "left").select(*wanted))


def test_what_is_made_of_it_is_right(spark: SparkSession, sk: Unskew) -> None:
    """Grouped by the key, whose rows are in several tasks, and joined with another join."""
    left, right = sides(spark, "both sides hot")
    joined, own = sk.join(left, right, "k"), left.join(right, "k")
    assert multiset(joined.groupBy("k").count()) == multiset(own.groupBy("k").count())
    again = sk.join(left, right, "k").groupBy("k").agg(F.sum("v").alias("s"))
    assert multiset(joined.join(again, "k")) == multiset(own.join(own.groupBy("k").agg(F.sum("v").alias("s")), "k"))


def test_what_was_decided_is_shown(spark: SparkSession, sk: Unskew) -> None:
    """In the words of a plan; and both stages are jobs with a description, in the caller's group."""
    context = spark.sparkContext
    context.setJobGroup("mine", "unskew test", False)
    try:
        sk.join(*sides(spark, "both sides hot"), "k", "left")
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context.setLocalProperty(name, None)
    assert len(context.statusTracker().getJobIdsForGroup("mine")) == 2
    text = str(sk.placed)
    assert "left join of 260 with 90 rows into about 4,477, placed in flight" in text, text
    assert "heavy cells of the left side" in text
    assert "51.5% of the left side's rows" in text


def test_a_plan_is_made_where_spark_is_not_as_expected(
    spark: SparkSession, sk: Unskew, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another Spark's internals nothing is guessed: the rows are counted first."""

    def other(*_: object) -> None:
        raise NotAsExpectedError("another Spark")

    monkeypatch.setattr(join_sides, "run_map_stage", other)
    left, right = sides(spark, "one hot key")
    assert multiset(sk.join(left, right, "k")) == multiset(left.join(right, "k"))
    assert sk.placed is None


def test_a_failure_in_the_users_own_work_is_raised(spark: SparkSession, sk: Unskew) -> None:
    """From either side's stage."""
    left, right = sides(spark, "one hot key")
    bad = right.withColumn("w", F.expr("if(w > 40, raise_error('mine'), w)"))
    for one, other in ((left, bad), (bad, left)):
        with pytest.raises(Exception, match="mine"):
            sk.join(one, other, "k")


def test_a_plan_that_is_given_is_used(spark: SparkSession, sk: Unskew) -> None:
    """And runs nothing yet."""
    left, right = sides(spark, "one hot key")
    plan = sk.plan_join(left, right, "k")
    with no_job(spark):
        sk.join(left, right, "k", plan=plan)
    assert sk.placed is None
