"""What is wrong is said: before the query starts where that can be told, else in its first batch, before any job."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from tests.spark.streaming.job import NAME
from tests.spark.streaming.queries import batches, run
from unskew.core.errors import ConfigError
from unskew.spark import Unskew

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-streams")]


def bad(spark: SparkSession, folder: Path, handle: Callable[[DataFrame, int], object], cp: str = "cp") -> str:
    """What the query says when its first batch comes."""
    with pytest.raises(StreamingQueryException) as why:
        run(spark, folder, handle, folder / cp)
    return str(why.value)


def test_what_does_not_fit_is_said_in_the_first_batch(spark: SparkSession, sk: Unskew, folder: Path) -> None:
    """Another query's checkpoint, a key that is not there, pins of another key, one object for two queries."""
    done: list[int] = []

    def handle(df: DataFrame, batch: int) -> None:
        done.append(batch)

    told = bad(spark, folder, batches(sk, handle, folder, checkpoint=str(folder / "other")))
    assert "checkpoint: " in told
    assert f"use file:{folder}/cp, the checkpointLocation of this query" in told
    assert not (folder / "other").exists()

    missing = sk.for_each_batch(handle, "nobody", str(folder / "cp"), NAME)
    assert "nobody" in bad(spark, folder, missing)
    assert done == []

    for weight in ("user", "no_such", "size("):
        assert f"weight: '{weight}'" in bad(spark, folder, batches(sk, handle, folder, weight=weight))
    assert done == []

    good = batches(sk, handle, folder)
    run(spark, folder, good)
    assert done == [0, 1, 2, 3]
    shutil.copy(folder / "in" / "000.parquet", folder / "in" / "more.parquet")
    told = bad(spark, folder, sk.for_each_batch(handle, "id", str(folder / "cp"), NAME, spread="user"))
    assert "key: ('id',) is not allowed; use ('user',), as the pins in" in told
    assert "Another query needs a name of its own" in told
    assert "the checkpointLocation of this query" in bad(spark, folder, good, "cp2")
    assert done == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"checkpoint": ""}, "checkpoint: '' is not allowed; use the query's checkpointLocation"),
        ({"checkpoint": None}, "checkpoint: None"),
        ({"checkpoint": "ftp://host/x"}, "checkpoint: 'ftp://host/x'"),
        ({"name": "a/b"}, "name: 'a/b'"),
        ({"name": ""}, "name: ''"),
        ({"name": ".hidden"}, "name: '.hidden'"),
        ({"name": None}, "name: None"),
        ({"key": []}, r"key: \[\]"),
        ({"spread": [1]}, r"spread: \[1\]"),
        ({"fresh": "next"}, "fresh: 'next' is not allowed; use one of auto, previous, same"),
        ({"deadline": -1.0}, "deadline: -1.0"),
        ({"threshold": -1}, "threshold: -1"),
        ({"weight": 2.0}, "weight: 2.0 is not allowed; use a column's name or an expression in SQL, as text"),
        ({"weight": "id", "learn": True}, "weight: 'id' is not allowed; use None where learn=True"),
        ({"handle": "no function"}, "handle: 'no function'"),
    ],
)
def test_bad_use_is_refused_before_the_query_starts(sk: Unskew, given: dict[str, Any], named: str) -> None:
    good = {"handle": print, "key": "user", "checkpoint": "/nowhere/cp", "name": "q"}
    with pytest.raises(ConfigError, match=named):
        sk.for_each_batch(**{**good, **given})
    assert not Path("/nowhere").exists()


def test_an_expression_is_no_key(sk: Unskew) -> None:
    """A pin keeps names; an expression is to be a column first."""
    for what, given in (("key", {"key": F.upper("user")}), ("spread", {"key": "user", "spread": F.col("id")})):
        with pytest.raises(ConfigError, match=f"{what}: .*add an expression as a column first"):
            sk.for_each_batch(print, checkpoint="/nowhere/cp", name="q", **given)
