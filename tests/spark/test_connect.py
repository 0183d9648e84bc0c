"""The library on Spark Connect: plans, both faces and operators work, and what needs a JVM is refused by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-cluster")]

ROOT = Path(__file__).resolve().parents[2]
ROWS, PARTITIONS = 20_000, 8


def test_every_verb_works_or_says_why_not(tmp_path: Path, connect: str) -> None:
    """All rows come out, evenly; the embedded service beside a Connect client makes the plan."""
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_job", connect],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith('["'))
    assert found["connect"].startswith("pyspark.sql.connect")
    for name in ("route", "repartition", "place"):
        rows, most = found[name]
        assert rows == ROWS, name
        assert most < 1.15 * ROWS / PARTITIONS, name
    assert found["dropped_exchange"] is None
    assert found["place learning"] == ROWS
    assert found["group_apply"]
    assert found["aggregate"]
    assert found["join"] == ROWS
    assert found["advise"] == "unskew"
    assert "Spark Connect has none" in found["partition_by"]
