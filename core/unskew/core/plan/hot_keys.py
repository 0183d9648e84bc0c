"""The keys that a plan routes one by one: whole keys, the slots of split keys, and the look-up table.

The tables of ``plan``, and how rows of hot keys are looked up and routed in them, those of split keys included.
``plan`` applies it; which tables are refused is in ``check``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.core.arrays.frozen import by_fields, derived, freeze
from unskew.core.arrays.types import I32, I64, U64, Mask
from unskew.core.plan.lookup import Lookup, find_lookup
from unskew.core.plan.slots import UNITS_BITS, units_of

__all__ = ["SPLIT", "HotKeys", "SplitSlots", "pick"]


SPLIT = -1  # the home of the j-th split key is SPLIT - j


@dataclass(frozen=True, eq=False)
class SplitSlots:
    """The slots of all split keys, one after another; key j has ``2**bits[j]`` of them from ``offset[j]``."""

    bits: NDArray[np.uint8]
    first: I32
    second: I32
    cut: U64

    def __post_init__(self) -> None:
        freeze(self, bits=np.uint8, first=np.int32, second=np.int32, cut=np.uint64)

    __reduce__ = by_fields

    @derived
    def offset(self) -> I64:
        ends = np.cumsum(np.left_shift(np.int64(1), self.bits.astype(np.int64)))
        return np.concatenate([np.zeros(1, np.int64), ends])

    def units(self, key: int) -> dict[int, int]:
        """Shares of 2^63 per partition of the j-th split key."""
        at = slice(int(self.offset[key]), int(self.offset[key + 1]))
        return units_of(int(self.bits[key]), self.first[at].tolist(), self.second[at].tolist(), self.cut[at].tolist())

    @derived
    def places(self) -> tuple[tuple[int, ...], ...]:
        """The partitions to which a row of each key may go, ascending."""
        return tuple(tuple(self.units(key)) for key in range(len(self.bits)))

    @derived
    def fragments(self) -> int:
        """How many (key, partition) pairs all split keys have."""
        key = np.repeat(np.arange(len(self.bits)), np.diff(self.offset))
        width = np.uint64(1 << UNITS_BITS) >> self.bits.astype(np.uint64)[key]
        part = self.cut - (np.arange(len(key)) - self.offset[key]).astype(np.uint64) * width
        at = key << 32  # and a partition below it
        return len(np.unique(np.concatenate([(at + self.first)[part > 0], (at + self.second)[part < width]])))

    @derived
    def either(self) -> I32:
        """``first`` and ``second`` in turn: the partition of a row is at 2 slot + (is it at or above the cut)."""
        return np.stack([self.first, self.second], axis=1).reshape(-1)

    def route(self, offset: I64, shift: U64, spread: U64) -> I32:
        """The partition of each row, given where its key's slots begin and how far to shift for one."""
        half = spread >> np.uint64(1)
        slot = (half >> shift).view(np.int64)
        slot += offset
        above = half >= self.cut.take(slot)
        slot <<= 1
        slot += above
        return self.either.take(slot)


@dataclass(frozen=True, eq=False)
class HotKeys:
    """The keys with a route of their own, sorted by hash.

    ``home`` is the partition of a key that is kept whole, and -1 - j for the j-th split key. ``rows`` and
    ``reason`` (an index into ``reasons``) say what the planner knew and why it chose so.
    """

    hashes: U64
    home: I32
    rows: I64
    reason: NDArray[np.uint8]
    reasons: tuple[str, ...]
    slots: SplitSlots
    lookup: Lookup

    def __post_init__(self) -> None:
        freeze(self, hashes=np.uint64, home=np.int32, rows=np.int64, reason=np.uint8)

    __reduce__ = by_fields

    @classmethod
    def none(cls) -> HotKeys:
        keys, rows, places = np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int32)
        small = np.zeros(0, np.uint8)
        slots = SplitSlots(small, places, places, keys)
        return cls(keys, places, rows, small, (), slots, find_lookup(keys))

    def __len__(self) -> int:
        return len(self.hashes)

    @derived
    def table(self) -> tuple[U64, I32]:
        """Per bucket: the key there and its home. An empty bucket repeats a key of another bucket, which no
        row that looks here can have."""
        at = self.lookup.bucket(self.hashes)
        index = np.zeros(self.lookup.buckets, np.int64)
        index[at] = np.arange(len(at))
        return self.hashes[index], self.home[index]

    @derived
    def split_table(self) -> tuple[I64, U64]:
        """Per bucket: where the slots of its split key begin, and the shift that leaves its slot bits; slot 0, which is
        not used, where there is no split key."""
        _, home = self.table
        key = np.maximum(SPLIT - home, 0)
        split = home < 0
        offset = np.where(split, self.slots.offset[key], 0)
        shift = UNITS_BITS - np.where(split, self.slots.bits[key], 0).astype(np.int64)
        return offset, shift.astype(np.uint64)

    @derived
    def split_hashes(self) -> U64:
        """The split keys, in the order of their slots."""
        split = self.home < 0
        return self.hashes[split][np.argsort(SPLIT - self.home[split])]


def pick(mask: Mask, yes: I32, no: I32) -> I32:
    """``np.where`` without a branch for each row: which rows are hot is random, so branches would be mispredicted."""
    yes -= no
    yes *= mask
    yes += no
    return yes
