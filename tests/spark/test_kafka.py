"""Structured Streaming on a real Kafka broker, whose driver dies in the middle of a batch (``long``).

The job runs in a process of its own (``kafka.job``), because its Spark has other jars. Without Maven, or where Maven
has nothing to fetch from, these tests skip and say so.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.servers import wait_for
from tests.spark.kafka import job
from tests.spark.kafka.broker import TOPIC_PARTITIONS, Broker, broker

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-kafka")]

_ROOT = Path(__file__).resolve().parents[2]
_EACH = 240.0  # seconds for one life of the driver, which takes some 12 where nothing else runs


def life(folder: Path, kafka: Broker, fresh: str, stops: Sequence[int]) -> subprocess.Popen[bytes]:
    job_of = [sys.executable, "-m", "tests.spark.kafka.job", str(folder), kafka.address, kafka.spark_jars]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [*job_of, fresh, *map(str, stops)], cwd=_ROOT, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )


def killed_in(batch: int, process: subprocess.Popen[bytes], folder: Path) -> pa.Table:
    """A life of the driver that ends as a machine does that loses power; what the batch had written by then."""

    def at_the_gate() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"the job ended: {log_of(folder)}")
        return any(one.partition == job.HELD for one in gate.arrivals())

    gate = job.gate(folder, batch)
    try:
        wait_for("a task at the gate", at_the_gate, _EACH)
        return written(folder, batch)
    finally:
        end(process)


def to_the_end(process: subprocess.Popen[bytes], folder: Path) -> dict[str, Any]:
    try:
        printed, _ = process.communicate(timeout=_EACH)
    finally:
        end(process)
    assert process.returncode == 0, log_of(folder)
    told: dict[str, Any] = json.loads(printed.decode().splitlines()[-1])
    return told


def end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def log_of(folder: Path) -> str:
    return (folder / "log").read_text(errors="replace")[-4000:]


def written(folder: Path, batch: int) -> pa.Table:
    return pq.read_table(folder / "files" / str(batch))


def places(rows: pa.Table) -> dict[tuple[int, int], int]:
    """The partition of each message, by where it stands in the topic."""
    return {(row["partition"], row["offset"]): row["place"] for row in rows.to_pylist()}


def imbalance(rows: pa.Table) -> float:
    """The fullest partition over the mean: 4 at least while half of the rows, of one user, are in one."""
    return max(Counter(rows["place"].to_pylist()).values()) * job.PARTITIONS / rows.num_rows


@pytest.mark.long
@pytest.mark.parametrize(("fresh", "stops"), [("previous", ()), ("previous", (2,)), ("same", (0, 1, 2, 3))])
def test_each_message_comes_once_and_a_killed_driver_goes_on_where_it_was(
    tmp_path: Path, fresh: str, stops: Sequence[int]
) -> None:
    """The second run of a batch places each row as its first run did, by a plan that splits the hot key. All batches
    together have each message once. The topic has some twice, of the batches that ran twice, and lacks none: Spark's
    sink promises no more."""
    with broker(tmp_path / "broker") as kafka:
        before = {batch: killed_in(batch, life(tmp_path, kafka, fresh, stops), tmp_path) for batch in stops}
        told = to_the_end(life(tmp_path, kafka, fresh, stops), tmp_path)

    for batch, rows in before.items():
        assert rows.num_rows > 0.99 * job.MESSAGES / job.BATCHES
        assert places(written(tmp_path, batch)) == places(rows)
    assert imbalance(written(tmp_path, 2)) < 1.2
    rows = pq.read_table(tmp_path / "files")
    assert Counter(rows["number"].to_pylist()) == Counter(str(number) for number in range(job.MESSAGES))
    assert len(places(rows)) == job.MESSAGES
    assert set(rows["partition"].to_pylist()) == set(range(TOPIC_PARTITIONS))
    assert told["distinct"] == job.MESSAGES
    assert (told["out"] > job.MESSAGES) is bool(stops)


@pytest.mark.long
def test_the_example_scores_each_click_once_and_evenly(tmp_path: Path) -> None:
    """From Kafka and back to it; by hash one task has three times the mean, by a plan from the batches before none."""
    with broker(tmp_path) as kafka:
        ran = subprocess.run(
            [sys.executable, str(_ROOT / "examples" / "kafka_in_out.py"), kafka.address, "60000"],
            capture_output=True,
            text=True,
            timeout=_EACH,
            check=False,
            env={**os.environ, "PYSPARK_SUBMIT_ARGS": f"--jars {kafka.spark_jars} pyspark-shell"},
        )
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = re.findall(r"batch (\d): the fullest task has (\S+) times the mean by hash, (\S+) by unskew", ran.stdout)
    whole = found[:5]  # what rounding leaves over is a batch of a few clicks
    assert [int(number) for number, *_ in whole] == list(range(5))
    assert all(float(by_hash) > 2.5 for _, by_hash, _ in whole)
    assert all(float(by_plan) < 1.2 for _, _, by_plan in whole[2:])
    assert "60,000 of 60,000 clicks, each once" in ran.stdout
