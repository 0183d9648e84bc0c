"""What routing a tuple costs, beside a bare compiled two-choice loop in the same run; imbalance and replication too.

The peer is the least that a load-aware router can do: two hashes, compare two counters, add one; no window. Targets:
hash, pk2, cam and porc within 4x of it, dalton within 16x, dchoices and wchoices within 15x, dagreedy within 40x.

Run: ``python benchmarks/routers.py`` (needs numba: plain Python costs microseconds a tuple)
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from unskew.core import quality
from unskew.core.kernels import base as kernels
from unskew.core.kernels import choices
from unskew.core.routers import ROUTERS, make_router

ROWS, KEYS, ROUNDS = 1_000_000, 100_000, 5


@kernels.kernel
def two_choices(keys: NDArray[np.uint64], out: NDArray[np.int32], load: NDArray[np.int64]) -> None:
    workers = load.shape[0]
    for i in range(keys.shape[0]):
        first = choices.chosen(keys[i], np.uint64(1), workers)
        second = choices.chosen(keys[i], np.uint64(2), workers)
        best = second if load[second] < load[first] else first
        out[i] = best
        load[best] += 1


def zipf(exponent: float) -> NDArray[np.uint64]:
    rng = np.random.default_rng(1)
    share = 1.0 / np.arange(1, KEYS + 1) ** exponent
    return rng.integers(0, 2**64, KEYS, dtype=np.uint64)[rng.choice(KEYS, ROWS, p=share / share.sum())]


def bare(keys: NDArray[np.uint64], n: int) -> float:
    out, load = np.empty(len(keys), np.int32), np.zeros(n, np.int64)
    start = time.perf_counter()
    two_choices(keys, out, load)
    return time.perf_counter() - start


def ours(name: str, keys: NDArray[np.uint64], n: int) -> tuple[float, NDArray[np.int32]]:
    router = make_router(name, n, window=60_000, slide=1_000)
    start = time.perf_counter()
    out = router.route(keys)
    return time.perf_counter() - start, out


def main() -> None:
    if not kernels.COMPILED:
        print("numba is not installed: pip install 'unskew[fast]'")
        return
    print(f"{ROWS:,} tuples, {KEYS:,} keys, window 60,000 by 1,000; ns a tuple and times the bare two-choice loop")
    for exponent in (0.0, 1.0, 1.5):
        keys = zipf(exponent)
        for n in (8, 64):
            bare(keys, n)
            for name in ROUTERS:
                ours(name, keys[:1000], n)
                pairs = [(ours(name, keys, n), bare(keys, n)) for _ in range(ROUNDS)]
                ratio = float(np.median([own / peer for (own, _), peer in pairs]))
                best, out = min(own for (own, _), _ in pairs), pairs[0][0][1]
                print(
                    f"  z {exponent}  n {n:>2}  {name:8} {best / ROWS * 1e9:7.1f} ns {ratio:6.2f}x   "
                    f"imbalance {quality.imbalance(out, n):6.3f}   replication {quality.replication(keys, out):.3f}"
                )


if __name__ == "__main__":
    main()
