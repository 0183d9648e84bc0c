"""What the keys of a join cost, and the plan that makes the costs even.

A key with l rows on one side and r on the other costs about ``l + r + work * out``: its rows are shuffled and sorted,
and it yields ``out`` rows, l r in an inner join. The plan is made for costs instead of rows: a histogram whose counts
are costs goes to the ``balanced`` policy. Its figures (``info.loads``, rows of a hot key) are costs too.

Splitting a key copies its r rows to each of its fragments. Copies are bounded by a share of all costs: beyond it the
keys that are copied most stay whole, until the bound is kept. Few are ever made: ``balanced`` has at most n - 1
fragments more than keys.

Of what is neither listed on one side nor on the other, only rows and distinct keys by host are known. Their output is
taken to be ``l r / max(keys)`` a host, as optimisers do: even keys, and those of one side all on the other one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from unskew.core.arrays.ranking import descending
from unskew.core.arrays.types import F64, I64, U64, Index
from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram, Tail
from unskew.core.plan.plan import Plan
from unskew.core.planners import Origin, make_planner
from unskew.core.planners.planner_view import SPREAD_PER_FRAGMENT

__all__ = [
    "HOWS", "LEFT", "RIGHT", "Bounds", "JoinPlan", "JoinRows", "cost_histogram", "join_plan", "rows_out", "side_of",
]  # fmt: skip


LEFT, RIGHT = "left", "right"
# By Spark's names: which sides may be split. The other side is copied, and each copy of a row without a partner would
# be in the result: so a side that keeps such rows is never copied.
HOWS = {
    "inner": (LEFT, RIGHT),
    "left": (LEFT,),
    "right": (RIGHT,),
    "full": (),
    "left_semi": (LEFT,),
    "left_anti": (LEFT,),
}

_SCALE = 2.0**52  # costs in all: products of two counts may pass 2^63, and a planner adds counts up exactly
_HEAVY = 0.125  # of a mean load, from which the balanced policy splits keys
_TRIES = 8


@dataclass(frozen=True)
class Bounds:
    """``work``: what an output row costs beside an input row. ``replication``: copies, as a share of all costs."""

    work: float = 1.0
    replication: float = 0.25

    def __post_init__(self) -> None:
        if not 0.0 <= self.work < float("inf"):
            raise ConfigError("work", self.work, "0 or more: the cost of an output row, in input rows")
        if not 0.0 <= self.replication < float("inf"):
            raise ConfigError("replication", self.replication, "0 or more: rows copied, as a share of all work")


@dataclass(frozen=True, eq=False)
class JoinRows:
    """Rows of both sides, counted for the same keys; and spread values of these keys on each side."""

    how: str
    left: Histogram
    right: Histogram
    hashes: U64
    spread: dict[str, I64]

    def rows(self, side: str) -> F64:
        histogram = self.left if side == LEFT else self.right
        return histogram.count(self.hashes).astype(np.float64)


@dataclass(frozen=True, eq=False)
class JoinPlan:
    """A plan, the side whose rows of split keys it spreads, and what is expected of it, in rows."""

    plan: Plan
    how: str
    side: str
    left: int
    right: int
    output: int
    replicated: int
    whole: int  # keys with more than a partition's work that stay whole for want of distinct spread values
    reason: str

    def __str__(self) -> str:
        split = len(self.plan.hot.slots.bits)
        loads = np.array(self.plan.info.loads or (0,), np.float64)
        worst = loads.max() / loads.mean() if loads.any() else 1.0
        return (
            f"{self.how} join of {self.left:,} with {self.right:,} rows into about {self.output:,}: {self.reason}\n"
            f"  {split} keys split on the {self.side} side, {self.replicated:,} rows of the other copied for them\n"
            f"  heaviest of {self.plan.partitions} partitions {worst:.2f} times the mean of rows in and out"
        )


def side_of(rows: JoinRows, work: float, partitions: int) -> str:
    """The side to split: the only one allowed, else the one with more rows in the heavy keys that it can split."""
    sides = HOWS[rows.how]
    if len(sides) < len((LEFT, RIGHT)):
        return sides[0] if sides else LEFT
    cost = _costs(rows, work)
    heavy = cost >= _HEAVY * (cost.sum() + _tail(rows, work)[0].sum()) / partitions
    splittable = {side: float(rows.rows(side)[heavy & (rows.spread[side] > 1)].sum()) for side in sides}
    return LEFT if splittable[LEFT] >= splittable[RIGHT] else RIGHT


def join_plan(
    rows: JoinRows,
    side: str,
    partitions: int,
    bounds: Bounds,
    *,
    weights: Sequence[float] = (),
    seed: int = 7,
    origin: Origin | None = None,
) -> JoinPlan:
    """The plan for this join, split on ``side`` where its type allows that."""
    cost, (tail, tail_keys) = _costs(rows, bounds.work), _tail(rows, bounds.work)
    everything = float(cost.sum() + tail.sum())
    scale = min(1.0, _SCALE / max(everything, 1.0))
    whole = not HOWS[rows.how]
    policy = "kip" if whole else "balanced" if everything else "hash"
    planner = make_planner(policy, partitions, seed, list(weights) or None)
    copies = rows.rows(RIGHT if side == LEFT else LEFT)
    spread = rows.spread[side].copy()
    costs = partial(_histogram, rows.hashes, cost * scale, tail * scale, tail_keys)
    plan = planner.plan(costs(None if whole else spread), origin=origin)
    for attempt in range(_TRIES):
        extra = _copied(plan, rows.hashes, copies)
        if extra.sum() <= bounds.replication * everything:
            break
        spread[_dearest(extra, 0.0 if attempt == _TRIES - 1 else bounds.replication * everything)] = 0
        plan = planner.plan(costs(spread), origin=origin)
    stuck = 0 if whole else _stuck(cost, rows, side, everything / partitions, partitions)
    return JoinPlan(
        plan, rows.how, side, rows.left.total, rows.right.total, int(_output_of_all(rows)),
        int(_copied(plan, rows.hashes, copies).sum()), stuck, _reason(rows, plan, stuck),
    )  # fmt: skip


def cost_histogram(rows: JoinRows, work: float) -> Histogram:
    """What each key costs, and each host's other keys: in rows in and out, scaled down where a plan could not count."""
    cost, (tail, tail_keys) = _costs(rows, work), _tail(rows, work)
    scale = min(1.0, _SCALE / max(float(cost.sum() + tail.sum()), 1.0))
    return _histogram(rows.hashes, cost * scale, tail * scale, tail_keys, None)


def _histogram(hashes: U64, cost: F64, tail: F64, tail_keys: I64, spread: I64 | None) -> Histogram:
    """Costs as a planner takes them."""
    some, rows = cost > 0, np.rint(tail).astype(np.int64)
    counts = np.maximum(np.rint(cost[some]), 1).astype(np.int64)
    spread = None if spread is None else spread[some]
    return Histogram(hashes[some], counts, Tail(rows, np.minimum(tail_keys, rows)), spread)


def _costs(rows: JoinRows, work: float) -> F64:
    left, right = rows.rows(LEFT), rows.rows(RIGHT)
    return left + right + work * rows_out(rows.how, left, right, left * right)


def _tail(rows: JoinRows, work: float) -> tuple[F64, I64]:
    """By host: costs and distinct keys of what is not listed."""
    left, right = rows.left.tail, rows.right.tail
    if left is None or right is None:
        raise RuntimeError("both sides of a join are counted with a tail")
    left_rows, right_rows = left.rows.astype(np.float64), right.rows.astype(np.float64)
    keys = np.maximum(left.keys, right.keys)
    pairs = left_rows * right_rows / np.maximum(keys, 1)
    return left_rows + right_rows + work * rows_out(rows.how, left_rows, right_rows, pairs), keys


def rows_out(how: str, left: F64, right: F64, pairs: F64) -> F64:
    """Rows that come out, of keys (or hosts) with so many rows and pairs of rows."""
    alone_left, alone_right = np.where(right == 0, left, 0.0), np.where(left == 0, right, 0.0)
    return {
        "inner": pairs,
        "left": pairs + alone_left,
        "right": pairs + alone_right,
        "full": pairs + alone_left + alone_right,
        "left_semi": left - alone_left,
        "left_anti": alone_left,
    }[how]


def _output_of_all(rows: JoinRows) -> float:
    """Without the rows that go in."""
    return float((_costs(rows, 1.0) - _costs(rows, 0.0)).sum() + (_tail(rows, 1.0)[0] - _tail(rows, 0.0)[0]).sum())


def _copied(plan: Plan, hashes: U64, copies: F64) -> F64:
    """For each of these keys the rows that its fragments add on the replicated side."""
    extra = np.zeros(len(hashes))
    copied = np.array([len(places) - 1 for places in plan.hot.slots.places], np.float64)
    at = np.searchsorted(hashes, plan.hot.split_hashes)
    extra[at] = copies[at] * copied
    return extra


def _stuck(cost: F64, rows: JoinRows, side: str, mean: float, partitions: int) -> int:
    """Keys that need splitting, have the rows for it, and too few spread values (``core.planners.planner_view``)."""
    needed = SPREAD_PER_FRAGMENT * np.minimum(np.ceil(cost / max(mean, 1.0)) + 2, partitions)
    return int(np.count_nonzero((cost > mean) & (rows.rows(side) >= needed) & (rows.spread[side] < needed)))


def _dearest(extra: F64, bound: float) -> Index:
    """The keys that must not be split for the others' copies to be within the bound: the most copied ones."""
    order = descending(extra)
    over = extra.sum() - np.cumsum(extra[order]) > bound
    return order[: int(np.count_nonzero(over)) + 1] if bound else order


def _reason(rows: JoinRows, plan: Plan, stuck: int) -> str:
    if not HOWS[rows.how]:
        return "keys stay whole, as both sides keep rows without partner"
    if stuck:
        return f"{stuck} heavy keys stay whole, their rows have too few distinct spread values"
    return plan.info.reason or "as planned"
