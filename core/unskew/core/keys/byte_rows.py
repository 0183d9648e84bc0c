"""Byte strings read by numpy word by word: the same word of every row in one strided view.

Rows of one length that lie one behind the other are read where they are. Others are first padded with zeros to
whole words (Arrow's ``ascii_rpad``, 5 ns a row), which measured four times as fast as gathering every word from
its unaligned place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.core.arrays.frozen import derived
from unskew.core.arrays.types import I64, U64, Index

__all__ = ["BLOCK", "Block", "ByteRows"]

# Rows worked on at a time: few enough that all steps of a hash stay in the L2 cache, enough to hide the calls.
BLOCK = 8192


# Arrow's dictionary costs 20 ns a row while the distinct values are few thousands, 100 and more when they are many.
# A sample spread over the column decides; rows of one short length are hashed faster (16 ns) than any look-up.
_FEW, _PROBE, _REPEATS, _CHEAP = 32_768, 16_384, 0.8, 24

_WORD = np.dtype("<u8")


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

    @classmethod
    def cut(cls, matrix: NDArray[np.uint8], skip: Index) -> ByteRows:
        """Row i is row i of ``matrix`` without its first ``skip[i]`` bytes."""
        width = matrix.shape[1]
        offsets = np.zeros(len(matrix) + 1, np.int64)
        np.cumsum(width - skip, out=offsets[1:])
        data = matrix[np.arange(width) >= skip[:, None]]
        return cls(pa.Array.from_buffers(pa.large_string(), len(matrix), [None, *map(pa.py_buffer, (offsets, data))]))

    def __len__(self) -> int:
        return len(self.array)

    def repeats(self) -> bool:
        """Whether hashing each distinct value once is likely to be faster than hashing every row."""
        if len(self) < _FEW:
            return False
        shape = pc.min_max(pc.binary_length(self.array))
        if shape["min"] == shape["max"] and shape["max"].as_py() <= _CHEAP:
            return False
        size = min(len(self) // 32, _PROBE)
        sample = self.array.take(pa.array(np.arange(size) * (len(self) // size)))
        return bool(pc.count_distinct(sample).as_py() <= _REPEATS * size)

    def take(self, rows: Index) -> ByteRows:
        """These rows; wide offsets, as a row may be taken many times."""
        return ByteRows(self.array.cast(pa.large_string()).take(pa.array(rows)))

    def block(self, part: slice) -> Block:
        """These rows, without an Arrow offset: some kernels cost as much as all that lies before it."""
        kind, (_, offsets, data) = self.array.type, self.array.buffers()
        skip = (self.array.offset + part.start) * (4 if kind == pa.string() else 8)
        return Block(pa.Array.from_buffers(kind, part.stop - part.start, [None, offsets.slice(skip), data]))

    def blocks(self) -> Iterator[tuple[slice, Block]]:
        for start in range(0, len(self), BLOCK):
            part = slice(start, min(start + BLOCK, len(self)))
            yield part, self.block(part)


class Block:
    """Some rows of a column; ``size`` is the length that all of them have, or None."""

    def __init__(self, array: pa.Array) -> None:
        self.array = array
        self._narrow = array.type == pa.string()
        kind = np.dtype(np.int32 if self._narrow else np.int64)
        offsets = np.frombuffer(array.buffers()[1], kind, len(array) + 1, array.offset * kind.itemsize)
        self.sizes: I64 = np.diff(offsets).astype(np.int64, copy=False)
        self.longest = int(self.sizes.max())
        alike = self.longest >= 8 and int(self.sizes.min()) == self.longest
        self.size = self.longest if alike else None
        self._first = int(offsets[0])

    def __len__(self) -> int:
        return len(self.sizes)

    def take(self, rows: Index) -> Block:
        return Block(self.array.take(pa.array(rows)))

    def as_list(self) -> list[bytes]:
        rows: list[bytes] = self.array.view(pa.binary() if self._narrow else pa.large_binary()).to_pylist()
        return rows

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

    @derived
    def _padded(self) -> U64:
        width = (self.longest >> 3) + 1  # one spare word: a tail of no bytes is read too
        flat = pc.ascii_rpad(self.array, 8 * width, padding="\0").buffers()[2]
        return np.frombuffer(flat, _WORD, width * len(self)).reshape(-1, width)
