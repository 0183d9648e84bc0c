"""Which way the next batch should go, by what each would have cost the batches so far: the machine that drivers and
``whatif`` run, ``core.freshness.ways``. What it has learned is kept beside the latest plan.

A finished batch is scored once, whichever replica and whichever job asks, by the number under which it was reported.
Where nothing is known of earlier ones the batches are gone through that plans are made from. Costs are in even shares,
and counting is taken to cost a tenth of one: a service does not see what it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from unskew.core.freshness.stream_planner import StreamPlanner
from unskew.core.freshness.way_scores import WayChoice
from unskew.core.freshness.ways import Ways, WaysState
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Plan
from unskew.core.quality.cost_fit import TaskTimes
from unskew.wire.plans import plan_from_bytes, plan_to_bytes
from unskew.wire.ways import StoredWays

__all__ = ["Batch", "WayAdvice", "advise"]

Batch = tuple[int, Histogram]
_AT_ONCE = 8  # batches that are gone through at most
_REMEMBERED = 64  # numbers of batches: of several jobs on one stream each goes on from its own


@dataclass(frozen=True, eq=False)
class WayAdvice:
    """What is advised, and what it was learned from; ``previous``: the plan of that way for the next batch."""

    choice: WayChoice | None = None
    stored: StoredWays | None = None
    previous: Plan | None = None


def advise(
    planner: StreamPlanner,
    batches: Sequence[Batch],
    before: WayAdvice,
    plan: Plan,
    times: Sequence[TaskTimes] = (),
) -> WayAdvice:
    """With those of the finished ``batches`` that are not scored yet. ``plan``: the one for the next batch; ``times``:
    of tasks, by which plans are made. Pure."""
    batches = [(number, histogram) for number, histogram in batches if histogram.total]
    if planner.spec.policy == "hash" or not (batches or before.choice):
        return WayAdvice(Ways(planner).next)
    if not batches:
        return before
    state, numbers = _learned(before, planner.spec.key_types)
    new = next((at for at in range(len(batches), 0, -1) if batches[at - 1][0] in numbers), 0)
    if new == len(batches) and before.stored is not None:
        return replace(before, stored=replace(before.stored, previous=plan.version))
    new = max(new, len(batches) - _AT_ONCE)
    machine = _machine(planner, replace(state, times=times), batches[:new])
    for number, histogram in batches[new:]:
        machine.score(histogram, number)
        machine.plan_ahead(number, plan if number == batches[-1][0] else None)
    learned = machine.state
    assert learned.counted is not None  # a batch was scored
    numbers = (*numbers, *(number for number, _ in batches[new:]))[-_REMEMBERED:]
    return WayAdvice(machine.next, StoredWays(learned.scores, numbers, plan.version, plan_to_bytes(learned.counted)))


def _learned(before: WayAdvice, key_types: tuple[str, ...]) -> tuple[WaysState, tuple[int, ...]]:
    """What was learned of keys of these types, and from which batches."""
    counted = None if before.stored is None else plan_from_bytes(before.stored.counted)
    if before.stored is None or counted is None or counted.key_types != key_types:
        return WaysState(), ()
    return WaysState(before.stored.scores, before.previous, counted), before.stored.numbers


def _machine(planner: StreamPlanner, state: WaysState, batches: Sequence[Batch]) -> Ways:
    """As it was after these batches."""
    record = planner.record
    for _, histogram in batches:
        record = record.add(histogram)
    machine = Ways(planner, state=replace(state, record=record))
    if batches and "previous" not in machine.plans:  # it was made for another number of partitions
        machine.plan_ahead(batches[-1][0])
    return machine
