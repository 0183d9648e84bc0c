"""The number of partitions follows the batches' times: a defined step from one plan to the next, no result changed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from tests.doses import some_of
from tests.servers import wait_for
from unskew.core.errors import ConfigError
from unskew.spark import Elastic, Unskew
from unskew.spark.frame.jvm import request_slots
from unskew.spark.streaming import batch_times
from unskew.spark.streaming.clean_end import note_ended_runs
from unskew.spark.streaming.foreach import ForEachBatch

pytestmark = pytest.mark.xdist_group("spark-streams")

ROOT = Path(__file__).resolve().parents[2]
ROWS, BATCHES = 3_000, 5
BOUNDS = Elastic(2, 6, d=1)


def slowly(seconds: float) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """So many seconds a task."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(seconds)
        yield from batches

    return work


class Query:
    """A stream of small files; what its handler got, batch by batch."""

    def __init__(
        self,
        spark: SparkSession,
        home: Path,
        interval: float,
        partitions: int = 2,
        elastic: Elastic = BOUNDS,
        wait: float = 0.0,
    ) -> None:
        self.spark, self.home = spark, home
        self.sk = Unskew(spark, stream="clicks", partitions=partitions, policy="balanced")
        self.bound: list[int] = []
        self.wait = wait  # seconds of a reduce task: with none the map side may be the slower one, and no task is added
        self.users: Counter[int] = Counter()
        self._asked = {"spread": "id", "threshold": 1, "interval": interval, "elastic": elastic}
        self.planned = self.made(self.sk)

    def made(self, sk: Unskew) -> ForEachBatch:
        return sk.for_each_batch(self.handle, "user", str(self.home / "checkpoint"), "q", **self._asked)  # type: ignore[arg-type]

    def land(self, first: int, batches: int) -> None:
        (self.home / "in").mkdir(parents=True, exist_ok=True)
        for number in range(first, first + batches):
            ids = pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int64())
            users = pa.array([0 if id_ % 2 else id_ % 50 for id_ in ids.to_pylist()], pa.int64())
            pq.write_table(pa.table({"id": ids, "user": users}), self.home / "in" / f"{number:03}.parquet")

    def handle(self, df: DataFrame, _: int) -> None:
        self.bound.append(df.rdd.getNumPartitions())
        worked = df.mapInArrow(slowly(self.wait), df.schema) if self.wait else df
        self.users.update({row["user"]: row["count"] for row in worked.groupBy("user").count().collect()})

    def step(self, df: DataFrame, batch: int) -> None:
        """A batch whose plan is waited for, so that each of them decides about the next."""
        self.planned(df, batch)
        assert self.planned.settle(60.0)

    def writer(self) -> DataStreamWriter:
        files = self.spark.readStream.schema("id long, user long").option("maxFilesPerTrigger", 1)
        writer = files.parquet(str(self.home / "in")).writeStream.foreachBatch(self.step)
        return writer.option("checkpointLocation", str(self.home / "checkpoint"))

    def run(self) -> None:
        self.writer().trigger(availableNow=True).start().awaitTermination()
        self.planned.close()

    @contextmanager
    def running(self) -> Iterator[StreamingQuery]:
        """A query that has worked off a batch, and goes on."""
        self.land(0, 1)
        query = self.writer().trigger(processingTime="100 milliseconds").start()
        try:
            query.processAllAvailable()
            yield query
        finally:
            query.stop()

    def rescale(self, partitions: int) -> None:
        """As if its batches' times asked for so many."""
        assert self.planned._query is not None
        thread = self.planned._query.placer._thread  # type: ignore[attr-defined]
        thread._machine.decider.restart_at(partitions)
        thread.took(10**6, 0.0)
        assert self.planned.settle(60.0)


def expected(batches: int) -> Counter[int]:
    return Counter(0 if id_ % 2 else id_ % 50 for id_ in range(batches * ROWS))


def test_batches_that_take_too_long_get_more_partitions_same_results(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And executors are asked for with each step up, however late Spark tells what a batch took."""
    asked: list[int] = []
    monkeypatch.setattr(batch_times, "request_slots", lambda _, slots: asked.append(slots))
    query = Query(spark, tmp_path, interval=0.001, elastic=replace(BOUNDS, executors=True), wait=0.4)
    query.land(0, BATCHES)
    query.run()

    assert query.bound[0] == 2
    assert query.bound == sorted(query.bound)
    assert query.bound[-1] > 2
    assert query.users == expected(BATCHES)
    assert set(query.bound[1:]) - {2} <= set(asked)

    again = Query(spark, tmp_path, interval=1e6)  # idle from now on
    again.land(BATCHES, 3)
    again.run()

    assert again.bound[0] >= query.bound[-1], "the pin says how many, not the session"
    assert again.bound[-1] < again.bound[0], "and idle batches give some back"
    assert query.users + again.users == expected(BATCHES + 3)


@pytest.mark.long
def test_a_plan_for_so_many_partitions_that_it_has_more_hosts(spark: SparkSession, tmp_path: Path) -> None:
    """Up to 128 partitions a plan has 4,096 hosts, and batches are counted by as many."""
    query = Query(spark, tmp_path, interval=0.001, partitions=128, elastic=Elastic(2, 256, d=1, increment=64))
    query.land(0, 3)
    query.run()

    assert query.bound[-1] > 128
    assert query.users == expected(3)


@pytest.mark.long
@pytest.mark.parametrize("clean", some_of([True, False], True))
def test_a_query_may_have_other_bounds_when_it_starts_again(spark: SparkSession, tmp_path: Path, clean: bool) -> None:
    """A batch that may have been begun runs in as many partitions as it did; after a clean end, and later, within the
    new bounds."""
    query = Query(spark, tmp_path, interval=0.001, wait=0.4)
    query.land(0, BATCHES)
    query.run()
    assert query.bound[-1] > 3
    if not clean:
        note_ended_runs()
        shutil.rmtree(next(tmp_path.rglob("ended")))

    again = Query(spark, tmp_path, interval=0.001, elastic=Elastic(2, 3, d=1), wait=0.4)
    again.land(BATCHES, 3)
    again.run()
    assert again.bound[0] == (3 if clean else query.bound[-1])
    assert again.bound[-1] == 3
    assert query.users + again.users == expected(BATCHES + 3)


def test_bounds_that_the_stream_is_not_within_are_refused_at_once(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="elastic"):
        Query(spark, tmp_path, interval=1.0, partitions=16)


@pytest.mark.parametrize("closed", some_of([True, False], False), ids=["closed", "stopped"])
def test_of_two_queries_of_a_session_the_one_that_began_last_decides(
    spark: SparkSession, tmp_path: Path, *, closed: bool
) -> None:
    """Both would: each would take back what the other has done. Until it ends, whether or not its handler is closed."""
    first, second = (Query(spark, tmp_path / name, interval=1e6, elastic=Elastic(2, 6, d=9)) for name in "ab")
    second.planned = second.made(first.sk)
    with first.running(), second.running() as running:
        for query, wanted in ((first, 2), (second, 6)):
            query.rescale(6)
            assert first.sk.partitions == wanted
        if closed:
            second.planned.close()
        else:
            ended = first.sk.plans.stream.owner
            running.stop()
            # Spark tells its listeners in a thread of its own.
            wait_for("the end of the second query", lambda: first.sk.plans.stream.owner is not ended, 120.0)
        for wanted in (6, 3):
            first.rescale(3)
            assert first.sk.partitions == wanted, "it is alone now, and begins with what the other has left"
    for query in (first, second):
        query.planned.close()


def test_partitions_of_a_stream_that_learns_are_fixed(spark: SparkSession, tmp_path: Path) -> None:
    sk = Unskew(spark, stream="clicks", partitions=4)
    with pytest.raises(ConfigError, match="learn=True"):
        sk.for_each_batch(print, "user", str(tmp_path), "q", learn=True, elastic=Elastic(2, 6))


def test_nobody_is_asked_where_executors_are_not_allocated_dynamically(spark: SparkSession) -> None:
    assert request_slots(spark, 64) is False


@pytest.mark.long
def test_a_cluster_that_allocates_executors_gets_more_of_them(tmp_path: Path) -> None:
    """Real executors, in Spark's own cluster for tests."""
    run = [sys.executable, "-m", "tests.spark.failures.more_executors", str(tmp_path)]
    done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=300.0, cwd=ROOT)

    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {"enough": False, "more": True, "executors": 2}
