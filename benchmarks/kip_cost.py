"""What a KIP update costs, and that it does not depend on the stream's length.

    python benchmarks/kip_cost.py [--repeats 9]

N = 256 over Zipf(1) streams of 1, 4 and 16 M rows and 1 M keys. A stream arrives as what its workers report: a
bounded summary of the top 4 * lambda * N keys and the rest by host. Lengths and planners take turns within one
run, the best of the repeats counts. Claims (KIP/DR, section 5): the list is all that is gathered, so the update is
independent of the stream; it costs less than the peers' updates.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from unskew.core.arrays.ranking import heaviest
from unskew.core.histogram.histogram import Histogram
from unskew.core.keys.hashing import mix
from unskew.core.limits import host_bits
from unskew.core.plan.plan import Plan
from unskew.core.planners.registry import make_planner

PARTITIONS, KEYS, LISTED = 256, 1_000_000, 4 * 2 * 256
LENGTHS = (1_000_000, 4_000_000, 16_000_000)
POLICIES = ("kip", "scan", "readj", "redist", "mixed")


def counted(rows: int, seed: int) -> Histogram:
    weights = 1 / np.arange(1, KEYS + 1)
    counts = np.random.default_rng(seed).multinomial(rows, weights / weights.sum())
    return Histogram.from_counts(mix(np.arange(KEYS, dtype=np.uint64), 5), counts)


def summarised(full: Histogram) -> Histogram:
    """The heaviest keys, and rows and keys per host for the others."""
    listed = np.zeros(len(full.hashes), bool)
    listed[heaviest(full.hashes, full.counts, LISTED)] = True
    tail = full.fold(listed, host_bits(PARTITIONS))
    return Histogram.from_counts(full.hashes[listed], full.counts[listed], tail)


def update_seconds(policy: str, histogram: Histogram, previous: Plan) -> float:
    forced = {"gate": False} if policy == "kip" else {}
    planner = make_planner(policy, PARTITIONS, **forced)
    start = time.perf_counter()
    planner.plan(histogram, previous)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9)
    repeats = parser.parse_args().repeats
    before = make_planner("kip", PARTITIONS).plan(summarised(counted(1_000_000, 1)))
    summaries = {rows: summarised(counted(rows, 2)) for rows in LENGTHS}
    best = {(policy, rows): np.inf for policy in POLICIES for rows in LENGTHS}
    for _ in range(repeats):
        for (policy, rows), so_far in best.items():
            best[policy, rows] = min(so_far, update_seconds(policy, summaries[rows], before))
    print(f"update of a plan for N = {PARTITIONS}, {LISTED} listed keys, ms; the same over kip's at that length")
    print("rows      " + "".join(f"{policy:>16}" for policy in POLICIES))
    for rows in LENGTHS:
        cells = [
            f"{best[policy, rows] * 1e3:9.1f} {best[policy, rows] / best['kip', rows]:5.2f}x" for policy in POLICIES
        ]
        print(f"{rows:<10,d}" + "".join(cells))
    growth = best["kip", LENGTHS[-1]] / best["kip", LENGTHS[0]]
    verdict = "reached" if growth < 1.5 else "NOT reached"
    print(f"claim: independent of the stream's length; ours: {growth:.2f}x for 16 times the rows, {verdict} (< 1.5)")


if __name__ == "__main__":
    main()
