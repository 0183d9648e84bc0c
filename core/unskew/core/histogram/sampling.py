"""From counts of a frame's rows to the histogram that a planner takes.

A sample says which keys may be heavy and how many values their spread has; an exact pass counts those keys one by one
and everything else by host. Distinct keys are too dear to count in that pass, and are told from one key in 256 or so,
chosen by its hash: hashes are uniform, so every host has about the same number of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.core.arrays.ranking import find, heaviest, new_values
from unskew.core.histogram.histogram import Histogram, Tail, host_of
from unskew.core.limits import listed_budget

__all__ = ["Candidates", "candidates", "counted", "listed_for", "one_in", "sample_for"]

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]

_SAMPLED_KEYS = 1 << 15  # at most: groups of their own in the exact pass
_ONE_IN_MOST = 1 << 13
_LEAST_LISTED = 4096
_SAMPLE = 100_000
_SAMPLE_PER_PARTITION = 128
_SEEN = 2  # a key that the sample has once only may be any key


def listed_for(partitions: int) -> int:
    """How many keys are worth an exact count: as many as the planners list, as far as a plan holds them."""
    return min(listed_budget(partitions), max(_LEAST_LISTED, 4 * partitions))


def sample_for(partitions: int) -> int:
    """How many rows tell a hot key's spread well enough to split it: a key of 1/n of the rows needs 64 n of them
    (``core.planners.planner_view.SPREAD_PER_FRAGMENT`` values a fragment), and as many again to be sure."""
    return max(_SAMPLE, _SAMPLE_PER_PARTITION * partitions)


def one_in(rows: float) -> int:
    """Of how many keys one is counted by itself to tell how many there are, in a frame of so many rows."""
    return min(1 << int(min(rows / _SAMPLED_KEYS, _ONE_IN_MOST)).bit_length(), _ONE_IN_MOST)


@dataclass(frozen=True, eq=False)
class Candidates:
    """Keys that the sample has more than once, the heaviest, by hash; how many spread values they have in it, at least;
    how many keys it has in all; and of how many keys the exact pass is to count one whatever its rows."""

    hashes: U64
    spread: I64 | None
    seen: int
    every: int = 1


def candidates(hashes: U64, spread: U64 | None, limit: int, every: int = 1) -> Candidates:
    """The candidates of a sample of rows."""
    ordered = np.argsort(hashes, kind="stable") if spread is None else np.lexsort((spread, hashes))
    keys = hashes[ordered]
    new = new_values(keys)
    at = np.flatnonzero(new)
    counts = np.diff(at, append=len(keys))
    values = None
    if spread is not None:
        pairs = new | new_values(spread[ordered])
        values = np.add.reduceat(pairs.astype(np.int64), at) if len(at) else np.zeros(0, np.int64)
    found = keys[at]
    top = np.sort(heaviest(found, counts, min(limit, int(np.count_nonzero(counts >= _SEEN)))))
    return Candidates(found[top], None if values is None else values[top], len(found), every)


def counted(chosen: Candidates, keys: U64, key_rows: I64, hosts: I64, host_rows: I64, bits: int) -> Histogram:
    """The histogram of an exact pass: ``keys`` are the candidates and the sampled keys, ``hosts`` have the rest."""
    rows = np.zeros(1 << bits, np.int64)
    np.add.at(rows, hosts, host_rows)
    at, listed = find(chosen.hashes, keys)
    np.add.at(rows, host_of(keys[~listed], bits), key_rows[~listed])
    order = np.argsort(keys[listed])
    sampled = int(np.count_nonzero(keys % np.uint64(chosen.every) == 0))
    unlisted = max(sampled * chosen.every, chosen.seen) - int(np.count_nonzero(listed))
    return Histogram(
        keys[listed][order],
        key_rows[listed][order],
        Tail(rows, _keys_of(rows, unlisted)),
        None if chosen.spread is None else chosen.spread[at[listed]][order],
    )


def _keys_of(rows: I64, keys: int) -> I64:
    """So many keys shared out evenly among the hosts that have rows; at least one in each, at most its rows."""
    used = rows > 0
    each = max(round(keys / max(int(np.count_nonzero(used)), 1)), 1)
    return np.where(used, np.minimum(rows, each), 0)
