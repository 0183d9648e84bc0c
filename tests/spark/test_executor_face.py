"""Rows placed by Python tasks: as the plan says or as they learn, exact whatever happens to a task or the service."""

from __future__ import annotations

import gc
import json
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from tests.servers import free_ports
from tests.spark.frames import hashes_in, no_job, plan_over, setting, typed_frame
from unskew.client import testing
from unskew.core.errors import ConfigError, PlanError
from unskew.core.partition_agent import Bound
from unskew.core.plan import Plan
from unskew.spark import Unskew, executor
from unskew.spark.executor import PATIENCE, Pin, Placing
from unskew.spark.jvm import input_partitions
from unskew.spark.learning import _told_apart, place
from unskew.spark.physical import shuffles
from unskew.spark.repartition import repartition, routed
from unskew.spark.session import ServiceWarning

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from unskew.client.testing import Embedded

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

N = 7
ROWS = 12_000


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 3).selectExpr(
        "id", "cast(floor(exp(pmod(hash(id), 1000) / 1000 * ln(300))) as bigint) k"
    )


@pytest.fixture(scope="module")
def plan(rows: DataFrame) -> Plan:
    made = plan_over(hashes_in(rows.select(F.xxhash64("k").alias("h")).toArrow(), "h"), "prompt", N)
    assert made.splits
    return made


@pytest.fixture(scope="module")
def service() -> Iterator[Embedded]:
    with testing.embedded() as running:
        yield running


@pytest.fixture(autouse=True)
def no_lines() -> Iterator[None]:
    """No client of this process outlives its test."""
    yield
    while executor._LINES:
        executor._LINES.popitem()[1].client.close()


def pinned(plan: Plan | None, **more: object) -> Pin:
    return Pin("s", Bound(N, plan), "app", **more)  # type: ignore[arg-type]  # names as they are


def loads(placed: DataFrame) -> list[int]:
    found = placed.groupBy(F.spark_partition_id().alias("p")).count().collect()
    return sorted(row["count"] for row in found)


# -- where rows go


@pytest.mark.parametrize("by_id", [True, False], ids=["repartitionById", "pre-image"])
def test_rows_land_where_the_native_face_puts_them(rows: DataFrame, plan: Plan, by_id: bool) -> None:
    """Every row, with a spread of the user's own: one plan, two faces. One shuffle, and none to group after it."""
    placed = place(rows, pinned(plan), "k", "id", by_id=by_id)
    there = placed.select(F.spark_partition_id().alias("there"), routed(rows, plan, "k", "id").alias("planned"))
    found = there.groupBy("there", "planned").count().collect()
    assert all(row.there == row.planned for row in found)
    assert sum(row["count"] for row in found) == ROWS
    assert placed.columns == ["id", "k"]
    grouped = place(rows, pinned(plan), "k", "id", column="p", by_id=by_id).groupBy("p", "k").count()
    assert len(shuffles(grouped)) == 1


def test_every_column_comes_out_as_it_went_in(spark: SparkSession, plan: Plan) -> None:
    """All types that a key may have, and nested ones, NULLs included: the multiset of rows is the same."""
    frame = typed_frame(spark, 1_000).selectExpr(
        "*", "array(k, null) a", "map(id, k) m", "struct(k, array(id) b) s", "if(id % 3 = 0, null, array(id)) n"
    )
    frame = frame.drop("c14")  # void is no column that Arrow carries
    for pin in (pinned(plan), pinned(None)):
        placed = place(frame, pin, "k", "id")
        assert placed.schema.simpleString() == frame.schema.simpleString()
        text = F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("t")
        assert Counter(placed.select(text).toArrow()["t"].to_pylist()) == Counter(
            frame.select(text).toArrow()["t"].to_pylist()
        )


def test_identical_rows_are_spread(spark: SparkSession) -> None:
    """A words-only frame: the native face has to keep them together, tasks tell them apart."""
    words = spark.range(0, 8_000, 1, 2).selectExpr("if(id % 2 = 0, 0, id % 500) k")
    plan = plan_over(hashes_in(words.select(F.xxhash64("k").alias("h")).toArrow(), "h"), "prompt", N)
    placed = place(words, pinned(plan), "k")
    assert max(loads(placed)) < 1.15 * 8_000 / N
    assert max(loads(repartition(words, plan, "k"))) > 4_000
    assert placed.exceptAll(words).count() == words.exceptAll(placed).count() == 0


def test_rows_are_the_same_only_if_they_are(spark: SparkSession) -> None:
    """Spark's hash passes over NULLs and the sign of a zero; rows that differ in these must not stand for each other.
    Nested columns hide NULLs from us, and a spread of the user's own may name but some columns."""
    rows = spark.sql(
        "select * from values ('a', null, 0.0d), (null, 'a', 0.0d), (null, 'a', -0.0d), ('a', 'a', 0.0d) t(a, b, d)"
    )
    told, alike = _told_apart(rows, "auto")
    assert alike
    assert rows.select(told).distinct().count() == 4
    assert rows.select(F.xxhash64("a", "b", "d")).distinct().count() == 2
    for other, spread in ((rows, ["a", "b", "d"]), (rows.withColumn("n", F.array("a", "b")), "auto")):
        assert not _told_apart(other, spread)[1]


def test_rows_that_differ_only_where_no_hash_looks_stay_together(spark: SparkSession, plan: Plan) -> None:
    """Maps have no hash: rows that differ in one are not told apart, and go one way."""
    maps = spark.range(0, 3_000, 1, 2).selectExpr("1L k", "map('id', id) m")
    for pin in (pinned(plan), pinned(None)):
        assert len(loads(place(maps, pin, "k"))) == 1


def parts_of(keys: np.ndarray, spread: np.ndarray, size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(keys), size):
        own = slice(start, start + size)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(spread[own].view(np.int64)),
                pa.array(keys[own].view(np.int64)),
                pa.array(spread[own].view(np.int64)),
            ],
            names=["id", "h", "s"],
        )


@pytest.mark.parametrize("kind", ["plan", "learning"])
@pytest.mark.parametrize("held", [1 << 30, 10_000], ids=["in memory", "in a file"])
def test_a_twin_with_its_rows_in_another_order_and_other_batches_does_the_same(
    plan: Plan, kind: str, held: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As a retry or a speculative copy has them; a partition that is too large for memory leaves no file behind."""
    monkeypatch.setattr(executor, "HELD", held)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    rng = np.random.default_rng(1)
    keys = np.repeat(rng.integers(0, 2**64, 20, dtype=np.uint64), 200)
    spread = rng.integers(0, 900, len(keys), dtype=np.uint64) ^ keys
    bound = replace(Bound(N, plan if kind == "plan" else None, alike=True), batch=4)
    task = Placing(Pin("s", bound, "app"), "p", spread=True)
    out = []
    for order, size in ((np.arange(len(keys)), 4_000), (rng.permutation(len(keys)), 77)):
        found = pa.Table.from_batches(task.placed(parts_of(keys[order], spread[order], size), 5))
        assert found.column_names == ["id", "p"]
        out.append(Counter(zip(found["id"].to_pylist(), found["p"].to_pylist(), strict=True)))
    assert out[0] == out[1]
    assert sum(out[0].values()) == len(keys)
    left = task.placed(parts_of(keys, spread, 500), 5)
    next(left)
    left.close()
    assert list(tmp_path.iterdir()) == []


# -- what tasks tell the service


def test_partitions_learn_together_from_batch_to_batch(spark: SparkSession, service: Embedded) -> None:
    """One skewed distribution, eight small partitions, 64 workers: one round a batch with every partition in it, and
    load evens out as the Q-table grows."""
    told = []
    with Unskew(spark, stream="learn", partitions=64, service=service.target, required=True) as sk:
        for batch in range(5):
            rows = spark.range(batch * 16_000, (batch + 1) * 16_000, 1, 8).selectExpr(
                "id", "cast(floor(least(pow(1 - pmod(hash(id), 1000003) / 1000003, -5), 1e6)) as bigint) k"
            )
            pin = sk.pin(learn=True)
            assert pin.table is not None
            found = sk.place(rows, "k", pin=pin, column="p").groupBy("p").count().collect()
            counts = [row["count"] for row in found]
            assert sum(counts) == 16_000
            told.append((pin.version[1], len(pin.table), pin.bound.records, max(counts) * 64 / 16_000))
        last = sk.pin(learn=True)
    epochs, known, records, imbalance = zip(*told, strict=True)
    assert list(epochs) == list(range(epochs[0], epochs[0] + 5))
    assert last.version[1] == epochs[0] + 5
    assert known[0] == records[0] == 0
    assert set(records[1:]) == {16_000}
    assert min(known[1:]) >= 4
    assert imbalance[0] > 1.3 * np.mean(imbalance[2:])
    assert np.mean(imbalance[2:]) < 1.8


def test_a_batch_counts_once_however_often_it_runs(spark: SparkSession, rows: DataFrame, service: Embedded) -> None:
    """Two actions on one placed frame, and tasks in another process: the service has each partition once."""
    with Unskew(spark, stream="once", partitions=N, policy="kip", service=service.target, required=True) as sk:
        plan = sk.plan(rows, "k")
        placed = sk.place(rows, "k", pin=sk.pin(plan, batch=7))
        assert sum(loads(placed)) == sum(loads(placed)) == ROWS
        assert sk.client is not None
        built = sk.client.build_plan("once", 7, fresh=True)
    assert built.plan.info.rows == ROWS


def test_a_task_that_fails_after_it_reported_changes_nothing(service: Embedded) -> None:
    """A real retry, in a Spark that allows three attempts: the multiset is exact, and the service counts once."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.executor_retry", service.target],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(__file__).resolve().parents[2],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    for kind in ("plan", "learn"):
        assert told[kind] == {"rows": 6_000, "distinct": 6_000, "counted": 6_000, "attempts": 2}


@contextmanager
def silent() -> Iterator[tuple[str, list[float]]]:
    """A service that takes connections and never says a word; and when it was asked."""
    asked: list[float] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        open_ones = []

        def take() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                asked.append(time.monotonic())
                open_ones.append(connection)

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}", asked
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in open_ones:
                connection.close()


@pytest.mark.parametrize("how", ["hangs", "is down"])
def test_a_service_that_is_no_help_costs_one_short_wait_and_no_row(rows: DataFrame, plan: Plan, how: str) -> None:
    """The second partition of a process does not ask again."""
    keys = np.arange(50, dtype=np.uint64)
    with silent() as (hanging, asked):
        target = hanging if how == "hangs" else f"127.0.0.1:{free_ports(1)[0]}"
        pin = pinned(None, service=target, sync=True)
        task = Placing(pin, "p", spread=True)
        for partition in range(3):
            began = time.monotonic()
            assert sum(batch.num_rows for batch in task.placed(parts_of(keys, keys, 20), partition)) == 50
            took = time.monotonic() - began
            assert took < PATIENCE + 10 if partition == 0 else took < PATIENCE
        assert len(asked) <= 2  # gRPC itself may connect again
        (line,) = executor._LINES.values()
        assert line.breaker.state(time.monotonic()) == "open"
        assert sum(loads(place(rows, pin, "k", "id"))) == ROWS


def test_the_driver_goes_on_by_what_it_knows(spark: SparkSession, rows: DataFrame) -> None:
    """Nobody answers: the pin is made, with a warning, from the empty table."""
    target = f"grpc://127.0.0.1:{free_ports(1)[0]}"
    with Unskew(spark, stream="s", partitions=N, service=target) as sk:
        with pytest.warns(ServiceWarning, match="this batch goes by what was learned before"):
            pin = sk.pin(learn=True)
        assert pin.version == (0, 0)
        assert sk.pin(learn=True).batch == pin.batch + 1  # not asked again for a while: no warning
    with Unskew(spark, stream="s", partitions=N) as alone:
        assert sum(loads(alone.place(rows, "k", learn=True))) == ROWS


def test_clients_are_kept_for_a_few_services_and_closed() -> None:
    """A worker process is used again by other jobs: what nobody uses goes."""
    clients = [executor._line(pinned(None, service=f"127.0.0.1:{port}")).client for port in free_ports(7)]
    assert len(executor._LINES) <= 4
    assert [client.closed for client in clients] == [True] * 3 + [False] * 4
    same = executor._line(pinned(None, service=clients[-1].target)).client
    assert same is clients[-1]


def test_a_partition_that_is_not_read_to_its_end_reports_nothing() -> None:
    """A limit stops early, and half a partition is no part of a batch."""
    keys = np.arange(50, dtype=np.uint64)
    with silent() as (target, asked):
        some = Placing(pinned(None, service=target), "p", spread=True).placed(parts_of(keys, keys, 10), 0)
        next(some)
        some.close()
        del some
        gc.collect()
        assert not executor._LINES
        assert asked == []


# -- pins


def test_a_pin_is_small_and_keeps_secrets(plan: Plan) -> None:
    """It travels with every task, and its text may end up in a log."""
    pin = pinned(plan, service="127.0.0.1:8081", access={"token": "s3cret"})
    assert "s3cret" not in repr(pin) + str(pin) + repr(Placing(pin, "p", spread=True))
    copy = pickle.loads(pickle.dumps(pin))
    assert (copy.plan, copy.service, copy.access) == (pin.plan, pin.service, {"token": "s3cret"})
    assert len(pickle.dumps(pin)) < 64 << 10
    assert "learn" not in repr(pin)


def test_how_many_tasks_a_frame_has_is_read_where_no_job_is_needed(spark: SparkSession, rows: DataFrame) -> None:
    """After an exchange AQE decides: not known."""
    with no_job(spark):
        assert input_partitions(rows) == 3
        assert input_partitions(rows.union(rows).where("k > 3")) == 6
        with setting(spark, spark__sql__adaptive__enabled="true"):
            assert input_partitions(rows.repartition(5)) is None


def test_bad_use_is_refused_before_any_job(spark: SparkSession, rows: DataFrame, plan: Plan) -> None:
    """What does not go together, and what is not there."""
    sk = Unskew(spark, stream="s", partitions=8)
    with no_job(spark):
        with pytest.raises(ConfigError, match="make one with plan"):
            sk.place(rows, "k")
        with pytest.raises(PlanError, match="the pin is for 7 partitions and this session for 8"):
            sk.place(rows, "k", pin=pinned(plan))
        with pytest.raises(ConfigError, match="not both"):
            sk.place(rows, "k", learn=True, pin=pinned(None))
        with pytest.raises(ConfigError, match="sync: True is not allowed; use True only with learn=True and a service"):
            sk.pin(learn=True, sync=True)
        with pytest.raises(ConfigError, match="batch: -2"):
            sk.pin(learn=True, batch=-2)
        with pytest.raises(PlanError, match="7 partitions"):
            sk.pin(plan)
        with pytest.raises(ConfigError, match="key: 'user' is not allowed"):
            place(rows, pinned(plan), "user")
        with pytest.raises(ConfigError, match="spread: 'event'"):
            place(rows, pinned(plan), "k", "event")
        with pytest.raises(ConfigError, match="column: 'k'"):
            place(rows, pinned(plan), "k", column="k")
    with pytest.raises(ConfigError, match="a plan to route by, or learn=True"):
        Unskew(spark, stream="s", partitions=N).pin(plan, learn=True)
