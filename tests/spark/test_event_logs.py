"""Event logs of this Spark, written while the jobs run: the skewed stage is named, and no other one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.doses import some_of
from tests.events.jobs import JOBS
from tests.spark.frames import setting
from unskew.cli.events.log_files import logs_at
from unskew.cli.events.read_log import read_log
from unskew.core.diagnosis.findings import Finding

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

ALL = [(kind, aqe) for kind in JOBS for aqe in (True, False)]
SMALL = ("join", True), ("window", False)


@contextmanager
def logged(spark: SparkSession, folder: Path) -> Iterator[None]:
    """The session's events go to a log for a while. The session itself, which others share, writes none."""
    context: Any = spark.sparkContext
    jvm, scala = context._jvm, context._jsc.sc()
    folder.mkdir()
    none = jvm.scala.Option.apply(None)
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
        "app", none, jvm.java.net.URI(folder.as_uri()), scala.conf(), scala.hadoopConfiguration()
    )
    listener.start()
    scala.addSparkListener(listener)
    try:
        yield
        scala.listenerBus().waitUntilEmpty()
    finally:
        scala.removeSparkListener(listener)
        listener.stop()


def skewed_stages(spark: SparkSession, folder: Path, job: Callable[..., None], *arguments: str) -> list[Finding]:
    with logged(spark, folder / "log"):
        job(spark, *arguments)
    (log,) = logs_at(str(folder / "log"))
    report = read_log(log.name, log.files)
    assert report.unread == ()
    assert report.tasks > 0
    return [finding for finding in report.findings if finding.is_skew]


@contextmanager
def four_partitions(spark: SparkSession, *, aqe: bool) -> Iterator[None]:
    settings = {"shuffle__partitions": 4, "adaptive__coalescePartitions__enabled": False, "adaptive__enabled": aqe}
    with setting(spark, **{f"spark__sql__{name}": str(value).lower() for name, value in settings.items()}):
        yield


@pytest.mark.parametrize(("kind", "aqe"), some_of(ALL, *SMALL))
def test_the_skewed_stage_is_named_and_no_other(spark: SparkSession, tmp_path: Path, kind: str, aqe: bool) -> None:
    """With operator and key: four rows of five are of one key, and their task runs on when the others are over."""
    with four_partitions(spark, aqe=aqe):
        (finding,) = skewed_stages(spark, tmp_path, JOBS[kind])
    key = {"join": "user = uid", "rdd": ""}.get(kind, "user")
    assert (finding.operator.kind, finding.operator.key_text) == (kind, key)
    assert (finding.tasks, finding.slots) == (4, 2)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "aqe"), ALL)
def test_of_even_jobs_nothing_is_said(spark: SparkSession, tmp_path: Path, kind: str, aqe: bool) -> None:
    """Keys with as many rows each, by the same operators; each job twice, so that 24 are silent."""
    with four_partitions(spark, aqe=aqe):
        for again in ("first", "second"):
            (tmp_path / again).mkdir()
            assert skewed_stages(spark, tmp_path / again, JOBS[kind], "shop") == []
