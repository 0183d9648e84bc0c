"""A query that is started for what there is and ends (``availableNow`` on a schedule): one batch a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from tests.spark.streaming.job import PARTITIONS, STREAM
from tests.spark.streaming.lives import prepare
from tests.spark.streaming.queries import Notes, batches, firsts, pin_at, run
from unskew.core.quality.measures import imbalance
from unskew.spark import Unskew
from unskew.spark.streaming.clean_end import note_ended_runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-streams")]


@pytest.fixture
def waiting(tmp_path: Path) -> list[Path]:
    """Files that are not there yet, in the order in which they come."""
    prepare(tmp_path, 4)
    files = sorted((tmp_path / "in").iterdir())
    for file in files:
        file.rename(tmp_path / file.name)
    return files


def scheduled(spark: SparkSession, folder: Path, file: Path, notes: Notes) -> None:
    """A run of a job: what is new is one file, and nobody closes the handler."""
    (folder / file.name).rename(file)
    with Unskew(spark, stream=STREAM, partitions=PARTITIONS, policy="balanced") as sk:
        run(spark, folder, batches(sk, notes, folder, fresh="auto"))


def evenness(notes: Notes, batch: int) -> float:
    return imbalance(notes.runs[batch][-1], PARTITIONS)


def test_each_run_places_its_batch_by_its_own_rows(spark: SparkSession, tmp_path: Path, waiting: list[Path]) -> None:
    """Other users are hot in each batch: on the first run's plan the later ones would be as uneven as by hash."""
    notes = Notes()
    for file in waiting:
        scheduled(spark, tmp_path, file, notes)
    assert firsts(tmp_path / "cp") == [0, 1, 2, 3]
    assert len({pin_at(tmp_path / "cp", batch).bound.plan for batch in range(4)}) > 1
    assert max(evenness(notes, batch) for batch in range(4)) < 1.2
    assert (notes.wrong(4), notes.moved(), notes.strayed(tmp_path / "cp")) == (0, 0, 0)


def test_a_run_that_failed_in_its_batch_is_gone_on_with_by_its_plan(
    spark: SparkSession, tmp_path: Path, waiting: list[Path]
) -> None:
    """The batch was begun, half of it is written: it keeps its plan, and the one after it is free again."""
    notes = Notes(fails={1})
    scheduled(spark, tmp_path, waiting[0], notes)
    with pytest.raises(StreamingQueryException, match="the handler fails"):
        scheduled(spark, tmp_path, waiting[1], notes)
    note_ended_runs()
    scheduled(spark, tmp_path, waiting[2], notes)  # the second batch again, and the third
    scheduled(spark, tmp_path, waiting[3], notes)
    assert [len(notes.runs[batch]) for batch in range(4)] == [1, 2, 1, 1]
    assert (notes.wrong(4), notes.moved(), notes.strayed(tmp_path / "cp")) == (0, 0, 0)
    assert evenness(notes, 3) < 1.2
