"""An open table from keys to slots: a cell holds slot + 1, or 0 where it is empty.

Shared by the routers that keep something for each of a set of keys (SpaceSaving, DAGreedy, Dalton). A key that leaves
closes its gap, so no cell is ever marked as deleted.
"""

from __future__ import annotations

import numpy as np

from unskew.core.arrays.types import I64, U64
from unskew.core.kernels.base import Int, inner, kernel
from unskew.core.kernels.choices import mixed

__all__ = ["cell_of", "copy_cells", "remove"]


_ONE, _S32 = np.uint64(1), np.uint64(32)


@inner
def cell_of(key: np.uint64, slot_keys: U64, table: I64) -> Int:
    """The cell of a key, or the empty cell where it would go."""
    mask = table.shape[0] - 1
    at = np.int64(mixed(key, _ONE) >> _S32) & mask
    while table[at] != 0 and slot_keys[table[at] - 1] != key:
        at = (at + 1) & mask
    return at


@inner
def remove(gap: int, slot_keys: U64, table: I64) -> None:
    """Empty a cell, and move later keys into the gap where that brings them nearer to their first cell."""
    mask = table.shape[0] - 1
    at = (gap + 1) & mask
    while table[at] != 0:
        home = np.int64(mixed(slot_keys[table[at] - 1], _ONE) >> _S32) & mask
        if ((at - home) & mask) >= ((at - gap) & mask):
            table[gap] = table[at]
            gap = at
        at = (at + 1) & mask
    table[gap] = 0


@kernel
def copy_cells(slot_keys: U64, table: I64, wider: I64) -> None:
    """Fill a wider, empty table from another one."""
    for at in range(table.shape[0]):
        if table[at] != 0:
            wider[cell_of(slot_keys[table[at] - 1], slot_keys, wider)] = table[at]
