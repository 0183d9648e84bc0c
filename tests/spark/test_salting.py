"""Salted stateful operators: state where the plan puts it, as the state store's reader has it; results as without."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.state import GroupStateTimeout

from tests.spark.frames import no_job, setting
from unskew.core.errors import ConfigError, KeyTypeError, PlanError, UnskewError
from unskew.core.plan.plan import Plan
from unskew.spark import Unskew
from unskew.spark.frame.jvm import default_files
from unskew.spark.place.salting import salt, salted_join, unsalted
from unskew.spark.streaming import settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-streams")]

N = 4
SCHEMA = "user bigint, text string, id bigint, ts timestamp"
_STORES = "org.apache.spark.sql.execution.streaming.state."
HDFS, ROCKS = f"{_STORES}HDFSBackedStateStoreProvider", f"{_STORES}RocksDBStateStoreProvider"
Handler = Callable[["DataFrame", int], None]


def lines(life: int, count: int = 240) -> list[dict[str, Any]]:
    """Two in five rows are of user 0; five minutes of time a file, in which the rows go to and fro."""
    rows = []
    for i in range(count):
        user = 0 if i % 5 < 2 else (i * 7919 + life) % 41
        at = life * 300 + (i * 37) % 420
        stamp = f"2024-01-01T{at // 3600:02d}:{at // 60 % 60:02d}:{at % 60:02d}Z"
        text = ["0.0", "-0.0", "NaN"][i % 3] if user == 1 else f"{user / 3:.3f}"
        rows.append({"user": user, "text": text, "id": life * 1000 + i, "ts": stamp})
    return rows


class Files:
    """A folder that files come to, one a micro-batch."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root, self.life, self.delay = spark, root, 0, "1 minute"
        (root / "in").mkdir()

    def come(self, count: int) -> None:
        for _ in range(count):
            text = "\n".join(map(json.dumps, lines(self.life)))
            (self.root / "in" / f"{self.life:03d}.json").write_text(text)
            self.life += 1

    @property
    def stream(self) -> DataFrame:
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.root / "in")).withWatermark("ts", self.delay)

    @property
    def batch(self) -> DataFrame:
        return self.spark.read.schema(SCHEMA).json(str(self.root / "in"))

    def checkpoint(self, name: str) -> str:
        return str(self.root / name)

    def run(self, df: DataFrame, name: str, handler: Handler, mode: str = "append") -> None:
        """All files that are there and not read yet, in the query of this name."""
        writer = df.writeStream.outputMode(mode).option("checkpointLocation", self.checkpoint(name))
        query = writer.foreachBatch(handler).trigger(availableNow=True).start()
        query.awaitTermination()

    def state(self, name: str, **options: object) -> DataFrame:
        """What the state store has in each partition."""
        reader = self.spark.read.format("statestore")
        for option, value in options.items():
            reader = reader.option(option, str(value))
        return reader.load(self.checkpoint(name))


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Files:
    """Two files are there at first."""
    found = Files(spark, tmp_path)
    found.come(2)
    return found


def planned(df: DataFrame, key: str, policy: str, partitions: int = N, seed: int = 7) -> Plan:
    with Unskew(df.sparkSession, stream="salted", partitions=partitions, policy=policy, seed=seed) as sk:
        return sk.plan(df, key, spread="id" if policy == "prompt" else None)


def route(df: DataFrame, key: str, plan: Plan) -> Any:
    return Unskew(df.sparkSession, stream="salted", partitions=plan.partitions).route(key, plan, "id", df=df)


# -- aggregates ---------------------------------------------------------------------------------------------------


def windows(df: DataFrame) -> DataFrame:
    return df.select("*", F.window("ts", "10 minutes", "5 minutes"))


def salted(files: Files, plan: Plan, **more: Any) -> DataFrame:
    """Lists of ids, in fragments."""
    df = windows(files.stream)
    made = salt(df, "user", plan, by=["window", "user"], mode="append", spread="id", **more)
    return df.select("*", made).groupBy("window", "user", "salt").agg(F.collect_list("id").alias("ids"))


def plain(files: Files) -> DataFrame:
    return windows(files.stream).groupBy("window", "user").agg(F.collect_list("id").alias("ids"))


def merged(df: DataFrame) -> DataFrame:
    return df.groupBy("window", "user").agg(F.flatten(F.collect_list("ids")).alias("ids"))


class Collected:
    """What a handler got: (batch, window's begin, user, ids), and how often."""

    def __init__(self, make: Callable[[DataFrame], DataFrame] = lambda df: df) -> None:
        self.make = make
        self.rows: Counter[tuple[Any, ...]] = Counter()

    def __call__(self, df: DataFrame, batch: int) -> None:
        for row in self.make(df).select("window.start", "user", F.sort_array("ids").alias("ids")).collect():
            self.rows[batch, row["start"], row["user"], tuple(row["ids"])] += 1


def test_windows_are_kept_where_planned_and_come_out_as_without_salts(files: Files) -> None:
    """Each fragment of each open window is in the partition that the plan gives its rows, and nowhere else. A second
    life has another plan, and a setting of Spark that the checkpoint overrules: same batches, same rows."""
    first = planned(files.batch, "user", "prompt")
    second = planned(files.batch.where("user > 0"), "user", "prompt")
    assert first.splits
    assert first.digest != second.digest
    ours, theirs = Collected(lambda df: merged(unsalted(df))), Collected()
    files.run(salted(files, first), "salted", ours)
    files.run(plain(files), "plain", theirs)

    there = [tuple(row) for row in files.state("salted").select("key.window", "key.user", "partition_id").collect()]
    routed = windows(files.batch).withColumn("at", route(windows(files.batch), "user", first))
    wanted = {tuple(row) for row in routed.select("window", "user", "at").collect()}
    open_ones = {window for window, _, _ in there}
    assert sorted(there) == sorted(one for one in wanted if one[0] in open_ones)
    assert len({(window, user) for window, user, _ in there}) < len(there)

    files.come(1)
    with setting(files.spark, spark__sql__shuffle__partitions=N + 3):
        files.run(salted(files, second, checkpoint=files.checkpoint("salted")), "salted", ours)
        files.run(plain(files), "plain", theirs)
    assert ours.rows == theirs.rows
    assert len(ours.rows) > 100
    assert max(ours.rows.values()) == 1


@pytest.mark.long
def test_fragments_can_be_merged_by_a_second_aggregate_of_the_same_query(files: Files) -> None:
    """Another stateful operator instead of a handler: for any sink."""
    plan = planned(files.batch, "user", "prompt")
    ours, theirs = Collected(), Collected()
    files.run(merged(salted(files, plan)), "salted", ours)
    files.run(plain(files), "plain", theirs)
    assert ours.rows == theirs.rows
    assert len(ours.rows) > 40


def test_a_query_in_another_mode_is_refused_by_its_handler(files: Files) -> None:
    """An update has only the fragments that changed: no handler may merge them, whatever mode salt() was told."""
    df = salted(files, planned(files.batch, "user", "prompt"))
    with pytest.raises(StreamingQueryException, match=r"mode: 'update' is not allowed.*only the fragments that have"):
        files.run(df, "update", lambda batch, _: unsalted(batch).count(), mode="update")


# -- one salt per key ---------------------------------------------------------------------------------------------


def two_plans(df: DataFrame, key: str) -> tuple[Plan, Plan]:
    """That keep keys whole, some of them elsewhere."""
    first, second = planned(df, key, "kip"), planned(df.where("user > 7"), key, "kip")
    moved = df.select(route(df, key, first).alias("a"), route(df, key, second).alias("b")).where("a <> b")
    assert not moved.isEmpty()
    return first, second


def places(files: Files, name: str, key: str, plan: Plan, **options: object) -> tuple[int, int]:
    """Groups in the state, and those of them that are where the plan wants them."""
    state = files.state(name, **options).withColumn("id", F.lit(0))
    at = route(state.withColumn(key, F.col(f"key.{key}")), key, plan)
    placed = state.withColumn(key, F.col(f"key.{key}")).withColumn("at", at)
    return placed.count(), placed.where("at = partition_id").count()


def test_duplicates_are_dropped_by_the_first_plan_for_life(files: Files) -> None:
    """A second life with another plan drops what the first has seen, as a query without salts does. NaNs are one key,
    and so are 0.0 and -0.0 where they are to Spark (its streams of 4.0 kept both)."""

    def keyed(df: DataFrame) -> DataFrame:
        return df.withColumn("k", F.col("text").cast("double")).withColumn("odd", F.expr("user % 2"))

    first, second = two_plans(keyed(files.batch), "k")
    rows: list[tuple[int, str]] = []
    unsalted: list[tuple[int, str]] = []

    def deduplicated(plan: Plan) -> DataFrame:
        df = keyed(files.stream)
        made = salt(
            df, "k", plan, operator="dropDuplicates", by=["odd", "k"], checkpoint=files.checkpoint("d"), name="once"
        )
        return df.select("*", made).dropDuplicates(["odd", "k", "salt"])

    def into(kept: list[tuple[int, str]]) -> Handler:
        return lambda df, _: kept.extend((row["odd"], str(row["k"] + 0.0)) for row in df.collect())

    for life, plan in enumerate((first, second)):
        files.come(life)
        files.run(deduplicated(plan), "d", into(rows))
    files.run(keyed(files.stream).dropDuplicates(["odd", "k"]), "u", into(unsalted))
    assert sorted(rows) == sorted(unsalted)
    assert len(rows) < keyed(files.batch).count()
    assert {(1, "0.0"), (1, "nan")} < set(rows)
    assert places(files, "d", "k", first) == (len(rows), len(rows))


@pytest.mark.long
def test_duplicates_within_the_watermark_are_kept_track_of_where_planned(files: Files) -> None:
    """The other way to drop them, whose state is forgotten in time."""
    plan, operator = planned(files.batch, "user", "kip"), "dropDuplicatesWithinWatermark"
    files.delay = "1 hour"
    made = salt(files.stream, "user", plan, operator=operator, checkpoint=files.checkpoint("d"), name="once")
    df = files.stream.select("*", made).dropDuplicatesWithinWatermark(["user", "salt"])
    files.run(df, "d", lambda batch, _: batch.count())
    held, placed = places(files, "d", "user", plan)
    assert held == placed > 0


def counted(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    seen = (state.get[0] if state.exists else 0) + sum(map(len, frames))
    state.update((seen,))
    yield pd.DataFrame({"user": [key[0]], "seen": [seen]})


class Counting(StatefulProcessor):
    """The same as ``counted`` for transformWithStateInPandas."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.seen = handle.getValueState("seen", "seen bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        seen = (self.seen.get()[0] if self.seen.exists() else 0) + sum(map(len, rows))
        self.seen.update((seen,))
        yield pd.DataFrame({"user": [key[0]], "seen": [seen]})

    def close(self) -> None:
        pass


def by_function(df: DataFrame, operator: str) -> DataFrame:
    grouped = df.groupBy("user", "salt")
    if operator == "applyInPandasWithState":
        return grouped.applyInPandasWithState(
            counted, "user bigint, seen bigint", "seen bigint", "update", GroupStateTimeout.NoTimeout
        )
    return grouped.transformWithStateInPandas(Counting(), "user bigint, seen bigint", "update", "none")


@pytest.mark.parametrize(
    ("operator", "options"),
    [
        ("applyInPandasWithState", {}),
        pytest.param("transformWithStateInPandas", {"stateVarName": "seen"}, marks=pytest.mark.long),
    ],
)
def test_functions_keep_one_state_per_key_for_life(files: Files, operator: str, options: dict[str, str]) -> None:
    """What the function counts goes on in a second life that was given another plan."""
    first, second = two_plans(files.batch, "user")
    seen: dict[int, int] = {}

    def keep(df: DataFrame, _: int) -> None:
        seen.update({row["user"]: row["seen"] for row in df.collect()})

    with setting(files.spark, spark__sql__streaming__stateStore__providerClass=ROCKS if options else HDFS):
        for life, plan in enumerate((first, second)):
            files.come(life)
            df, told = files.stream, {"checkpoint": files.checkpoint("f"), "name": "counts"}
            df = df.select("*", salt(df, "user", plan, operator=operator, **told))
            files.run(by_function(df, operator), "f", keep, mode="update")
        assert seen == {row["user"]: row["count"] for row in files.batch.groupBy("user").count().collect()}
        assert places(files, "f", "user", first, **options) == (len(seen), len(seen))


# -- joins --------------------------------------------------------------------------------------------------------


def test_streams_are_joined_where_planned_and_each_pair_once(files: Files) -> None:
    """Left rows in one fragment of their key, right ones in each; a second life goes by the first plan."""
    first = planned(files.batch, "user", "prompt")
    second = planned(files.batch.where("user > 7"), "user", "prompt")
    rows: Counter[tuple[int, int]] = Counter()

    def right(df: DataFrame) -> DataFrame:
        return df.select("user", F.expr("user % 3").alias("third"), F.col("id").alias("other")).where("id % 5 < 3")

    def left(df: DataFrame) -> DataFrame:
        return df.select("user", F.expr("user % 3").alias("third"), "id").where("id % 4 = 0")

    def joined(plan: Plan) -> DataFrame:
        told = {"checkpoint": files.checkpoint("j"), "name": "pairs"}
        return salted_join(
            left(files.stream), right(files.stream), ["third", "user"], plan, key="user", spread="id", **told
        )

    def keep(df: DataFrame, _: int) -> None:
        assert df.columns == ["third", "user", "id", "other"]
        rows.update((row["id"], row["other"]) for row in df.collect())

    for life, plan in enumerate((first, second)):
        files.come(life)
        files.run(joined(plan), "j", keep)
    pairs = left(files.batch).join(right(files.batch), ["third", "user"]).select("id", "other").collect()
    assert len(pairs) > 5_000
    assert rows == Counter(tuple(row) for row in pairs)

    def held(side: str, column: str) -> DataFrame:
        state = files.state("j", joinSide=side)
        return state.select(F.col("key.field1").alias("user"), F.col(f"value.{column}").alias("id"), "partition_id")

    spreads, copies = held("left", "id"), held("right", "other")
    assert spreads.count() == left(files.batch).count()
    assert spreads.where(route(spreads, "user", first) != F.col("partition_id")).isEmpty()
    fragments = {row["partition_id"] for row in spreads.where("user = 0").select("partition_id").distinct().collect()}
    assert len(fragments) > 1
    hot = copies.where("user = 0").groupBy("partition_id").count()
    each = {row["partition_id"]: row["count"] for row in hot.collect()}
    assert each == dict.fromkeys(fragments, right(files.batch).where("user = 0").count())


# -- refused, by name ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plans(spark: SparkSession) -> dict[str, Plan]:
    """By policy, for bigint keys."""
    keys = spark.range(2_000).selectExpr("if(id % 3 = 0, 0, id) user", "id")
    return {policy: planned(keys, "user", policy) for policy in ("kip", "prompt")}


@pytest.fixture
def stream(spark: SparkSession) -> DataFrame:
    rate = spark.readStream.format("rate").load()
    df = rate.selectExpr("value user", "value id", "timestamp ts", "timestamp raw", "'x' collate UTF8_LCASE named")
    df = df.withWatermark("ts", "1 minute")
    return df.withColumn("window", F.window("ts", "1 minute")).withColumn("session", F.session_window("ts", "1 minute"))


WINDOWED: dict[str, Any] = {"by": ["window", "user"], "mode": "append"}
ONCE: dict[str, Any] = {"operator": "dropDuplicates", "checkpoint": "unused", "name": "once"}

REFUSED: dict[str, tuple[str, dict[str, Any], type[UnskewError], str]] = {
    "update mode": ("prompt", {**WINDOWED, "mode": "update"}, ConfigError, "mode: 'update'.*merged they are a wrong"),
    "complete mode": ("prompt", {**WINDOWED, "mode": "complete"}, ConfigError, "mode: 'complete'.*keeps the state"),
    "no mode": ("prompt", {**WINDOWED, "mode": None}, ConfigError, "mode: None.*writeStream.outputMode"),
    "a session": ("prompt", {**WINDOWED, "by": ["session", "user"]}, ConfigError, "session window.*stateful"),
    "no watermark": ("prompt", {**WINDOWED, "by": ["raw", "user"]}, ConfigError, "with a watermark among them"),
    "no such column": (
        "prompt",
        {**WINDOWED, "by": ["hour", "user"]},
        ConfigError,
        "by: 'hour'.*add a window first",
    ),
    "an expression": ("prompt", {**WINDOWED, "by": [len]}, ConfigError, "names of columns"),
    "a key apart": ("prompt", {**WINDOWED, "by": ["window"]}, ConfigError, "key: .*user.*groups by"),
    "a collation": ("prompt", {**WINDOWED, "by": ["window", "user", "named"]}, KeyTypeError, "column named .*Cast"),
    "an unknown operator": ("kip", {"operator": "mapInArrow"}, ConfigError, "operator: 'mapInArrow'.*aggregate"),
    "a join": ("kip", {"operator": "join"}, ConfigError, "operator: 'join'.*salted_join"),
    "a plan that splits": ("prompt", ONCE, PlanError, "dropDuplicates has one state per key.*policy='kip'"),
    "a function of a split key": ("prompt", {**ONCE, "operator": "transformWithState"}, PlanError, "one state per key"),
    "no checkpoint": ("kip", {**ONCE, "checkpoint": None}, ConfigError, "checkpoint: None.*checkpointLocation"),
    "no name": ("kip", {**ONCE, "name": None}, ConfigError, "name: None.*under its checkpoint"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_salted_is_refused_by_name(
    stream: DataFrame, plans: dict[str, Plan], tmp_path: Path, what: str
) -> None:
    """Before any job, and without a trace under the checkpoint."""
    policy, given, error, said = REFUSED[what]
    given = {**given, **({"checkpoint": str(tmp_path)} if given.get("checkpoint") else {})}
    with no_job(stream.sparkSession), pytest.raises(error, match=f"(?s){said}"):
        salt(stream, "user", plans[policy], **given)
    assert list(tmp_path.iterdir()) == []


def test_other_frames_and_plans_are_refused_too(
    spark: SparkSession, stream: DataFrame, plans: dict[str, Plan], tmp_path: Path
) -> None:
    """A batch; keys of another type; another number of partitions; more columns than old Sparks hash in order."""
    with pytest.raises(ConfigError, match="a frame that is no stream"):
        salt(spark.range(3), "id", plans["kip"])
    told = {**ONCE, "checkpoint": str(tmp_path)}
    narrow = stream.withColumn("user", F.expr("int(user)"))
    with pytest.raises(PlanError, match="keys of type"):
        salt(narrow, "user", plans["prompt"], **WINDOWED)
    with pytest.raises(PlanError, match="keys of type"):
        salt(narrow, "user", plans["kip"], **told)
    with setting(spark, spark__sql__shuffle__partitions=9), pytest.raises(PlanError, match=r"4 partitions.*into 9"):
        salt(stream, "user", plans["prompt"], **WINDOWED)
    many = ["id", "ts", "raw", "user"]
    unordered = setting(spark, spark__sql__dropDuplicates__deterministicKeyOrder__enabled="false")
    with unordered, pytest.raises(ConfigError, match=r"at most 3 columns.*struct"):
        salt(stream, "user", plans["kip"], **{**told, "by": many})
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError, match=r"batch: .*salt"):
        unsalted(spark.range(3))


def test_a_name_is_for_one_salt(stream: DataFrame, plans: dict[str, Plan], tmp_path: Path) -> None:
    """Under one name there is one first plan: of this operator, this key, these columns."""
    told = {**ONCE, "checkpoint": str(tmp_path)}
    salt(stream, "user", plans["kip"], **told)
    salt(stream, "user", plans["kip"], **told)
    with pytest.raises(ConfigError, match=r'name: .once.*"by": \["user"\]'):
        salt(stream, "user", plans["kip"], **{**told, "by": ["user", "id"]})
    with setting(stream.sparkSession, spark__sql__shuffle__partitions=9), pytest.raises(PlanError, match="into 9"):
        salt(stream, "user", plans["kip"], **told)


def test_a_query_that_has_run_without_its_salt_gets_no_other(
    stream: DataFrame, plans: dict[str, Plan], tmp_path: Path
) -> None:
    """The pin was deleted, or the name is another one now: by another plan its state would not be found."""
    told = {**ONCE, "checkpoint": str(tmp_path)}
    salt(stream, "user", plans["kip"], **told)
    (tmp_path / "offsets").mkdir()
    settings = json.dumps({"batchWatermarkMs": 0, "conf": {"spark.sql.shuffle.partitions": str(N)}})
    (tmp_path / "offsets" / "0").write_text(f"v1\n{settings}\n{{}}")
    salt(stream, "user", plans["kip"], **told)
    with pytest.raises(ConfigError, match=r"name: .twice. is not allowed.*has run without.*unskew/twice/salt\.pin"):
        salt(stream, "user", plans["kip"], **{**told, "name": "twice"})
    assert not (tmp_path / "unskew" / "twice").exists()


def test_a_path_without_a_scheme_is_the_driver_s_disk_only_where_it_is_sparks(
    stream: DataFrame, plans: dict[str, Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert default_files(stream) == "file:///"
    monkeypatch.setattr(settings, "default_files", lambda _: "hdfs://names:8020")
    with pytest.raises(ConfigError, match=r"checkpoint: .*use the same with its scheme.*hdfs://names:8020"):
        salt(stream, "user", plans["kip"], **{**ONCE, "checkpoint": str(tmp_path)})
    salt(stream, "user", plans["kip"], **{**ONCE, "checkpoint": f"file:{tmp_path}"})


def test_joins_that_would_copy_rows_without_partner_are_refused(
    stream: DataFrame, plans: dict[str, Plan], tmp_path: Path
) -> None:
    """And those whose sides hash differently."""
    told: dict[str, Any] = {"checkpoint": str(tmp_path), "name": "pairs"}
    other = stream.select("user", F.col("id").alias("other"))
    for how in ("left", "right", "full", "left_semi"):
        with pytest.raises(ConfigError, match=f"how: '{how}'.*inner"):
            salted_join(stream, other, "user", plans["prompt"], how=how, **told)
    with pytest.raises(KeyTypeError, match="on user: bigint and int"):
        salted_join(stream, other.selectExpr("int(user) user"), "user", plans["prompt"], **told)
    with pytest.raises(ConfigError, match="checkpoint: None"):
        salted_join(stream, other, "user", plans["prompt"])
    assert list(tmp_path.iterdir()) == []
