"""SpaceSaving (Metwally et al.): the most frequent keys of a stream, counted in a fixed number of slots.

Slots stand in ascending order of count. Those of one count are a group that knows its last place, so that one more row
is a swap with that place: O(1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unskew.core.arrays.types import I64, U64
from unskew.core.kernels.base import Int, inner
from unskew.core.kernels.key_table import cell_of, remove

__all__ = ["Summary", "count_key", "estimate"]


ORDER, RANK, GROUP = 0, 1, 2  # Summary.ranked: the slot of this rank; the rank and the group of this slot
COUNT, LAST, SIZE = 0, 1, 2  # Summary.group; a free group's LAST names the next free one
TOTAL, WINDOW, FREE = 0, 1, 2  # Summary.tally: rows, the window it began in, the first free group


class Summary(NamedTuple):
    """SpaceSaving; ``routers.frequent.empty_summary`` makes an empty one. Inner loops take its arrays one by one: numba
    counts references whenever a field is read."""

    slot_keys: U64
    ranked: I64
    group: I64
    table: I64
    tally: I64


@inner
def add_row(slot: Int, ranked: I64, group: I64, tally: I64) -> None:
    """Add a row to a slot: move it to the last place of its group, then to the next group or a new one."""
    current = ranked[slot, GROUP]
    end, rows = group[current, LAST], group[current, COUNT]
    rank, other = ranked[slot, RANK], ranked[end, ORDER]
    ranked[rank, ORDER], ranked[other, RANK] = other, rank
    ranked[end, ORDER], ranked[slot, RANK] = slot, end
    higher = -1
    if end + 1 < ranked.shape[0]:
        higher = ranked[ranked[end + 1, ORDER], GROUP]
        if group[higher, COUNT] != rows + 1:
            higher = -1
    last_of_group = group[current, SIZE] == 1
    if higher < 0 and last_of_group:
        group[current, COUNT] = rows + 1
        return
    group[current, LAST] = end - 1
    group[current, SIZE] -= 1
    if higher < 0:
        higher = tally[FREE]
        tally[FREE] = group[higher, LAST]
        group[higher, COUNT], group[higher, LAST], group[higher, SIZE] = rows + 1, end, 0
    elif last_of_group:
        group[current, LAST] = tally[FREE]
        tally[FREE] = current
    group[higher, SIZE] += 1
    ranked[slot, GROUP] = higher


@inner
def count_key(key: np.uint64, slot_keys: U64, ranked: I64, group: I64, table: I64, tally: I64) -> Int:
    """Count a row of this key, and return the most that it can have had. A new key takes the slot of the rarest."""
    at = cell_of(key, slot_keys, table)
    slot = table[at] - 1
    if slot < 0:
        slot = ranked[0, ORDER]
        if group[ranked[slot, GROUP], COUNT] > 0:
            remove(cell_of(slot_keys[slot], slot_keys, table), slot_keys, table)
            at = cell_of(key, slot_keys, table)
        slot_keys[slot] = key
        table[at] = slot + 1
    add_row(slot, ranked, group, tally)
    tally[TOTAL] += 1
    return group[ranked[slot, GROUP], COUNT]


@inner
def estimate(key: np.uint64, slot_keys: U64, ranked: I64, group: I64, table: I64) -> Int:
    """The rows that a summary gives this key, 0 if it has no slot for it."""
    slot = table[cell_of(key, slot_keys, table)] - 1
    return group[ranked[slot, GROUP], COUNT] if slot >= 0 else np.int64(0)
