"""``for_each_batch`` under Spark Connect, where handlers run in a process of their own: pinned and exact there, too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.spark.streaming.connect_job import FAILS
from tests.spark.streaming.job import STREAM
from tests.spark.streaming.lives import prepare
from tests.spark.streaming.queries import Notes, firsts, pin_at
from unskew.client import testing

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-cluster")]

ROOT = Path(__file__).resolve().parents[3]
BATCHES = 3


def told(folder: Path, connect: str, service: str, runs: tuple[str, ...]) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.streaming.connect_job", str(folder), connect, service, *runs],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith('["'))


def noted(folder: Path) -> Notes:
    """What the handlers kept, as if they had run here."""
    notes = Notes()
    for batch in range(BATCHES):
        notes.runs[batch] = [np.load(one) for one in sorted((folder / "runs").glob(f"{batch}-*.npy"))]
    return notes


@pytest.mark.long
@pytest.mark.parametrize("runs", [("service",), pytest.param(("alone", "service"), marks=pytest.mark.long)])
def test_batches_are_pinned_where_handlers_are_pickled(tmp_path: Path, connect: str, runs: tuple[str, ...]) -> None:
    """With a service by address and without one: a batch that failed runs again by its plan, later ones by newer
    plans. A handler that cannot be pickled and the embedded service are refused at once. There is no plan to look at
    between two stages, so batches that are to go in flight are counted."""
    prepare(tmp_path, BATCHES)
    for name in runs:
        (tmp_path / name).mkdir()
    with testing.embedded() as service, service.client() as client:
        found = told(tmp_path, connect, service.target, runs)
        assert [one.name for one in client.list_streams()] == [STREAM]
    assert found["type"].startswith("pyspark.sql.connect")
    assert "handle: " in found["unpicklable"]
    assert "a function that can be pickled" in found["unpicklable"]
    assert "the embedded service is classic Spark's" in found["embedded"]
    for name in runs:
        assert "the handler fails" in found[name]
        notes, checkpoint = noted(tmp_path / name), tmp_path / name / "cp"
        assert [len(notes.runs[batch]) for batch in range(BATCHES)] == [1, 2, 1]
        assert all((run >= 0).all() for runs in notes.runs.values() for run in runs)
        assert (notes.moved(), notes.strayed(checkpoint)) == (0, 0)
        assert FAILS in firsts(checkpoint)
        last = pin_at(checkpoint, firsts(checkpoint)[-1]).bound.plan
        assert last is not None
        assert last.info.rows > 0  # batches were observed in the handler's process
    assert "counted before it was placed" in pin_at(tmp_path / "service" / "cp", BATCHES - 1).reason
