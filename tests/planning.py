"""Histograms and streams that the planner tests share."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.core.histogram.histogram import Histogram

__all__ = ["defaults_of", "key_hashes", "some_histogram", "spread_of", "zipf_counts"]


def defaults_of(algorithm: type[Any]) -> dict[str, Any]:
    """The parameters of a planner's or router's algorithm (a dataclass) and their defaults."""
    parameters = (field for field in fields(algorithm) if field.init and field.default is not MISSING)
    return {field.name: field.default for field in parameters}


def key_hashes(count: int, seed: int = 1) -> NDArray[np.uint64]:
    """Distinct uniform key hashes."""
    rng = np.random.default_rng(seed)
    hashes = np.unique(rng.integers(0, 2**64, count + 16, dtype=np.uint64))
    return rng.permutation(hashes)[:count]


def spread_of(rows: int, seed: int = 2) -> NDArray[np.uint64]:
    return np.random.default_rng(seed).integers(0, 2**64, rows, dtype=np.uint64)


def zipf_counts(rows: int, keys: int, exponent: float, seed: int = 1) -> NDArray[np.int64]:
    """How often each of ``keys`` keys occurs in a random Zipf stream; keys that never occur are left out."""
    share = 1.0 / np.arange(1, keys + 1) ** exponent
    counts = np.random.default_rng(seed).multinomial(rows, share / share.sum())
    return counts[counts > 0]


def some_histogram(rows: int = 100_000, keys: int = 10_000, exponent: float = 1.0, seed: int = 1) -> Histogram:
    counts = zipf_counts(rows, keys, exponent, seed)
    return Histogram.from_counts(key_hashes(len(counts), seed), counts)
