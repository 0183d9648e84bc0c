"""Byte strings met before are looked up, not hashed again.

A direct-mapped table: from a cheap fingerprint to the last byte string that had it, and its hash. A hit is a row
whose length and words are all equal to the kept ones, so it is exact; every other row is hashed and takes the
slot. Where fewer than half of the rows hit, the table rests, each time for longer: a column of distinct values
pays for a few blocks only. A full dictionary (Arrow's) costs more, as it has to keep every value.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.core.bytesview import BLOCK, INLINE, Block, ByteRows

__all__ = ["hash_with_memory"]

U64 = NDArray[np.uint64]
Rows = NDArray[np.intp]
Compute = Callable[[Block], U64]

_BITS = 16
_LONGEST = 72  # bytes; longer strings are hashed directly
_SPAN = 8 * BLOCK  # rows whose misses are hashed together
_ODD = [np.uint64(pow(0x9E3779B97F4A7C15, 2 * i + 1, 1 << 64)) for i in range(_LONGEST // 8 + 1)]


def hash_with_memory(rows: ByteRows, compute: Compute) -> U64:
    """``compute`` of every block of a column; equal rows must have equal results."""
    out = np.empty(len(rows), np.uint64)
    memory = _Memory(rows, compute)
    spans = [rows.slices(start, start + _SPAN) for start in range(0, len(rows), _SPAN)]
    due, rest = 1, 1
    for number, span in enumerate(spans):
        if number >= due:
            if _recall(rows, span, memory, out):
                continue
            due, rest = number + 1 + rest, 2 * rest
        for part in span:
            block = rows.block(part)
            out[part] = compute(block)
            if number == 0 and len(spans) > 1:
                memory.keep(block, out[part])
    return out


def _recall(rows: ByteRows, span: list[slice], memory: _Memory, out: U64) -> bool:
    """Look up all rows of a span and hash the missing; False, with nothing done, where too few are known."""
    missing: list[Rows] = []
    for part in span:
        unknown = memory.look_up(rows.block(part), out[part])
        if not missing and 2 * len(unknown) > part.stop - part.start:
            return False
        missing.append(unknown + part.start)
    late = np.concatenate(missing)
    rest = rows.take(late)
    for part in rest.slices(0, len(rest)):
        block = rest.block(part)
        hashed = memory.compute(block)
        memory.keep(block, hashed)
        out[late[part]] = hashed
    return True


class _Memory:
    """The table. All-zero words are the empty string, so that an unused slot needs no mark: it holds its hash."""

    def __init__(self, rows: ByteRows, compute: Compute) -> None:
        self.compute = compute
        self._short = rows.longest <= INLINE
        words = 2 if self._short else 1 + (min(rows.longest, _LONGEST) + 7) // 8
        empty = compute(Block(pa.array([""])))[0]
        self._kept = [np.zeros(1 << _BITS, np.uint64) for _ in range(words)]
        self._hashes = np.full(1 << _BITS, empty)
        self._owner = np.zeros(1 << _BITS, np.intp)

    def look_up(self, block: Block, out: U64) -> Rows:
        """Fill in the known hashes and return the rows that are not known."""
        if block.longest > _LONGEST:
            return np.arange(len(block))
        key = self._key(block)
        slots = _slots(key)
        self._hashes.take(slots, out=out, mode="clip")
        hit = self._kept[0].take(slots) == key[0]
        for kept, part in zip(self._kept[1:], key[1:], strict=False):
            hit &= kept.take(slots) == part
        return np.flatnonzero(~hit)

    def keep(self, block: Block, hashes: U64) -> None:
        if block.longest > _LONGEST:
            return
        key = self._key(block)
        slots = _slots(key)
        rows = np.arange(len(slots))
        self._owner[slots] = rows
        rows = np.flatnonzero(self._owner[slots] == rows)  # one row a slot, the same for every array
        slots = slots[rows]
        for kept, part in zip(self._kept, key, strict=False):
            kept[slots] = part[rows]
        self._hashes[slots] = hashes[rows]

    def _key(self, block: Block) -> list[U64]:
        return block.short_identity() if self._short else block.identity()


def _slots(key: list[U64]) -> Rows:
    mixed = key[0] * _ODD[0]
    for part, odd in zip(key[1:], _ODD[1:], strict=False):
        mixed += part * odd
    mixed >>= np.uint64(64 - _BITS)
    return mixed.view(np.intp)
