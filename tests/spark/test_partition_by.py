"""The RDD face: records themselves, each where the plan puts its key, whatever source and chunk they come in."""

from __future__ import annotations

import datetime as dt
import decimal
import time
import warnings
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from tests.doses import some_of
from tests.spark.frames import no_job, plan_over
from unskew.client import testing
from unskew.core import hash_keys
from unskew.core.errors import ConfigError, KeyTypeError, PlanError
from unskew.core.plan.plan import Plan
from unskew.spark import Unskew
from unskew.spark.place.rdd import RecordRouter, partition_by, spread_hash

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

N = 5


def typed(keys: list[Any], *types: str, policy: str = "kip") -> Plan:
    columns = [keys] if len(types) == 1 else [list(column) for column in zip(*keys, strict=True)]
    plan = plan_over(hash_keys(*columns, types=types), policy, N)
    return replace(plan, key_types=types)


def where(rdd: Any) -> dict[int, list[Any]]:
    found = rdd.mapPartitionsWithIndex(lambda p, records: [(p, list(records))]).collect()
    return dict(found)


KEYS: dict[tuple[str, ...], list[Any]] = {
    ("bigint",): [None, 0, -1, 2**62, *range(7, 40)],
    ("int",): [None, 0, -1, 2**31 - 1, *range(7, 40)],
    ("string",): [None, "", "ü", *(f"k{i}" for i in range(40))],
    ("date",): [None, dt.date(1899, 12, 31), *(dt.date(2024, 1, day) for day in range(1, 29))],
    ("decimal(9,2)",): [None, *(decimal.Decimal(i) / 4 for i in range(-5, 30))],
    ("string", "bigint"): [(None, None), (None, 1), ("1", None), *((f"k{i % 3}", i) for i in range(30))],
}


@pytest.mark.parametrize("types", KEYS, ids=",".join)
def test_a_record_lands_where_its_key_lands_in_a_frame(spark: SparkSession, types: tuple[str, ...]) -> None:
    """Same key, same plan, same partition on both faces, NULLs and composite keys included; records, not pairs."""
    keys = KEYS[types]
    plan = typed(keys, *types)
    out = where(partition_by(spark.sparkContext.parallelize([(key, i) for i, key in enumerate(keys)], 3), _first, plan))
    assert sorted(out) == list(range(N))
    there = {i: p for p, records in out.items() for _, i in records}
    names = [f"c{i}" for i in range(len(types))]
    values = [(*(key if len(types) > 1 else (key,)), i) for i, key in enumerate(keys)]
    schema = ", ".join(f"{name} {kind}" for name, kind in zip(names, types, strict=True)) + ", i int"
    frame = Unskew(spark, stream="s", partitions=N).repartition(spark.createDataFrame(values, schema), names, plan)
    planned = {row.i: row.p for row in frame.select("i", F.spark_partition_id().alias("p")).collect()}
    assert there == planned
    assert len(set(there.values())) > 1


def _first(record: tuple[Any, ...]) -> Any:
    return record[0]


def test_split_keys_go_by_their_spread(spark: SparkSession) -> None:
    """A key of all records is on several partitions, evenly; each record is there once, in any chunk."""
    records = [("hot", i) for i in range(6_000)] + [(f"k{i % 50}", i) for i in range(1_000)]
    plan = typed([key for key, _ in records], "string", policy="prompt")
    assert plan.splits
    sk = Unskew(spark, stream="s", partitions=N)
    context = spark.sparkContext
    out = where(sk.partition_by(context.parallelize(records, 3), _first, plan, spread=lambda record: record[1]))
    assert Counter(one for some in out.values() for one in some) == Counter(records)
    assert max(len(some) for some in out.values()) < 1.15 * len(records) / N
    again = where(sk.partition_by(context.parallelize(records[::-1], 7), _first, plan, spread=lambda record: record[1]))
    assert {p: Counter(some) for p, some in out.items()} == {p: Counter(some) for p, some in again.items()}


ALONE: dict[str, list[Any]] = {
    "bigint": [None, 1, np.int8(1), 2**40, -5],
    "double": [1, 2.5, None, np.float16(0.1), 0.1, -0.0, 2**53 + 1],
    "decimal(9,2)": [decimal.Decimal("1.255"), 7, decimal.Decimal("1e6"), None],
    "binary": [b"a", "a", bytearray(b"b"), None],
    "timestamp_ntz": [dt.date(2024, 1, 1), dt.datetime(2024, 1, 1, 5), None],
}


@pytest.mark.parametrize("kind", some_of(ALONE, "double", "decimal(9,2)"))
def test_where_a_record_goes_depends_on_nothing_but_itself(kind: str) -> None:
    """Chunk by chunk or one by one: a key that is taken alone is taken among any others, and hashed the same."""
    keys = ALONE[kind]
    task = RecordRouter(
        replace(typed(list(range(100)), "bigint"), key_types=(kind,)), lambda record: record, None, (kind,)
    )
    alone = [int(hash_keys([key.item() if isinstance(key, np.number) else key], types=[kind])[0]) for key in keys]
    assert task._hashes(keys).tolist() == alone
    where = [next(task([key]))[0] for key in keys]
    assert [p for p, _ in task(iter(keys * 3_000))] == where * 3_000


@pytest.mark.parametrize("key", ["seven", 2**70, 1.5, True, (1, 2), object()])
def test_a_key_that_does_not_fit_its_type_is_named(key: Any) -> None:
    """It would be hashed as another type, and land where no equal key does; True is no bigint in Spark either. Alone
    as among others."""
    task = RecordRouter(typed([1, 2, 3], "bigint"), lambda record: record, None, ("bigint",))
    for keys in ([key], [key, key], [1, 2, key]):
        with pytest.raises(KeyTypeError, match=rf"key .*\({type(key).__name__}\) does not fit the plan's .*\(bigint\)"):
            list(task(keys))


def test_a_composite_key_is_a_tuple_of_its_columns() -> None:
    task = RecordRouter(typed([(1, "a")], "bigint", "string"), lambda record: record, None, ("bigint", "string"))
    for key in (1, (1,), (1, "a", 2), None):
        with pytest.raises(KeyTypeError, match="give a tuple of 2"):
            list(task([(1, "a"), key]))


def test_the_error_reaches_the_user(spark: SparkSession) -> None:
    """Out of a task, with the key in it."""
    rdd = spark.sparkContext.parallelize([1, 2, "x"], 1)
    with pytest.raises((PySparkException, Exception), match=r"key 'x' \(str\) does not fit"):
        partition_by(rdd, lambda record: record, typed([1, 2], "bigint")).count()


def test_a_spread_is_hashed_alike_in_every_process() -> None:
    """Plain values only: an object's text has its address in it."""
    assert spread_hash(7) == spread_hash(np.int64(7)) == spread_hash((7,)) == 5540682547780770089
    assert len({spread_hash(value) for value in (1, 1.0, "1", b"1", True, None, (1, 2), (1, "2"))}) == 8
    for bad in (object(), {1, 2}, {"a": 1}, [1], (1, [2]), np.arange(2), (np.arange(1),)):
        with pytest.raises(ConfigError, match=r"spread: .* use a number, string, bytes"):
            spread_hash(bad)


def test_bad_use_is_refused_before_any_job(spark: SparkSession) -> None:
    """A split plan without spread, a frame for an RDD, a plan that does not say its types, another session's plan."""
    rdd = spark.sparkContext.parallelize(range(10), 2)
    sk = Unskew(spark, stream="s", partitions=N)
    whole, split = typed([1, 2], "bigint"), typed([1] * 500 + [2], "bigint", policy="prompt")
    with no_job(spark):
        with pytest.raises(PlanError, match="this plan splits keys: give spread="):
            sk.partition_by(rdd, lambda record: record, split)
        with pytest.raises(ConfigError, match=r"rdd: 'DataFrame' is not allowed; use an RDD of classic Spark"):
            sk.partition_by(spark.range(3), lambda record: record, whole)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="types: "):
            sk.partition_by(rdd, lambda record: record, replace(whole, key_types=()))
        with pytest.raises(PlanError, match=r"keys of type \(bigint\), not \(int\)"):
            sk.partition_by(rdd, lambda record: record, whole, types=["int"])
        with pytest.raises(ConfigError, match="key: 'user' is not allowed; use a function"):
            sk.partition_by(rdd, "user", whole)  # type: ignore[arg-type]
        with pytest.raises(PlanError, match="5 partitions and this session for 8"):
            Unskew(spark, stream="s", partitions=8).partition_by(rdd, lambda record: record, whole)


def test_each_partition_is_reported_once(spark: SparkSession) -> None:
    """With a pin the light client tells the service what each partition held; however often the RDD is computed."""
    keys = [0] * 300 + list(range(600))
    with testing.embedded() as service, Unskew(spark, stream="r", partitions=N, service=service.target) as sk:
        assert sk.client is not None
        sk.client.put_stream("r", partitions=N, policy="kip", key_types=("bigint",))
        plan = typed(keys, "bigint")
        pin = replace(sk.pin(plan, batch=3), patience=60.0)
        out = sk.partition_by(spark.sparkContext.parallelize(keys, 4), lambda record: record, pin=pin)
        assert out.count() == out.count() == 900
        built = sk.client.build_plan("r", pin.number, fresh=True)
        with pytest.raises(ConfigError, match=r"pin: .* use a pin of the plan that places the records"):
            partition_by(out, lambda record: record, typed([5] * 90, "bigint"), pin=pin)
    assert (built.plan.info.rows, built.plan.info.keys) == (900, 600)
    assert "parts" not in built.reason


def test_a_dstream_is_transformed(spark: SparkSession) -> None:
    """Batch by batch, by the same plan."""
    plan, got = typed(list(range(20)), "bigint"), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.streaming import StreamingContext

        streaming = StreamingContext(spark.sparkContext, 0.2)
        batches = [spark.sparkContext.parallelize(range(start, start + 10), 2) for start in (0, 10)]
        stream = streaming.queueStream(batches).transform(lambda rdd: partition_by(rdd, lambda record: record, plan))
        stream.glom().foreachRDD(lambda rdd: got.append(rdd.collect()))
        streaming.start()
        end = time.monotonic() + 180
        while sum(len(part) for batch in got for part in batch) < 20 and time.monotonic() < end:
            time.sleep(0.05)
        streaming.stop(stopSparkContext=False, stopGraceFully=False)
    placed = {record: p for batch in got for p, part in enumerate(batch) for record in part}
    assert placed == dict(enumerate(plan.route(hash_keys(list(range(20)))).tolist()))
