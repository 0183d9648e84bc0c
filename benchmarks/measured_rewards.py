"""Does it pay to learn from measured seconds where partitions are workers, and in which form?

Micro-batches of Zipf keys go to n workers. A batch takes as long as its slowest worker: what its rows cost, over the
worker's speed. Then each worker reports its rows and seconds (5 % off, at random). Every way sees the batch's own
counts, so that what is compared is what it knows of workers and costs. Printed are the makespan over the least there
can be (work over the sum of the speeds), and the replication: means of all batches but the first few, of stationary
keys and of other hot keys every five batches.

- ``loads``: what ships; rewards are loads, in rows. ``agents`` route tuple by tuple, ``tasks`` is ``learn=True``,
  ``dalton`` the planner;
- ``seconds``: rewards by the measured seconds. The null baselines beside it: ``reset`` and ``alone`` forget the Q-table
  after each batch, ``explore`` has epsilon = 1;
- ``capacities``: the same measurement as ``weights=`` of a plan, without a Q-table, and for ``dalton`` with one;
  ``last`` without a running mean;
- ``signals``: the planner ``cg`` by what the service makes of the same reports, which ships;
- ``truth``: ``balanced`` by the true speeds (``weights=``), and by the true cost of each key (``weight=``).

Run: ``python -m benchmarks.measured_rewards`` (3 minutes of a core; ``--rows``, ``--batches`` for others)
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.measured_ways import NULLS, SEED, Batch, Place, Reports, ways
from unskew.core.histogram.histogram import Histogram
from unskew.simulate.key_streams import zipf_keys

F64 = NDArray[np.float64]

KEYS, ROWS, BATCHES, WARM = 20_000, 30_000, 20, 6
NOISE, CHANGE = 0.05, 5
COSTLY, COST = (1, 4, 8), 10.0
"""Ranks of the keys whose rows cost so many times what others do."""
PARTITIONS, EXPONENTS = (16, 64), (1.0, 1.5)
ALIKE, ONE, QUARTER, TURNS = "all alike", "one of 16 at half speed", "a quarter at half speed", "one turns slow"
WORKERS = (ALIKE, ONE, QUARTER, TURNS)
GAIN = 0.9
"""A way must take at most so much of another's time to be worth having beside it."""
PAYS, LOSES, SAME = "pays", "loses", "within 10 %"


@dataclass(frozen=True)
class Cell:
    """A stream, its workers, and what its keys cost."""

    workers: str
    costly: bool
    n: int
    exponent: float
    drifts: bool = False

    def speeds(self, *, late: bool) -> F64:
        speeds = np.ones(self.n)
        if self.workers == ONE:
            speeds[5::16] = 0.5
        if self.workers == QUARTER:
            speeds[1::4] = 0.5
        if self.workers == TURNS and late:
            speeds[5] = 0.5
        return speeds


@dataclass(frozen=True)
class Figures:
    """Makespan over the least there can be, and replication."""

    makespan: float
    copies: float


def stream(cell: Cell, rows: int, batches: int) -> Iterator[Batch]:
    rng = np.random.default_rng(SEED)
    names = rng.integers(0, 2**64, KEYS, dtype=np.uint64)
    for number in range(batches):
        if cell.drifts and number and number % CHANGE == 0:
            names = rng.permutation(names)
        ranks = zipf_keys(rng, rows, KEYS, cell.exponent)
        costs = np.where(np.isin(ranks, COSTLY), COST, 1.0) if cell.costly else np.ones(rows)
        keys, index, counts = np.unique(names[ranks], return_inverse=True, return_counts=True)
        work = np.bincount(index, weights=costs).round().astype(np.int64)
        yield Batch(
            number, names[ranks], rng.integers(0, 2**64, rows, dtype=np.uint64), costs,
            cell.speeds(late=2 * number >= batches),
            Histogram.from_counts(keys, counts), Histogram.from_counts(keys, work),
        )  # fmt: skip


def run(cell: Cell, rows: int, batches: int, warm: int = WARM) -> dict[str, Figures]:
    """The figures of each way."""
    every = list(stream(cell, rows, batches))
    return {name: follow(place, every, warm) for name, place in ways(cell.n, rows).items()}


def follow(place: Place, every: list[Batch], warm: int) -> Figures:
    """One way through all batches."""
    rng, reports, figures = np.random.default_rng(SEED + 1), Reports(), []
    for batch in every:
        n = len(batch.speeds)
        at = place(batch, reports)
        seconds = batch.seconds(at)
        reports = reports.plus(np.bincount(at, minlength=n), seconds * rng.lognormal(0.0, NOISE, n))
        pairs = len(np.unique(np.searchsorted(batch.histogram.hashes, batch.keys) * n + at))
        figures.append((seconds.max() / batch.ideal, pairs / len(batch.histogram.hashes)))
    makespan, copies = np.mean(figures[warm:], axis=0)
    return Figures(float(makespan), float(copies))


# -- what is printed ---------------------------------------------------------------------------------------------

Found = dict[Cell, dict[str, Figures]]


def table(found: Found, workers: str, *, costly: bool) -> str:
    """A line for each way: makespan / replication for each n and exponent."""
    columns = [(n, z) for n in PARTITIONS for z in EXPONENTS]
    lines = [f"\nworkers: {workers}{', three hot keys cost 10 times as much' if costly else ''}"]
    lines.append(f"{'':<28}" + "".join(f"{f'n {n}, z {z:g}':>16}" for n, z in columns))
    for name in ways(2, 1):
        cells = (mean(found, name, Cell(workers, costly, n, z)) for n, z in columns)
        lines.append(f"{name:<28}" + "".join(f"{one.makespan:>9.2f} / {one.copies:4.2f}" for one in cells))
    return "\n".join(lines)


def mean(found: Found, name: str, cell: Cell) -> Figures:
    """Of the stationary and the drifting stream."""
    both = [found[Cell(cell.workers, cell.costly, cell.n, cell.exponent, drifts)][name] for drifts in (False, True)]
    return Figures(float(np.mean([one.makespan for one in both])), float(np.mean([one.copies for one in both])))


def ratios(found: Found, name: str, others: tuple[str, ...], workers: tuple[str, ...], *, costly: bool) -> F64:
    """The makespan of a way over that of the best of the others, cell by cell."""
    some = [figures for cell, figures in found.items() if cell.workers in workers and cell.costly == costly]
    return np.array([one[name].makespan / min(one[other].makespan for other in others) for one in some])


def verdicts(found: Found) -> list[str]:
    """What the figures say, and whether it is what decision 34 rests on."""
    loads, unlike, every = ("agents, loads", "tasks, loads", "dalton, loads"), (ONE, QUARTER, TURNS), WORKERS
    lines = [
        verdict(SAME, f"{name}, against its null baselines{words}", ratios(found, name, nulls, every, costly=costly))
        for costly, words in ((False, ""), (True, ", costly keys"))
        for name, nulls in NULLS.items()
    ]
    pairs = (
        (PAYS, "dalton, seconds", ("dalton, loads",), unlike, False, "dalton, loads"),
        (PAYS, "cg, signals", loads, unlike, False, "the best that learns by loads"),
        (PAYS, "balanced, capacities", tuple(NULLS), unlike, False, "the best that learns by seconds"),
        (SAME, "balanced, capacities", ("cg, signals",), unlike, False, "cg, signals"),
        (SAME, "balanced, capacities", ("balanced",), (ALIKE,), False, "balanced, workers alike"),
        (PAYS, "balanced, capacities", ("balanced",), (ALIKE,), True, "balanced, workers alike, costly keys"),
        (PAYS, "cg, signals", ("balanced, capacities",), every, True, "balanced, capacities, costly keys"),
        (PAYS, "truth: weight", ("cg, signals",), (ALIKE,), True, "cg, signals, workers alike, costly keys"),
    )
    for mark, name, others, workers, costly, words in pairs:
        figures = ratios(found, name, others, workers, costly=costly)
        lines.append(verdict(mark, f"{name}, against {words}", figures))
    return lines


def verdict(mark: str, what: str, figures: F64) -> str:
    """Makespans over others, in words; whether the mark is held."""
    middle = float(np.exp(np.log(figures).mean()))
    word = PAYS if middle <= GAIN else LOSES if middle >= 1 / GAIN else SAME
    held = "held" if word == mark else "missed"
    return f"{held}: {what}: {word}, {middle:.2f} of the time in the mean ({figures.min():.2f} to {figures.max():.2f})"


def situations() -> tuple[tuple[str, bool], ...]:
    """Which workers there are, and whether some keys cost more."""
    return (*((workers, False) for workers in WORKERS), (ALIKE, True), (QUARTER, True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--batches", type=int, default=BATCHES)
    args = parser.parse_args()
    found: Found = {}
    for workers, costly in situations():
        for cell in (Cell(workers, costly, n, z, d) for n in PARTITIONS for z in EXPONENTS for d in (False, True)):
            found[cell] = run(cell, args.rows, args.batches)
        print(table(found, workers, costly=costly), flush=True)
    print("\n" + "\n".join(verdicts(found)))


if __name__ == "__main__":
    main()
