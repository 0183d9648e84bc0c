"""XXH64 over numpy arrays, a seed for each row.

Spark's ``xxhash64`` is XXH64 of the value's bytes, little-endian, where each column's hash seeds the next. The
seed is therefore an array here, which the C library cannot take; and a call per value costs more than the hash.
Rows are worked through in blocks that stay in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unskew.core.bytesview import BLOCK, ByteRows

__all__ = ["hash_bytes", "hash_u32", "hash_u64"]

U64 = NDArray[np.uint64]

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)


def _rotate(x: U64, by: int) -> U64:
    high = x << np.uint64(by)
    high |= x >> np.uint64(64 - by)
    return high


def _lane(acc: U64 | np.uint64, word: U64) -> U64:
    """One accumulator step: take eight bytes into ``acc``."""
    mixed = word * _P2
    mixed += acc
    mixed = _rotate(mixed, 31)
    mixed *= _P1
    return mixed


def _take8(h: U64, word: U64) -> U64:
    mixed = _lane(np.uint64(0), word)
    mixed ^= h
    mixed = _rotate(mixed, 27)
    mixed *= _P1
    mixed += _P4
    return mixed


def _take4(h: U64, word: U64) -> U64:
    mixed = word * _P1
    mixed ^= h
    mixed = _rotate(mixed, 23)
    mixed *= _P2
    mixed += _P3
    return mixed


def _take1(h: U64, byte: U64) -> U64:
    mixed = byte * _P5
    mixed ^= h
    mixed = _rotate(mixed, 11)
    mixed *= _P1
    return mixed


def _avalanche(h: U64) -> U64:
    h ^= h >> np.uint64(33)
    h *= _P2
    h ^= h >> np.uint64(29)
    h *= _P3
    h ^= h >> np.uint64(32)
    return h


def hash_u64(values: U64, seed: U64) -> U64:
    """XXH64 of eight bytes a row."""
    return _in_blocks(values, seed, np.uint64(8), _take8)


def hash_u32(values: NDArray[np.uint32], seed: U64) -> U64:
    """XXH64 of four bytes a row."""
    return _in_blocks(values, seed, np.uint64(4), _take4)


def _in_blocks(
    values: NDArray[np.unsignedinteger], seed: U64, length: np.uint64, take: Callable[[U64, U64], U64]
) -> U64:
    out = np.empty(len(values), np.uint64)
    for start in range(0, len(values), BLOCK):
        part = slice(start, start + BLOCK)
        word = values[part].astype(np.uint64, copy=False)
        begin = np.broadcast_to(seed, out.shape)[part] + _P5 + length
        out[part] = _avalanche(take(begin, word))
    return out


def hash_bytes(rows: ByteRows, seed: U64) -> U64:
    """XXH64 of a byte string a row."""
    out = np.empty(len(rows), np.uint64)
    seeds = np.broadcast_to(seed, out.shape)
    for part in rows.blocks():
        block = rows[part]
        out[part] = _hash_block(block, seeds[part])
    return out


def _hash_block(rows: ByteRows, seed: U64) -> U64:
    size = rows.sizes
    shortest, longest = int(size.min(initial=0)), int(size.max(initial=0))
    h = seed + _P5
    position = rows.starts
    if longest >= 32:
        long = np.flatnonzero(size >= 32)
        h[long] = _stripes(rows, long, seed)
        position = position + (size & ~31)
    h += size.astype(np.uint64)
    same = shortest == longest  # a column of fixed-length ids needs no masks
    rest = size & 31
    for word in range((longest & 31 if same else min(longest, 31)) >> 3):
        h = rows.step(h, _take8, None if same else rest >= 8 * word + 8, position + 8 * word, width=8)
    if same and longest & 7 == 0:
        return _avalanche(h)
    position = position + (rest & ~7)
    h = rows.step(h, _take4, (rest & 4) != 0, position, width=4)
    position = position + (rest & 4)
    for byte in range(3):
        h = rows.step(h, _take1, (rest & 3) > byte, position + byte, width=1)
    return _avalanche(h)


def _stripes(rows: ByteRows, long: NDArray[np.intp], seed: U64) -> U64:
    """The four-lane loop over whole 32-byte stripes; rows drop out as they end, longest first."""
    stripes = rows.sizes[long] >> 5
    order = np.argsort(-stripes, kind="stable")
    long, stripes = long[order], stripes[order]
    start, begin = rows.starts[long], seed[long]
    lanes = [begin + _P1 + _P2, begin + _P2, begin.copy(), begin - _P1]
    for stripe in range(int(stripes[0])):
        live = int(np.searchsorted(-stripes, -stripe, side="left"))
        for lane in range(4):
            word = rows.load(start[:live] + (32 * stripe + 8 * lane), width=8)
            lanes[lane][:live] = _lane(lanes[lane][:live], word)
    a, b, c, d = lanes
    h = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
    for lane in lanes:
        h ^= _lane(np.uint64(0), lane)
        h *= _P1
        h += _P4
    back = np.empty_like(h)
    back[order] = h
    return back
