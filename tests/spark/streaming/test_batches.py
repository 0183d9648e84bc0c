"""``for_each_batch`` in one process: batches that run again, handlers that read twice, queries side by side."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from tests.doses import some_of
from tests.spark.frames import setting
from tests.spark.streaming.job import PARTITIONS, SCHEMA
from tests.spark.streaming.lives import ROWS, ids_of, prepare, users_of
from tests.spark.streaming.queries import Notes, batches, firsts, pin_at, placed, run, settled, start
from unskew.core.quality.measures import imbalance
from unskew.spark import Unskew

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-streams")]


def fails(ask: Callable[[], object]) -> None:
    with pytest.raises(StreamingQueryException, match="the handler fails"):
        ask()


@pytest.mark.parametrize("same", some_of([True, False], False))
def test_a_batch_that_failed_runs_again_by_its_plan(spark: SparkSession, sk: Unskew, folder: Path, same: bool) -> None:
    """By the same handler object, or by another session with other settings; the rest of the query goes on."""
    notes = Notes(fails={1, 2})
    first = batches(sk, notes, folder)
    fails(lambda: run(spark, folder, settled(first)))
    assert sorted(notes.runs) == [0, 1]
    if same:
        fails(lambda: run(spark, folder, settled(first)))
        run(spark, folder, settled(first))
    else:
        with (
            setting(spark, spark__sql__shuffle__partitions=7),
            Unskew(spark, stream="clicks", partitions=3, policy="prompt", seed=11) as other,
        ):
            second = batches(other, notes, folder)
            fails(lambda: run(spark, folder, settled(second)))
            run(spark, folder, settled(batches(other, notes, folder)))
        assert [pin_at(folder / "cp", batch).bound.partitions for batch in (1, 3)] == [PARTITIONS, 3]
    assert [len(notes.runs[batch]) for batch in range(4)] == [1, 2, 2, 1]
    assert (notes.wrong(4), notes.moved(), notes.strayed(folder / "cp")) == (0, 0, 0)


def test_the_same_harm_without_pins_loses_rows(spark: SparkSession, sk: Unskew, folder: Path) -> None:
    """What nobody should write: the newest plan there is, asked for in the batch. The same check sees it."""
    notes = Notes(fails={1})
    made: list[int] = []

    def newest(df: DataFrame, batch: int) -> None:
        with Unskew(spark, stream="clicks", partitions=PARTITIONS, policy="balanced", seed=len(made)) as other:
            made.append(batch)
            seen = df.sparkSession.createDataFrame(pd.DataFrame({"user": users_of(len(made)), "id": ids_of(0)}))
            plan = other.plan(seen, "user", "id")
            notes(sk.repartition(df, "user", plan, "id"), batch)

    fails(lambda: run(spark, folder, newest))
    run(spark, folder, newest)
    assert notes.moved() > 0
    assert notes.wrong(4) > 0


@pytest.mark.parametrize("persist", some_of([False, True], True))
def test_a_handler_with_two_actions(spark: SparkSession, sk: Unskew, short: Path, persist: bool) -> None:
    """Both see the same rows in the same places; a join of the frame with itself does, too."""
    seen: list[int] = []

    def handle(df: DataFrame, batch: int) -> None:
        first, second = placed(df, batch), placed(df, batch)
        assert first.tolist() == second.tolist()
        assert df.union(df).count() == df.count() * 2
        assert df.join(df.groupBy("id").count(), "id").count() == ROWS
        assert df.alias("a").join(df.alias("b"), F.expr("a.id = b.id")).count() == ROWS
        seen.append(int((first >= 0).sum()))

    run(spark, short, settled(batches(sk, handle, short, persist=persist)))
    assert seen == [ROWS] * 2


def test_two_queries_of_one_stream_at_once(spark: SparkSession, sk: Unskew, folder: Path) -> None:
    """One ``Unskew``, two names: each batch goes by its own query's plan, also where a handler asks for none."""
    meet = threading.Barrier(2, timeout=180.0)
    inside: Counter[tuple[str, int]] = Counter()
    notes = {"a": Notes(), "b": Notes()}

    def handler(name: str) -> Callable[[DataFrame, int], None]:
        def handle(df: DataFrame, batch: int) -> None:
            meet.wait()  # both have a batch in hand
            notes[name](df, batch)
            again = placed(sk.repartition(df, "user"), batch)
            inside[name, batch] = int((again != notes[name].runs[batch][-1]).sum())

        return handle

    made = {
        name: batches(sk, handler(name), folder, checkpoint=str(folder / f"cp-{name}"), name=name) for name in notes
    }
    queries = [start(spark, folder, settled(made[name]), folder / f"cp-{name}") for name in notes]
    for query in queries:
        query.awaitTermination()
    for name, found in notes.items():
        assert (found.wrong(4), found.strayed(folder / f"cp-{name}", name)) == (0, 0)
    assert set(inside.values()) == {0}
    assert len(inside) == 8


def test_operators_inside_take_the_batch_s_plan(
    spark: SparkSession, sk: Unskew, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them counts keys, and all are exact."""

    def counts(*_: object, **__: object) -> None:
        raise AssertionError("a batch has its plan")

    monkeypatch.setattr("unskew.spark.session.histogram_of", counts)
    monkeypatch.setattr("unskew.spark.operators.joins.Join.plan", counts)
    names = spark.createDataFrame([(f"u{i}", i) for i in range(310)], "user string, number int")
    done = []

    def partial(rows: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"user": rows["user"].head(1), "n": [len(rows)]})

    def merge(states: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"user": states["user"].head(1), "n": [states["n"].sum()]})

    def handle(df: DataFrame, batch: int) -> None:
        expected = Counter(users_of(batch).tolist())
        plan = pin_at(short / "cp", max(one for one in firsts(short / "cp") if one <= batch)).bound.plan
        assert sk.repartition(df, "user").rdd.getNumPartitions() == PARTITIONS
        assert placed(sk.repartition(df, "user"), batch).tolist() == placed(df, batch).tolist()
        found = sk.aggregate(df, "user", partial, merge, "user string, n long").collect()
        assert {row["user"]: row["n"] for row in found} == expected
        with setting(df.sparkSession, spark__sql__autoBroadcastJoinThreshold=-1):
            joined = sk.join(df, names, "user")
            assert sorted(row["number"] for row in joined.collect()) == sorted(int(u[1:]) for u in users_of(batch))
        assert plan is not None
        done.append(plan.splits)

    kept = persisted(spark)
    run(spark, short, settled(batches(sk, handle, short)))
    assert done == [False, True]
    assert persisted(spark) == kept, "what aggregate keeps is freed with its batch"


@pytest.mark.long
def test_operators_inside_work_on_frames_that_lack_columns_of_the_batch(
    spark: SparkSession, sk: Unskew, short: Path
) -> None:
    """By hash, and by a plan that splits keys: a part of the columns, and another frame with the key."""
    others = spark.range(3_000).selectExpr("concat('u', id % 7) user", "id number")
    done = []

    def count(rows: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"user": rows["user"].head(1), "n": [len(rows)]})

    def add(states: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"user": states["user"].head(1), "n": [states["n"].sum()]})

    def handle(df: DataFrame, batch: int) -> None:
        narrow = df.selectExpr("user", "id % 100 part")
        found = sk.aggregate(narrow, "user", count, add, "user string, n long").collect()
        assert {row["user"]: row["n"] for row in found} == Counter(users_of(batch).tolist())
        placed_others = sk.repartition(others, "user")
        assert placed_others.rdd.getNumPartitions() == PARTITIONS
        assert placed_others.count() == 3_000
        batch_in_hand = sk.plans.context.batch
        plan = batch_in_hand.plan if batch_in_hand else None
        done.append(plan is not None and plan.splits)

    run(spark, short, settled(batches(sk, handle, short, spread="auto")))
    assert done == [False, True]


def test_what_fails_in_a_handler_and_is_caught_there_costs_what_the_batch_would_have_taught(
    spark: SparkSession, sk: Unskew, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark tells whoever observes the frame of the first thing that was asked of it, a mistake among them."""

    def handle(df: DataFrame, batch: int) -> None:
        if batch == 1:
            with pytest.raises(AnalysisException):
                df.select("nothing")
        assert df.count() == ROWS

    run(spark, folder, settled(batches(sk, handle, folder)))
    assert firsts(folder / "cp")[-1] == 3
    assert "fault of unskew" not in caplog.text


def persisted(spark: SparkSession) -> int:
    inner: Any = spark
    return int(inner.sparkContext._jsc.getPersistentRDDs().size())


def test_a_query_that_makes_many_rows_of_few_learns_from_each_batch(
    spark: SparkSession, sk: Unskew, folder: Path
) -> None:
    """Spark tells how many rows the source gave; what counts is how many the handler gets."""
    seen: list[int] = []
    many = batches(sk, lambda df, _: seen.append(df.count()), folder, threshold=5 * ROWS)
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    copies = rows.withColumn("copy", F.explode(F.sequence(F.lit(1), F.lit(10))))
    query = copies.writeStream.foreachBatch(settled(many)).option("checkpointLocation", str(folder / "cp"))
    query.trigger(availableNow=True).start().awaitTermination()

    assert seen == [10 * ROWS] * 4
    assert firsts(folder / "cp") == [0, 1, 2, 3]


def test_group_apply_inside_takes_a_plan_that_keeps_keys_whole(
    spark: SparkSession, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counts(*_: object, **__: object) -> None:
        raise AssertionError("a batch has its plan")

    monkeypatch.setattr("unskew.spark.session.histogram_of", counts)
    found: Counter[str] = Counter()

    def count(rows: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"user": rows["user"].head(1), "n": [len(rows)]})

    def handle(df: DataFrame, batch: int) -> None:
        for row in sk.group_apply(df, "user", count, "user string, n long").collect():
            found[row["user"]] += row["n"]

    with Unskew(spark, stream="clicks", partitions=PARTITIONS, policy="kip") as sk:
        run(spark, short, settled(batches(sk, handle, short)))
    assert found == Counter(user for batch in range(2) for user in users_of(batch).tolist())


def test_a_batch_may_be_counted_before_it_is_placed(spark: SparkSession, sk: Unskew, folder: Path) -> None:
    """``fresh="same"``: even already in the first batch, and exact when a batch fails."""
    notes = Notes(fails={2})
    made = batches(sk, notes, folder, fresh="same")
    fails(lambda: run(spark, folder, made))
    run(spark, folder, made)
    assert (notes.wrong(4), notes.moved(), notes.strayed(folder / "cp")) == (0, 0, 0)
    assert firsts(folder / "cp") == [0, 1, 2, 3]
    assert max(imbalance(even[0].astype(np.int32), PARTITIONS) for even in notes.runs.values()) < 1.15


def test_a_counted_batch_that_is_read_twice_runs_again_by_its_plan(
    spark: SparkSession, sk: Unskew, folder: Path
) -> None:
    """Files are read again rather than persisted; of a batch that fails in the middle every row is there once."""
    notes, before = Notes(fails={1}), persisted(spark)
    kept: dict[int, list[int]] = {}

    def handle(df: DataFrame, batch: int) -> None:
        kept.setdefault(batch, []).append(persisted(spark) - before)
        notes(df, batch)

    made = batches(sk, handle, folder, fresh="same")
    fails(lambda: run(spark, folder, settled(made)))
    run(spark, folder, settled(made))
    assert kept == {0: [1], 1: [0, 0], 2: [0], 3: [1]}, "one of each is tried, then the other"
    assert (notes.wrong(4), notes.moved(), notes.strayed(folder / "cp")) == (0, 0, 0)
    assert firsts(folder / "cp") == [0, 1, 2, 3]
    assert persisted(spark) == before


def test_a_counted_batch_is_known_though_its_handler_reads_nothing(
    spark: SparkSession, sk: Unskew, short: Path
) -> None:
    run(spark, short, settled(batches(sk, lambda _df, _batch: None, short, fresh="auto")))
    assert "nothing is known" in pin_at(short / "cp", 0).reason
    assert "over the last batch" in pin_at(short / "cp", 1).reason


@pytest.mark.long
def test_a_copied_checkpoint_takes_its_pins_with_it(spark: SparkSession, sk: Unskew, folder: Path) -> None:
    """The copy's batch that had been begun goes by the same plan, in a query of another policy; what the folder is
    called, and how that is written, does not matter."""
    notes, copied, copy = Notes(fails={2}), Notes(), folder / "a copy%20#1"
    fails(lambda: run(spark, folder, settled(batches(sk, notes, folder))))
    shutil.copytree(folder / "cp", copy)
    with Unskew(spark, stream="clicks", partitions=PARTITIONS, policy="prompt") as other:
        made = batches(other, copied, folder, checkpoint=f"file:{folder}/../{folder.name}/{copy.name}/")
        run(spark, folder, settled(made), copy)
    assert copied.runs[2][0].tolist() == notes.runs[2][0].tolist()
    assert copied.strayed(copy) == 0


@pytest.mark.long
def test_a_query_that_ran_elsewhere_in_between(spark: SparkSession, sk: Unskew, folder: Path) -> None:
    """The first handler object is used again after another driver has begun a batch: it goes by that one's pin."""
    here, there = Notes(fails={1}), Notes(fails={2})
    first = batches(sk, here, folder)
    fails(lambda: run(spark, folder, settled(first)))
    with Unskew(spark, stream="clicks", partitions=PARTITIONS, policy="prompt") as other:
        fails(lambda: run(spark, folder, settled(batches(other, there, folder))))
    run(spark, folder, settled(first))
    assert here.runs[1][0].tolist() == there.runs[1][0].tolist()
    assert here.runs[2][0].tolist() == there.runs[2][0].tolist()
    assert here.strayed(folder / "cp") == there.strayed(folder / "cp") == 0


def test_batches_need_not_begin_with_0(spark: SparkSession, sk: Unskew, folder: Path) -> None:
    """A query that had a plain handler before."""

    def plain(df: DataFrame, batch: int) -> None:
        if batch == 2:
            raise RuntimeError("the handler fails")
        df.count()

    notes = Notes()
    fails(lambda: run(spark, folder, plain))
    run(spark, folder, settled(batches(sk, notes, folder)))
    assert sorted(notes.runs) == [2, 3]
    assert firsts(folder / "cp") == [2, 3]
    assert notes.strayed(folder / "cp") == 0


def test_what_auto_stood_for_is_pinned(spark: SparkSession, sk: Unskew, folder: Path) -> None:
    """A batch of rows that are told apart by all their columns fails; the next version of the job has a column more and
    a policy that splits no keys. The batch goes as it went; later ones go on, one without rows among them."""
    notes = Notes(fails={1})
    fails(lambda: run(spark, folder, settled(batches(sk, notes, folder, spread="auto"))))
    assert (pin := pin_at(folder / "cp", 1)).bound.plan is not None
    assert (pin.bound.plan.splits, pin.spread_columns) == (True, ("user", "id"))
    with Unskew(spark, stream="clicks", partitions=PARTITIONS, policy="kip") as other:
        made = batches(other, lambda df, batch: batch == 2 or notes(df, batch), folder, spread="auto", threshold=2_000)

        def each(df: DataFrame, batch: int) -> None:
            made(df.withColumn("more", F.col("id") * 3).where(F.lit(batch != 2)), batch)

        run(spark, folder, each)
    assert [len(notes.runs.get(batch, [])) for batch in range(4)] == [1, 2, 0, 1]
    assert notes.moved() == 0
    assert pin_at(folder / "cp", 2).spread_columns == ("user", "id", "more")


def test_a_column_that_auto_stood_for_may_be_gone(
    spark: SparkSession, sk: Unskew, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Stopped between two batches, and in one: the next version of the job has a column less, and goes on; the log says
    by what rows are not told apart any more. Batches that nobody has begun are bound to what there is now."""
    notes = Notes(fails={2})
    first = batches(sk, notes, folder, spread="auto")

    def each(df: DataFrame, batch: int) -> None:
        first(df.withColumn("more", F.col("id") * 3), batch)
        assert first.settle(60.0)

    fails(lambda: run(spark, folder, each))
    assert (pin := pin_at(folder / "cp", 2)).bound.plan is not None
    assert (pin.bound.plan.splits, pin.spread_columns) == (True, ("user", "id", "more"))
    again = Notes()
    run(spark, folder, settled(batches(sk, again, folder, spread="auto")))
    assert sorted(again.runs) == [2, 3]
    assert all(int((one[0] >= 0).sum()) == ROWS for one in again.runs.values())
    assert "told apart without more" in caplog.text
    assert pin_at(folder / "cp", 3).spread_columns == ("user", "id")


@pytest.mark.long
def test_columns_with_dots_in_their_names_tell_rows_apart(spark: SparkSession, sk: Unskew, folder: Path) -> None:
    """ "auto" takes them as they stand, though ``a.b`` would be a field of another column."""
    notes = Notes(fails={1})

    def handle(df: DataFrame, batch: int) -> None:
        assert sk.repartition(df, "user").count() == ROWS
        notes(df, batch)

    made = batches(sk, handle, folder, spread="auto")

    def each(df: DataFrame, batch: int) -> None:
        made(df.withColumn("a.b", F.col("id")).withColumn("a", F.struct(F.lit(0).alias("b"))), batch)
        assert made.settle(60.0)

    fails(lambda: run(spark, folder, each))
    run(spark, folder, each)
    assert pin_at(folder / "cp", 3).spread_columns == ("user", "id", "a.b", "a")
    assert (notes.wrong(4), notes.moved()) == (0, 0)


def test_a_query_goes_on_when_it_is_closed(spark: SparkSession, sk: Unskew, folder: Path) -> None:
    """By the plan that it has."""
    notes = Notes()
    made = batches(sk, notes, folder)

    def each(df: DataFrame, batch: int) -> None:
        made(df, batch)
        if batch == 0:
            made.close()

    run(spark, folder, each)
    assert (sorted(notes.runs), notes.wrong(4), notes.strayed(folder / "cp")) == ([0, 1, 2, 3], 0, 0)
    assert len(firsts(folder / "cp")) <= 2


def test_rows_of_equal_batches_lie_evenly(spark: SparkSession, sk: Unskew, tmp_path: Path) -> None:
    """The plan of the batches before fits a batch like them, where hash gives one partition nearly half."""
    prepare(tmp_path, 3)
    notes = Notes()
    run(spark, tmp_path, settled(batches(sk, notes, tmp_path)))
    first, *_, last = (imbalance(notes.runs[batch][0].astype(np.int32), PARTITIONS) for batch in range(3))
    assert first > 2.0
    assert last < 1.25
