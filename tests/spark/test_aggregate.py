"""``aggregate``: the same states as a plain ``groupBy``, hot keys made in pieces, and only those moved again."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code
from pyspark.sql.types import LongType, StructField, StructType

from tests.doses import some_of
from tests.spark.frames import KEYS, hashes_in, no_job, plan_over, setting, shuffles, typed_frame
from tests.spark.test_in_flight import random_frame
from unskew.core import Histogram, make_planner
from unskew.core.errors import ConfigError, KeyTypeError
from unskew.core.in_flight.assign import CellRange, TaskRanges
from unskew.core.operators.advice import states as states_of
from unskew.spark import Unskew
from unskew.spark.frame.jvm import physical_text
from unskew.spark.frame.physical import nodes
from unskew.spark.operators.aggregation import aggregation_of, at_input, at_plan, place_for, split_keys_of
from unskew.spark.operators.aggregation_in_flight import StateCells

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from unskew.core.plan.plan import Plan

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

STATE = "w string, n bigint, ids bigint"


def state(rows: Any) -> Any:
    """Counts and adds; the columns of a group as a plain groupBy shows them, or it fails."""
    assert list(rows.columns) == ["id", "w"], list(rows.columns)
    return pd.DataFrame({"w": rows["w"][:1], "n": [len(rows)], "ids": [rows["id"].sum()]})


def merged(states: Any) -> Any:
    assert list(states.columns) == ["w", "n", "ids"], list(states.columns)
    return pd.DataFrame({"w": states["w"][:1], "n": [states["n"].sum()], "ids": [states["ids"].sum()]})


def arrow_state(key: Any, rows: Any) -> Any:
    assert rows.column_names == ["id", "w"], rows.column_names
    return pa.table({"w": pa.array([key[0].as_py()], pa.string()), "n": [rows.num_rows], "ids": [pc.sum(rows["id"])]})


def arrow_merged(key: Any, states: Any) -> Any:
    assert len(key) == 1
    return pa.table(
        {"w": pa.array([key[0].as_py()], pa.string()), "n": [pc.sum(states["n"])], "ids": [pc.sum(states["ids"])]}
    )


def in_batches(parts: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    yield from parts


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    """Half of the rows have one key, a sixth has another, some have none."""
    return spark.range(0, 6_000, 1, 3).selectExpr(
        "id", "if(id % 2 = 0, 'hot', if(id % 3 = 0, 'warm', if(id % 25 = 1, null, concat('k', id % 37)))) w"
    )


@pytest.fixture(scope="module")
def wanted(rows: DataFrame) -> list[tuple[Any, ...]]:
    return listed(rows.groupBy("w").agg(F.count("*").alias("n"), F.sum("id").alias("ids")))


@pytest.fixture(scope="module")
def plan(rows: DataFrame) -> Plan:
    made = plan_over(hashes_in(rows.select(F.xxhash64("w").alias("h")).toArrow(), "h"), "balanced", 6)
    assert made.splits
    return made


@pytest.fixture
def sk(spark: SparkSession) -> Iterator[Unskew]:
    with Unskew(spark, stream="states", partitions=6, policy="balanced") as session:
        yield session
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty()


def listed(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in df.collect()), key=repr)


@pytest.mark.parametrize("adaptive", some_of(["true", "false"], "true"))
def test_the_states_are_those_of_a_plain_group_by(
    spark: SparkSession, sk: Unskew, rows: DataFrame, wanted: list[Any], adaptive: str
) -> None:
    """pandas and Arrow, fn(rows) and fn(key, rows); each key once, NULL too. One shuffle of rows, one of states; in
    flight the first is done when the call returns."""
    with setting(spark, spark__sql__adaptive__enabled=adaptive):
        flying = sk.aggregate(rows, "w", state, merged, STATE)
        assert sk.placed is not None
        assert sk.placed.ranges.cuts
        assert "__unskew_partition" not in exchanges(flying)
        assert listed(flying) == wanted
        plan = sk.plan(rows, "w")
        assert plan.splits
        ours = sk.aggregate(rows, "w", state, merged, STATE, plan)
        assert exchanges(ours) == {"__unskew_partition": 6, "__unskew_bucket": 2}
        assert listed(ours) == wanted
        assert exchanges(ours) == {"__unskew_partition": 6, "__unskew_bucket": 2}
        arrow = sk.aggregate(rows, "w", arrow_state, arrow_merged, STATE, sk.last, form="arrow")
        assert listed(arrow) == wanted


def exchanges(df: DataFrame) -> dict[str, int]:
    """The shuffles of the plan by their column, each once: what is persisted stands in it for each of its readers."""
    text = physical_text(df)
    found = re.findall(r"Exchange shufflepartitionidpassthrough\(\w+\((\w+)#\d+\), (\d+)\)", text)
    assert text.count("Exchange hashpartitioning") == 0
    return {name: int(partitions) for name, partitions in found}


def test_only_the_states_of_split_keys_are_shuffled_again(
    spark: SparkSession, rows: DataFrame, plan: Plan, wanted: list[Any]
) -> None:
    """As many rows in the second exchange as split keys have fragments; all others are final where they are."""
    call = aggregation_of(rows, "w", state, merged, STATE, "pandas", "plan")
    result, held = at_plan(call, plan, "id")
    assert held is not None
    try:
        held.count()
        split = split_keys_of(plan, 2)
        assert written(spark, result) == int(split.fragments.sum())
        assert listed(result) == wanted
        by_mark = {row["m"]: row["n"] for row in held.groupBy(held.columns[-1]).count().toDF("m", "n").collect()}
        assert {mark: n for mark, n in by_mark.items() if mark >= 0} == dict(enumerate(split.fragments.tolist()))
        assert by_mark[-1] == len(wanted) - len(split.hashes)
    finally:
        held.unpersist()


def written(spark: SparkSession, df: DataFrame) -> int:
    """Rows that the shuffles of a run of ``df`` write, what is persisted taken from where it is."""
    context: Any = spark.sparkContext
    context.setJobGroup("written", "written")
    df.collect()
    context.setLocalProperty("spark.jobGroup.id", None)
    context._jsc.sc().listenerBus().waitUntilEmpty()
    store, tracker = context._jsc.sc().statusStore(), context.statusTracker()
    stages = {s for job in tracker.getJobIdsForGroup("written") for s in tracker.getJobInfo(job).stageIds}
    ran = [store.lastStageAttempt(stage) for stage in stages]
    return sum(one.shuffleWriteRecords() for one in ran)


def test_without_a_split_key_there_is_one_shuffle_and_nothing_kept(
    spark: SparkSession, sk: Unskew, rows: DataFrame, wanted: list[Any]
) -> None:
    """A plan that keeps keys whole, or a session whose policy finds nothing to split."""
    plan = plan_over(hashes_in(rows.select(F.xxhash64("w").alias("h")).toArrow(), "h"), "kip", 6)
    ours = sk.aggregate(rows, "w", state, merged, STATE, plan)
    assert len(shuffles(ours)) == 1
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty()
    assert listed(ours) == wanted


def test_what_is_kept_is_freed_and_results_stay_usable(
    spark: SparkSession, sk: Unskew, rows: DataFrame, wanted: list[Any]
) -> None:
    """``release`` empties the cache; the frame computes its states anew. Of rows placed in flight nothing is kept."""
    sk.aggregate(rows, "w", state, merged, STATE)
    assert sk.placed is not None
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty()
    ours = sk.aggregate(rows, "w", state, merged, STATE, sk.plan(rows, "w", spread="id"))
    assert not spark._jsparkSession.sharedState().cacheManager().isEmpty()
    sk.release()
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty()
    assert listed(ours) == wanted


class Calls:
    """A partial state that leaves a file for each call, and something in the state that differs from call to call."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def made(self) -> list[str]:
        """The groups that states were made of, in order: partition and key."""
        return sorted(entry.name.rpartition("-")[0] for entry in Path(self._folder).iterdir())

    def function(self) -> Callable[[Any, Any], Any]:
        folder = self._folder

        def call(key: Any, rows: Any) -> Any:
            from pyspark import TaskContext

            context = TaskContext.get()
            there = None if context is None else context.partitionId()
            drawn = uuid4().int >> 66
            (Path(folder) / f"{there}-{key[0]}-{drawn}").touch()
            return pd.DataFrame({"w": [key[0]], "n": [len(rows)], "ids": [rows["id"].sum()], "drawn": [drawn]})

        return call


def drawn_merged(pieces: Any) -> Any:
    return pieces.assign(n=pieces["n"].sum(), ids=pieces["ids"].sum())[:1]


@pytest.mark.parametrize("planned", some_of([True, False], False))
def test_each_state_is_made_once_and_a_lost_one_again(
    spark: SparkSession, sk: Unskew, rows: DataFrame, wanted: list[Any], tmp_path: Path, planned: bool
) -> None:
    """All before ``aggregate`` returns, none when its result is read. Blocks that are lost, as with an executor, are
    made again, and results are exact although states differ from call to call. (Shuffle files that are lost:
    ``failures.in_flight``.)"""
    calls = Calls(tmp_path)
    plan = sk.plan(rows, "w", spread="id") if planned else None
    ours = sk.aggregate(rows, "w", calls.function(), drawn_merged, f"{STATE}, drawn bigint", plan)
    once = calls.made()
    assert len(once) == len(set(once)) > len(wanted)
    assert listed(ours.drop("drawn")) == wanted
    assert calls.made() == once
    lost = {f"{p}" for p in dropped_blocks(spark, 6)} if planned else set()
    assert listed(ours.drop("drawn")) == wanted

    assert calls.made() == sorted([*once, *(one for one in once if one.partition("-")[0] in lost)])


def dropped_blocks(spark: SparkSession, partitions: int) -> list[int]:
    """Of so many partitions those whose persisted states are gone: every other one."""
    jvm: Any = spark._jvm
    persisted = list(spark.sparkContext._jsc.getPersistentRDDs())
    assert len(persisted) == 1
    # By its field: SparkEnv's methods name classes that are not there, so Java will not list them.
    field = jvm.java.lang.Class.forName("org.apache.spark.SparkEnv").getDeclaredField("blockManager")
    field.setAccessible(True)
    manager = field.get(spark.sparkContext._jsc.sc().env())
    for partition in range(0, partitions, 2):
        manager.removeBlock(jvm.org.apache.spark.storage.BlockId.apply(f"rdd_{persisted[0]}_{partition}"), True)
    return list(range(0, partitions, 2))


def test_each_task_writes_its_states_for_one_reader() -> None:
    """Tasks with whole keys go to cells that are only read, in turns; the parts of a cut cell meet in one bucket."""
    parts = [CellRange(2, 3, 9.0, (at, at + 1)) for at in range(4)] + [
        CellRange(5, 6, 9.0, (at, at + 2)) for at in (0, 2)
    ]
    ranges = TaskRanges(8, 4, (CellRange(0, 2), *parts[:3], CellRange(3, 5), CellRange(6, 8), *parts[3:]))
    cells = StateCells.of(ranges, partitions=2, slots=4)
    assert cells.by_task.tolist()[:1] + cells.by_task.tolist()[4:6] == [0, 1, 0]
    hot, warm = set(cells.by_task[[1, 2, 3, 6]].tolist()), set(cells.by_task[[7, 8]].tolist())
    assert len(hot) == len(warm) == 1
    assert hot | warm == {2, 3}
    assert [one.first for one in (*cells.final, *cells.merged)] == list(range(cells.count)) == [0, 1, 2, 3]
    none_whole = TaskRanges(1, 4, tuple(CellRange(0, 1, 1.0, (at, at + 1)) for at in range(4)))
    assert StateCells.of(none_whole, partitions=2, slots=4).final == []


def test_an_empty_frame_and_one_of_no_keys(sk: Unskew, rows: DataFrame) -> None:
    """No state of nothing; all rows without a key are one key, in pieces."""
    assert listed(sk.aggregate(rows.where("id < 0"), "w", state, merged, STATE)) == []
    nobody = rows.withColumn("w", F.lit(None).cast("string"))
    ours = sk.aggregate(nobody, "w", state, merged, STATE)
    assert sk.placed is not None
    assert sk.placed.ranges.cuts
    assert listed(ours) == [(None, 6_000, 17_997_000)]


def test_a_session_that_keeps_keys_whole_splits_them_here(
    spark: SparkSession, rows: DataFrame, wanted: list[Any]
) -> None:
    """Its policy is for other operators; the plan that it remembers stays as it was."""
    with Unskew(spark, stream="states", partitions=6, policy="kip") as sk:
        ours = sk.aggregate(rows, "w", state, merged, STATE)
        assert sk.placed is not None
        assert sk.placed.ranges.cuts
        assert sk.last is None
        assert listed(ours) == wanted


# -- at the input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", some_of(["hash", "balanced"], "balanced"))
def test_states_made_at_the_input_are_the_same(rows: DataFrame, wanted: list[Any], policy: str) -> None:
    """With and without split keys in the plan; a state for every hundred rows or so of a task, one exchange."""
    plan = plan_over(hashes_in(rows.select(F.xxhash64("w").alias("h")).toArrow(), "h"), policy, 6)
    call = aggregation_of(rows, "w", arrow_state, arrow_merged, STATE, "arrow", "input")
    ours = at_input(call, plan, held=100)
    assert len(shuffles(ours)) == 1
    assert listed(ours) == wanted


def test_at_the_input_needs_no_plan(sk: Unskew, rows: DataFrame, wanted: list[Any]) -> None:
    """And so no job before its own."""
    with no_job(sk.spark):
        ours = sk.aggregate(rows, "w", arrow_state, arrow_merged, STATE, form="arrow", at="input")
    assert listed(ours) == wanted


def test_auto_goes_by_the_number_of_states(spark: SparkSession, sk: Unskew, rows: DataFrame, wanted: list[Any]) -> None:
    """Two keys of three thousand rows in two splits: at the input. Keys of a hundred rows: by a plan."""
    few = spark.range(0, 6_000, 1, 2).selectExpr("id", "if(id % 2 = 0, 'one', 'other') w")
    at_input = sk.aggregate(few, "w", arrow_state, arrow_merged, STATE, form="arrow", at="auto")
    assert [node.name for node in nodes(physical_text(at_input)) if "MapInArrow" in node.name]
    assert listed(at_input) == listed(few.groupBy("w").agg(F.count("*"), F.sum("id")))
    by_plan = sk.aggregate(rows, "w", arrow_state, arrow_merged, STATE, form="arrow", at="auto")
    assert not [node.name for node in nodes(physical_text(by_plan)) if "MapInArrow" in node.name]
    assert listed(by_plan) == wanted


def test_the_place_is_that_of_the_advice() -> None:
    """By the states that either way has; pandas, and fewer splits than slots, at the plan in any case."""
    hashes = np.random.default_rng(3).integers(0, 2**64, 100, dtype=np.uint64)
    histogram = Histogram.from_counts(hashes, np.r_[20_000, np.full(99, 400)])
    plan = make_planner("balanced", 8).plan(histogram)
    assert [states_of(histogram, plan, splits).plan_pays for splits in (1, 2, 64)] == [True] * 3
    heavy = Histogram.from_counts(hashes, np.r_[100_000, np.full(99, 1_000)])
    assert [states_of(heavy, plan, splits).plan_pays for splits in (1, 4, 64)] == [False, True, True]
    assert [place_for(heavy, plan, splits, "arrow") for splits in (4, 64)] == ["plan", "plan"]
    few = Histogram.from_counts(hashes[:4], np.array([50_000, 5_000, 5_000, 5_000]))
    assert [place_for(few, plan, splits, "arrow") for splits in (1, 4, 64)] == ["input", "input", "plan"]
    assert place_for(few, plan, 4, "pandas") == "plan"
    assert place_for(few, plan, 4, "arrow", slots=5) == "plan"


def test_long_splits_count_as_the_pieces_that_they_are_read_in() -> None:
    """A task makes states every 65,536 rows, so four splits of 500,000 rows make as many states as thirty-one."""
    hashes = np.random.default_rng(3).integers(0, 2**64, 100, dtype=np.uint64)
    histogram = Histogram.from_counts(hashes, np.r_[1_000_000, np.full(99, 10_000)])
    plan = make_planner("balanced", 8).plan(histogram)
    assert not states_of(histogram, plan, 4).plan_pays
    assert states_of(histogram, plan, 31).plan_pays
    assert place_for(histogram, plan, 4, "arrow") == "plan"


# -- keys -------------------------------------------------------------------------------------------------------

FEW = ["double", "decimal(9,2)"]


def typed_state(key: Any, rows: Any) -> Any:
    """The key as Spark gave it; names of the state's columns by place."""
    import pyarrow as pa
    import pyarrow.compute as pc

    made = pa.table({"n": [rows.num_rows], "ids": [pc.sum(rows["id"])]})
    return made.add_column(0, "c", pa.array([key[0].as_py()], key[0].type))


def typed_merged(states: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    made = pa.table({"n": [pc.sum(states["n"])], "ids": [pc.sum(states["ids"])]})
    return made.add_column(0, "c", states["c"].slice(0, 1))


@pytest.mark.parametrize(
    "kinds", [pytest.param(FEW, id="few"), pytest.param(list(KEYS), id="all", marks=pytest.mark.long)]
)
def test_every_key_type_both_ways(spark: SparkSession, kinds: list[str]) -> None:
    """NULL, NaN and both zeros included: NaN and NULL stay two keys, zeros are one. All in one job a way."""
    frame = typed_frame(spark, 1_200)
    names = {kind: f"c{list(KEYS).index(kind)}" for kind in kinds}
    table = frame.select(*(F.xxhash64(name).alias(name) for name in names.values())).toArrow()
    frames: dict[str, list[DataFrame]] = {"plan": [], "input": [], "plain": []}
    kept = []
    for name in names.values():
        part = frame.select("id", F.col(name).alias("c"))
        plan = plan_over(hashes_in(table, name), "balanced", 4)
        schema = f"c {part.schema['c'].dataType.simpleString()}, n bigint, ids bigint"
        call = aggregation_of(part, "c", typed_state, typed_merged, schema, "arrow", "plan")
        result, held = at_plan(call, plan, "id")
        kept += [held] if held is not None else []
        plain = part.groupBy("c").agg(F.count("*").alias("n"), F.sum("id").alias("ids"))
        for way, df in (("plan", result), ("input", at_input(call, plan, held=50)), ("plain", plain)):
            frames[way].append(df.select(F.lit(name), F.col("c").cast("string"), "n", "ids"))
    found = {way: listed(reduce(lambda a, b: a.unionAll(b), each)) for way, each in frames.items()}
    for held in kept:
        held.unpersist()
    assert len(kept) >= len(names) - 1
    assert zeros(found["plan"]) == zeros(found["plain"])
    assert zeros(found["input"]) == zeros(found["plain"])


def zeros(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Which of two zeros stands for both is any one's choice."""
    return sorted(((a, "0.0" if b == "-0.0" else b, c, d) for a, b, c, d in found), key=repr)


def test_composite_and_expression_keys_and_states_larger_than_a_batch(spark: SparkSession, rows: DataFrame) -> None:
    """A state of more rows than an Arrow batch; a key of two columns, one of them an expression with a name."""
    key = [F.col("w"), (F.col("id") % 3).alias("third")]

    def all_ids(key: Any, rows: Any) -> Any:
        return pd.DataFrame({"w": key[0], "third": key[1], "id": rows["id"]})

    def as_they_are(states: Any) -> Any:
        return states.sort_values("id")

    session = Unskew(spark, stream="states", partitions=4, policy="balanced")
    with session as sk, setting(spark, spark__sql__execution__arrow__maxRecordsPerBatch="50"):
        ours = sk.aggregate(rows, key, all_ids, as_they_are, "w string, third bigint, id bigint")
        assert listed(ours) == listed(rows.select("w", F.expr("id % 3 third"), "id"))


def test_a_state_without_names_goes_by_place(sk: Unskew, rows: DataFrame, plan: Plan, wanted: list[Any]) -> None:
    """As in Spark: a pandas result whose columns are numbers."""

    def nameless(key: Any, rows: Any) -> Any:
        return pd.DataFrame([(key[0], len(rows), rows["id"].sum())])

    assert listed(sk.aggregate(rows, "w", nameless, merged, STATE, plan)) == wanted


# -- bad use ----------------------------------------------------------------------------------------------------


def test_bad_use_is_refused_before_any_job(spark: SparkSession, sk: Unskew, rows: DataFrame) -> None:
    """Form, place, functions, a schema without the key or with another type of it."""
    with no_job(spark), warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConfigError, match="at: 'somewhere'"):
            sk.aggregate(rows, "w", state, merged, STATE, at="somewhere")
        with pytest.raises(ConfigError, match="form='arrow' with it"):
            sk.aggregate(rows, "w", state, merged, STATE, at="input")
        with pytest.raises(ConfigError, match="no Iterator"):
            sk.aggregate(rows, "w", in_batches, merged, STATE)
        with pytest.raises(KeyTypeError, match="map"):
            sk.aggregate(rows.withColumn("m", F.create_map("w", "id")), "m", state, merged, STATE)
        with pytest.raises(ConfigError, match="merge: 'a function of 3"):
            sk.aggregate(rows, "w", state, lambda a, b, c: a, STATE)
        with pytest.raises(ConfigError, match=r"schema: .*the key's columns as they are in the frame, w string"):
            sk.aggregate(rows, "w", state, merged, "n bigint, ids bigint")
        with pytest.raises(ConfigError, match="w string, then the state"):
            sk.aggregate(rows, "w", state, merged, "w int, n bigint, ids bigint")
        with pytest.raises(ConfigError, match="key: 'nobody'"):
            sk.aggregate(rows, "nobody", state, merged, STATE)


def test_merge_buckets_are_even_in_states() -> None:
    """Algorithm 3 over all split keys: no bucket has more than the mean and the largest key's states."""
    hashes = np.arange(1, 41, dtype=np.uint64) << np.uint64(50)
    plan = plan_over(np.repeat(hashes, np.arange(40, 0, -1) * 50), "prompt", 16)
    split = split_keys_of(plan, 4)
    loads = np.bincount(split.merge.bucket, weights=split.fragments, minlength=4)
    assert split.merge.buckets == 4
    assert loads.max() <= loads.mean() + split.fragments.max()
    assert loads.max() <= 1.25 * loads.mean()


def check_random(spark: SparkSession, seed: int) -> None:
    """The states of a random frame's keys beside Spark's own aggregate."""
    df, keys = random_frame(spark, seed)
    part = df.select("id", *keys)
    schema = StructType([*part.select(*keys).schema.fields, StructField("n", LongType()), StructField("s", LongType())])

    def partial(rows: Any) -> Any:
        return rows[:1].assign(n=len(rows), s=rows["id"].sum())[[*keys, "n", "s"]]

    def merge(states: Any) -> Any:
        return states[:1].assign(n=states["n"].sum(), s=states["s"].sum())

    with (
        Unskew(spark, stream="random", partitions=5) as sk,
        setting(spark, spark__sql__adaptive__enabled=("true", "false")[seed % 2]),
    ):
        ours = sk.aggregate(part, keys, partial, merge, schema)
        plain = part.groupBy(*keys).applyInPandas(partial, schema)
        assert listed(ours) == listed(plain), seed


def test_some_random_frames(spark: SparkSession) -> None:
    """A small dose, of the same seeds each time."""
    for seed in (1, 2):  # AQE off and on
        check_random(spark, seed)


@pytest.mark.long
def test_three_hundred_random_frames(spark: SparkSession) -> None:
    """The full dose, of new seeds each time."""
    first = random.SystemRandom().randrange(1 << 20)
    for seed in range(first, first + 300):
        check_random(spark, seed)
