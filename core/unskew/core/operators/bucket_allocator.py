"""The reduce bucket allocator: which reduce bucket each key of one map task goes to.

Prompt, section 5, Algorithm 3. Every map task decides alone, from its own key clusters and its block's
reference table (which of its keys are split over several blocks). Split keys are hashed, so that all map
tasks agree on them; the other keys are in one block only, so their task may choose.

Deviations from the listing:

- Line 8 resets the set of buckets when one remains; here, as the text says, when none does.
- |C| is the size of the clusters in rows, not their number (section 5 defines the bucket size as |I|/r).
- Equal capacities: the listing is silent. Buckets are tried from a start that differs by map task. With one
  start for all, every task's largest free key lands in the same bucket, the errors add up instead of
  cancelling, and the result was worse than hashing (64 tasks, 64 buckets, Zipf 0.5: imbalance 3.1 against
  1.4). Equal sizes go in order of hash: the order of rows never shows.
- ``split_share`` (optional, ours): each bucket's share of all rows that comes from hashed split keys. The
  planner knows it and can send it with the plan, so tasks still do not talk. A task that holds no part of a
  hot key then spares that key's bucket too, which the listing cannot.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.core.arrays.mixing import mix
from unskew.core.arrays.ranking import heaviest
from unskew.core.arrays.types import F64, I32, I64, U64, Mask
from unskew.core.errors import ConfigError, HistogramError
from unskew.core.histogram.histogram import MAX_ROWS
from unskew.core.parameters import check_whole
from unskew.core.sketches.tally import exact_sum

__all__ = ["BucketAssignment", "allocate", "hash_buckets"]


MAX_BUCKETS = 1 << 20
_GOLDEN = 0x9E3779B1


@dataclass(frozen=True)
class BucketAssignment:
    """One map task's answer: the bucket of each key cluster, in the order given, and the rows per bucket."""

    buckets: I32
    loads: I64


def hash_buckets(hashes: U64, buckets: int) -> I32:
    """The bucket of each key by hash alone: the same in every map task.

    The key hash is mixed once more, because the block a key is in may itself come from the key hash.
    """
    check_whole("buckets", buckets, 1, MAX_BUCKETS)
    mixed = mix(hashes, -1)  # this salt adds 0
    return (((mixed >> np.uint64(32)) * np.uint64(buckets)) >> np.uint64(32)).astype(np.int32)


def allocate(
    hashes: U64, counts: NDArray[np.integer], split: Mask, buckets: int, *, task: int, split_share: F64 | None = None
) -> BucketAssignment:
    """Prompt's Algorithm 3 (section 5) for one map task: distinct keys, their rows, whether each is split.

    ``task`` is the task's partition number, the same in a retry, so that a retry decides the same.

    >>> import numpy as np
    >>> keys = np.arange(4, dtype=np.uint64)
    >>> allocate(keys, np.array([5, 4, 3, 2]), np.zeros(4, dtype=bool), 2, task=0).loads.tolist()
    [7, 7]
    """
    check_whole("buckets", buckets, 1, MAX_BUCKETS)
    rows = _clusters(hashes, counts, split, MAX_ROWS if split_share is None else MAX_ROWS // 2)
    chosen = np.empty(hashes.size, dtype=np.int32)
    chosen[split] = hash_buckets(hashes[split], buckets)  # line 2
    hashed = np.zeros(buckets, dtype=np.int64)
    np.add.at(hashed, chosen[split], rows[split])
    before = hashed if split_share is None else _expected(split_share, int(rows.sum()), buckets)
    free = np.flatnonzero(~split)
    free = free[heaviest(hashes[free], rows[free], len(free))]  # lines 3-4
    chosen[free], after = _worst_fit(rows[free], before, _start(task, buckets))
    return BucketAssignment(chosen, hashed + (after - before))


def _expected(split_share: F64, rows: int, buckets: int) -> I64:
    if split_share.shape != (buckets,) or not np.all((split_share >= 0.0) & (split_share <= 1.0)):
        raise ConfigError("split_share", split_share.tolist(), f"{buckets} shares from 0 to 1")
    return np.rint(split_share * rows).astype(np.int64)


def _start(task: int, buckets: int) -> int:
    """Where a task's ties begin: multiples of the golden ratio lie apart, however many tasks there are."""
    if isinstance(task, bool) or not isinstance(task, int) or task < 0:
        raise ConfigError("task", task, "the map task's partition number, 0 or more")
    return ((task * _GOLDEN) % 2**32) * buckets >> 32


def _worst_fit(sizes: I64, loads: I64, first: int) -> tuple[I32, I64]:
    """Lines 5-12: worst fit, each chosen bucket out until all have one; ``sizes`` descending.

    All buckets have one bucket size, so the most room is the least load. Within one turn of r picks a chosen
    bucket is out, hence no load that still counts changes: the turn pairs the sizes with the buckets from
    least to most loaded. Turns of one size raise all loads alike and so share one order: only turns with
    different sizes sort, fewer than there are distinct sizes.
    """
    r = loads.size
    chosen = np.empty(sizes.size, dtype=np.int32)
    loads = np.roll(loads, -first)
    run_ends = np.append(np.flatnonzero(np.diff(sizes)) + 1, sizes.size)
    at = 0
    while at < sizes.size:
        run_end = int(run_ends[np.searchsorted(run_ends, at, side="right")])
        turns = max(1, (run_end - at) // r)
        order = np.argsort(loads, kind="stable")
        picks = np.tile(order, turns)[: sizes.size - at]
        end = at + picks.size
        chosen[at:end] = (picks + first) % r
        if turns > 1:
            loads += turns * sizes[at]
        else:
            loads[picks] += sizes[at:end]
        at = end
    return chosen, np.roll(loads, first)


def _clusters(hashes: U64, counts: NDArray[np.integer], split: Mask, most: int) -> I64:
    """The checked sizes, in 64 bits whatever type they come in: loads add up, and narrow sums wrap silently.

    With ``split_share`` the expected rows and the free ones stand in one sum, each at most all rows: hence ``most``.
    """
    if hashes.dtype != np.uint64 or split.dtype != np.bool_ or counts.dtype.kind not in "iu":
        raise HistogramError(
            f"hashes {hashes.dtype}, counts {counts.dtype}, split {split.dtype}; use uint64, integer, bool"
        )
    if hashes.ndim != 1 or not hashes.shape == counts.shape == split.shape:
        raise HistogramError(
            f"{hashes.shape} hashes, {counts.shape} counts, {split.shape} split marks; give one each a key"
        )
    if counts.size and counts.min() < 0:
        raise HistogramError(f"a key cluster of {counts.min()} rows; sizes are 0 or more")
    rows = counts.astype(np.int64)
    if int(counts.max(initial=0)) > most or exact_sum(rows) > most:
        total = sum(counts.tolist())
        raise HistogramError(f"{total} rows in one map task; use at most {most}: scale the sizes down")
    return rows
