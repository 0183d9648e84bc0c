"""``for_each_batch(learn=True)``: tasks route by a pinned Q-table and report; a batch that runs again does the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from benchmarks.convergence import HOT, App, Batch, keys_of, together
from tests.servers import free_ports
from tests.spark.streaming_learning.plain import Clock, Plain, let_go
from unskew.client import Client, testing
from unskew.core import hash_keys
from unskew.core.errors import ConfigError, PlanError
from unskew.spark import Unskew
from unskew.spark.streaming.pin_log import pin_folder
from unskew.wire import StoredPin, pinned_from_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from unskew.spark.streaming.foreach import ForEachBatch, Handle

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-streams")]

N, ROWS, TASKS = 20, 10_000, 2
INTERVAL = 20.0


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with testing.embedded() as service, service.client() as made:
        yield made


@pytest.fixture(autouse=True)
def no_lines() -> Iterator[None]:
    with let_go():
        yield


def batch_of(spark: SparkSession, number: int, own: tuple[int, ...] = (0,), tasks: int = TASKS) -> DataFrame:
    """The rows of one batch, as its source would have them."""
    app = App("a", own)
    rows = spark.range(number * ROWS, (number + 1) * ROWS, 1, tasks)
    return rows.selectExpr("id value").selectExpr("value", f"{keys_of(app)} k")


class Places:
    """A handler that notes where each row is."""

    def __init__(self, then: Callable[[int], object] = lambda _: None) -> None:
        self.rows: dict[int, dict[int, int]] = {}
        self.keys: dict[int, Batch] = {}
        self._then = then

    def __call__(self, df: DataFrame, batch: int) -> None:
        found = df.select("value", F.xxhash64("k").alias("k"), F.spark_partition_id().alias("p")).toArrow()
        value, key, at = (found[name].to_numpy().astype(np.int64) for name in ("value", "k", "p"))
        self.rows[batch] = dict(zip(value.tolist(), at.tolist(), strict=True))
        self.keys[batch] = Batch(at, key, np.ones(len(at), np.int64))
        self._then(batch)


def learning(sk: Unskew, handle: Handle, folder: Path, **more: object) -> ForEachBatch:
    given = {"learn": True, "interval": INTERVAL, "deadline": 60.0, **more}
    return sk.for_each_batch(handle, "k", str(folder), "q", **given)  # type: ignore[arg-type]


def pins(folder: Path) -> list[StoredPin]:
    where = pin_folder(str(folder), "q")
    found = [pinned_from_bytes(where.read(name) or b"") for name in where.names()]
    return sorted(found, key=lambda pin: pin.bound.batch)


def settle(each: ForEachBatch, seconds: float = 30.0) -> None:
    """Wait until the service has answered what was said of the batch."""
    assert each.settle(seconds) or seconds < 1


def test_a_spark_application_and_another_one_converge(
    spark: SparkSession, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in Spark, one through the light client alone, hot keys of their own: one table, and what is split is hot in
    all rows. Beside a single application that has all of them it splits no more."""
    clock = Clock(monkeypatch)
    other = Plain(client, "both", N, 1, rows=ROWS // TASKS, interval=INTERVAL, keys=as_in_spark)
    other.syncs.meet(10)
    placed: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    places = Places(lambda batch: placed.update({batch: other.batch(batch)}))
    with Unskew(spark, stream="both", partitions=N, service=client.target) as sk:
        each = learning(sk, places, tmp_path / "both")
        for batch in range(6):
            each(batch_of(spark, batch), batch)
            # Who comes second is a round behind the first for a batch or two, and passes over one.
            settle(each, 30 if batch >= 3 else 0.5)
            assert other.syncs.settle(30)
            clock.now += INTERVAL
    alone = Plain(client, "one", N, -1, 2 * TASKS, ROWS // TASKS, INTERVAL, keys=as_in_spark)
    alone.syncs.meet(10)
    one = []
    for batch in range(6):
        one.append(as_batch(alone.batch(batch)))
        assert alone.syncs.settle(30)
        clock.now += INTERVAL
    ours = pins(tmp_path / "both")[-1].bound
    assert other.syncs.answer is not None
    assert ours.version[0] == other.syncs.answer.version[0]
    assert other.syncs.answer.version[1] - ours.version[1] == 1  # the round of the last batch
    assert ours.records == 2 * ROWS
    assert ours.table is not None
    assert len(ours.table) == 4
    both = [together([places.keys[batch], as_batch(placed[batch])], N) for batch in (4, 5)]
    single = [together([one[batch]], N) for batch in (4, 5)]
    assert not any(found.locally for found in both)
    assert sum(found.replication for found in both) <= 1.05 * sum(found.replication for found in single)


def as_in_spark(own: int, rows: int, seed: int) -> np.ndarray:
    """Keys like those of ``batch_of``, by Spark's hash; of both sets in turn where ``own`` is -1."""
    sets = np.arange(rows) % 2 if own < 0 else np.full(rows, own)
    rank = np.minimum((1 - np.random.default_rng([own + 1, seed]).random(rows)) ** -2.0, 1e6).astype(np.int64)
    return hash_keys(np.where(rank <= HOT, rank + (sets + 1) * 10_000_000, rank))


def as_batch(placed: list[tuple[np.ndarray, np.ndarray]]) -> Batch:
    keys = np.concatenate([key for key, _ in placed]).view(np.int64)
    where = np.concatenate([at for _, at in placed]).astype(np.int64)
    return Batch(where, keys, np.ones(len(keys), np.int64))


def test_a_batch_that_runs_again_in_another_life_is_routed_as_before(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies in a batch; the service has lost everything when the next one starts, or is not there."""
    clock = Clock(monkeypatch)
    first = Places()
    with testing.embedded() as service, Unskew(spark, stream="s", partitions=N, service=service.target) as sk:
        each = learning(sk, first, tmp_path)
        for batch in range(4):
            each(batch_of(spark, batch), batch)
            settle(each)
            clock.now += INTERVAL
    known = pins(tmp_path)
    assert known[-1].bound.version > (0, 0)
    targets = [None, f"grpc://127.0.0.1:{free_ports(1)[0]}"]
    with testing.embedded() as empty:
        for service_now in (empty.target, *targets):
            again = Places()
            with Unskew(spark, stream="s", partitions=N, service=service_now) as sk:
                life = learning(sk, again, tmp_path, deadline=0.3)
                life(batch_of(spark, 3), 3)
                assert again.rows[3] == first.rows[3]
                life(batch_of(spark, 4), 4)
                life.close()
            assert pins(tmp_path)[-1].bound.version == known[-1].bound.version
    assert len(set(first.rows[3].values())) == N


def test_a_batch_whose_rows_would_be_told_apart_otherwise_is_not_run_again(spark: SparkSession, tmp_path: Path) -> None:
    """The next version of the job has a column more: the batch that was begun is refused, and says what to do."""
    with Unskew(spark, stream="s", partitions=N) as sk:
        learning(sk, Places(), tmp_path, spread="auto")(batch_of(spark, 0), 0)
        more = batch_of(spark, 0).withColumn("more", F.col("value") * 2)
        with pytest.raises(PlanError, match=r"and now it would be by value .*, k .*, more .*: .* by another name="):
            learning(sk, Places(), tmp_path, spread="auto")(more, 0)
        for other in ("cast(value as decimal(20, 0))", "nullif(value, -1)"):
            kind = batch_of(spark, 0).withColumn("value", F.expr(other))
            with pytest.raises(PlanError, match=r"value bigint NOT NULL, .* and now it would be by .*value "):
                learning(sk, Places(), tmp_path, spread="auto")(kind, 0)
        learning(sk, Places(), tmp_path / "told", spread="value")(batch_of(spark, 0), 0)
        maybe = batch_of(spark, 0).withColumn("value", F.expr("nullif(value, -1)"))
        learning(sk, Places(), tmp_path / "told", spread="value")(maybe, 0)
        anew = sk.for_each_batch(Places(), "k", str(tmp_path), "r", learn=True, interval=INTERVAL)
        anew(more, 1)
        again = Places()
        learning(sk, again, tmp_path, spread="auto")(batch_of(spark, 0), 0)
        assert len(again.rows[0]) == ROWS


def test_batches_of_one_table_with_the_same_rows_are_placed_alike(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No service: one pin for all, and a word that nothing is learned. Neither a batch's number nor its run is in what
    tasks decide."""
    places, again = Places(), Places()
    with Unskew(spark, stream="s", partitions=N) as sk, caplog.at_level("WARNING", "unskew.spark"):
        for handle in (places, again):
            each = learning(sk, handle, tmp_path)
            for batch in (0, 1):
                each(batch_of(spark, 0), batch)
    assert places.rows == again.rows
    assert places.rows[0] == places.rows[1]
    assert "learn=True without service=" in caplog.text
    assert {pin.bound.version for pin in pins(tmp_path)} == {(0, 0)}


def test_another_number_of_partitions_is_for_batches_that_nobody_began(spark: SparkSession, tmp_path: Path) -> None:
    """A query is started again with it: the batch that may have been begun goes by the old one."""
    places = Places()
    for partitions, batches in ((N, (0, 1)), (N + 3, (1, 2))):
        with Unskew(spark, stream="s", partitions=partitions) as sk:
            each = learning(sk, places, tmp_path)
            for batch in batches:
                each(batch_of(spark, batch), batch)
                used = max(places.rows[batch].values()) + 1
                assert used == (N + 3 if batch == 2 else N)


def test_a_handler_that_fails_in_a_due_batch_holds_nobody_s_round(
    spark: SparkSession, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query has stopped and its driver lives on: nobody is to wait for it, as for a batch that is still at work."""
    clock = Clock(monkeypatch)

    def fails(batch: int) -> None:
        if batch == 2:
            raise RuntimeError("the handler fails")

    with Unskew(spark, stream="failing", partitions=N, service=client.target) as sk:
        each = learning(sk, Places(fails), tmp_path)
        for batch in range(2):
            each(batch_of(spark, batch), batch)
            settle(each)
            clock.now += INTERVAL
        with pytest.raises(RuntimeError, match="the handler fails"):
            each(batch_of(spark, 2), 2)
        settle(each, 10.0)


@pytest.mark.long
def test_rounds_go_on_after_an_elastic_query_of_the_session_has_changed_the_number(
    spark: SparkSession, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was learned is kept, resized; what is learned from then on is of the new number."""
    clock = Clock(monkeypatch)
    with Unskew(spark, stream="resized", partitions=N, service=client.target) as sk:
        each = learning(sk, Places(), tmp_path)
        for batch in range(9):
            if batch == 4:
                sk.plans.stream.resize(N + 4)
            each(batch_of(spark, batch), batch)
            settle(each)
            clock.now += INTERVAL
    learned = [(pin.bound.batch, pin.bound.partitions, pin.bound.version[1]) for pin in pins(tmp_path)]
    before = max(version for _, partitions, version in learned if partitions == N)
    after = [version for _, partitions, version in learned if partitions == N + 4]
    assert before > 0
    assert after[-1] > after[0] >= before
    table = pins(tmp_path)[-1].bound.table
    assert table is not None
    assert len(table) > 0


def test_tasks_report_where_a_sync_is_due_and_only_there(
    spark: SparkSession, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DSYNC of three batches, as another query of the stream needs it."""
    clock = Clock(monkeypatch)
    client.put_stream("rare", partitions=N, dsync=3 * INTERVAL, dsync_min=3 * INTERVAL)
    records = []
    with Unskew(spark, stream="rare", partitions=N, service=client.target) as sk:
        each = learning(sk, Places(), tmp_path)
        for batch in range(8):
            before = client.get_stream("rare").epoch
            each(batch_of(spark, batch), batch)
            settle(each)
            records.append(client.get_stream("rare").epoch - before)
            clock.now += INTERVAL
    assert records[1:] == [1, 0, 0, 1, 0, 0, 1]


def test_pins_of_a_query_that_was_planned_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """And the other way round: a batch that ran by one must not be run by the other."""
    with Unskew(spark, stream="s", partitions=N) as sk:
        for kind, learn in (("planned", False), ("learned", True)):
            learning(sk, Places(), tmp_path / kind, learn=learn)(batch_of(spark, 0), 0)
            other = learning(sk, Places(), tmp_path / kind, learn=not learn)
            with pytest.raises(ConfigError, match="learn: "):
                other(batch_of(spark, 0), 0)
