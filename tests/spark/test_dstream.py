"""The DStream face: each batch's records where the plan of its time puts them, none lost, none twice."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle

from tests.spark.frames import plan_over
from unskew.core import hash_keys
from unskew.core.errors import ConfigError, PlanError
from unskew.core.plan.plan import Plan
from unskew.spark.folders import Folder
from unskew.spark.place.dstream import _Plans, partition_dstream
from unskew.spark.place.rdd import RecordRouter

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession
    from pyspark.streaming import StreamingContext

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

N = 4
TYPES = ("bigint",)
BATCHES = [[((0 if i % 3 == 0 else i % 37 + batch), i) for i in range(300)] for batch in range(3)]
NOON = datetime(2024, 1, 1, 12)


def key(record: tuple[int, int]) -> int:
    return record[0]


def told_apart(record: tuple[int, int]) -> int:
    return record[1]


def plan_of(batch: int, policy: str = "prompt") -> Plan:
    return plan_over(hash_keys([key(record) for record in BATCHES[batch]], types=TYPES), policy, N)


@pytest.fixture
def streaming(spark: SparkSession) -> Iterator[StreamingContext]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # "DStream is deprecated": so it is
        from pyspark.streaming import StreamingContext

        context = StreamingContext(spark.sparkContext, 1)
        yield context
        context.stop(stopSparkContext=False)


def test_each_batch_is_placed_by_the_plan_of_its_time(spark: SparkSession, streaming: StreamingContext) -> None:
    """Three batches, a plan for each, split keys among them: records, partitions and plans are those expected."""
    plans: dict[datetime, Plan] = {}
    got: list[tuple[datetime, list[list[tuple[int, int]]]]] = []
    done = Event()

    def newest(time: datetime) -> Plan:
        plans[time] = plan_of(len(plans) % len(BATCHES))
        return plans[time]

    def keep(time: datetime, rdd: RDD[Any]) -> None:
        if len(got) < len(BATCHES):
            got.append((time, rdd.glom().collect()))
        if len(got) == len(BATCHES):
            done.set()

    queue = [spark.sparkContext.parallelize(records, 2) for records in BATCHES]
    stream = streaming.queueStream(queue).transform(partition_dstream(key, newest, told_apart, TYPES))
    stream.foreachRDD(keep)
    streaming.start()
    assert done.wait(180)
    for records, (time, placed) in zip(BATCHES, got, strict=True):
        assert sorted(record for each in placed for record in each) == sorted(records)
        router = RecordRouter(plans[time], key, told_apart, TYPES)
        assert [[p for p, _ in router(each)] for each in placed] == [[p] * len(each) for p, each in enumerate(placed)]
        assert len(placed) == N
        assert sum(any(record[0] == 0 for record in each) for each in placed) > 1
    assert len({plan.digest for plan in plans.values()}) == len(BATCHES)


def where(placed: Any, time: datetime, rdd: RDD[Any]) -> list[list[tuple[int, int]]]:
    return [sorted(each) for each in placed(time, rdd).glom().collect()]


def test_a_batch_time_has_one_plan_also_for_a_driver_that_comes_back(spark: SparkSession, tmp_path: Path) -> None:
    """Asked again, by another stream or in another life, it is placed alike, though the newest plan is another one; and
    what Spark pickles into its checkpoint can be."""
    rdd = spark.sparkContext.parallelize(BATCHES[0], 2)
    asked: list[datetime] = []
    told: dict[str, Any] = {"checkpoint": str(tmp_path), "name": "placed"}

    def first(time: datetime) -> Plan:
        asked.append(time)
        return plan_of(len(asked) - 1)

    placed = partition_dstream(key, first, told_apart, TYPES, **told)
    there = where(placed, NOON, rdd)
    assert where(placed, NOON, rdd) == there
    assert asked == [NOON]
    later = where(placed, NOON + timedelta(seconds=1), rdd)
    assert later != there

    back = partition_dstream(key, lambda _: plan_of(2), told_apart, TYPES, **told)
    back = cloudpickle.loads(cloudpickle.dumps(back))  # type: ignore[no-untyped-call]
    assert where(back, NOON, rdd) == there
    assert where(back, NOON + timedelta(seconds=2), rdd) != there
    assert len(list((tmp_path / "unskew" / "placed" / "times").iterdir())) == 3


def test_only_so_many_batch_times_are_kept(tmp_path: Path) -> None:
    """The oldest are forgotten, also those of an earlier life."""
    plan = plan_of(0, "kip")
    plans = [_Plans(lambda _: plan, Folder(tmp_path)) for _ in range(2)]
    for second in range(150):
        plans[second // 75].at(NOON + timedelta(seconds=second))
    times = sorted(int(path.stem) for path in tmp_path.iterdir())
    assert times == [round(NOON.timestamp() * 1000) + second * 1000 for second in range(50, 150)]


def test_bad_use_is_told_when_the_stream_is_made() -> None:
    """Before any batch."""
    with pytest.raises(ConfigError, match="key: 'user'"):
        partition_dstream("user", plan_of(0), told_apart, TYPES)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="plan: None"):
        partition_dstream(key, None)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="give spread="):
        partition_dstream(key, plan_of(0), types=TYPES)
    with pytest.raises(ConfigError, match="name: None"):
        partition_dstream(key, plan_of, checkpoint="somewhere")  # type: ignore[arg-type]
