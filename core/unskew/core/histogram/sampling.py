"""From counts of a Spark frame's rows to the histogram that a planner takes.

A sample says which keys may be heavy and how many spread values they have; an exact pass counts those keys one by one
and all others by host. Counting distinct keys in that pass would cost too much. They are estimated from one key in 256
or so, chosen by its hash: hashes are uniform, so every host has about the same number of them.

Where rows have weights they are weighed instead: a key counts for its weight, in rows of the mean weight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unskew.core.arrays.ranking import find, heaviest, new_values
from unskew.core.arrays.types import F64, I64, U64
from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram, Tail, host_of
from unskew.core.limits import host_bits, listed_budget

__all__ = [
    "Candidates",
    "candidates",
    "counted",
    "draw_by_weight",
    "listed_for",
    "one_in",
    "rows_of_mean_weight",
    "sample_for",
    "sample_histogram",
]


_SAMPLED_KEYS = 1 << 15  # at most: groups of their own in the exact pass
_ONE_IN_MOST = 1 << 13
_LEAST_LISTED = 4096
_SAMPLE = 100_000
_SAMPLE_PER_PARTITION = 128
_LEAST_SAMPLED = 2  # rows in the sample from which a key is a candidate: any key may occur once


def listed_for(partitions: int) -> int:
    """How many keys to count exactly: as many as the planners list, as far as a plan can hold them."""
    return min(listed_budget(partitions), max(_LEAST_LISTED, 4 * partitions))


def sample_for(partitions: int) -> int:
    """How many rows to sample so that the spread of a hot key is known well enough to split it.

    A key with 1/n of the rows needs 64 n of them (``planners.planner_view.SPREAD_PER_FRAGMENT`` values a fragment);
    twice as many are taken.
    """
    return max(_SAMPLE, _SAMPLE_PER_PARTITION * partitions)


def one_in(rows: float) -> int:
    """One key in how many is counted by itself, to estimate the number of keys in a frame of so many rows."""
    return min(1 << int(min(rows / _SAMPLED_KEYS, _ONE_IN_MOST)).bit_length(), _ONE_IN_MOST)


@dataclass(frozen=True, eq=False)
class Candidates:
    """The heaviest keys of a sample (those that it has more than once), by hash, and what the exact pass needs.

    ``spread`` is how many spread values each key has in the sample, ``seen`` how many keys the sample has in all; the
    exact pass also counts one key in ``every``, whatever its rows.
    """

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
    distinct = keys[at]
    top = np.sort(heaviest(distinct, counts, min(limit, int(np.count_nonzero(counts >= _LEAST_SAMPLED)))))
    return Candidates(distinct[top], None if values is None else values[top], len(distinct), every)


def counted(chosen: Candidates, keys: U64, key_rows: I64, hosts: I64, host_rows: I64, bits: int) -> Histogram:
    """The histogram of an exact pass: ``keys`` are the candidates and one key in ``every``, ``hosts`` has the rest."""
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


def sample_histogram(
    keys: U64, spread: U64 | None, rows: int, partitions: int, weights: F64 | None = None
) -> Histogram:
    """The histogram of so many rows of which these are a sample, or all."""
    at = slice(None) if weights is None else draw_by_weight(weights)
    chosen = candidates(keys[at], None if spread is None else spread[at], listed_for(partitions))
    distinct, where = np.unique(keys, return_inverse=True)
    sums = np.bincount(where, weights, len(distinct)).astype(np.float64)
    counts = rows_of_mean_weight(sums, rows)
    none, kept = np.zeros(0, np.int64), counts > 0
    return counted(replace(chosen, every=1), distinct[kept], counts[kept], none, none, host_bits(partitions))


def draw_by_weight(weights: F64) -> I64:
    """As many rows again, each as often as its weight says: at even steps through the weights."""
    sums = np.cumsum(weights)
    if not len(sums) or not 0.0 < sums[-1] < np.inf:
        return np.arange(len(weights))
    steps = (np.arange(len(sums)) + 0.5) * (sums[-1] / len(sums))
    drawn: I64 = np.searchsorted(sums, steps, side="right").astype(np.int64)
    return drawn


def rows_of_mean_weight(weights: F64, rows: int) -> I64:
    """What groups weigh, in rows of the mean weight: whole numbers with this sum."""
    whole = float(weights.sum())
    if not np.isfinite(whole) or (len(weights) and whole <= 0.0):
        raise ConfigError("weight", f"{whole:g} in all", "finite numbers, above 0 for some rows")
    sums: F64 = np.rint(np.cumsum(weights) * (rows / whole if whole else 1.0))
    counts: I64 = np.diff(sums, prepend=0.0).astype(np.int64)
    return counts


def _keys_of(rows: I64, keys: int) -> I64:
    """Share ``keys`` out evenly among the hosts that have rows: at least one for each, at most its rows."""
    used = rows > 0
    each = max(round(keys / max(int(np.count_nonzero(used)), 1)), 1)
    return np.where(used, np.minimum(rows, each), 0)
