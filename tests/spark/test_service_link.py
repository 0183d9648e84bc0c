"""How a session talks to its service: every verb puts the stream in one way, and is refused in one way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from unskew.client import Client, testing
from unskew.core.errors import PlanError
from unskew.spark import Unskew

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

N = 4
Verb = Callable[[Unskew, "DataFrame", "Path"], Any]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with testing.embedded() as service, service.client() as made:
        yield made


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.range(0, 400, 1, 2).selectExpr("id", "id % 9 k")


def plan(sk: Unskew, rows: DataFrame, _: Path) -> Any:
    return sk.plan(rows, "k", "id")


def place(sk: Unskew, rows: DataFrame, _: Path) -> Any:
    return sk.place(rows, "k", spread="id", learn=True)


def pin(sk: Unskew, rows: DataFrame, _: Path) -> Any:
    """A pin alone knows no key: it is made after a plan."""
    sk.plan(rows, "k", "id")
    assert sk.client is not None
    sk.client.delete_stream(sk.stream)
    return sk.pin(learn=True)


def stream_by_plan(sk: Unskew, rows: DataFrame, folder: Path) -> Any:
    each = sk.for_each_batch(lambda df, _: df.count(), "k", str(folder), "q", spread="id", threshold=0)
    each(rows, 0)
    assert each.settle(30.0)


def stream_by_learning(sk: Unskew, rows: DataFrame, folder: Path) -> Any:
    each = sk.for_each_batch(
        lambda df, _: df.count(), "k", str(folder), "q", spread="id", learn=True, interval=5.0, deadline=5.0
    )
    each(rows, 0)
    assert each.settle(30.0)


VERBS: list[Verb] = [plan, place, pin, stream_by_plan, stream_by_learning]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_whichever_verb_comes_first_puts_the_stream_with_its_key_types(
    spark: SparkSession, rows: DataFrame, client: Client, tmp_path: Path, verb: Verb
) -> None:
    """The service refuses keys of another type only where it knows the types."""
    name = f"put-{verb.__name__}"
    with Unskew(spark, stream=name, partitions=N, service=client.target) as sk:
        verb(sk, rows, tmp_path)
        spec = client.get_stream(name).spec
    assert (spec.partitions, spec.key_types) == (N, ("bigint",))


@pytest.mark.parametrize("verb", [plan, place], ids=lambda verb: verb.__name__)
def test_keys_of_another_type_are_refused_alike(
    spark: SparkSession, rows: DataFrame, client: Client, tmp_path: Path, verb: Verb
) -> None:
    """One error whatever asks: the keys are wrong for the stream, not a setting of the session."""
    client.put_stream("strings", partitions=N, key_types=("string",))
    with (
        Unskew(spark, stream="strings", partitions=N, service=client.target) as sk,
        pytest.raises(PlanError, match=r"stream strings is for keys of type \(string\), these are of \(bigint\)"),
    ):
        verb(sk, rows, tmp_path)


@pytest.mark.parametrize("verb", [stream_by_plan, stream_by_learning], ids=lambda verb: verb.__name__)
def test_a_query_with_keys_of_another_type_goes_on_alone_and_says_why(
    spark: SparkSession,
    rows: DataFrame,
    client: Client,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    verb: Verb,
) -> None:
    """A batch does not fail for it."""
    client.put_stream("strings", partitions=N, key_types=("string",))
    with Unskew(spark, stream="strings", partitions=N, service=client.target) as sk:
        verb(sk, rows, tmp_path)
    assert "stream strings is for keys of type (string), these are of (bigint)" in caplog.text
