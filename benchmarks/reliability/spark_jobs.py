"""Figures 1 and 2: Spark loses executors, map outputs, tasks, drivers and the service; are all rows there, once?

The harm is done by tests/spark/failures and tests/spark/streaming to a real cluster of separate executors, and to
drivers and services that are processes of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.reliability.taken import Dose, Taken
from tests import jvm
from tests.spark.streaming.job import Orders
from tests.spark.streaming.lives import VARIED, Verdict
from tests.spark.streaming.test_exactness import STEPS, died
from tests.spark.test_failures import HARMS, IN_FLIGHT_HARMS, outcomes

__all__ = ["rows_lost", "service_killed"]

ROOT = Path(__file__).resolve().parents[2]
FACES = ("native", "executor")
FLIGHTS = ("in-flight-cut", "in-flight-whole", "in-flight-groups", "in-flight-states")


def clusters(dose: Dose) -> list[list[str]]:
    """Runs by cluster: twins of slow tasks need one with two hosts. In small each harm once, the faces in turns."""
    turns = dose.of(1, 5)
    planned = [f"{face}/{harm}" for _ in range(turns) for harm in HARMS for face in FACES]
    harms = list(enumerate(IN_FLIGHT_HARMS))
    flights = [f"{FLIGHTS[(at + number) % 4]}/{harm}" for at in range(turns) for number, harm in harms]
    twins = ["native/speculation", "in-flight-cut/speculation", "executor/speculation", "in-flight-whole/speculation"]
    if dose.quick:
        return [[planned[at] for at in (0, 3, 4, 7)], flights[::2], twins[:2]]
    return [planned, flights, twins * turns]


def rows_lost(dose: Dose) -> Taken:
    jvm.use()
    found: list[dict[str, Any]] = []
    for number, runs in enumerate(clusters(dose)):
        folder = dose.folder / f"cluster-{number}"
        folder.mkdir()
        found += outcomes(folder, runs)
    steps = STEPS * dose.of(1, 6)
    died_of = died(dose.folder / "drivers", steps, Orders(), VARIED)
    return judged(found, died_of, len(steps))


def judged(found: list[dict[str, Any]], drivers: Verdict, deaths: int) -> Taken:
    wrong = Counter({name: sum(one.get(name, 0) for one in found) for name in ("lost", "doubled", "misplaced")})
    wrong.update(lost=drivers.lost, doubled=drivers.doubled, misplaced=drivers.moved + drivers.strayed)
    exact = sum(not (one["lost"] or one["doubled"] or one.get("misplaced", 0)) for one in found)
    killed, again = sum(one["killed"] for one in found), drivers.again
    said = (
        f"{wrong['lost']} lost, {wrong['doubled']} doubled, {wrong['misplaced']} elsewhere; {exact} of {len(found)} "
        f"jobs ({killed} executors killed) and a query whose driver was killed {deaths} times ({again} batches ran "
        f"again)"
    )
    values = {**wrong, "jobs": len(found), "deaths": deaths, "harms": Counter(one["harm"] for one in found)}
    return Taken(said, not wrong.total(), values)


def service_killed(dose: Dose) -> Taken:
    """In a process of its own, since a process has one Spark."""
    jvm.use()
    lives = dose.of(1, 10)
    line = [sys.executable, "-m", "benchmarks.reliability.killed_service", str(dose.folder), str(lives)]
    printed = subprocess.run(line, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = json.loads(printed.splitlines()[-1])
    said = (
        f"{found['failed']} of {found['batches']} batches; {found['wrong']} rows lost or doubled, {found['strayed']} "
        f"elsewhere; the service was killed {found['killed']} times and was away for {found['away']} batches"
    )
    return Taken(said, not (found["failed"] or found["wrong"] or found["strayed"]), found)
