"""Byte strings as numpy sees them: one flat buffer, and for each row where it starts and how long it is.

Hashes read them eight bytes at a time. Rows of one length that lie one behind the other are read through a
strided view, without a copy. All others are gathered from the buffer as aligned words: an unaligned read is two
of them, shifted, which measured faster than numpy's gather from an unaligned view.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["BLOCK", "Block", "ByteRows"]

# Rows worked on at a time: few enough that all steps of a hash stay in the L2 cache, enough to hide the calls.
BLOCK = 8192

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
Rows = NDArray[np.intp]

_WORD = np.dtype("<u8")
_ONE, _TOP = np.uint64(1), np.uint64(63)


@dataclass(frozen=True)
class Buffer:
    data: NDArray[np.uint8]

    @cached_property
    def words(self) -> U64:
        """The bytes as aligned words, with at least one word to spare."""
        padded = np.zeros(len(self.data) // 8 + 2, _WORD)
        padded.view(np.uint8)[: len(self.data)] = self.data
        return padded


@dataclass(frozen=True)
class ByteRows:
    """Row i is ``sizes[i]`` bytes from ``starts[i]``; ``packed``: each row starts where the one before ends."""

    buffer: Buffer
    starts: I64
    sizes: I64
    packed: bool = False

    @classmethod
    def from_offsets(cls, data: NDArray[np.uint8], offsets: I64) -> ByteRows:
        return cls(Buffer(data), offsets[:-1], np.diff(offsets), packed=True)

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, rows: Rows) -> ByteRows:
        return ByteRows(self.buffer, self.starts[rows], self.sizes[rows])

    def blocks(self) -> Iterator[tuple[slice, Block]]:
        for start in range(0, len(self), BLOCK):
            part = slice(start, start + BLOCK)
            yield part, Block(self.buffer, self.starts[part], self.sizes[part], packed=self.packed)


class Block:
    """Some rows, read word by word; ``size`` is the length of all of them where strides can read them."""

    def __init__(self, buffer: Buffer, starts: I64, sizes: I64, *, packed: bool = False) -> None:
        self.buffer, self.starts, self.sizes = buffer, starts, sizes
        self.longest = int(sizes.max(initial=0))
        alike = packed and self.longest >= 8 and int(sizes.min()) == self.longest
        self.size = self.longest if alike else None

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, rows: Rows | slice) -> Block:
        return Block(self.buffer, self.starts[rows], self.sizes[rows])

    def bytes_of(self, row: int) -> memoryview:
        start = int(self.starts[row])
        return memoryview(self.buffer.data)[start : start + int(self.sizes[row])]

    def word(self, number: int) -> U64:
        """Bytes ``8 * number`` to ``8 * number + 7`` of each row; what lies past a row's end is arbitrary."""
        if self.size is None:
            return self.words_from(np.int64(8 * number))
        past = max(0, 8 * number + 8 - self.size)  # read no byte past the last row
        word = np.ndarray(
            len(self), _WORD, self.buffer.data, int(self.starts[0]) + 8 * number - past, (self.size,)
        )
        return word >> np.uint64(8 * past) if past else word

    def words_from(self, offsets: I64 | np.int64) -> U64:
        """Eight bytes of each row from an offset, one for all or one a row."""
        words, at = self.buffer.words, self.starts + offsets
        shift = ((at & 7) << 3).view(np.uint64)
        at >>= 3
        low = words.take(at, mode="clip")
        at += 1
        high = words.take(at, mode="clip")
        low >>= shift
        high <<= _ONE
        high <<= _TOP - shift
        low |= high
        return low
