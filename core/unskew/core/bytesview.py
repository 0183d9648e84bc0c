"""Byte strings as numpy sees them: one flat buffer, and for each row where it starts and how long it is.

The loads are unaligned on purpose: a strided view one byte apart lets numpy gather the word at any offset in
one call, without copying or padding the column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["BLOCK", "ByteRows"]

# Rows worked on at a time: 8192 words of eight bytes stay in the L2 cache through all steps of a hash.
BLOCK = 8192

_WORD: dict[int, str] = {1: "u1", 4: "<u4", 8: "<u8"}


@dataclass(frozen=True)
class ByteRows:
    """Row i is ``data[starts[i] : starts[i] + sizes[i]]``."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @classmethod
    def from_offsets(cls, data: NDArray[np.uint8], offsets: NDArray[np.integer]) -> ByteRows:
        wide = offsets.astype(np.int64, copy=False)
        return cls(data, wide[:-1], np.diff(wide))

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, part: slice | NDArray[np.intp]) -> ByteRows:
        return ByteRows(self.data, self.starts[part], self.sizes[part])

    def blocks(self) -> Iterator[slice]:
        for start in range(0, len(self), BLOCK):
            yield slice(start, start + BLOCK)

    @cached_property
    def _views(self) -> dict[int, NDArray[np.unsignedinteger]]:
        return {
            width: np.ndarray(
                shape=(max(len(self.data) - width + 1, 0),), dtype=kind, buffer=self.data, strides=(1,)
            )
            for width, kind in _WORD.items()
            if len(self.data) >= width
        }

    def load(self, at: NDArray[np.int64], *, width: int) -> NDArray[np.unsignedinteger]:
        """The little-endian words of ``width`` bytes at these offsets of the buffer."""
        return self._views[width][at]

    def step(
        self,
        state: NDArray[np.unsignedinteger],
        take: Callable[..., NDArray[np.unsignedinteger]],
        wanted: NDArray[np.bool_] | None,
        at: NDArray[np.int64],
        *,
        width: int,
    ) -> NDArray[np.unsignedinteger]:
        """``take(state, word)`` for the wanted rows (None: all); the others keep their state."""
        if wanted is None or wanted.all():
            return take(state, self.load(at, width=width).astype(state.dtype, copy=False))
        rows = np.flatnonzero(wanted)
        if len(rows) == 0:
            return state
        word = self.load(at[rows], width=width).astype(state.dtype, copy=False)
        state[rows] = take(state[rows], word)
        return state
