"""``stateful()`` in queries that end and begin again in one process, and behind an operator with a state of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from pyspark.errors import StreamingQueryException

from unskew.spark import Unskew
from unskew.spark.stateful import Stateful, stateful

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-streams")]

SCHEMA = "user string, amount bigint, at timestamp"


def count(key: tuple[Any, ...], rows: pd.DataFrame, state: dict[str, Any] | None) -> tuple[Any, Any]:
    n = (state["n"] if state else 0) + len(rows)
    return [(*key, n)], {"n": n}


class Seen:
    """Rows by batch; fails once where it is told to."""

    def __init__(self, fails: int = -1) -> None:
        self.fails, self.rows = fails, dict[int, dict[str, int]]()

    def __call__(self, out: DataFrame, batch: int) -> None:
        if batch == self.fails:
            self.fails = -1
            raise RuntimeError("the handler fails")
        self.rows[batch] = {row["user"]: row["n"] for row in out.collect()}


def land(folder: Path, number: int, users: str) -> None:
    """A batch: a file with a row for each letter."""
    rows = [{"user": user, "amount": at, "at": f"2026-01-01 00:00:{number:02}"} for at, user in enumerate(users)]
    (folder / "in").mkdir(exist_ok=True)
    file = folder / "in" / f"{number}.json"
    file.write_text("\n".join(map(json.dumps, rows)))
    os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def counting(spark: SparkSession, checkpoint: Path, handle: Seen) -> Stateful:
    sk = Unskew(spark, stream="clicks", partitions=2)
    return stateful(sk, handle, "user", count, "user string, n bigint", "n bigint", str(checkpoint), "q")


def run(
    spark: SparkSession,
    folder: Path,
    handler: Stateful,
    checkpoint: Path,
    change: Callable[[DataFrame], DataFrame] = lambda df: df,
) -> None:
    """The query over all files that are there, to its end."""
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    writer = change(rows).writeStream.foreachBatch(handler).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def test_another_query_by_the_same_object_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """It would take the first one's batches for its own, and lose the rows."""
    land(tmp_path, 0, "aab")
    seen = Seen()
    handler = counting(spark, tmp_path / "cp", seen)
    run(spark, tmp_path, handler, tmp_path / "cp")
    with pytest.raises(StreamingQueryException, match="checkpoint"):
        run(spark, tmp_path, handler, tmp_path / "another")
    assert seen.rows == {0: {"a": 2, "b": 1}}


def test_columns_in_another_order_are_the_same_columns(spark: SparkSession, tmp_path: Path) -> None:
    """By the same object, in a second run of the query."""
    seen = Seen()
    handler = counting(spark, tmp_path / "cp", seen)
    land(tmp_path, 0, "aab")
    run(spark, tmp_path, handler, tmp_path / "cp", lambda df: df.select("user", "amount"))
    land(tmp_path, 1, "abb")
    run(spark, tmp_path, handler, tmp_path / "cp", lambda df: df.select("amount", "user"))
    assert seen.rows[1] == {"a": 3, "b": 3}


def test_a_batch_that_is_committed_is_read_all_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """An operator before it keeps a state, which Spark wants to see committed in each run of a batch."""
    seen = Seen(fails=1)
    handler = counting(spark, tmp_path / "cp", seen)
    for number, users in enumerate(("aab", "abc", "cd")):
        land(tmp_path, number, users)

    def once(df: DataFrame) -> DataFrame:
        return df.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["user", "amount"])

    with pytest.raises(StreamingQueryException, match="the handler fails"):
        run(spark, tmp_path, handler, tmp_path / "cp", once)
    run(spark, tmp_path, handler, tmp_path / "cp", once)
    # a 0, a 1, b 2; then a 0 again, b 1, c 2; then c 0, d 1; the last batch has no rows
    found = [seen.rows[batch] for batch in range(3)]
    assert found == [{"a": 2, "b": 1}, {"b": 2, "c": 1}, {"c": 2, "d": 1}]
