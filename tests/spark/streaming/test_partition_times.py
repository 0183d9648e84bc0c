"""How long each partition took, as Spark's own store has it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from tests.spark.streaming.job import PARTITIONS
from tests.spark.streaming.lives import ROWS
from tests.spark.streaming.queries import batches, placed, run, settled
from unskew.core.freshness.plan_ahead import BatchFacts, PlanAhead
from unskew.spark import Unskew
from unskew.spark.frame.jvm import TaskTime
from unskew.spark.streaming.batch_reports import work_of
from unskew.spark.streaming.partition_times import by_partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-streams")]


@pytest.fixture
def facts(monkeypatch: pytest.MonkeyPatch) -> list[BatchFacts]:
    """Of the batches of queries that run in the test."""
    kept: list[BatchFacts] = []
    after = PlanAhead.after

    def noted(self: PlanAhead, facts: BatchFacts, *more: object) -> object:
        kept.append(facts)
        return after(self, facts, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(PlanAhead, "after", noted)
    return kept


@pytest.mark.parametrize("reads", [1, 2])
def test_a_partition_is_reported_with_its_rows_and_seconds(
    spark: SparkSession, sk: Unskew, short: Path, facts: list[BatchFacts], reads: int
) -> None:
    """The rows that the handler saw in each partition are those that its task read; two reads take the time of both."""
    where: list[list[int]] = []

    def handle(df: DataFrame, batch: int) -> None:
        # Spark counts whole milliseconds: a task of this few rows is often none, so some of its rows sleep.
        slept = F.reflect(F.lit("java.lang.Thread"), F.lit("sleep"), F.lit(1).cast("long"))
        slow = df.withColumn("slept", F.when(F.col("id") % 20 == 0, slept))
        for _ in range(reads):
            rows = np.bincount(placed(slow.where("slept IS NULL OR slept <> ''"), batch), minlength=PARTITIONS)
        where.append(rows.tolist())

    run(spark, short, settled(batches(sk, handle, short)))
    assert len(facts) == 2
    for ran, rows in zip(facts, where, strict=True):
        assert ran.times is not None
        assert ran.times.rows.tolist() == rows
        assert sum(rows) == ROWS
        work = work_of(ran).work
        assert [(one.partition, one.rows, one.seconds) for one in work] == [
            (at, rows[at], ran.times.seconds[at]) for at in range(PARTITIONS)
        ]
        assert 0.0 < sum(one.seconds for one in work) <= ran.stages.reduce_work + 1e-9


def test_a_handler_that_shuffles_anew_says_nothing_of_other_stages(
    spark: SparkSession, sk: Unskew, short: Path, facts: list[BatchFacts]
) -> None:
    """A later shuffle of as many partitions has other rows in them: only the routed one's tasks count."""
    where: list[list[int]] = []

    def handle(df: DataFrame, batch: int) -> None:
        anew = df.selectExpr("id + 1 AS other").repartition(PARTITIONS, "other")
        anew.write.format("noop").mode("overwrite").save()
        where.append(np.bincount(placed(df, batch), minlength=PARTITIONS).tolist())

    run(spark, short, settled(batches(sk, handle, short)))
    assert len(facts) == 2
    for ran, rows in zip(facts, where, strict=True):
        assert ran.times is not None
        assert ran.times.rows.tolist() == rows
        assert ran.times.seconds.sum() <= ran.stages.reduce_work + 1e-9


def task(index: int, records: int) -> TaskTime:
    return TaskTime(index, records, 0.5)


def test_one_partition_too_few_is_said_nothing_of() -> None:
    loads = np.array([40.0, 10.0])
    known = by_partition([task(1, 11), task(0, 39)], loads)
    assert known is not None
    assert (known[0].tolist(), known[1].tolist()) == ([39.0, 11.0], [0.5, 0.5])
    for tasks in ([task(0, 50)], [task(0, 10), task(1, 40)], [task(0, 40), task(0, 10)], [task(0, 40), task(1, 40)]):
        assert by_partition(tasks, loads) is None
