"""A collision-free bucket table for the hot keys of a plan, found when the plan is built.

``bucket = ((h >>> shift) ^ displacement[h & (groups - 1)]) & (buckets - 1)``

Only shifts, ``xor`` and ``and``: the same rule is evaluated by Spark SQL, whose ANSI mode raises where a product
overflows. A few hundred keys need no displacements (one group): some shift separates them. More keys are
displaced group by group, largest first, all groups of a size at once (hash and displace).

Key hashes are uniform unless somebody chose the keys so that they are not (XXH64 can be inverted). Where no shift
separates the keys, the rule is applied to ``xxhash64(h)``, which Spark has too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.core.arrays.frozen import by_fields, freeze
from unskew.core.arrays.mixing import SEED, mix
from unskew.core.arrays.types import I64, U64, Index, Mask
from unskew.core.errors import PlanError
from unskew.core.keys import xxh64

__all__ = ["Lookup", "find_lookup"]


_ONE_GROUP_KEYS = 256
_ONE_GROUP_SPARE_BITS = 8
_KEYS_PER_GROUP = 4
_GROUP_BITS = 20  # the low bits choose the group; places are read above them
_LARGEST_GROUP = 64  # uniform hashes give 20 at most; larger groups mean chosen keys, and are slow to place
_ROUNDS = 256
_STRIDE = 8  # windows this far apart share few bits: where one fails the next is a fresh try


@dataclass(frozen=True, eq=False)
class Lookup:
    """The bucket of a key hash; no two of the keys for which it was built share one."""

    shift: int
    bits: int
    displacement: NDArray[np.uint32]
    remix: bool = False

    __reduce__ = by_fields

    def __post_init__(self) -> None:
        freeze(self, displacement=np.uint32)
        groups = len(self.displacement)
        if groups == 0 or groups & (groups - 1):
            raise PlanError(f"look-up table: {groups} groups; use a power of two")
        if not (0 <= self.bits <= 24 and 0 <= self.shift <= 64 - self.bits and self.shift < 64):
            raise PlanError(f"look-up table: shift {self.shift} and {self.bits} bits do not fit a 64-bit hash")

    @property
    def buckets(self) -> int:
        return 1 << self.bits

    def bucket(self, hashes: U64) -> I64:
        keys = xxh64.hash_u64(hashes, np.array([SEED], np.uint64)) if self.remix else hashes
        at = keys >> np.uint64(self.shift)
        if len(self.displacement) > 1:
            group = (keys & np.uint64(len(self.displacement) - 1)).view(np.int64)
            at ^= self.displacement.take(group)
        elif self.displacement[0]:
            at ^= np.uint64(self.displacement[0])
        at &= np.uint64(self.buckets - 1)
        return at.view(np.int64)


def find_lookup(hashes: U64) -> Lookup:
    """The smallest table that this search finds for these distinct key hashes."""
    keys = np.ascontiguousarray(hashes, np.uint64)
    for remix in (False, True):
        source = xxh64.hash_u64(keys, np.array([SEED], np.uint64)) if remix else keys
        table = _one_group(source) if len(keys) <= _ONE_GROUP_KEYS else None
        table = table or _many_groups(source)
        if table is not None:
            return Lookup(table.shift, table.bits, table.displacement, remix)
    raise PlanError(f"no collision-free table for {len(keys)} hot keys: are their hashes distinct?")


def _one_group(keys: U64) -> Lookup | None:
    need = max(len(keys) - 1, 0).bit_length()
    for bits in range(need, need + _ONE_GROUP_SPARE_BITS + 1):
        for shift in range(65 - bits if bits else 1):
            table = Lookup(shift, bits, np.zeros(1, np.uint32))
            if np.bincount(table.bucket(keys), minlength=1).max() <= 1:  # no two in one bucket
                return table
    return None


def _many_groups(keys: U64) -> Lookup | None:
    need = max(len(keys) - 1, 0).bit_length()
    for bits in range(need + 1, need + 5):
        for shift in range(_GROUP_BITS, 65 - bits, _STRIDE):
            displaced = _displace(keys, shift, bits)
            if displaced is not None:
                return Lookup(shift, bits, displaced)
    return None


def _displace(keys: U64, shift: int, bits: int) -> NDArray[np.uint32] | None:
    groups = 1 << max((len(keys) // _KEYS_PER_GROUP).bit_length() - 1, 0)
    group = (keys & np.uint64(groups - 1)).view(np.int64)
    place = ((keys >> np.uint64(shift)) & np.uint64((1 << bits) - 1)).view(np.int64)
    if len(np.unique((group << bits) | place)) < len(keys):
        return None  # two keys of one group share a place: no displacement separates them
    size = np.bincount(group, minlength=groups)
    if int(size.max(initial=0)) > _LARGEST_GROUP:
        return None
    used = np.zeros(1 << bits, bool)
    chosen = np.zeros(groups, np.uint32)
    for members_each in range(int(size.max(initial=0)), 0, -1):
        members = np.flatnonzero(size[group] == members_each)
        if not _place_groups(group[members], place[members], bits, used, chosen):
            return None
    return chosen


def _place_groups(group: I64, place: I64, bits: int, used: Mask, chosen: NDArray[np.uint32]) -> bool:
    """Give every group (all of one size) a displacement whose places are free; rounds of parallel tries."""
    order = np.argsort(group, kind="stable")
    group, place = group[order], place[order]
    for attempt in range(_ROUNDS):
        if len(group) == 0:
            return True
        ids, inverse = np.unique(group, return_inverse=True)
        move = (mix(ids.view(np.uint64), attempt + 1) >> np.uint64(64 - bits)).view(np.int64)
        at = place ^ move[inverse]
        fits = ~np.logical_or.reduceat(used[at], np.flatnonzero(np.diff(group, prepend=-1)))
        fits &= _first_come(at, inverse, fits)
        won = fits[inverse]
        used[at[won]] = True
        chosen[ids[fits]] = move[fits]
        group, place = group[~won], place[~won]
    return False


def _first_come(at: I64, member: Index, fits: Mask) -> Mask:
    """Of the groups that fit, those that share no place with another one that stands before them."""
    rows = np.flatnonzero(fits[member])
    ordered = rows[np.lexsort((member[rows], at[rows]))]
    again = np.flatnonzero(at[ordered][1:] == at[ordered][:-1]) + 1
    alone = np.ones(len(fits), bool)
    alone[member[ordered[again]]] = False
    return alone
