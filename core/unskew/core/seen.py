"""Byte strings met before are looked up, not hashed again.

A direct-mapped table: from a cheap fingerprint to the last byte string that had it, and its hash. A hit is a row
whose length and words are all equal to the kept ones, so it is exact; every other row is hashed and takes the
slot. Where fewer than half of the rows hit, the table rests, each time for longer: a column of distinct values
pays for a few blocks only. A full dictionary (Arrow's) costs several times as much, as it has to keep every value.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unskew.core.bytesview import Block

__all__ = ["Seen"]

U64 = NDArray[np.uint64]
Rows = NDArray[np.intp]

_BITS = 16
_WORDS = 9  # of eight bytes; longer strings are hashed directly
_GRACE = 3  # blocks in which the table may fill before hits are asked for
_MASKS = np.array([(1 << 8 * kept) - 1 for kept in range(9)], np.uint64)
_ODD = [np.uint64(pow(0x9E3779B97F4A7C15, 2 * i + 1, 1 << 64)) for i in range(_WORDS + 1)]


class Seen:
    """Hashes the blocks of one column, which all have the same seed."""

    def __init__(self, compute: Callable[[Block], U64]) -> None:
        self._compute = compute
        self._kept: list[U64] = []  # the length, then the words
        self._hashes = np.zeros(0, np.uint64)
        self._owner = np.zeros(1 << _BITS, np.intp)
        self._number, self._rests_until, self._rest = -1, 0, 1

    def hash(self, block: Block) -> U64:
        self._number += 1
        if self._number < self._rests_until or not 0 < block.longest <= 8 * _WORDS:
            return self._compute(block)
        key = _key(block)
        slots = _slots(key)
        if len(key) > len(self._kept):
            self._begin(block, key)
        out = self._hashes.take(slots)
        missed = np.flatnonzero(~self._hits(key, slots))
        if len(missed):
            part = block if len(missed) == len(block) else block.take(missed)
            out[missed] = self._compute(part)
            self._keep(key, slots, missed, out)
        if self._number >= _GRACE and 2 * len(missed) > len(block):
            self._rests_until, self._rest = self._number + self._rest, 2 * self._rest
        return out

    def _begin(self, block: Block, key: list[U64]) -> None:
        """Every slot holds the first row, so that no slot is empty and none needs a mark."""
        first = self._compute(block.take(np.zeros(1, np.intp)))
        self._kept = [np.full(1 << _BITS, part[0]) for part in key]
        self._hashes = np.full(1 << _BITS, first[0])

    def _hits(self, key: list[U64], slots: Rows) -> NDArray[np.bool_]:
        hit = np.ones(len(slots), np.bool_)
        for kept, part in zip(self._kept, key, strict=False):
            hit &= kept.take(slots) == part
        return hit

    def _keep(self, key: list[U64], slots: Rows, missed: Rows, out: U64) -> None:
        self._owner[slots[missed]] = missed
        rows = missed[self._owner[slots[missed]] == missed]  # one row a slot
        for kept, part in zip(self._kept, key, strict=False):
            kept[slots[rows]] = part[rows]
        self._hashes[slots[rows]] = out[rows]


def _key(block: Block) -> list[U64]:
    """What tells a row from all others: its length and its words, zero past its end."""
    words = [block.word(number) for number in range((block.longest + 7) >> 3)]
    if block.size is None:
        words = [w & _MASKS.take(block.sizes - 8 * i, mode="clip") for i, w in enumerate(words)]
    return [block.sizes.view(np.uint64), *words]


def _slots(key: list[U64]) -> Rows:
    mixed = key[0] * _ODD[0]
    for part, odd in zip(key[1:], _ODD[1:], strict=False):
        mixed += part * odd
    mixed >>= np.uint64(64 - _BITS)
    return mixed.view(np.intp)
