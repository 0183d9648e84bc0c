"""``for_each_batch(fresh="inflight")``: batches placed by their own rows while they are read, and exact."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from tests.doses import some_of
from tests.spark.frames import as_spark_4_0, setting, shuffles
from tests.spark.streaming.job import NAME, PARTITIONS, SCHEMA, STREAM
from tests.spark.streaming.lives import ROWS
from tests.spark.streaming.queries import Notes, batches, firsts, pin_at, placed, run, settled
from unskew.client import testing
from unskew.core.errors import ConfigError, PlanError
from unskew.core.freshness import batch_price
from unskew.core.planners import PLANNERS
from unskew.core.rounds.partition_agent import RoutingChoice
from unskew.core.scaling.elastic import Elastic
from unskew.spark import Unskew
from unskew.spark.in_flight import map_stage, place
from unskew.spark.streaming.batch_flight import BatchFlight, FlownBatch
from unskew.spark.streaming.pin_log import PinLog
from unskew.wire import StoredPin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-streams")]


def in_flight(sk: Unskew, handle: Callable[[DataFrame, int], object], folder: Path, **settings: Any) -> Any:
    return batches(sk, handle, folder, **{"fresh": "inflight", **settings})


def rows_of(spark: SparkSession, rows: int) -> DataFrame:
    """Two fifths of them have one key."""
    user = F.when(F.col("id") % 5 < 2, "hot").otherwise(F.concat(F.lit("u"), F.col("id") % 300))
    return spark.range(0, rows, 1, 3).select(user.alias("user"), "id")


def places(df: DataFrame) -> dict[int, int]:
    """The partition of each row."""
    found = df.select("id", F.spark_partition_id().alias("p")).toArrow()
    ids, partitions = found.column("id").to_pylist(), found.column("p").to_pylist()
    assert len(set(ids)) == len(ids)
    return dict(zip(ids, partitions, strict=True))


@pytest.mark.parametrize("adaptive", some_of([True, False], True))
def test_each_batch_goes_by_its_own_rows(spark: SparkSession, sk: Unskew, folder: Path, adaptive: bool) -> None:
    """From the first on, another hot key in the last; no row moves in the second run of a batch whose handler fails,
    which goes by the cells of the first: other handler, other settings, other number of shuffle partitions."""
    notes = Notes(fails={2})
    first = in_flight(sk, notes, folder)
    with setting(spark, spark__sql__adaptive__enabled=str(adaptive).lower()):
        with pytest.raises(StreamingQueryException, match="the handler fails"):
            run(spark, folder, settled(first))
        with (
            setting(spark, spark__sql__shuffle__partitions=7),
            Unskew(spark, stream="clicks", partitions=3, policy="prompt", seed=11) as other,
        ):
            run(spark, folder, settled(in_flight(other, notes, folder)))
    assert firsts(folder / "cp") == [0, 1, 2, 3]
    assert [len(notes.runs[batch]) for batch in range(4)] == [1, 1, 2, 1]
    assert (notes.wrong(4), notes.moved(), notes.strayed(folder / "cp")) == (0, 0, 0)
    for batch in range(3):
        bound = pin_at(folder / "cp", batch).bound
        assert (bound.plan, bound.table) == (None, None)
        assert bound.partitions == PARTITIONS
        loads = np.bincount(notes.runs[batch][0])
        assert loads.max() < 1.15 * ROWS / PARTITIONS
        assert "in flight" in pin_at(folder / "cp", batch).reason


@pytest.mark.parametrize("rows", some_of([0, 1, 7, 20_000], 0, 20_000))
def test_the_second_run_is_the_first_whatever_the_rows(spark: SparkSession, sk: Unskew, short: Path, rows: int) -> None:
    """Given to the handler without a query; read by other map tasks in the second run."""
    seen: list[dict[int, int]] = []

    def note(df: DataFrame, _batch: int) -> None:
        seen.append(places(df))

    rows_in = rows_of(spark, rows)
    for df in (rows_in, rows_in.repartition(5)):
        each = in_flight(sk, note, short)
        each(df, 0)
        assert each.settle(60.0)
        each.close()
    assert seen[0] == seen[1]
    assert len(seen[0]) == rows
    if rows == 20_000:
        loads = np.bincount(list(seen[0].values()))
        assert loads.max() < 1.1 * rows / PARTITIONS


def test_the_second_run_without_repartition_by_id(spark: SparkSession, sk: Unskew, short: Path) -> None:
    """Spark 4.0 has none: rows are sent by the ints whose hash is the cell, and back by those of the task."""
    with as_spark_4_0():
        test_the_second_run_is_the_first_whatever_the_rows(spark, sk, short, 20_000)


def test_keys_stay_whole_and_the_column_tells_the_partition(spark: SparkSession, short: Path) -> None:
    """What groups by it and the key shuffles no more; in the second run, too."""
    seen: list[list[Any]] = []
    exchanges: list[int] = []

    def handle(df: DataFrame, _batch: int) -> None:
        counted = df.withColumn("p", F.spark_partition_id()).groupBy("part", "user", "p").count()
        exchanges.append(len(shuffles(counted)))
        assert dict(df.dtypes)["part"] == "int"
        seen.append(sorted(map(tuple, counted.collect())))

    with Unskew(spark, stream="clicks", partitions=PARTITIONS, policy="kip") as sk:
        for _ in range(2):
            in_flight(sk, handle, short, column="part")(rows_of(spark, 20_000), 0)
    assert seen[0] == seen[1]
    assert exchanges == [0, 1], "in flight it is written before; in the second run it is the batch's own"
    assert len({part for part, _, _, _ in seen[0]}) == len({(part, p) for part, _, p, _ in seen[0]}) > 1
    users = [user for _, user, _, _ in seen[0]]
    assert len(set(users)) == len(users), "each key in one partition"
    assert sum(n for _, _, _, n in seen[0]) == 20_000


def test_batches_are_even_in_weight(spark: SparkSession, sk: Unskew, short: Path) -> None:
    """One row in a hundred weighs a hundred."""
    seen: list[dict[int, int]] = []
    weight = "if(id % 100 = 0, 100, 1)"
    each = in_flight(sk, lambda df, _: seen.append(places(df)), short, weight=weight)
    each(rows_of(spark, 20_000).where("user <> 'hot' or id % 100 < 50"), 0)
    ids, at = np.array(list(seen[0])), np.array(list(seen[0].values()))
    loads = np.bincount(at, np.where(ids % 100 == 0, 100, 1))
    assert loads.max() < 1.15 * loads.sum() / PARTITIONS
    assert np.bincount(at).max() > 1.3 * np.bincount(at).mean(), "else the test could not fail"


def test_a_handler_reads_twice_and_verbs_work_in_it(spark: SparkSession, sk: Unskew, short: Path) -> None:
    """The source is read once; a verb without a plan places anew."""
    reads = spark.sparkContext.accumulator(0)

    def passed(rows: Any) -> Any:
        for one in rows:
            reads.add(one.num_rows)
            yield one

    def handle(df: DataFrame, _batch: int) -> None:
        assert places(df) == places(df)
        assert df.join(df.groupBy("id").count(), "id").count() == 3_000
        assert sk.repartition(df, "user").count() == 3_000
        assert sk.group_apply(df, "user", lambda one: one.head(1), SCHEMA).count() == 181

    in_flight(sk, handle, short)(rows_of(spark, 3_000).mapInArrow(passed, SCHEMA), 0)
    assert reads.value == 3_000


def test_what_passed_is_what_later_batches_are_planned_from(spark: SparkSession, sk: Unskew, short: Path) -> None:
    """The facts of a batch in flight come from the rows that passed, its tasks and its own seconds."""
    notes = Notes()
    each = in_flight(sk, notes, short)
    run(spark, short, settled(each))
    ahead = each._query.placer._thread
    histogram = ahead._machine._ways.record.merged()
    assert histogram.total >= ROWS
    assert histogram.spread is not None, "how many fragments a key can be in"
    assert len(ahead._machine._flight.taken) == 2
    assert ahead._machine._counting.read is None
    assert ahead._machine._ways.feedback.times, "of its tasks"


def test_auto_takes_it_where_it_is_the_cheapest(
    spark: SparkSession, sk: Unskew, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here because it is taken to cost nothing; then by its own seconds. The first batch is counted."""
    monkeypatch.setattr(batch_price, "_FLIGHT_SHARE", 0.0)
    monkeypatch.setattr(batch_price, "_FLIGHT_START", 0.0)
    notes = Notes()
    run(spark, folder, settled(in_flight(sk, notes, folder, fresh="auto")))
    bound = [pin_at(folder / "cp", batch).bound for batch in firsts(folder / "cp")]
    assert bound[0].plan is not None
    assert bound[1].cells is not None
    assert (notes.wrong(4), notes.strayed(folder / "cp")) == (0, 0)


def test_where_spark_is_other_than_expected_batches_are_counted(
    spark: SparkSession, sk: Unskew, short: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried once, and said once."""
    tried: list[int] = []

    def fails(*_: object) -> None:
        tried.append(1)
        raise map_stage.NotAsExpectedError("no exchange")

    monkeypatch.setattr(place, "run_map_stage", fails)
    monkeypatch.setattr(place, "_logged", set())
    notes = Notes()
    run(spark, short, settled(in_flight(sk, notes, short)))
    assert [pin_at(short / "cp", batch).bound.cells for batch in (0, 1)] == [None, None]
    assert "counted before it was placed" in pin_at(short / "cp", 1).reason
    assert (notes.wrong(2), notes.strayed(short / "cp"), len(tried)) == (0, 0, 1)
    assert len([one for one in caplog.records if "no exchange" in one.message]) == 1


def test_another_driver_s_pin_counts(
    spark: SparkSession, sk: Unskew, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is only cut off has bound the batch to something else, while ours ran its map stage."""
    flown = BatchFlight.place

    def late(self: BatchFlight, df: DataFrame, *rest: Any) -> FlownBatch | None:
        mine = flown(self, df, *rest)
        plan = sk.plans.planner(("string",)).by_hash()
        identity = StoredPin(RoutingChoice(PARTITIONS), "clicks", NAME, ("user",), ("id",), spread_columns=("id",))
        PinLog(each._query._binding._folder, identity).bind(0, RoutingChoice(PARTITIONS, plan), "theirs", 1)
        return mine

    monkeypatch.setattr(BatchFlight, "place", late)
    seen: list[dict[int, int]] = []
    each = in_flight(sk, lambda df, _: seen.append(places(df)), short)
    each(rows_of(spark, 1_000), 0)
    assert pin_at(short / "cp", 0).reason == "theirs"
    theirs = places(sk.repartition(rows_of(spark, 1_000), "user", sk.plans.planner(("string",)).by_hash(), "id"))
    assert seen == [theirs]


def test_keys_of_another_type_are_refused(spark: SparkSession, sk: Unskew, short: Path) -> None:
    """Their hashes differ, so a second run would place rows elsewhere."""
    in_flight(sk, lambda df, _: places(df), short)(rows_of(spark, 100), 0)
    with pytest.raises(PlanError, match="keys of type"):
        in_flight(sk, lambda df, _: places(df), short)(rows_of(spark, 100).withColumn("user", F.col("id")), 0)


def test_a_query_that_learned_in_tasks_does_not_go_on_by_cells(spark: SparkSession, sk: Unskew, short: Path) -> None:
    in_flight(sk, lambda df, _: places(df), short)(rows_of(spark, 100), 0)
    with pytest.raises(ConfigError, match="no Q-table"):
        in_flight(sk, lambda df, _: places(df), short, fresh="auto", learn=True)(rows_of(spark, 100), 0)


@pytest.mark.parametrize(
    ("settings", "says"),
    [({"elastic": Elastic(2, 8), "interval": 5.0}, "elastic"), ({"learn": True}, "fresh")],
)
def test_what_cannot_go_together_is_refused(sk: Unskew, short: Path, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        in_flight(sk, places, short, **settings)


def test_partitions_of_different_weights_are_counted_for(
    spark: SparkSession, short: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No cell table knows of them."""
    monkeypatch.setattr(place, "_logged", set())
    assert PLANNERS["balanced"].splits
    with Unskew(spark, stream="clicks", partitions=2, policy="balanced", weights=(1.0, 3.0)) as sk:
        in_flight(sk, placed, short)(rows_of(spark, ROWS), 0)
    assert pin_at(short / "cp", 0).bound.plan is not None
    assert "different weights" in caplog.text


def test_the_service_hears_of_batches_in_flight(spark: SparkSession, short: Path) -> None:
    """Their histograms and their tasks."""
    notes = Notes()
    with testing.embedded() as service, service.client() as client:
        with Unskew(spark, stream=STREAM, partitions=2, policy="balanced", service=service.target) as sk:
            run(spark, short, settled(in_flight(sk, notes, short)))
        assert client.get_plan(STREAM).plan.info.rows >= ROWS
        found = client.get_stream(STREAM)
        assert found is not None
    assert max(int(one[0].max()) for one in notes.runs.values()) + 1 == 2


def test_a_column_that_the_frame_has_is_not_written_over(spark: SparkSession, sk: Unskew, short: Path) -> None:
    with pytest.raises(ConfigError, match="does not have yet"):
        in_flight(sk, lambda df, _: places(df), short, column="ID")(rows_of(spark, 100), 0)
