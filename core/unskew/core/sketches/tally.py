"""Checks what comes into a sketch, and folds a batch to one row per distinct key.

A sketch takes key hashes (``keys.hashing.hash_keys``) and, where a row stands for more than one, counts. Both are
checked here, and a batch becomes sorted distinct hashes with exact counts. All sums are exact: a total that a signed
64-bit number cannot hold is refused; it never wraps around.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.core.arrays.ranking import run_starts
from unskew.core.arrays.types import I64, U64
from unskew.core.errors import HistogramError

__all__ = ["I64", "MAX_TOTAL", "U64", "Tally", "add_totals", "check_counts", "check_hashes", "exact_sum", "tally"]


MAX_TOTAL = 2**63 - 1
_LOW = np.int64(0xFFFFFFFF)


class Tally(NamedTuple):
    """A batch by distinct key: sorted hashes, how often each, and the sum."""

    hashes: U64
    counts: I64
    total: int


def tally(hashes: U64, counts: NDArray[np.integer] | None = None) -> Tally:
    """Fold rows to distinct keys; rows with count 0 are left out."""
    keys = check_hashes(hashes)
    if counts is None:
        ordered = np.sort(keys)
        starts = run_starts(ordered)
        return Tally(ordered[starts], np.diff(np.append(starts, len(ordered))), len(ordered))
    weights = check_counts(counts, len(keys))
    # The whole sum fits, so no key's share of it can wrap below.
    total = add_totals(exact_sum(weights))
    present = weights > 0
    if not present.all():
        keys, weights = keys[present], weights[present]
    order = np.argsort(keys)
    ordered = keys[order]
    starts = run_starts(ordered)
    sums = np.add.reduceat(weights[order], starts) if len(starts) else weights
    return Tally(ordered[starts], sums, total)


def check_hashes(hashes: U64) -> U64:
    """One-dimensional uint64, or a HistogramError: other numbers are likely keys that are not hashed yet."""
    if not isinstance(hashes, np.ndarray) or hashes.dtype != np.uint64 or hashes.ndim != 1:
        kind = f"{getattr(hashes, 'dtype', type(hashes).__name__)}{list(np.shape(hashes))}"
        raise HistogramError(f"hashes: {kind} is not a one-dimensional uint64 array; use hash_keys(values)")
    return hashes


def check_counts(counts: NDArray[np.integer], rows: int) -> I64:
    """Whole numbers from 0 to 2**63 - 1, one for each row, as int64."""
    values = np.asarray(counts)
    if values.shape != (rows,):
        raise HistogramError(f"counts: shape {list(values.shape)} for {rows} hashes; give each hash one count")
    if values.dtype.kind not in "iu" and values.size:
        raise HistogramError(f"counts: {values.dtype} are not whole numbers; give int64")
    wide = values.dtype == np.uint64  # nothing else can hold more than int64 does
    if values.size and (values.min() < 0 or (wide and int(values.max()) > MAX_TOTAL)):
        wrong = int(values.min()) if values.min() < 0 else int(values.max())
        raise HistogramError(f"counts: {wrong} is not allowed; use 0 to 2**63 - 1")
    return values.astype(np.int64, copy=False)


def exact_sum(counts: I64) -> int:
    """The sum without wrapping, for counts >= 0: the two halves are summed apart."""
    if not len(counts) or int(counts.max()) * len(counts) <= MAX_TOTAL:
        return int(counts.sum())
    return (int((counts >> np.int64(32)).sum()) << 32) + int((counts & _LOW).sum())


def add_totals(*totals: int) -> int:
    """The sum of totals, or a HistogramError where int64 could not hold it."""
    total = sum(totals)
    if total > MAX_TOTAL:
        raise HistogramError(
            f"total: {total} rows pass the allowed 2**63 - 1; scale counts down, or decay or reset the sketch"
        )
    return total
