"""How even the tasks are that ``assign`` decides on from a sample, replayed on the true loads: no Spark.

Keys by Zipf's law in cells by chance, rows alike in all map tasks, a sample of 100,000 rows, as many slots as
partitions. Printed: the makespan of the true loads over the least possible (an even share; where keys stay whole the
heaviest key, if that is more).

Run: ``python -m benchmarks.in_flight_decision`` (seconds)
"""

from __future__ import annotations

import numpy as np

from unskew.core.in_flight.assign import CellRange, assign
from unskew.core.in_flight.cell_loads import CellLoads
from unskew.core.quality.measures import makespan

KEYS, SAMPLE = 100_000, 100_000
SIZES = ((16, 64, 8), (16, 2_048, 8), (64, 256, 32), (64, 2_048, 1_000), (2_048, 65_536, 10_000))


def share_of(one: CellRange, cells: np.ndarray, tasks: int) -> float:
    """The share of all rows that a task has."""
    whole = float(cells[one.first : one.last].sum())
    return whole if one.maps is None else whole * (one.maps[1] - one.maps[0]) / tasks


def main() -> None:
    rng = np.random.default_rng(1)
    print("| Zipf | partitions | cells | map tasks | cut | whole |\n|---|---|---|---|---|---|")
    for exponent in (0.0, 1.0, 1.5, 2.0):
        shares = np.arange(1, KEYS + 1.0) ** -exponent
        shares /= shares.sum()
        for n, cells, tasks in SIZES:
            cell_of = rng.integers(0, cells, KEYS)
            true = np.bincount(cell_of, shares, cells)
            drawn = rng.choice(KEYS, SAMPLE, p=shares)
            loads = CellLoads(cell_of[drawn], rng.integers(0, tasks, SAMPLE), np.ones(SAMPLE), cells, tasks)
            ends = []
            for cut in (True, False):
                ranges = assign(loads, n, n, cut=cut).ranges
                least = 1.0 / n if cut else max(1.0 / n, float(shares.max()))
                ends.append(makespan([share_of(one, true, tasks) for one in ranges], n) / least)
            print(f"| {exponent} | {n:,} | {cells:,} | {tasks:,} | {ends[0]:.2f} | {ends[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
