"""Which tables are refused as a plan: those that could route a row nowhere, take far more memory than needed, or state
figures that cannot be true. Plans are read from checkpoints and stores and may be written by others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unskew.core.arrays.ranking import ascending
from unskew.core.errors import KeyTypeError, PlanError
from unskew.core.keys.types import parse
from unskew.core.limits import MAX_PARTITIONS, MAX_SLOTS, host_bits
from unskew.core.plan.hot_keys import SPLIT, HotKeys, SplitSlots
from unskew.core.plan.slots import UNITS_BITS

if TYPE_CHECKING:
    from unskew.core.plan.plan import Plan

__all__ = ["check_plan"]


def check_plan(plan: Plan) -> None:
    """Raise a ``PlanError`` that names what is wrong."""
    if not 1 <= plan.partitions <= MAX_PARTITIONS:
        raise PlanError(f"partitions: {plan.partitions!r} is not allowed; use 1 to {MAX_PARTITIONS}")
    hosts, most = len(plan.tail), 1 << host_bits(MAX_PARTITIONS)
    if not 2 <= hosts <= most or hosts & (hosts - 1):
        raise PlanError(f"the tail has {hosts} hosts; a power of two is needed, 2 to {most}")
    _check_hot(plan.hot)
    _check_slots(plan.hot.slots, plan.hot)
    _check_routes(plan)
    _check_lookup(plan.hot)
    _check_info(plan)


def _check_hot(hot: HotKeys) -> None:
    if not len(hot.hashes) == len(hot.home) == len(hot.rows) == len(hot.reason):
        raise PlanError("hot keys: hashes, homes, rows and reasons differ in length")
    if not ascending(hot.hashes):
        raise PlanError("hot keys must be sorted by hash and distinct")
    if len(hot) and int(hot.reason.max()) >= len(hot.reasons):
        raise PlanError("hot keys: a reason is not in the table of reasons")
    if len(hot) and int(hot.rows.min()) < 0:
        raise PlanError("hot keys: negative rows")


def _check_slots(slots: SplitSlots, hot: HotKeys) -> None:
    if (slots.bits > 16).any() or not len(slots.first) == len(slots.second) == len(slots.cut) == slots.offset[-1]:
        raise PlanError("split keys: the slots do not match their bit counts")
    if not np.array_equal(np.sort(SPLIT - hot.home[hot.home < 0]), np.arange(len(slots.bits))):
        raise PlanError("split keys: each must have its own slots")
    bits = np.repeat(slots.bits.astype(np.int64), np.diff(slots.offset))
    slot = np.arange(len(bits)) - np.repeat(slots.offset[:-1], np.diff(slots.offset))
    width = np.uint64(1) << (UNITS_BITS - bits).astype(np.uint64)
    if (slots.cut - slot.astype(np.uint64) * width > width).any():
        raise PlanError("split keys: a cut lies outside its slot")


def _check_routes(plan: Plan) -> None:
    hot = plan.hot
    for places in (plan.tail, hot.home[hot.home >= 0], hot.slots.first, hot.slots.second):
        if len(places) and not (int(places.min()) >= 0 and int(places.max()) < plan.partitions):
            raise PlanError(f"a route leads outside the partitions 0..{plan.partitions - 1}")
    if plan.slots > MAX_SLOTS:
        raise PlanError(f"{plan.slots} slots; a plan holds at most {MAX_SLOTS}: list fewer hot keys")


def _check_lookup(hot: HotKeys) -> None:
    if hot.lookup.bits > max(len(hot) - 1, 0).bit_length() + 8 or len(hot.lookup.displacement) > max(len(hot), 1):
        raise PlanError(f"the look-up table is far larger than {len(hot)} hot keys need")
    if len(np.unique(hot.lookup.bucket(hot.hashes))) < len(hot):
        raise PlanError("the look-up table sends two hot keys to one bucket")


def _check_info(plan: Plan) -> None:
    """Check that key types, predicted loads and moved shares are possible."""
    info = plan.info
    try:
        for name in plan.key_types:
            parse(name)
    except KeyTypeError as why:
        raise PlanError(f"the plan's {why}") from None
    if len(info.loads) not in (0, plan.partitions):
        raise PlanError(f"{len(info.loads)} predicted loads for {plan.partitions} partitions")
    if not (0.0 <= info.moved_rows <= 1.0 and 0.0 <= info.moved_keys <= 1.0):
        raise PlanError(f"moved shares {info.moved_rows!r} and {info.moved_keys!r} are no shares, 0 to 1")
