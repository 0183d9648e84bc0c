"""XXH64 over numpy arrays, a seed for each row.

Spark's ``xxhash64`` is XXH64 of the value's bytes, little-endian, where each column's hash seeds the next. The
seed is therefore an array here, which the C library cannot take; and a call per value costs more than the
hash. Rows are worked through in blocks that stay in the processor's cache. Only long rows go to the C library,
one by one: there the call no longer matters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import xxhash
from numpy.typing import NDArray

from unskew.core.arrays.types import U64, Mask

if TYPE_CHECKING:  # it loads Arrow, and plans hash numbers only
    from unskew.core.keys.byte_rows import Block, ByteRows

__all__ = ["hash_bytes", "hash_u32", "hash_u64"]


_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_P12 = np.uint64(0x60EA27EEADC0B5D6)  # P1 + P2
_LOW32, _LOW8 = np.uint64(0xFFFFFFFF), np.uint64(0xFF)

_BLOCK = 8192  # numbers at a time, as ``byte_rows.BLOCK`` rows
_LONG = 192  # bytes from which one call of the C library a row is the faster way


def _rotate(x: U64, by: int) -> U64:
    """Rotate left, in place."""
    low = x >> np.uint64(64 - by)
    x <<= np.uint64(by)
    x |= low
    return x


def _lane(acc: U64 | np.uint64, word: U64) -> U64:
    """One accumulator step: take eight bytes into ``acc``."""
    mixed = word * _P2
    mixed += acc
    mixed = _rotate(mixed, 31)
    mixed *= _P1
    return mixed


def _take8(h: U64, word: U64) -> U64:
    mixed = word * _P2
    mixed = _rotate(mixed, 31)
    mixed *= _P1
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


def _in_blocks(values: NDArray[np.uint32] | U64, seed: U64, length: np.uint64, take: Callable[[U64, U64], U64]) -> U64:
    out = np.empty(len(values), np.uint64)
    for start in range(0, len(values), _BLOCK):
        part = slice(start, start + _BLOCK)
        word = values[part].astype(np.uint64, copy=False)
        begin = np.broadcast_to(seed, out.shape)[part] + _P5 + length
        out[part] = _avalanche(take(begin, word))
    return out


def hash_bytes(rows: ByteRows, seed: U64) -> U64:
    """XXH64 of a byte string a row; ``seed`` has one entry for all rows, or one a row."""
    out = np.empty(len(rows), np.uint64)
    seeds = np.broadcast_to(seed, out.shape)
    for part, block in rows.blocks():
        out[part] = _hash_block(block, seeds[part])
    return out


def _hash_block(block: Block, seed: U64) -> U64:
    if block.longest >= _LONG:
        return _mostly_short(block, seed)
    if block.size is not None:
        return _alike(block, block.size, seed)
    size = block.sizes
    h = seed + _P5
    if block.longest >= 32:
        h = np.where(size >= 32, _stripes(block, seed), h)
    h += size.view(np.uint64)
    stripe_words, rest = size >> 5 << 2, (size & 31).astype(np.uint8)  # words in the stripes; bytes after them
    for number in range(min(block.longest, 31) >> 3):
        word = block.word_of(stripe_words + number) if block.longest >= 32 else block.word(number)
        h = _where(rest >= 8 * number + 8, _take8, h, word)
    return _avalanche(_tail(block, rest, h))


def _where(marked: Mask, take: Callable[[U64, U64], U64], h: U64, word: U64) -> U64:
    """``take(h, word)`` for the marked rows; the others keep their state."""
    count = np.count_nonzero(marked)
    if count == len(h):
        return take(h, word)
    if 5 * count > 3 * len(h):
        return np.where(marked, take(h, word), h)
    rows = np.flatnonzero(marked)
    h[rows] = take(h.take(rows), word.take(rows))
    return h


def _tail(block: Block, rest: NDArray[np.uint8], h: U64) -> U64:
    """The last 0-7 bytes: four, then one by one, all from one word."""
    word = block.word_of(block.sizes >> 3)
    h = _where((rest & 4) != 0, _take4, h, word & _LOW32)
    word >>= (rest & 4) << 3
    for byte in range(3):
        h = _where((rest & 3) > byte, _take1, h, (word >> np.uint64(8 * byte)) & _LOW8)
    return h


def _alike(block: Block, size: int, seed: U64) -> U64:
    """Rows of one length: no masks, no gathers."""
    if size >= 32:
        lanes = _lanes(seed)
        for number in range(size >> 5 << 2):
            lanes[number & 3] = _lane(lanes[number & 3], block.word(number))
        h = _merge(lanes)
        h += np.uint64(size)
    else:
        h = seed + (_P5 + np.uint64(size))
    for number in range(size >> 5 << 2, size >> 3):
        h = _take8(h, block.word(number))
    if size & 7:
        word = block.word(size >> 3)
        if size & 4:
            h = _take4(h, word & _LOW32)
            word = word >> np.uint64(32)
        for byte in range(size & 3):
            h = _take1(h, (word >> np.uint64(8 * byte)) & _LOW8)
    return _avalanche(h)


def _lanes(seed: U64) -> list[U64]:
    return [seed + _P12, seed + _P2, seed.copy(), seed - _P1]


def _merge(lanes: list[U64]) -> U64:
    h = _rotate(lanes[0].copy(), 1)
    for lane, by in zip(lanes[1:], (7, 12, 18), strict=True):
        h += _rotate(lane.copy(), by)
    for lane in lanes:
        h ^= _lane(np.uint64(0), lane)
        h *= _P1
        h += _P4
    return h


def _stripes(block: Block, seed: U64) -> U64:
    """The four-lane loop over whole 32-byte stripes, for the rows that have any."""
    lanes, stripes = _lanes(seed), block.sizes >> 5
    for number in range(block.longest >> 5 << 2):
        lanes[number & 3] = _where(stripes > number >> 2, _lane, lanes[number & 3], block.word(number))
    return _merge(lanes)


def _mostly_short(block: Block, seed: U64) -> U64:
    """A block with long rows: those through the C library, the rest as ever."""
    is_long = block.sizes >= _LONG
    out = np.empty(len(block), np.uint64)
    short, long = np.flatnonzero(~is_long), np.flatnonzero(is_long)
    if len(short):
        out[short] = _hash_block(block.take(short), seed[short])
    texts = block.take(long).as_list()
    out[long] = np.fromiter(map(xxhash.xxh64_intdigest, texts, seed[long].tolist()), np.uint64, len(long))
    return out
