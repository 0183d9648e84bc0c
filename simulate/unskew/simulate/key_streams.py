"""Synthetic key streams: Zipf, and Zipf whose hot set drifts. For demos, benchmarks and tests.

Zipf with exponent z gives the key of rank r a share proportional to ``r ** -z``: the skew that the papers' figures
vary (Prompt section 7, KIP section 5, CG Table 2). The generator is passed in, so a stream is a function of its seed.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from unskew.core.errors import ConfigError

__all__ = ["drifting", "zipf_keys", "zipf_probabilities"]

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]


def zipf_probabilities(keys: int, exponent: float) -> F64:
    """The share of each of ``keys`` keys, heaviest first; exponent 0 is uniform.

    >>> zipf_probabilities(3, 1.0).round(3).tolist()
    [0.545, 0.273, 0.182]
    """
    _at_least("keys", keys, 1)
    if not (math.isfinite(exponent) and exponent >= 0):
        raise ConfigError("exponent", exponent, "a finite number, 0 (uniform) or more")
    weight = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
    return np.asarray(weight / weight.sum())


def zipf_keys(rng: np.random.Generator, rows: int, keys: int, exponent: float) -> I64:
    """``rows`` independent draws from ``0 .. keys - 1``, where key 0 is the heaviest.

    The counts of the keys are drawn, then shuffled: the same distribution as row by row, at the cost of one shuffle.
    """
    _at_least("rows", rows, 0)
    counts = rng.multinomial(rows, zipf_probabilities(keys, exponent))
    out = np.repeat(np.arange(keys, dtype=np.int64), counts)
    rng.shuffle(out)
    return out


def drifting(rng: np.random.Generator, rows: int, keys: int, exponent: float, change_every: int, hot: int) -> I64:
    """A Zipf stream whose ``hot`` heaviest keys are replaced after every ``change_every`` rows.

    At a change each hot key swaps its rank with a key that was cold, so the distribution of loads stays the same
    and no key is hot in two successive spans.
    """
    _at_least("change_every", change_every, 1)
    if not 0 <= 2 * hot <= keys:
        raise ConfigError("hot", hot, f"0 to {keys // 2}: at most half of the {keys} keys, the others replace them")
    out = zipf_keys(rng, rows, keys, exponent)
    key_of_rank = np.arange(keys, dtype=np.int64)
    for start in range(change_every, rows, change_every):
        cold = hot + rng.choice(keys - hot, size=hot, replace=False, shuffle=True)
        swapped = np.concatenate([key_of_rank[cold], key_of_rank[:hot]])
        key_of_rank[:hot], key_of_rank[cold] = swapped[:hot], swapped[hot:]
        span = slice(start, start + change_every)
        out[span] = key_of_rank[out[span]]
    return out


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigError(name, value, f"a whole number, {least} or more")
