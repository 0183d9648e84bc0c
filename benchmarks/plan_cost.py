"""What a plan costs to make and to use, each beside a bare numpy call on the same data in the same run.

Targets: ``prompt`` for 1 M distinct keys and 64 blocks within 3x of ``numpy.argsort`` of the same counts; routing
with 64 hot keys within 12x of one ``numpy.take`` of the same length. The two sides are timed in turns, because the
machine is shared; the median of the ratios is what counts.

Run: ``python benchmarks/plan_cost.py``
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from unskew.core.histogram.histogram import Histogram
from unskew.core.planners import PLANNERS, make_planner

ROUNDS = 9


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def beside(ours: Callable[[], object], peer: Callable[[], object], rounds: int = ROUNDS) -> tuple[float, float, float]:
    """Best time of each in ms, and the median of the paired ratios."""
    pairs = [(seconds(ours), seconds(peer)) for _ in range(rounds)]
    ratio = float(np.median([a / b for a, b in pairs]))
    return min(a for a, _ in pairs) * 1e3, min(b for _, b in pairs) * 1e3, ratio


def million_keys(exponent: float) -> Histogram:
    rng = np.random.default_rng(1)
    hashes = np.unique(rng.integers(0, 2**64, 1_000_100, dtype=np.uint64))[:1_000_000]
    share = 1.0 / np.arange(1, 1_000_001) ** exponent
    counts = 1 + rng.multinomial(9_000_000, share / share.sum())
    return Histogram.from_counts(hashes, rng.permutation(counts))


def planning() -> None:
    print("planning, 1 M distinct keys, beside numpy.argsort of the same counts (target for prompt: 3x)")
    for exponent in (0.5, 1.0, 1.5):
        histogram = million_keys(exponent)
        for name in PLANNERS:
            planner = make_planner(name, 64)
            ours, peer, ratio = beside(
                lambda p=planner, h=histogram: p.plan(h), lambda h=histogram: np.argsort(h.counts)
            )
            print(f"  z {exponent}  {name:9} {ours:8.1f} ms   argsort {peer:6.1f} ms   {ratio:5.2f}x")


def routing() -> None:
    print("routing 1 M rows, beside one numpy.take of the same length (target with 64 hot keys: 12x)")
    rng = np.random.default_rng(2)
    spread = rng.integers(0, 2**64, 1_000_000, dtype=np.uint64)
    table = rng.integers(0, 64, 4096).astype(np.int32)
    for exponent in (0.5, 1.0, 1.5):
        share = 1.0 / np.arange(1, 100_001) ** exponent
        keys = rng.integers(0, 2**64, 100_000, dtype=np.uint64)
        rows = keys[rng.choice(100_000, 1_000_000, p=share / share.sum())]
        histogram = Histogram.from_hashes(rows)
        at = (rows >> np.uint64(52)).astype(np.int64)
        plans = {
            "kip, 64 hot keys": make_planner("kip", 64, factor=1.0).plan(histogram),
            "prompt, 64 hot keys": make_planner("prompt", 64, listed=64).plan(histogram),
            "prompt, all it wants": make_planner("prompt", 64).plan(histogram),
            "hash": make_planner("hash", 64).plan(histogram),
        }
        for name, plan in plans.items():
            ours, peer, ratio = beside(lambda p=plan, r=rows: p.route(r, spread), lambda i=at: np.take(table, i))
            hot = float(np.mean(np.isin(rows, plan.hot.hashes)))
            print(
                f"  z {exponent}  {name:21} {ours:6.2f} ms   take {peer:5.2f} ms   {ratio:5.2f}x   "
                f"{len(plan.hot)} hot keys with {hot:.0%} of the rows"
            )


def main() -> None:
    import sys

    if len(sys.argv) < 2:
        planning()
    routing()


if __name__ == "__main__":
    main()
