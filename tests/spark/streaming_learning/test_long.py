"""The full dose: Spark applications that learn together for 30 batches; drivers that are killed while tasks learn."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from benchmarks.convergence import MARK, ROWS, TASKS, App, figures, run
from tests.spark.streaming.job import NAME, STREAM, Orders
from tests.spark.streaming.lives import ROWS as ROWS_HERE
from tests.spark.streaming.lives import _differ, _placed, _written, prepare
from unskew.client import NotThereError, testing
from unskew.spark.streaming.pin_log import pin_folder
from unskew.wire import pinned_from_bytes

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.xdist_group("spark-cluster")]

STEPS = ("after-pin", "in-batch", "before-commit", "before-pin")


def test_two_spark_applications_converge_to_one_table(tmp_path: Path) -> None:
    """Hot keys of their own, 30 batches. Beside one application that has all rows."""
    with testing.embedded() as service:
        one = [App("one", (0, 1), rows=2 * ROWS, tasks=2 * TASKS, stream="one")]
        two = [App(name, (own,), stream="two") for own, name in enumerate("ab")]
        alone = figures(run(one, service.target, tmp_path))
        both = figures(run(two, service.target, tmp_path))
    assert both.replication <= MARK * alone.replication
    assert both.locally == 0
    assert both.whole >= 0.9
    assert both.apart <= 1


def life(folder: Path, orders: Orders) -> None:
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.streaming_learning.job", str(folder), json.dumps(asdict(orders))],
            cwd=Path(__file__).resolve().parents[3],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            code = process.wait(240)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert code == (-signal.SIGKILL if orders.kill else 0), (orders, (folder / "log").read_text()[-3000:])


def test_a_batch_of_a_driver_that_was_killed_goes_by_the_same_table(tmp_path: Path) -> None:
    """At every step of a batch, the service wiped in between: rows are where the first run had them, and a careful
    sink has each once."""
    kills = [(step, 2 + 2 * at) for at, step in enumerate(STEPS)]
    batches = 2 * len(kills) + 3
    prepare(tmp_path, batches)
    with testing.embedded() as service, service.client() as client:
        for number, (kill, batch) in enumerate([*kills, ("", -1)]):
            with suppress(NotThereError):
                client.delete_stream(STREAM)
            life(tmp_path, Orders(life=number, kill=kill, batch=batch, service=service.target))
    again = 0
    for batch in range(batches):
        ids = np.concatenate([found for _, found in _written(tmp_path / "out" / str(batch))])
        assert np.array_equal(np.sort(ids), np.arange(batch * ROWS_HERE, (batch + 1) * ROWS_HERE))
        runs = [_placed(one, batch) for one in sorted((tmp_path / "tries" / str(batch)).iterdir())]
        assert _differ(runs) == 0
        again += len(runs) > 1
    assert again >= 2
    where = pin_folder(str(tmp_path / "cp"), NAME)
    versions = {pinned_from_bytes(where.read(name) or b"").bound.version for name in where.names()}
    assert len({incarnation for incarnation, _ in versions}) >= 3
