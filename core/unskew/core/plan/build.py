"""From a planner's placement to a plan: builds the tables, decides nothing.

A planner says for each listed key which partitions get how many of its rows, and for each host its partition.
Here fragments of one key on one partition are joined, the slots of split keys are cut, and a look-up table is searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.core.arrays.types import I32, I64, U64
from unskew.core.plan.hot_keys import HotKeys, SplitSlots
from unskew.core.plan.lookup import find_lookup
from unskew.core.plan.plan import Plan, PlanInfo
from unskew.core.plan.slots import KeySlots, slots_for

__all__ = ["Placement", "build_plan"]


@dataclass(frozen=True, eq=False)
class Placement:
    """Where hosts go, and the fragments (key index, partition, rows) of the listed keys."""

    tail: I32
    hashes: U64
    key: I64
    partition: I32
    rows: I64
    reasons: tuple[str, ...]
    reason: NDArray[np.uint8]

    @classmethod
    def whole(
        cls,
        tail: I32,
        hashes: U64,
        partition: I32,
        rows: I64,
        reasons: tuple[str, ...],
        reason: NDArray[np.uint8] | None = None,
    ) -> Placement:
        """Every listed key kept in one piece."""
        why = np.zeros(len(hashes), np.uint8) if reason is None else reason
        return cls(tail, hashes, np.arange(len(hashes)), partition, rows, reasons, why)

    @classmethod
    def tail_only(cls, tail: I32) -> Placement:
        nothing = np.zeros(0, np.int64)
        return cls.whole(tail, nothing.view(np.uint64), nothing.astype(np.int32), nothing, ())


def build_plan(placement: Placement, partitions: int, info: PlanInfo, key_types: tuple[str, ...] = ()) -> Plan:
    """The plan with exactly this placement."""
    if len(placement.hashes) == 0:
        return Plan(partitions, placement.tail, HotKeys.none(), key_types, info)
    return Plan(partitions, placement.tail, _hot_keys(_joined(placement)), key_types, info)


def _joined(placement: Placement) -> Placement:
    """Fragments sorted by key hash then partition, those of one key on one partition added up."""
    some = placement.rows > 0
    rank = np.argsort(np.argsort(placement.hashes, kind="stable"), kind="stable")
    key, partition, rows = rank[placement.key[some]], placement.partition[some], placement.rows[some]
    order = np.lexsort((partition, key))
    key, partition, rows = key[order], partition[order], rows[order]
    starts = np.flatnonzero((np.diff(key, prepend=-1) != 0) | (np.diff(partition, prepend=-1) != 0))
    by_hash = np.argsort(placement.hashes, kind="stable")
    return Placement(
        placement.tail,
        placement.hashes[by_hash],
        key[starts],
        partition[starts],
        np.add.reduceat(rows, starts) if len(starts) else rows,
        placement.reasons,
        placement.reason[by_hash],
    )


def _hot_keys(joined: Placement) -> HotKeys:
    pieces = np.bincount(joined.key, minlength=len(joined.hashes))
    first = np.cumsum(pieces) - pieces
    home = joined.partition[first].copy()
    split = np.flatnonzero(pieces > 1)
    home[split] = -1 - np.arange(len(split))
    slots = [
        slots_for(joined.partition[a:b].tolist(), joined.rows[a:b].tolist())
        for a, b in zip(first[split].tolist(), (first[split] + pieces[split]).tolist(), strict=True)
    ]
    used, reason = np.unique(joined.reason, return_inverse=True)
    return HotKeys(
        joined.hashes,
        home,
        np.add.reduceat(joined.rows, first),
        reason.astype(np.uint8),
        tuple(joined.reasons[i] for i in used.tolist()),
        _packed(slots),
        find_lookup(joined.hashes),
    )


def _packed(slots: Sequence[KeySlots]) -> SplitSlots:
    return SplitSlots(
        np.array([key_slots.bits for key_slots in slots], np.uint8),
        np.array([partition for key_slots in slots for partition in key_slots.first], np.int32),
        np.array([partition for key_slots in slots for partition in key_slots.second], np.int32),
        np.array([cut for key_slots in slots for cut in key_slots.cut], np.uint64),
    )
