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

from tests.client.service_in_test import plan_of, serving
from tests.doses import diagonal
from tests.servers import free_ports
from tests.spark.frames import as_spark_4_0, hashes_in, no_job, plan_over, setting, shuffles, typed_frame
from unskew.client import testing
from unskew.core import hash_keys
from unskew.core.errors import ConfigError, PlanError
from unskew.core.plan.plan import Plan
from unskew.core.rounds.partition_agent import RoutingChoice
from unskew.spark import ServiceWarning, Unskew
from unskew.spark.frame.jvm import input_partitions
from unskew.spark.place import executor, task_reports
from unskew.spark.place.by_tasks import _row_spread, place
from unskew.spark.place.executor import TaskPlacement
from unskew.spark.place.repartition import repartition, routed
from unskew.spark.place.task_pin import PATIENCE, TaskPin
from unskew.spark.session_stream import CurrentBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from unskew.client.testing import Embedded

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

N = 7
ROWS = 12_000
LONG = 60.0  # that a task waits for a service which has to answer, on a machine with other work


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
def no_links() -> Iterator[None]:
    """No client of this process outlives its test."""
    yield
    while task_reports._LINKS:
        task_reports._LINKS.popitem()[1].link.close()


def pinned(plan: Plan | None, **more: object) -> TaskPin:
    return TaskPin("s", RoutingChoice(N, plan), "app", **more)  # type: ignore[arg-type]  # names as they are


def loads(placed: DataFrame) -> list[int]:
    found = placed.groupBy(F.spark_partition_id().alias("p")).count().collect()
    return sorted(row["count"] for row in found)


# -- where rows go


@pytest.mark.parametrize("older", [False, True], ids=["repartitionById", "pre-image"])
def test_rows_land_where_the_native_face_puts_them(rows: DataFrame, plan: Plan, older: bool) -> None:
    """Every row, with a spread of the user's own: one plan, two faces. One shuffle, and none to group after it."""
    with as_spark_4_0(older=older):
        placed = place(rows, pinned(plan), "k", "id")
        grouped = place(rows, pinned(plan), "k", "id", column="p").groupBy("p", "k").count()
    there = placed.select(F.spark_partition_id().alias("there"), routed(rows, plan, "k", "id").alias("planned"))
    found = there.groupBy("there", "planned").count().collect()
    assert all(row.there == row.planned for row in found)
    assert sum(row["count"] for row in found) == ROWS
    assert placed.columns == ["id", "k"]
    assert len(shuffles(grouped)) == 1


def test_names_may_be_anything(spark: SparkSession, plan: Plan) -> None:
    """A dot in a name, two columns of one name: ``mapInArrow`` itself finds neither."""
    rows = spark.range(0, 500, 1, 2).selectExpr("id", "id % 9 k", "id * 2 `a.b`", "1 `x y`")
    twice = rows.toDF("id", "k", "id", "K2")
    for frame, key in ((rows, "k"), (rows, "`a.b`"), (twice, "k")):
        placed = place(frame, pinned(plan), key, column="p")
        assert placed.columns == [*frame.columns, "p"]
        assert placed.toDF("a", "b", "c", "d", "p").where("c = 2 * a and b = a % 9").count() == 500


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
    told, alike = _row_spread(rows, "auto")
    assert alike
    assert rows.select(told).distinct().count() == 4
    assert rows.select(F.xxhash64("a", "b", "d")).distinct().count() == 2
    for other, spread in ((rows, ["a", "b", "d"]), (rows.withColumn("n", F.array("a", "b")), "auto")):
        assert not _row_spread(other, spread)[1]


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


def open_in(folder: Path) -> bool:
    """Whether this process has a file open there."""
    links = Path("/proc/self/fd").iterdir()
    return any(str(link.readlink()).startswith(str(folder)) for link in links if link.is_symlink())


@pytest.mark.parametrize(("kind", "held"), diagonal(["plan", "learning"], [1 << 30, 10_000]))
def test_a_twin_with_its_rows_in_another_order_and_other_batches_does_the_same(
    plan: Plan, kind: str, held: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As a retry or a speculative copy has them; a partition that is too large for memory leaves no file behind."""
    monkeypatch.setattr(executor, "HELD", held)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"/nowhere,{tmp_path}")
    rng = np.random.default_rng(1)
    keys = np.repeat(rng.integers(0, 2**64, 20, dtype=np.uint64), 200)
    spread = rng.integers(0, 900, len(keys), dtype=np.uint64) ^ keys
    bound = replace(RoutingChoice(N, plan if kind == "plan" else None, alike=True), batch=4)
    task = TaskPlacement(TaskPin("s", bound, "app"), "p", spread=True)
    out = []
    for order, size in ((np.arange(len(keys)), 4_000), (rng.permutation(len(keys)), 77)):
        found = pa.Table.from_batches(task.placed(parts_of(keys[order], spread[order], size), 5))
        assert found.column_names == ["id", "p"]
        out.append(Counter(zip(found["id"].to_pylist(), found["p"].to_pylist(), strict=True)))
    assert out[0] == out[1]
    assert sum(out[0].values()) == len(keys)
    left = task.placed(parts_of(keys, spread, 500), 5)
    next(left)
    assert open_in(tmp_path) == (held == 10_000)
    assert list(tmp_path.iterdir()) == []  # it has no name: a worker that is killed leaves nothing behind
    left.close()
    assert not open_in(tmp_path)
    assert list(tmp_path.iterdir()) == []


# -- which plan a task has


def test_a_task_gets_its_plan_by_the_pinned_version_or_goes_by_its_copy(caplog: pytest.LogCaptureFixture) -> None:
    """Asked for once a process, also where it is not to be had; never a newer one, and never one that routes otherwise:
    a service that lost its state may give a version again."""
    mine, newer = plan_of(3), plan_of(4)
    other = Plan(mine.partitions, newer.tail, newer.hot, info=mine.info)
    keys = np.arange(4_000, dtype=np.uint64) << np.uint64(50)
    with serving() as running:
        for stream, plans, asked in (("has", [mine, newer], 1), ("lost", [newer], 1), ("another", [other], 1)):
            running.service.calls.clear()
            for one in plans:
                running.service.publish(stream, one)
            pin = TaskPin(stream, RoutingChoice(4, mine), "app", service=running.target, patience=LONG)
            for partition in range(3):
                found = pa.Table.from_batches(TaskPlacement(pin, "p", spread=False).placed(unspread(keys), partition))
                assert np.array_equal(found["p"].to_numpy(), mine.route(keys))
            assert running.service.calls["GetPlan"] == asked
            fetched = task_reports._link_for(pin).link.client._plans.version(stream, mine.version)
            assert (fetched == mine) == (stream == "has")
        assert f"stream another: the service's plan {mine.version} is not the one" in caplog.text
        assert task_reports.plan_for(
            TaskPin("has", RoutingChoice(4, plan_of(3, incarnation=0)), "app", service=running.target, patience=LONG)
        )
        assert running.service.calls["GetPlan"] == 1  # of a plan that the driver made nobody is asked


def unspread(keys: np.ndarray) -> Iterator[pa.RecordBatch]:
    hashes = pa.array(keys.view(np.int64))
    yield pa.RecordBatch.from_arrays([hashes, hashes], names=["id", "h"])


# -- what tasks tell the service


def test_partitions_learn_together_from_batch_to_batch(spark: SparkSession, service: Embedded) -> None:
    """Eight partitions with keys of their own, 64 workers: one round a batch with every partition in it. Alone each
    splits all that is a worker's share to it; together only what is that to the stream. Load stays far from hash's."""
    told = []
    with Unskew(spark, stream="learn", partitions=64, service=service.target, required=True) as sk:
        for batch in range(4):
            rows = spark.range(batch * 16_000, (batch + 1) * 16_000, 1, 8).selectExpr(
                "id",
                "cast(least(pow(1 - pmod(hash(id), 1000003) / 1000003, -2), 1e6) as bigint) * 8 + id div 2000 % 8 k",
            )
            pin = sk.pin(learn=True)
            assert pin.bound.table is not None
            found = sk.place(rows, "k", pin=replace(pin, patience=LONG), column="p").groupBy("p", "k").count().toArrow()
            assert sum(found["count"].to_pylist()) == 16_000
            extra = found.num_rows - len(found["k"].unique())
            bound = pin.bound
            told.append((bound.version[1], len(bound.table), bound.records, extra, uneven(found["p"], found["count"])))
        last = sk.pin(learn=True)
    plain = uneven(pa.array(hash_keys(found["k"].combine_chunks()) % np.uint64(64)), found["count"])
    epochs, known, records, extra, imbalance = zip(*told, strict=True)
    assert list(epochs) == list(range(epochs[0], epochs[0] + 4))
    assert last.bound.version[1] == epochs[0] + 4
    assert known[0] == records[0] == 0
    assert set(records[1:]) == {16_000}
    assert min(known[1:]) >= 8
    assert max(extra[1:]) < 0.4 * extra[0]
    assert np.mean(imbalance) < 0.8 * plain


def uneven(where: pa.ChunkedArray, rows: pa.ChunkedArray) -> float:
    """The largest of 64 loads over the mean."""
    load = np.bincount(where.to_numpy().astype(np.int64), rows.to_numpy(), 64)
    return float(load.max() / load.mean())


def test_a_batch_counts_once_however_often_it_runs(spark: SparkSession, rows: DataFrame, service: Embedded) -> None:
    """Two actions on one placed frame, and tasks in another process: the service has each partition once."""
    with Unskew(spark, stream="once", partitions=N, policy="kip", service=service.target, required=True) as sk:
        plan = sk.plan(rows, "k")
        pin = replace(sk.pin(plan, batch=7), patience=LONG)
        placed = sk.place(rows, "k", pin=pin)
        assert sum(loads(placed)) == sum(loads(placed)) == ROWS
        assert sk.client is not None
        built = sk.client.build_plan("once", pin.number, fresh=True)
    assert built.plan.info.rows == ROWS


def test_a_batch_that_runs_again_in_other_parts_counts_once(
    spark: SparkSession, rows: DataFrame, service: Embedded
) -> None:
    """A restarted query reads the same rows in more or fewer tasks: its new pin takes the place of the old one."""
    with Unskew(spark, stream="rerun", partitions=N, policy="kip", service=service.target, required=True) as sk:
        sk.plan(rows, "k")
        for again in (rows, rows.coalesce(2), rows.union(rows.limit(0))):
            pin = replace(sk.pin(batch=7), patience=LONG)
            assert sum(loads(sk.place(again, "k", pin=pin))) == ROWS
            assert sk.client is not None
            built = sk.client.build_plan("rerun", pin.number, fresh=True)
            assert built.plan.info.rows == ROWS


def test_tasks_that_cannot_know_how_many_they_are_are_counted(spark: SparkSession, service: Embedded) -> None:
    """Behind AQE: the service takes their number from the last of them, not from what it could be at most."""
    with Unskew(spark, stream="many", partitions=N, policy="kip", service=service.target, required=True) as sk:
        with setting(spark, spark__sql__adaptive__enabled="true"):
            rows = spark.range(0, 4_000, 1, 2).repartition(5).selectExpr("id", "id % 90 k")
            pin = replace(sk.pin(sk.plan(rows, "k")), patience=LONG)
            assert sum(loads(sk.place(rows, "k", pin=pin))) == 4_000
        assert sk.client is not None
        built = sk.client.build_plan("many", pin.number, fresh=True)
        assert built.plan.info.rows == 4_000
        assert "parts" not in built.reason
        assert sk.client.get_scale("many").map_tasks == 5


@pytest.mark.long
def test_a_task_that_fails_after_it_reported_changes_nothing(service: Embedded) -> None:
    """A real retry, in a Spark that allows three attempts: the multiset is exact, and the service counts once.
    (The small dose has the second report without the retry: ``test_a_batch_counts_once_however_often_it_runs``.)"""
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
        task = TaskPlacement(pin, "p", spread=True)
        took = []
        for partition in range(11):
            began = time.monotonic()
            assert sum(batch.num_rows for batch in task.placed(parts_of(keys, keys, 20), partition)) == 50
            took.append(time.monotonic() - began)
        assert took[0] < PATIENCE + 30
        assert sum(took[1:]) < 10 * PATIENCE  # as long as it takes if each waits
        assert len(asked) <= 2  # gRPC itself may connect again
        (cached,) = task_reports._LINKS.values()
        assert not cached.link.may_ask()
        assert sum(loads(place(rows, pin, "k", "id"))) == ROWS


def test_the_driver_goes_on_by_what_it_knows(spark: SparkSession, rows: DataFrame) -> None:
    """Nobody answers: the pin is made, with a warning, from the empty table."""
    target = f"grpc://127.0.0.1:{free_ports(1)[0]}"
    with Unskew(spark, stream="s", partitions=N, service=target) as sk:
        with pytest.warns(ServiceWarning, match="this batch goes by what was learned before"):
            pin = sk.pin(learn=True)
        assert pin.bound.version == (0, 0)
        assert sk.pin(learn=True).batch == pin.batch + 1  # not asked again for a while: no warning
    with Unskew(spark, stream="s", partitions=N) as alone:
        assert sum(loads(alone.place(rows, "k", learn=True))) == ROWS


def test_a_session_that_was_resized_pins_by_its_new_number(
    spark: SparkSession, rows: DataFrame, service: Embedded
) -> None:
    """As an elastic query does it, whose handler places other frames."""
    with Unskew(spark, stream="grows", partitions=3, service=service.target) as sk:
        sk.plan(rows, "k", "id")
        assert sk.pin(learn=True).partitions == 3
        sk.plans.stream.resize(5)
        assert sk.pin(learn=True).partitions == 5  # the service has not heard of it yet
        with sk.plans.context.bind(CurrentBatch(None, ("k",), "id", deadline=0.0)):
            assert sk.pin(learn=True).partitions == 5
        plan = sk.plan(rows, "k", "id")
        assert sk.pin(plan).partitions == sk.pin(learn=True).partitions == 5
        assert sk.place(rows, "k", learn=True).rdd.getNumPartitions() == 5


def test_clients_are_kept_for_a_few_services_and_closed() -> None:
    """A worker process is used again by other jobs: what nobody uses goes."""
    clients = [task_reports._link_for(pinned(None, service=f"127.0.0.1:{port}")).link.client for port in free_ports(7)]
    assert len(task_reports._LINKS) <= 4
    assert [client.closed for client in clients] == [True] * 3 + [False] * 4
    same = task_reports._link_for(pinned(None, service=clients[-1].target)).link.client
    assert same is clients[-1]


def test_a_partition_that_is_not_read_to_its_end_reports_nothing() -> None:
    """A limit stops early, and half a partition is no part of a batch."""
    keys = np.arange(50, dtype=np.uint64)
    with silent() as (target, asked):
        some = TaskPlacement(pinned(None, service=target), "p", spread=True).placed(parts_of(keys, keys, 10), 0)
        next(some)
        some.close()
        del some
        gc.collect()
        assert not task_reports._LINKS
        assert asked == []


# -- pins


def test_a_pin_is_small_and_keeps_secrets(plan: Plan) -> None:
    """It travels with every task, and its text may end up in a log."""
    pin = pinned(plan, service="127.0.0.1:8081", access={"token": "s3cret"})
    assert "s3cret" not in repr(pin) + str(pin) + repr(TaskPlacement(pin, "p", spread=True))
    copy = pickle.loads(pickle.dumps(pin))
    assert (copy.plan, copy.service, copy.access) == (pin.plan, pin.service, {"token": "s3cret"})
    assert len(pickle.dumps(pin)) < 64 << 10
    assert "learn" not in repr(pin)


def test_a_pin_that_reports_is_for_one_frame(rows: DataFrame, plan: Plan) -> None:
    """Another frame's reports would replace the first one's. The same frame again, or a pin that reports nothing (both
    sides of a join, say), is no harm."""
    pin = pinned(plan, service="127.0.0.1:1")
    place(rows, pin, "k", "id")
    place(rows, pin, "k", "id", column="p")
    with pytest.raises(ConfigError, match=r"pin: .* use a pin of its own for each frame"):
        place(rows.where("k > 3"), pin, "k", "id")
    for frame in (rows, rows.where("k > 3")):
        place(frame, pinned(plan), "k", "id")


def test_a_task_imports_little() -> None:
    """Numbers and nothing else, until rows come (Arrow), are learned from (planners, numba) or reported (gRPC)."""
    code = "import sys, unskew.spark.place.executor; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"grpc", "google", "pyarrow", "pyspark", "numba", "pandas", "unskew.client", "unskew.core.planners"}
    assert "unskew.core.rounds.partition_agent" in loaded
    assert not heavy & set(loaded)


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
        with pytest.raises(ConfigError, match="column: 'K'"):
            place(rows, pinned(plan), "k", column="K")
        with pytest.raises(ConfigError, match="column y: 'interval year' is not allowed"):
            place(rows.selectExpr("*", "interval '1' year y"), pinned(plan), "k")
        with pytest.raises(ConfigError, match=r"source: .* at most 192 characters"):
            sk.pin(learn=True, source="s" * 193)
        for other in ("k + int(rand() * 3)", "first(k) over (order by k % 3)"):
            with pytest.raises(ConfigError, match=r"key: 'r' is not allowed; use a column that is the same if a task"):
                place(rows.selectExpr("*", f"{other} r"), pinned(None), "r", "id")
    with pytest.raises(ConfigError, match="a plan to route by, or learn=True"):
        Unskew(spark, stream="s", partitions=N).pin(plan, learn=True)
