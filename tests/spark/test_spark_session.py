"""``Unskew``: plans made in the driver or by a service, and what it refuses."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from tests.planning import key_hashes
from tests.servers import free_ports
from tests.service.faces import digest_of
from tests.service.processes import process
from tests.spark.frames import no_job
from unskew.client import NoAccessError, NoAnswerError, testing
from unskew.core import Histogram, hash_keys
from unskew.core.errors import ConfigError, PlanError
from unskew.core.plan.plan import Version
from unskew.spark import ServiceWarning, Unskew
from unskew.spark.planning import Plans
from unskew.spark.session_stream import spec_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


WARM = int(hash_keys(["warm"])[0])


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    """Half of the rows have one key."""
    return spark.range(0, 20_000, 1, 2).selectExpr("id", "if(id % 2 = 0, 'hot', concat('k', id % 900)) word")


def loads(placed: DataFrame) -> list[int]:
    counts = placed.groupBy(F.spark_partition_id().alias("p")).count().collect()
    return sorted(row["count"] for row in counts)


def test_a_plan_made_in_the_driver_evens_the_load(spark: SparkSession, rows: DataFrame) -> None:
    """Half of the rows in one key; each of eight partitions gets about an eighth, where hashing gives one half."""
    with Unskew(spark, stream="words", partitions=8, policy="balanced") as sk:
        plan = sk.plan(rows, key="word")
        assert (plan.key_types, plan.info.stream, plan.info.rows) == (("string",), "words", 20_000)
        placed = sk.repartition(rows, key="word")
        assert sk.dropped_exchange(placed) is None
        found = loads(placed)
    assert len(found) == 8
    assert max(found) < 1.1 * 20_000 / 8
    assert max(loads(rows.repartition(8, "word"))) > 10_000


def test_route_is_a_column_of_the_same_partitions(spark: SparkSession, rows: DataFrame) -> None:
    """With the frame at hand or without it; a split plan needs to know what tells rows apart."""
    sk = Unskew(spark, stream="words", partitions=8, policy="balanced")
    plan = sk.plan(rows, "word", spread="id")
    assert plan.splits
    both = rows.select(
        sk.route("word", spread="id").alias("a"), sk.route("word", plan, "id", df=rows).alias("b"), "id", "word"
    )
    assert both.where("a <> b or a is null").count() == 0
    with no_job(spark), pytest.raises(ConfigError, match="spread: None"):
        sk.route("word")
    with (
        no_job(spark),
        pytest.raises(PlanError, match=r"keys of type \(string\) and the key columns are of \(bigint\)"),
    ):
        sk.route("id", df=rows)


def test_plans_of_a_stream_follow_each_other(spark: SparkSession, rows: DataFrame) -> None:
    """Numbered; one for keys of another type begins anew."""
    sk = Unskew(spark, stream="words", partitions=4, policy="kip")
    first, second, other = sk.plan(rows, "word"), sk.plan(rows, "word"), sk.plan(rows, "id")
    assert first.version < second.version or first is second
    assert other.version == Version(0, 1)
    assert other.key_types == ("bigint",)


def test_an_embedded_service_makes_the_plan(spark: SparkSession, rows: DataFrame) -> None:
    """A real one, gone with the session; what it keeps is checked against what the job asks for."""
    with Unskew(spark, stream="words", partitions=8, policy="balanced", service="embedded", required=True) as sk:
        plan = sk.plan(rows, "word")
        assert plan.version.incarnation > 0
        assert plan.info.policy == "balanced"
        assert max(loads(sk.repartition(rows, "word"))) < 1.1 * 20_000 / 8
        assert sk.client is not None
        target = sk.client.target
        four, eight = (Unskew(spark, stream="words", partitions=n, service=target) for n in (4, 8))
        with four, eight, no_job(spark):
            with pytest.raises(ConfigError, match="partitions: 4 is not allowed; use 8, as stream words has"):
                four.plan(rows, "word")
            with pytest.raises(PlanError, match=r"is for keys of type \(string\), these are of \(bigint\)"):
                eight.plan(rows, "id")


def test_another_session_gets_a_plan_of_its_own_rows(spark: SparkSession, rows: DataFrame) -> None:
    """On the same service and stream: tomorrow's application, or the same cell of a notebook once more."""
    other = spark.range(3_000).selectExpr("id", "if(id % 2 = 0, 'warm', concat('k', id % 900)) word")
    with testing.embedded() as service:
        found = []
        for frame in (rows, other):
            with Unskew(spark, stream="words", partitions=8, policy="balanced", service=service.target) as sk:
                found.append(sk.plan(frame, "word"))
    assert [plan.info.rows for plan in found] == [20_000, 3_000]
    assert WARM in found[1].hot.hashes.tolist()
    assert WARM not in found[0].hot.hashes.tolist()


def test_a_stream_that_goes_while_the_rows_are_counted_is_put_again(spark: SparkSession) -> None:
    """As where a service without a store is started anew meanwhile."""
    with testing.embedded() as service, service.client() as client:
        plans = Plans.open(spark, "words", spec_of(8, "balanced", None, (), 7), service.target)
        ready = plans.ready(("string",))
        client.delete_stream("words")
        plan = plans.make(Histogram.from_counts(key_hashes(3), np.array([5, 5, 5])), ("string",), ready=ready)
        assert plan.version.incarnation > 0
        assert client.get_stream("words").spec.partitions == 8
        plans.close()


def test_a_service_that_is_not_there(spark: SparkSession, rows: DataFrame) -> None:
    """Required: an error before any job. Else the driver plans, and says so."""
    target = f"grpc://127.0.0.1:{free_ports(1)[0]}"
    with no_job(spark), pytest.raises(NoAnswerError, match="is `unskew serve` running there"):
        Unskew(spark, stream="words", partitions=8, service=target, required=True, timeout=0.5)
    session = Unskew(spark, stream="words", partitions=8, policy="balanced", service=target, timeout=0.5)
    with session as sk, pytest.warns(ServiceWarning, match="planned in the driver instead"):
        plan = sk.plan(rows, "word")
    assert plan.info.rows == 20_000


TOKENS = f"{digest_of('owner')} owner admin words\n{digest_of('guest')} guest reader words\n"


def test_driver_and_tasks_show_who_they_are(spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    """A service with tokens: by ``access``, which tasks get with their pin, and a handler under Spark Connect too."""
    with process(tmp_path, UNSKEW_TOKENS=TOKENS) as service:
        target = f"grpc://127.0.0.1:{service.grpc}"
        session = Unskew(spark, stream="words", partitions=4, service=target, required=True, access={"token": "owner"})
        with session as sk:
            plan = sk.plan(rows, "word")
            assert sk.client is not None
            assert sk.client.get_plan("words").plan.digest == plan.digest
            with pickle.loads(pickle.dumps(sk)) as again:
                assert again.client.get_plan("words").plan.digest == plan.digest
            pin = sk.pin(plan)
            assert (pin.service, pin.access) == (target, {"token": "owner"})
            assert "owner" not in repr((sk.plans, pin))
            sk.place(rows, "word", pin=pin).count()
            assert sk.client.get_scale("words").map_tasks == rows.rdd.getNumPartitions()


@pytest.mark.parametrize("access", [{}, {"token": "nobody"}, {"token": "guest"}], ids=["none", "unknown", "reader"])
def test_a_service_that_does_not_let_us_in_is_one_that_is_not_there(
    spark: SparkSession, rows: DataFrame, tmp_path: Path, access: dict[str, str]
) -> None:
    """A token that has expired, or without the right: the driver plans and says why. Required: an error."""
    with process(tmp_path, UNSKEW_TOKENS=TOKENS) as service:
        target = f"grpc://127.0.0.1:{service.grpc}"
        session = Unskew(spark, stream="words", partitions=4, policy="balanced", service=target, access=access)
        with session as sk, pytest.warns(ServiceWarning, match=r"planned in the driver instead: .*give a token"):
            assert sk.plan(rows, "word").info.rows == 20_000
        if access != {"token": "guest"}:
            with pytest.raises(NoAccessError):
                Unskew(spark, stream="words", partitions=4, service=target, access=access, required=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"partitions": 0}, "partitions: 0"),
        ({"policy": "magic"}, "policy: 'magic'"),
        ({"stream": "a b"}, "stream: 'a b'"),
        ({"parameters": {"slack": 1}, "policy": "hash"}, "hash parameter: 'slack'"),
        ({"required": True}, "service: None"),
    ],
)
def test_bad_settings_are_refused_at_once(spark: SparkSession, settings: dict[str, object], message: str) -> None:
    """By name, with what is allowed."""
    with pytest.raises(ConfigError, match=message):
        Unskew(spark, **{"stream": "s", "partitions": 4, **settings})
