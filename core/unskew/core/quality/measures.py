"""How good a routing is: the measures of the five papers.

``partitions`` is what a router or plan returned (one partition a row); ``loads`` are rows per partition. A load is
compared with others after dividing by the partition's relative capacity, where one is given. No rows, or no
partitions at all, are perfectly even.

The measures and where they come from: imbalance max/mean and replication (Dalton); BSI, BCI, KSR, MPI (Prompt,
Eq. 2-6); I, CI, HI and Gamma (Holistic, Eq. 1, 6, 10, 2; Dalton's Gamma is the maximum over reducers); max U - mean U
(CG, section 3; ``papers.replay``); moved share (KIP/DR); makespan under a linear cost (ours, also in ``LinearCost``).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.core.arrays.types import F64, I64, U64
from unskew.core.errors import ConfigError
from unskew.core.parameters import check_range

__all__ = [
    "BlockMetrics",
    "Costs",
    "LinearCost",
    "block_metrics",
    "cardinalities",
    "fragment_count",
    "holistic",
    "imbalance",
    "load_imbalance",
    "loads",
    "makespan",
    "metrics_of",
    "moved_share",
    "replication",
    "split_share",
]


def loads(partitions: NDArray[np.integer], n: int) -> I64:
    """Rows per partition, of rows on these ``partitions`` out of ``n``. ``ConfigError`` where a row is on no partition.

    >>> loads(np.array([0, 2, 2]), n=3).tolist()
    [1, 0, 2]
    """
    _check_routed(partitions, n)
    return np.bincount(partitions, minlength=n)


def load_imbalance(rows: ArrayLike, relative: ArrayLike | None = None) -> float:
    """Largest load over mean load; 1.0 is perfectly even, also without any rows.

    Parameters
    ----------
    rows
        Rows (or another load) per partition.
    relative
        Relative capacity per partition, by which loads are divided first.

    Raises
    ------
    ConfigError
        If capacities are not one positive number a partition.

    Examples
    --------
    >>> load_imbalance([30, 10, 20])
    1.5
    """
    load = np.asarray(rows, np.float64)
    if relative is not None:
        share = _capacities("relative", relative, load)
        load = load / (share / share.mean()) if load.size else load
    mean = float(np.asarray(rows, np.float64).mean()) if load.size else 0.0
    return float(load.max() / mean) if mean > 0 else 1.0


def imbalance(partitions: NDArray[np.integer], n: int, relative: ArrayLike | None = None) -> float:
    """Largest load over mean load of rows on these ``partitions`` out of ``n``, by ``relative`` capacity if given.

    >>> imbalance(np.array([0, 1, 1, 1]), n=2)
    1.5
    """
    return load_imbalance(loads(partitions, n), relative)


def _same_length(name: str, values: NDArray[Any], others: NDArray[Any], what: str) -> None:
    if values.shape != others.shape or values.ndim != 1:
        raise ConfigError(name, f"an array of shape {values.shape}", f"one for each of the {others.size} {what}")


def _capacities(name: str, values: ArrayLike, load: F64) -> F64:
    """One capacity a partition, fit to divide by."""
    size = np.asarray(values, np.float64)
    _same_length(name, size, load, "partitions")
    usable = np.isfinite(size) & (size > 0)
    if not usable.all():
        raise ConfigError(name, float(size[~usable][0]), "finite numbers above 0")
    return size


def _check_routed(partitions: NDArray[np.integer], n: int) -> None:
    if n < 1:
        raise ConfigError("n", n, "1 partition or more")
    if partitions.size and not 0 <= (low := int(partitions.min())) <= (high := int(partitions.max())) < n:
        raise ConfigError("partitions", low if low < 0 else high, f"0 to {n - 1}, the partitions there are")


def _pairs(hashes: U64, partitions: NDArray[np.integer], n: int) -> tuple[I64, I64]:
    """The distinct (key number, partition) pairs."""
    _same_length("partitions", partitions, hashes, "key hashes")
    _check_routed(partitions, n)
    _, key = np.unique(hashes, return_inverse=True)
    pairs = np.unique(key.astype(np.int64) * n + partitions)
    return pairs // n, pairs % n


def cardinalities(hashes: U64, partitions: NDArray[np.integer], n: int) -> I64:
    """Distinct keys per partition.

    Parameters
    ----------
    hashes, partitions
        The key hash and the partition of each row.
    n
        How many partitions there are.

    Raises
    ------
    ConfigError
        If lengths differ, or a row is on no partition.

    Examples
    --------
    >>> cardinalities(np.array([7, 7, 8], np.uint64), np.array([0, 1, 1]), n=2).tolist()
    [1, 2]
    """
    return np.bincount(_pairs(hashes, partitions, n)[1], minlength=n)


def fragment_count(hashes: U64, partitions: NDArray[np.integer]) -> int:
    """How many (key, partition) pairs rows with these ``hashes`` on these ``partitions`` make.

    >>> fragment_count(np.array([7, 7, 8], np.uint64), np.array([0, 1, 1]))
    3
    """
    return len(_pairs(hashes, partitions, _width(partitions))[0])


def replication(hashes: U64, partitions: NDArray[np.integer]) -> float:
    """(key, partition) pairs over distinct keys; 1.0 when no key is split. Also Prompt's KSR (Eq. 5).

    ``hashes`` and ``partitions`` are of each row.

    >>> replication(np.array([7, 7, 8], np.uint64), np.array([0, 1, 1]))
    1.5
    """
    key, _ = _pairs(hashes, partitions, _width(partitions))
    return len(key) / (int(key[-1]) + 1) if len(key) else 1.0


def split_share(hashes: U64, partitions: NDArray[np.integer]) -> float:
    """The share of the distinct keys that are on more than one partition; 0.0 when no key is split.

    ``hashes`` and ``partitions`` are of each row.

    >>> split_share(np.array([7, 7, 8], np.uint64), np.array([0, 1, 1]))
    0.5
    """
    key, _ = _pairs(hashes, partitions, _width(partitions))
    fragments = np.bincount(key)
    return float((fragments > 1).mean()) if fragments.size else 0.0


def _width(partitions: NDArray[np.integer]) -> int:
    return int(partitions.max(initial=0)) + 1


@dataclass(frozen=True)
class BlockMetrics:
    """Prompt's block metrics. BSI is in rows, BCI in keys, KSR in fragments a key.

    MPI (Eq. 6) adds quantities of different units in the paper; here each is relative and 0 when perfect:
    ``p1 BSI / mean rows + p2 BCI / mean keys + p3 (KSR - 1)``, with p1 = p2 = p3 = 1/3 as in section 3.3.
    """

    bsi: float
    bci: float
    ksr: float
    mpi: float


def block_metrics(
    hashes: U64, partitions: NDArray[np.integer], n: int, weights: tuple[float, float, float] = (1 / 3, 1 / 3, 1 / 3)
) -> BlockMetrics:
    """Prompt's BSI, BCI, KSR and MPI of routed rows.

    Parameters
    ----------
    hashes, partitions
        The key hash and the partition of each row.
    n
        How many partitions there are.
    weights
        MPI's weights of BSI, BCI and KSR.

    Raises
    ------
    ConfigError
        If lengths differ, a row is on no partition, or there are not three weights.

    Examples
    --------
    >>> block_metrics(np.array([7, 7, 8], np.uint64), np.array([0, 1, 1]), n=2).ksr
    1.5
    """
    rows, keys = loads(partitions, n), cardinalities(hashes, partitions, n)
    distinct = len(np.unique(hashes))
    return metrics_of(rows, keys, distinct, weights)


def metrics_of(
    rows: I64, keys: I64, distinct: int, weights: tuple[float, float, float] = (1 / 3, 1 / 3, 1 / 3)
) -> BlockMetrics:
    """The same from ``rows`` and ``keys`` per partition, as a plan predicts them, and all ``distinct`` keys.

    ``weights`` are MPI's, as in ``block_metrics``; ``ConfigError`` where there are not three, or lengths differ.

    >>> metrics_of(np.array([3, 1]), np.array([1, 1]), 2).bsi
    1.0
    """
    _same_length("keys", keys, rows, "partitions")
    if len(weights) != 3:
        raise ConfigError("weights", weights, "three of them, for BSI, BCI and KSR")
    if distinct == 0 or not rows.any() or not keys.any():
        return BlockMetrics(0.0, 0.0, 1.0, 0.0)
    bsi, bci = float(rows.max() - rows.mean()), float(keys.max() - keys.mean())
    ksr = float(keys.sum()) / distinct
    p1, p2, p3 = weights
    mpi = p1 * bsi / float(rows.mean()) + p2 * bci / float(keys.mean()) + p3 * (ksr - 1.0)
    return BlockMetrics(bsi, bci, ksr, mpi)


@dataclass(frozen=True)
class Costs:
    """Holistic's cost model. ``affordable`` is its Eq. 3: aggregating costs no more than the largest task."""

    i: float
    ci: float
    hi: float
    gamma: int
    gamma_max: int
    affordable: bool


def holistic(hashes: U64, partitions: NDArray[np.integer], n: int, p: float = 0.5, reducers: int = 1) -> Costs:
    """Holistic's costs I, CI, HI and Gamma of routed rows.

    Parameters
    ----------
    hashes, partitions, n
        As in ``cardinalities``.
    p
        The bias of Eq. 9 between rows (1) and keys (0).
    reducers
        How many reducers merge the partial results, keys hashed to them.

    Returns
    -------
    Costs
        ``gamma`` sums the partial results of all workers (Holistic, Eq. 2); ``gamma_max`` is the most that one reducer
        receives (Dalton, Eq. 2).

    Raises
    ------
    ConfigError
        If lengths differ, a row is on no partition, or ``p`` or ``reducers`` is not allowed.

    Examples
    --------
    >>> holistic(np.array([7, 7, 8], np.uint64), np.array([0, 1, 1]), n=2).gamma
    3
    """
    check_range("p", p, 0, 1)
    if reducers < 1:
        raise ConfigError("reducers", reducers, "1 or more")
    key, worker = _pairs(hashes, partitions, n)
    rows, keys = loads(partitions, n), np.bincount(worker, minlength=n)
    distinct = np.unique(hashes)
    at = (distinct[key] % np.uint64(reducers)).astype(np.int64)
    hybrid = p * _scaled(rows) + (1 - p) * _scaled(keys)
    return Costs(
        i=float(rows.max() - rows.mean()),
        ci=float(keys.max() - keys.mean()),
        hi=float(hybrid.max() - hybrid.mean()),
        gamma=len(key),
        gamma_max=int(np.bincount(at, minlength=reducers).max()),
        affordable=len(key) <= int(rows.max()),
    )


def _scaled(load: I64) -> F64:
    """Eq. 7 and 8: min-max scaled, 0 where all are equal."""
    low, high = float(load.min()), float(load.max())
    span = high - low if high > low else np.inf
    return (load.astype(np.float64) - low) / span


def moved_share(before: NDArray[np.integer], after: NDArray[np.integer], rows: ArrayLike | None = None) -> float:
    """The share of the ``rows`` (of the keys, without them) whose partition differs ``before`` and ``after``.

    All are per key; ``ConfigError`` where lengths differ.

    >>> moved_share(np.array([0, 1]), np.array([0, 0]), rows=[3, 1])
    0.25
    """
    weight = np.ones(len(before)) if rows is None else np.asarray(rows, np.float64)
    _same_length("after", after, before, "keys before")
    _same_length("rows", weight, before, "keys")
    whole = float(weight.sum())
    return float(weight[before != after].sum()) / whole if whole else 0.0


@dataclass(frozen=True)
class LinearCost:
    """The cost of a task: per row, per distinct key, and per fragment that must be merged afterwards.

    Any unit will do as long as all three agree; the default counts in rows.

    Raises
    ------
    ConfigError
        If a cost is negative or not finite.

    Examples
    --------
    >>> LinearCost(per_key=2.0).tasks([10, 5], [1, 5]).tolist()
    [12.0, 15.0]
    """

    per_row: float = 1.0
    per_key: float = 1.0
    per_fragment: float = 2.0

    def __post_init__(self) -> None:
        for name in ("per_row", "per_key", "per_fragment"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value >= 0):
                raise ConfigError(name, value, "0 or more")

    def tasks(self, rows: ArrayLike, keys: ArrayLike) -> F64:
        """The cost of each partition's task, from its ``rows`` and distinct ``keys``."""
        read, distinct = np.asarray(rows, np.float64), np.asarray(keys, np.float64)
        if read.shape != distinct.shape:
            raise ConfigError("keys", f"an array of shape {distinct.shape}", f"the shape of rows, {read.shape}")
        return np.asarray(self.per_row * read + self.per_key * distinct)


def makespan(tasks: ArrayLike, slots: int | None = None) -> float:
    """When the last of these ``tasks`` ends, if they start in order of their number, as Spark's roughly do.

    ``slots`` is how many run at once, all where left out; ``ConfigError`` below 1.

    >>> makespan([3, 1, 1], slots=2)
    3.0
    """
    cost = np.asarray(tasks, np.float64)
    if slots is not None and slots < 1:
        raise ConfigError("slots", slots, "1 or more")
    if slots is None or slots >= len(cost):
        return float(cost.max(initial=0.0))
    free = [0.0] * slots
    for task in cost.tolist():
        heapq.heapreplace(free, free[0] + task)
    return max(free)
