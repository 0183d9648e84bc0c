"""Exact results whatever fails: a cluster of separate executors loses executors, map outputs and tasks half-way.

The jobs run in a process of their own (``failures.jobs``), because a process has one Spark. Every row of the input must
come out once, in the partition that the pinned plan says, though the service has another plan by then. The variant that
is not pinned loses rows under the same harm (``long``): so these tests can fail.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.spark.failures import cluster

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-cluster")]

HARMS = ("killed-in-map", "killed-in-shuffle", "outputs-deleted", "tasks-fail")
IN_FLIGHT_HARMS = (
    "killed-in-map",
    "killed-between",
    "killed-in-reduce",
    "deleted-between",
    "deleted-in-reduce",
    "tasks-fail",
    "cancelled",
)
IN_FLIGHT_FACES = ("in-flight-cut", "in-flight-whole", "in-flight-groups", "in-flight-states")
_ROOT = Path(__file__).resolve().parents[2]
_EACH = 60.0  # seconds for a run, and for the cluster to come up


def outcomes(folder: Path, runs: Sequence[str]) -> list[dict[str, Any]]:
    """What these runs gave; nothing of the cluster is left afterwards."""
    log = folder / "log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.failures.jobs", str(folder), *runs],
            cwd=_ROOT,
            stdout=subprocess.PIPE,
            stderr=sink,
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(timeout=_EACH * (len(runs) + 2))
        finally:
            _end(process.pid, folder)
            process.communicate()
    last = log.read_text(errors="replace")[-4000:]
    assert process.returncode == 0, last
    found = [json.loads(line) for line in printed.decode().splitlines() if line.startswith("{")]
    assert [f"{one['face']}/{one['harm']}" for one in found] == list(runs), last
    return found


def _end(group: int, folder: Path) -> None:
    for pid in cluster.executors(folder):
        with suppress(ProcessLookupError):
            cluster.kill(pid)
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def check(one: dict[str, Any]) -> None:
    """Every row once, where the plan says; and the harm was really done."""
    assert (one["rows"], one["lost"], one["doubled"], one["misplaced"]) == (24_000, 0, 0, 0), one
    assert one["newer_plan"], one
    assert one["killed"] == (1 if one["harm"].startswith("killed") else 0), one
    if one["harm"] in ("killed-in-shuffle", "outputs-deleted"):
        assert one["stages_again"] > 0, one
    else:
        assert one["tasks_again"] > 0, one


def check_in_flight(one: dict[str, Any]) -> None:
    """Every row once, each key in one task unless keys are cut, files let go; and the harm was really done."""
    assert (one["rows"], one["lost"], one["doubled"]) == (24_000, 0, 0), one
    assert one["cut"] is (one["face"] in ("in-flight-cut", "in-flight-states")), one
    assert one["face"] == "in-flight-cut" or one["apart"] == 0, one
    assert one["freed"], one
    assert one["running"] == 0, one
    harm = one["harm"]
    assert one["killed"] == (1 if harm.startswith(("killed", "taken")) else 0), one
    assert ("cancel" in one["error"].lower()) is (harm == "cancelled"), one
    assert one["maps_again"] > 0, one
    if harm in ("tasks-fail", "speculation"):
        assert one["reduces_again"] > 0, one
    if harm.endswith(("between", "in-reduce")):  # a task whose fetch fails may not have come to the gate before
        assert one["reduces_again"] + one["stages_again"] > 0, one


def test_no_row_is_lost(tmp_path: Path) -> None:
    """A small dose: map outputs vanish, and the plan has changed when Python tasks route their rows again; rows placed
    in flight lose an executor while its map outputs are read."""
    planned, in_flight = outcomes(tmp_path, ["executor/outputs-deleted", "in-flight-cut/killed-in-reduce"])
    check(planned)
    check_in_flight(in_flight)


@pytest.mark.long
def test_no_row_is_lost_in_twenty_runs(tmp_path: Path) -> None:
    """The full dose: every harm, both faces, three times."""
    runs = [f"{face}/{harm}" for _ in range(3) for harm in HARMS for face in ("native", "executor")]
    assert len(runs) >= 20
    for one in outcomes(tmp_path, runs):
        check(one)


@pytest.mark.long
@pytest.mark.parametrize("harm", IN_FLIGHT_HARMS)
def test_no_row_that_is_placed_in_flight_is_lost_in_twenty_runs(tmp_path: Path, harm: str) -> None:
    """The full dose for each harm: in the map stage, between the stages, in mid reduce; of each face."""
    for one in outcomes(tmp_path, [f"{IN_FLIGHT_FACES[at % 4]}/{harm}" for at in range(20)]):
        check_in_flight(one)


@pytest.mark.long
def test_executors_that_spark_takes_away_lose_no_row_that_is_placed_in_flight(tmp_path: Path) -> None:
    """Dynamic allocation ends an executor between the stages, which had map outputs: they are written again. (Not of
    states: what had been made of the map outputs may be on the executor that stays.)"""
    for one in outcomes(tmp_path, [f"{IN_FLIGHT_FACES[at % 3]}/taken-away" for at in range(20)]):
        check_in_flight(one)


@pytest.mark.long
def test_speculative_twins_change_nothing(tmp_path: Path) -> None:
    """Slow tasks get twins, in the map stage and after it; each row comes out once."""
    for one in outcomes(tmp_path, ["native/speculation", "executor/speculation"] * 2):
        check(one)


@pytest.mark.long
def test_speculative_twins_change_nothing_of_rows_placed_in_flight(tmp_path: Path) -> None:
    """Both stages have twins; of each task one counts."""
    for one in outcomes(tmp_path, ["in-flight-cut/speculation", "in-flight-whole/speculation"] * 10):
        check_in_flight(one)


@pytest.mark.long
def test_an_unpinned_job_loses_rows_whenever_an_executor_dies_in_mid_shuffle(tmp_path: Path) -> None:
    """The proof that the harm is real, each time. (Where all map outputs vanish before any task has read them all, the
    whole stage runs again by the newer plan, and by luck nothing is lost.)"""
    for one in outcomes(tmp_path, ["unpinned/killed-in-shuffle"] * 4):
        assert one["lost"] > 0, one
        assert one["doubled"] > 0, one
