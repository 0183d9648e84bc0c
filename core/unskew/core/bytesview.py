"""Byte strings as numpy reads them: word by word, the same word of every row in one strided view.

Rows of one length that lie one behind the other are read where they are. Others are first padded with zeros to
whole words (Arrow's ``ascii_rpad``, 5 ns a row), which measured four times as fast as gathering every word from
its unaligned place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["BLOCK", "INLINE", "Block", "ByteRows"]

# Rows worked on at a time: few enough that all steps of a hash stay in the L2 cache, enough to hide the calls.
BLOCK = 8192

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]

_WORD = np.dtype("<u8")
INLINE = 12  # bytes that fit into an Arrow string view, which is then the string's identity


@dataclass(frozen=True)
class ByteRows:
    """A (large_)string array that has no NULL; its bytes need not be UTF-8."""

    array: pa.Array

    @classmethod
    def of(cls, array: pa.Array) -> ByteRows:
        """The bytes of a string or binary array; a NULL row has bytes of no meaning."""
        large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
        kind = pa.large_string() if large else pa.string()
        buffers = [None, *array.buffers()[1:]]
        return cls(pa.Array.from_buffers(kind, len(array), buffers, offset=array.offset))

    def __len__(self) -> int:
        return len(self.array)

    @cached_property
    def longest(self) -> int:
        return int(pc.max(pc.binary_length(self.array)).as_py() or 0)

    def take(self, rows: NDArray[np.intp]) -> ByteRows:
        wide = self.array if rows.size * self.longest < 1 << 31 else self.array.cast(pa.large_string())
        return ByteRows(wide.take(pa.array(rows)))

    def block(self, part: slice) -> Block:
        """These rows, without an Arrow offset: some casts cost as much as all that lies before it."""
        kind, (_, offsets, data) = self.array.type, self.array.buffers()
        skip = (self.array.offset + part.start) * (8 if kind == pa.large_string() else 4)
        return Block(pa.Array.from_buffers(kind, part.stop - part.start, [None, offsets.slice(skip), data]))

    def slices(self, start: int, stop: int) -> list[slice]:
        """The rows from ``start`` to ``stop`` (or the last row), a block at a time."""
        stop = min(stop, len(self))
        return [slice(at, min(at + BLOCK, stop)) for at in range(start, stop, BLOCK)]

    def blocks(self) -> Iterator[tuple[slice, Block]]:
        for part in self.slices(0, len(self)):
            yield part, self.block(part)


class Block:
    """Some rows of a column; ``size`` is the length that all of them have, or None."""

    def __init__(self, array: pa.Array) -> None:
        self.array = array
        kind = np.dtype(np.int64 if pa.types.is_large_string(array.type) else np.int32)
        offsets = np.frombuffer(array.buffers()[1], kind, len(array) + 1, array.offset * kind.itemsize)
        self.sizes: I64 = np.diff(offsets).astype(np.int64, copy=False)
        self.longest = int(self.sizes.max())
        alike = self.longest >= 8 and int(self.sizes.min()) == self.longest
        self.size = self.longest if alike else None
        self._first = int(offsets[0])

    def __len__(self) -> int:
        return len(self.sizes)

    def take(self, rows: NDArray[np.intp]) -> Block:
        return Block(self.array.take(pa.array(rows)))

    def bytes_of(self, rows: NDArray[np.intp]) -> Iterator[tuple[int, memoryview]]:
        """Each of these rows as the bytes it has."""
        data = memoryview(self.array.buffers()[2])
        ends = self._first + np.cumsum(self.sizes)
        for row, end, size in zip(rows.tolist(), ends[rows].tolist(), self.sizes[rows].tolist(), strict=True):
            yield row, data[end - size : end]

    def word(self, number: int) -> U64:
        """Bytes ``8 * number`` to ``8 * number + 7`` of each row, zeros past its end."""
        if self.size is None:
            return self._padded[:, number]
        past = max(0, 8 * number + 8 - self.size)  # the last word ends with the row: read no byte past it
        first = self._first + 8 * number - past
        word: U64 = np.ndarray(len(self), _WORD, self.array.buffers()[2], first, (self.size,))
        return word >> np.uint64(8 * past) if past else word

    def word_of(self, numbers: I64) -> U64:
        """A word of each row, its number a row's own."""
        width = self._padded.shape[1]
        return self._padded.reshape(-1).take(numbers + np.arange(0, width * len(self), width), mode="clip")

    @cached_property
    def _padded(self) -> U64:
        width = (self.longest >> 3) + 1  # one spare word: a tail of no bytes is read too
        flat = pc.ascii_rpad(self.array, 8 * width, padding="\0").buffers()[2]
        return np.frombuffer(flat, _WORD, width * len(self)).reshape(-1, width)

    def identity(self) -> list[U64]:
        """Words that only equal rows have in common."""
        words = [self.word(number) for number in range((self.longest + 7) >> 3)]
        return [self.sizes.view(np.uint64), *words]

    def short_identity(self) -> list[U64]:
        """The same where no row has more than 12 bytes, in two words: Arrow's own string view."""
        views = self.array.cast(pa.string_view())
        pairs = np.frombuffer(views.buffers()[1], np.uint64, 2 * len(views), 16 * views.offset).reshape(-1, 2)
        return [pairs[:, 0], pairs[:, 1]]
