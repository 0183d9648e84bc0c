"""What the tests of streaming queries in one process share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.streaming.job import PARTITIONS, STREAM
from tests.spark.streaming.lives import prepare
from unskew.spark import Unskew

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a query of four batches."""
    prepare(tmp_path, 4)
    return tmp_path


@pytest.fixture
def short(tmp_path: Path) -> Path:
    """Of a query of two."""
    prepare(tmp_path, 2)
    return tmp_path


@pytest.fixture
def sk(spark: SparkSession) -> Iterator[Unskew]:
    with Unskew(spark, stream=STREAM, partitions=PARTITIONS, policy="balanced") as made:
        yield made
