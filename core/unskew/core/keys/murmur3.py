"""Spark's Murmur3 (``hash()``) over numpy arrays, and its inverse for one int.

Spark's variant of Murmur3_x86_32 differs from the public one in the tail: each of the last 1-3 bytes is taken as
a sign-extended int through a full round. Every step of the int case is a bijection of 32 bits, so for a given
seed there is exactly one int that hashes to a wanted value: that is what a placement salt is (DESIGN section 7).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.core.keys.byte_rows import Block, ByteRows

__all__ = ["INVERSE_C1", "INVERSE_C2", "ROTATED", "hash_bytes", "hash_u32", "hash_u64", "invert_u32", "unmixed_u32"]

U32 = NDArray[np.uint32]

_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_ADD, _FIVE = np.uint32(0xE6546B64), np.uint32(5)
_EVEN = 128  # bytes up to which rows of any lengths are padded to one length
_F1, _F2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)


def _inverse(odd: np.uint32) -> np.uint32:
    return np.uint32(pow(int(odd), -1, 1 << 32))


# What ``invert_u32`` does to a word once the seed is in it, for those who do it elsewhere.
INVERSE_C1, INVERSE_C2, ROTATED = _inverse(_C1), _inverse(_C2), 15


def _rotate(x: U32, by: int) -> U32:
    return (x << np.uint32(by)) | (x >> np.uint32(32 - by))


def _mix(h: U32, word: U32) -> U32:
    h = h ^ (_rotate(word * _C1, ROTATED) * _C2)
    return _rotate(h, 13) * _FIVE + _ADD


def _finish(h: U32, length: NDArray[np.uint32]) -> U32:
    h = h ^ length
    h = (h ^ (h >> np.uint32(16))) * _F1
    h = (h ^ (h >> np.uint32(13))) * _F2
    return h ^ (h >> np.uint32(16))


def _length(value: int) -> U32:
    return np.array([value], np.uint32)


def hash_u32(values: U32, seed: U32) -> U32:
    """Spark's hash of an int, short, byte, boolean, date or float column."""
    return _finish(_mix(seed, values), _length(4))


def hash_u64(values: NDArray[np.uint64], seed: U32) -> U32:
    """Spark's hash of a long, timestamp, double or short decimal column: the low half first."""
    low = (values & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    high = (values >> np.uint64(32)).astype(np.uint32)
    return _finish(_mix(_mix(seed, low), high), _length(8))


def hash_bytes(rows: ByteRows, seed: U32) -> U32:
    """Spark's hash of a string, binary or long decimal column."""
    out = np.empty(len(rows), np.uint32)
    seeds = np.broadcast_to(seed, out.shape)
    for part, block in rows.blocks():
        out[part] = _hash_block(block, seeds[part])
    return out


def _hash_block(block: Block, seed: U32) -> U32:
    if block.longest > _EVEN and block.longest > 2 * int(block.sizes.min()):
        return _apart(block, seed)
    size, h = block.sizes, seed
    for number in range(block.longest >> 2):
        word = block.word(number >> 1) >> np.uint64(32 * (number & 1))
        h = _where(size >= 4 * number + 4, h, word.astype(np.uint32))
    if block.longest >> 2 << 2 != block.size:
        tail = block.word_of(size >> 3) >> ((size & 4) << 3).view(np.uint64)
        for byte in range(3):
            h = _where((size & 3) > byte, h, _signed(tail >> np.uint64(8 * byte)))
    return _finish(h, size.astype(np.uint32))


def _apart(block: Block, seed: U32) -> U32:
    """Much longer rows on their own, as all rows of a block are padded to the longest."""
    long = block.sizes > block.longest // 2
    out = np.empty(len(block), np.uint32)
    for rows in (np.flatnonzero(long), np.flatnonzero(~long)):
        out[rows] = _hash_block(block.take(rows), seed[rows])
    return out


def _where(wanted: NDArray[np.bool_], h: U32, word: U32) -> U32:
    """``_mix(h, word)`` for the wanted rows; the others keep their state."""
    rows = np.flatnonzero(wanted)
    if len(rows) > len(h) // 2:
        return np.where(wanted, _mix(h, word), h)
    h = h.copy()
    h[rows] = _mix(h[rows], word[rows])
    return h


def _signed(word: NDArray[np.uint64]) -> U32:
    """The lowest byte, sign-extended as Java does."""
    return word.astype(np.uint8).view(np.int8).astype(np.int32).view(np.uint32)


def invert_u32(wanted: U32, seed: U32) -> U32:
    """The int whose Spark hash under ``seed`` is ``wanted``: every step of ``hash_u32`` undone, last first."""
    return _rotate((unmixed_u32(wanted) ^ seed) * INVERSE_C2, 32 - ROTATED) * INVERSE_C1


def unmixed_u32(wanted: U32) -> U32:
    """The steps that are undone before the seed comes in: the same for all rows that want the same."""
    h = wanted ^ (wanted >> np.uint32(16))
    h = h * _inverse(_F2)
    h = h ^ (h >> np.uint32(13)) ^ (h >> np.uint32(26))
    h = h * _inverse(_F1)
    h = h ^ (h >> np.uint32(16))
    h = h ^ _length(4)
    return _rotate((h - _ADD) * _inverse(_FIVE), 32 - 13)
