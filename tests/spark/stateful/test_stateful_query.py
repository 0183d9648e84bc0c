"""A real streaming query with keyed state: a task that fails, its driver killed at every step (``long``), and the same
on Spark Connect.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.spark.stateful.query_job import FAILS, STEPS
from unskew.spark.stateful.manifest_log import Log, state_folder

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-cluster")]

ROOT = Path(__file__).resolve().parents[3]
Rows = list[tuple[str, int]]


def drawn(folder: Path, batches: int, seed: int) -> list[Rows]:
    """A file a batch, skewed; the last row of each has a key of its own."""
    rng = np.random.default_rng(seed)
    (folder / "in").mkdir(parents=True)
    (folder / "seen").mkdir()
    found = []
    for batch in range(batches):
        rows = [(f"user-{int(rng.zipf(1.5)) % 90}", int(rng.integers(0, 25))) for _ in range(200)]
        rows.append((f"last of {batch}", 1))
        lines = [json.dumps({"user": user, "v": value}) for user, value in rows]
        file = folder / "in" / f"{batch:03d}.json"
        file.write_text("\n".join(lines))
        os.utime(file, (1_700_000_000 + batch, 1_700_000_000 + batch))  # Spark takes them by age
        found.append(rows)
    return found


def run(folder: Path, *words: object) -> int:
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.stateful.query_job", str(folder), *map(str, words)],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr[-4000:]
    return done.returncode


def check(folder: Path, batches: list[Rows]) -> None:
    """Every batch's output, the number of states, and no file that nothing lists."""
    states: dict[str, int] = {}
    for batch, rows in enumerate(batches):
        for user, new in Counter(user for user, _ in rows).items():
            states[user] = states.get(user, 0) + new
        expected = sorted([user, states[user]] for user in {user for user, _ in rows})
        assert json.loads((folder / "seen" / f"{batch}.json").read_text()) == expected, batch
        for user in {user for user, value in rows if value == 0}:
            del states[user]
    log = Log(state_folder(str(folder / "checkpoint"), "q"))
    kept = [log.read(batch) for batch in log.committed()]
    assert [one.batch for one in kept] == [len(batches) - 2, len(batches) - 1]
    assert kept[-1].keys == len(states)
    listed = {name for one in kept for name in (*one.files, *one.outputs)}
    assert {*log.folder.names("data"), *log.folder.names("output")} == listed


@pytest.mark.long
def test_a_task_that_fails_runs_again(tmp_path: Path) -> None:
    """Some tasks have put their files and some have not. (What a driver leaves behind that dies is tried in one
    process, in ``test_stateful_batches``.)"""
    batches = drawn(tmp_path, 2, seed=3)
    assert run(tmp_path, FAILS, 1) == 0
    assert (tmp_path / "failed").exists()
    check(tmp_path, batches)


@pytest.mark.long
def test_killed_in_a_task_and_a_task_that_fails(tmp_path: Path) -> None:
    """The same after a first life that died with some files put."""
    batches = drawn(tmp_path, 3, seed=3)
    assert run(tmp_path, "in a task", 1) == -signal.SIGKILL
    assert run(tmp_path, FAILS, 2) == 0
    assert (tmp_path / "failed").exists()
    check(tmp_path, batches)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_every_step(tmp_path: Path, step: str, seed: int) -> None:
    """Twenty runs, each killed in two batches."""
    batches = drawn(tmp_path, 5, seed)
    assert run(tmp_path, step, seed % 2) == -signal.SIGKILL
    assert run(tmp_path, step, 2 + seed % 2) == -signal.SIGKILL
    assert run(tmp_path) == 0
    check(tmp_path, batches)


@pytest.mark.long
def test_on_spark_connect(tmp_path: Path, connect: str) -> None:
    """The handler is pickled and runs in another process, with a session of its own."""
    batches = drawn(tmp_path, 2, seed=5)
    assert run(tmp_path, connect) == 0
    check(tmp_path, batches)
