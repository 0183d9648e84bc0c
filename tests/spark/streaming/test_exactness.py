"""A query whose driver is killed at every step of a batch: its batches run again by the plan that they began with.

In between the service is wiped and has another plan. The variant that asks the service for its newest plan loses rows
under the same harm and the same check: so these tests can fail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.spark.streaming.job import Orders
from tests.spark.streaming.lives import VARIED, Verdict, judge, lives, prepare
from unskew.client import testing

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-cluster")]

STEPS = ("before-pin", "after-pin", "in-batch", "before-commit")
FEW = ("in-batch", "before-commit")  # whoever dies before or right after the pin has done less than in the batch


def died(folder: Path, steps: tuple[str, ...], first: Orders, each: Sequence[Mapping[str, Any]] = ({},)) -> Verdict:
    """Die at each of these steps, each time a batch later."""
    kills = [(step, 1 + at) for at, step in enumerate(steps)]
    batches = len(kills) + 2
    prepare(folder, batches)
    with testing.embedded() as service, service.client() as client:
        lives(folder, client, service.target, kills, first, each)
    return judge(folder, batches)


def check(found: Verdict, steps: tuple[str, ...]) -> None:
    assert (found.lost, found.doubled, found.moved, found.strayed) == (0, 0, 0, 0), found
    assert found.again == sum(step in ("in-batch", "before-commit") for step in steps), found
    assert found.pins == len(steps) + 2, found  # the check has been of a plan for each batch


def test_batches_run_again_by_what_they_were_bound_to(tmp_path: Path) -> None:
    """A small dose: every row once in the output, and in every run of its batch where its pin says. The first life
    places in flight and dies in its second batch; the next one runs that again by its cells, and the others by plans.
    (Batches that run again by a plan, after a failure and not a death, are in ``test_batches``.)"""
    steps = ("in-batch",)
    check(died(tmp_path, steps, Orders(), ({"fresh": "inflight"}, {})), steps)


@pytest.mark.long
def test_batches_run_again_by_their_plan(tmp_path: Path) -> None:
    """The same where no life places in flight."""
    check(died(tmp_path, FEW, Orders()), FEW)


@pytest.mark.long
@pytest.mark.parametrize("steps", [("in-batch",), ("before-pin", "in-batch", "before-commit")])
def test_batches_in_flight_run_again_by_their_cells(tmp_path: Path, steps: tuple[str, ...]) -> None:
    """A row's place is a function of its content: what the batch was bound to after its map stage is all there is to
    know. Who dies before the pin has handed no row to a handler."""
    check(died(tmp_path, steps, Orders(fresh="inflight")), steps)


@pytest.mark.long
def test_counted_batches_run_again_by_their_plan(tmp_path: Path) -> None:
    """The same where a batch may be counted before it is placed: the count is pinned before any row moves."""
    found = died(tmp_path, FEW, Orders(fresh="auto"))
    assert (found.lost, found.doubled, found.moved, found.strayed, found.again) == (0, 0, 0, 0, 2), found


@pytest.mark.long
def test_batches_run_again_by_their_plan_each_time(tmp_path: Path) -> None:
    """24 deaths; the lives differ in Spark's own number of partitions, in the policy and in the session's number."""
    steps = STEPS * 6
    check(died(tmp_path, steps, Orders(), VARIED), steps)


@pytest.mark.long
def test_without_pins_rows_are_lost(tmp_path: Path) -> None:
    """The same harm to a query that goes by the service's newest plan."""
    found = died(tmp_path, ("in-batch", "in-batch"), Orders(pinned=False))
    assert found.again == 2, found
    assert min(found.lost, found.doubled, found.moved) > 0, found
