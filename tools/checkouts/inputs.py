"""Streams and histograms that every part of the probe shares: each a function of its seed."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from names import named

from tests.conformance.vectors import load
from unskew.core import Histogram

__all__ = ["conformance_hashes", "histograms", "sampled", "streams", "zipf"]

EXPONENTS = (0.5, 1.0, 1.5, 2.0)


def zipf(rows: int, keys: int, exponent: float, seed: int = 1) -> np.ndarray:
    """Key hashes of a Zipf stream."""
    rng = np.random.default_rng(seed)
    share = np.arange(1, keys + 1) ** -exponent
    return rng.integers(0, 2**64, keys, np.uint64)[rng.choice(keys, rows, p=share / share.sum())]


def drifting(rows: int, keys: int, exponent: float) -> np.ndarray:
    """The same with other hot keys in each quarter."""
    return np.concatenate([zipf(rows // 4, keys, exponent, seed) for seed in range(4)])


def wavering(rows: int) -> np.ndarray:
    """Ten keys, each now above and now below a sixteenth of the rows, over many rare ones."""
    rng, stretches = np.random.default_rng(4), []
    for _ in range(rows // 1_500):
        share = np.concatenate([rng.uniform(0.3, 1.6, 10) / 16, np.full(1_000, 1.0)])
        share[10:] *= (1 - share[:10].sum()) / 1_000
        stretches.append(rng.choice(len(share), 1_500, p=share))
    return np.random.default_rng(6).integers(0, 2**64, 1_010, np.uint64)[np.concatenate(stretches)]


def conformance_hashes() -> np.ndarray:
    """Spark's hashes of all values of ``tests/conformance``, each several times."""
    one = [np.array(part["xxhash64"], np.int64).view(np.uint64) for part in load("hashes.json")["columns"]]
    hashes = np.unique(np.concatenate(one))
    rng = np.random.default_rng(5)
    return rng.permutation(np.repeat(hashes, rng.zipf(1.4, len(hashes)).clip(1, 3000)))


def streams() -> dict[str, np.ndarray]:
    made = {f"zipf {z}": zipf(12_000, 3_000, z) for z in EXPONENTS}
    made |= {f"drifting {z}": drifting(12_000, 3_000, z) for z in (1.0, 1.5)}
    made["wavering"] = wavering(24_000)
    made["conformance"] = conformance_hashes()[:20_000]
    made["one key"] = np.full(2_000, 77, np.uint64)
    made["all distinct"] = np.random.default_rng(2).integers(0, 2**64, 6_000, np.uint64)
    return made | {"nothing": np.zeros(0, np.uint64), "two rows": np.array([2**64 - 1, 0], np.uint64)}


def sampled(whole: Histogram, listed: int, bits: int) -> Histogram:
    """The heaviest keys by name, the rest by host."""
    top = np.isin(whole.hashes, whole.top(listed)[0])
    return Histogram(whole.hashes[top], whole.counts[top], whole.fold(top, bits))


def histograms() -> dict[str, Histogram]:
    made = {name: Histogram.from_hashes(stream) for name, stream in streams().items()}
    whole, rng = made["zipf 1.0"], np.random.default_rng(3)
    made |= {f"sampled {bits} bits": sampled(whole, 200, bits) for bits in (0, 6, 12, 14)}
    made["only a tail"] = sampled(whole, 0, 8)
    made["spread"] = Histogram(whole.hashes, whole.counts, None, rng.integers(1, 40, len(whole.hashes)))
    made["sampled, spread"] = Histogram(*_fields(made["sampled 6 bits"], 3), rng.integers(1, 9, 200))
    made["huge"] = Histogram.from_counts(whole.hashes, whole.counts * (2**62 // whole.total))
    made["ties"] = Histogram.from_counts(whole.hashes, np.full(len(whole.hashes), 9))
    made["merged"] = made["zipf 1.5"].merge(made["sampled 12 bits"], made["spread"], made["one key"])
    history = named("History")(3, 0.7).add(whole).add(made["drifting 1.0"]).add(made["sampled 6 bits"])
    return made | {"decayed": whole.decay(0.3), "history": history.merged()}


def _fields(value: Any, first: int) -> list[Any]:
    return [getattr(value, field.name) for field in fields(value)][:first]
