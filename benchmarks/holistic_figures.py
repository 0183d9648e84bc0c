"""Holistic's algorithms in windows beside what its text says, and its selection rule beside what measures best.

The paper's figures are drawings without numbers, on data that is not at hand; what can be compared is its statements.
All names are its own (Table 2): SH shuffle, FLD hash, -2 and -5 choices, -H with HyperLogLog (2^12 registers).

Run: ``python benchmarks/holistic_figures.py`` (needs numba for the ns; about a minute)
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unskew.core import make_router, quality
from unskew.core.kernels import base as kernels
from unskew.core.quality.measures import LinearCost
from unskew.simulate.router_choice import Workload, recommend

WINDOW, WINDOWS, KEYS = 60_000, 3, 100_000
HLL = {"cardinality": "hll"}
ALGORITHMS: dict[str, tuple[str, dict[str, object]]] = {
    "SH": ("shuffle", {}),
    "FLD": ("hash", {}),
    "PK-2": ("pk2", {}),
    "PK-5": ("pk5", {}),
    "CM-2": ("cm", {}),
    "AM-2": ("am", {}),
    "AM-5": ("am", {"choices": 5}),
    "cAM-2": ("cam", {}),
    "cAM-5": ("cam", {"choices": 5}),
    "LM-2": ("lm", {}),
    "CM-2-H": ("cm", HLL),
    "AM-2-H": ("am", HLL),
    "AM-5-H": ("am", {"choices": 5, **HLL}),
    "cAM-2-H": ("cam", HLL),
    "cAM-5-H": ("cam", {"choices": 5, **HLL}),
    "LM-2-H": ("lm", HLL),
    "AM-2-H, first": ("am", {"as_published": True, **HLL}),
    "cAM-2-H, first": ("cam", {"as_published": True, **HLL}),
}
SAID = """What the paper says, and where it shows above:
- SH: optimal tuple imbalance, the worst aggregation (every key everywhere)         rows 1.000, highest replication
- FLD: minimal aggregation, does not balance                                       replication 1, rows worst
- PK-5 balances better than PK-2 and aggregates more                               rows, replication
- CM is blind to tuples: even in keys, "tuple imbalance will be increased"         keys 1.0, rows above PK
- AM, cAM: aggregation of FLD, more even (Fig. 7: imbalance relative to FLD < 1)   replication 1, keys / rows below FLD
- -5 evens more than -2 (Fig. 7), as far as the heaviest key allows                rows, keys
- AM-2-H "fails to perform in the same level as AM-2" but is near (Figs. 7, 8)     AM-2-H beside AM-2
- HLL memory does not depend on keys (Table 4: 0.02 MB at 8 workers of 5-bit registers, 243 or 122 MB of exact sets)"""


def zipf(keys: int, rows: int, exponent: float, seed: int = 1) -> NDArray[np.uint64]:
    rng = np.random.default_rng(seed)
    share = 1.0 / np.arange(1, keys + 1) ** exponent
    return rng.integers(0, 2**64, keys, dtype=np.uint64)[rng.choice(keys, rows, p=share / share.sum())]


def per_window(measure: Callable[..., float], hashes: NDArray[np.uint64], out: NDArray[np.int32]) -> float:
    parts = [slice(start, start + WINDOW) for start in range(0, len(hashes), WINDOW)]
    return float(np.median([measure(hashes[part], out[part]) for part in parts]))


def figures(hashes: NDArray[np.uint64], n: int) -> None:
    print(f"  {'':15} {'rows':>7} {'keys':>7} {'replication':>12} {'split keys':>11} {'ns':>7} {'state, MB':>10}")
    for name, (policy, parameters) in ALGORITHMS.items():
        make_router(policy, n, **parameters).route(hashes[:100])
        router = make_router(policy, n, window=WINDOW, **parameters)
        start = time.perf_counter()
        out = router.route(hashes)
        ns = (time.perf_counter() - start) / len(hashes) * 1e9
        rows = per_window(lambda _, o: quality.imbalance(o, n), hashes, out)
        keys = per_window(lambda h, o: quality.load_imbalance(quality.cardinalities(h, o, n)), hashes, out)
        replication = per_window(quality.replication, hashes, out)
        split = per_window(quality.split_share, hashes, out)
        state = getattr(router.algorithm, "nbytes", None)
        held = "" if state is None else f"{state / 1e6:.2f}"
        print(f"  {name:15} {rows:7.3f} {keys:7.3f} {replication:12.3f} {split:11.2%} {ns:7.1f} {held:>10}")


def spent(hashes: NDArray[np.uint64], out: NDArray[np.int32], n: int, cost: LinearCost) -> float:
    """Processing and aggregation: the slowest task, and Gamma merged."""
    tasks = cost.tasks(quality.loads(out, n), quality.cardinalities(hashes, out, n))
    return quality.makespan(tasks) + cost.per_fragment * quality.holistic(hashes, out, n).gamma


def selection() -> None:
    cost, among = LinearCost(), ("shuffle", "hash", "pk2", "pk5", "cm", "am", "cam", "lm")
    print(
        f"\nSelection rule, a window of {WINDOW:,} rows; cost in rows: slowest task + {cost.per_fragment:g} a fragment"
    )
    print(f"  {'n':>3} {'keys':>7} {'z':>4} {'shuffle':>9} {'cam':>9} {'best of 8':>15} {'rule':>8} {'above best':>11}")
    for n in (8, 32):
        for exponent in (0.0, 1.0):
            for keys in (4, 16, 64, 256, 1_000, 10_000, 100_000):
                hashes = zipf(keys, WINDOW, exponent)
                _, counts = np.unique(hashes, return_counts=True)
                costs = {name: spent(hashes, make_router(name, n).route(hashes), n, cost) for name in among}
                best = min(costs, key=lambda name: costs[name])
                chosen = recommend(Workload(WINDOW, len(counts), n, int(counts.max()))).router
                print(
                    f"  {n:>3} {keys:>7,} {exponent:>4} {costs['shuffle']:>9,.0f} {costs['cam']:>9,.0f} "
                    f"{best:>7}{costs[best]:>8,.0f} {chosen:>8} {costs[chosen] / costs[best] - 1:>11.1%}"
                )


def main() -> None:
    if not kernels.COMPILED:
        print("numba is not installed: pip install 'unskew[fast]'")
        return
    print(f"{WINDOWS} windows of {WINDOW:,} rows, {KEYS:,} keys; per window: max/mean of rows, of keys; medians")
    for exponent in (0.0, 1.0, 1.5):
        hashes = zipf(KEYS, WINDOWS * WINDOW, exponent)
        for n in (8, 32):
            print(f"\nz = {exponent}, n = {n}")
            figures(hashes, n)
    print(f"\n{SAID}")
    selection()


if __name__ == "__main__":
    main()
