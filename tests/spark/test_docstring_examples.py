"""The examples in the docstrings of ``unskew.spark``: each runs as it stands, and prints what it says."""

from __future__ import annotations

import doctest
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

import unskew.spark
from unskew.spark import Unskew

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

USER = "if(id % 2 = 0, 0L, 1L + id div 2 % 6) user"


def documented() -> dict[str, object]:
    """What ``unskew.spark`` exports of its own, and the verbs of ``Unskew``."""
    own = {name: getattr(unskew.spark, name) for name in unskew.spark.__all__}
    own = {name: value for name, value in own.items() if value.__module__.startswith("unskew.spark")}
    verbs = {f"Unskew.{name}": getattr(Unskew, name) for name in vars(Unskew) if not name.startswith("_")}
    return own | {name: verb for name, verb in verbs.items() if callable(verb)}


DOCUMENTED = documented()


@pytest.fixture(scope="module")
def clicks(spark: SparkSession) -> DataFrame:
    """600 rows of 7 users, one of whom has half of them."""
    return spark.range(0, 600, 1, 2).selectExpr(USER, "id")


@pytest.fixture(scope="module")
def sk(spark: SparkSession, clicks: DataFrame) -> Iterator[Unskew]:
    with Unskew(spark, stream="clicks", partitions=4, policy="balanced") as made:
        made.plan(clicks, "user", spread="id")
        yield made


@pytest.fixture
def names(spark: SparkSession, clicks: DataFrame, sk: Unskew, tmp_path: Path) -> dict[str, Any]:
    """What examples may use without a word."""
    rate = spark.readStream.format("rate").load().selectExpr("value id", "timestamp time")
    stream = rate.selectExpr(USER, "id", "time").withWatermark("time", "1 minute")
    return {
        "__name__": "__main__",
        "spark": spark,
        "clicks": clicks,
        "stream": stream,
        "sk": sk,
        "F": F,
        "folder": str(tmp_path),
    }


@pytest.mark.parametrize("name", DOCUMENTED)
def test_an_example_prints_what_it_says(name: str, names: dict[str, Any]) -> None:
    """Every public name has one, and it has at least one line to run."""
    text = DOCUMENTED[name].__doc__ or ""
    example = doctest.DocTestParser().get_doctest(text, names, name, None, None)
    assert example.examples, f"{name} has no example"
    said: list[str] = []
    with warnings.catch_warnings():
        doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS).run(example, out=said.append)
    assert not said, "".join(said)
