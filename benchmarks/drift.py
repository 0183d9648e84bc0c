"""How fast Dalton follows a drift: the 64 hottest keys are replaced by cold ones every 200,000 tuples.

Per-slide imbalance (W = 60,000, s = 1,000) from the change on, as a multiple of its steady mean (the second half of the
spans), averaged over changes and seeds; then the same per batch for the micro-batch form. And how many workers the old
hot keys have in the window, before the change and one window after it: off their hash worker none should be left.

Run: ``python -m benchmarks.drift`` (1 minute; ``--seeds 10`` for more than 4)
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.grid import KEYS, SLIDE, WINDOW
from papers.microbatch import BatchRouter
from unskew.core import make_router
from unskew.core.kernels import base as kernels
from unskew.core.quality.windows import window_imbalance, window_replication
from unskew.simulate.key_streams import drifting

CHANGE, SPANS, HOT, BATCH = 200_000, 4, 64, 10_000

U64 = NDArray[np.uint64]
F64 = NDArray[np.float64]
Route = Callable[[U64], NDArray[np.int32]]


@dataclass(frozen=True, eq=False)
class Drift:
    """A stream whose hot keys change: the hash of each row, and each span's hottest keys."""

    rows: U64
    hottest: list[U64]


def drift_of(exponent: float, seed: int, spans: int = SPANS) -> Drift:
    """One span to start with, then ``spans`` that begin with a change."""
    rng = np.random.default_rng(seed)
    ranks = drifting(rng, (spans + 1) * CHANGE, KEYS, exponent, CHANGE, HOT)
    rows = rng.integers(0, 2**64, KEYS, dtype=np.uint64)[ranks]
    hottest = []
    for start in range(0, len(rows), CHANGE):
        keys, counts = np.unique(rows[start : start + CHANGE], return_counts=True)
        hottest.append(keys[np.argsort(-counts, kind="stable")[:HOT]])
    return Drift(rows, hottest)


def settled(exponent: float, n: int, seeds: int, step: int, spans: int = SPANS) -> F64:
    """Imbalance of each slide (or batch) after a change, over the steady mean."""
    total = np.zeros(CHANGE // step)
    for seed in range(seeds):
        rows = drift_of(exponent, seed, spans).rows
        out = routed(rows, n, seed, step)
        total += window_imbalance(out, n, step, step)[CHANGE // step :].reshape(spans, -1).mean(axis=0)
    each = total / seeds
    return np.asarray(each / each[len(each) // 2 :].mean())


def routed(rows: U64, n: int, seed: int, step: int) -> NDArray[np.int32]:
    """By the tuple-at-a-time form where ``step`` is the slide, else by batches of ``step``."""
    if step == SLIDE:
        return make_router("dalton", n, seed, WINDOW, SLIDE).route(rows)
    router = BatchRouter(n, seed)
    return np.concatenate([router.route(rows[at : at + step]) for at in range(0, len(rows), step)])


def old_fragments(exponent: float, n: int, seed: int) -> tuple[float, float]:
    """Workers a key, of the keys that were hottest before a change: in the window before it, and in the first window
    that lies wholly after it."""
    drift = drift_of(exponent, seed, spans=1)
    out = routed(drift.rows, n, seed, SLIDE)
    spans = [slice(CHANGE - WINDOW, CHANGE), slice(CHANGE + SLIDE, CHANGE + SLIDE + WINDOW)]
    found = []
    for span in spans:
        old = np.isin(drift.rows[span], drift.hottest[0])
        found.append(float(window_replication(drift.rows[span][old], out[span][old], int(old.sum())).mean()))
    return found[0], found[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    seeds = parser.parse_args().seeds
    if not kernels.COMPILED:
        print("numba is not installed: pip install 'unskew[fast]'")
        return
    for exponent in (1.0, 1.5):
        for n in (8, 16, 64):
            slides = settled(exponent, n, seeds, SLIDE)
            batches = settled(exponent, n, seeds, BATCH)
            before, after = old_fragments(exponent, n, 0)
            print(
                f"z {exponent} n {n:>2}  slides after a change {np.round(slides[:6], 2)}   batches of {BATCH:,} "
                f"{np.round(batches[:4], 2)}   workers of old hot keys {before:.2f} -> {after:.2f}"
            )


if __name__ == "__main__":
    main()
