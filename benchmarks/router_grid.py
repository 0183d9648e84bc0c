"""FIDELITY's grid for every router: imbalance against an oracle on the same hashes, replication, and cost.

Every router of the registry is measured, so a new one needs no line here; ``MARKS`` are what some of them must reach,
and ``data/router_medians.csv`` is where the others were, so that a change shows (``tests/sweeps/test_router_grid.py``).
Beside our medians stand the rows of FIDELITY's table: the authors' Java, one hash draw, 5 M tuples.

Run: ``python -m benchmarks.router_grid`` (3 minutes; ``--full`` with four times the rows, ``--routers dalton,pk2``
for some, ``--write`` to put the medians on record, of those routers only where some are named).
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.grid import (
    BATCHES,
    CELLS,
    EXPONENTS,
    WINDOW,
    WORKERS,
    Bound,
    Dose,
    Figures,
    Stream,
    bound_of,
    measure,
    measure_batched,
    stream_of,
)
from unskew.core.kernels import base as kernels
from unskew.core.routers import ROUTERS
from unskew.core.routers.dalton import PAPER

MEDIANS = Path(__file__).parent / "data" / "router_medians.csv"
SEEDS, FEW = range(10), range(3)

Cell = tuple[float, int]
Results = Mapping[str, Sequence[Figures]]  # of one cell: a router's figures, seed by seed
Contender = Callable[[Stream, int, Bound], Figures]

AUTHORS: dict[Cell, dict[str, tuple[float, float]]] = {
    cell: dict(zip(("hash", "pk2", "cam", "cm", "dagreedy", "dalton paper"), row, strict=True))
    for cell, row in {
        (1.0, 8): ((1.45, 1), (1.00, 1.15), (1.45, 1), (1.51, 1.17), (1.45, 1), (1.45, 1)),
        (1.5, 8): ((3.20, 1), (1.56, 1.03), (3.07, 1), (2.74, 1.24), (1.21, 1.00), (1.49, 1.01)),
        (1.0, 16): ((2.28, 1), (1.01, 1.14), (2.03, 1), (2.00, 1.18), (1.56, 1), (1.75, 1.00)),
        (1.5, 16): ((6.27, 1), (3.09, 1.02), (6.14, 1), (4.22, 1.25), (1.34, 1.00), (1.56, 1.01)),
        (1.0, 64): ((5.88, 1), (2.68, 1.12), (5.33, 1), (3.78, 1.19), (1.59, 1), (1.68, 1.08)),
        (1.5, 64): ((24.6, 1), (12.3, 1.03), (24.6, 1), (15.2, 1.26), (1.35, 1.03), (4.52, 1.07)),
    }.items()
}
HASH_MEANS = {(1.0, 8): 1.60, (1.0, 16): 2.25, (1.0, 64): 6.25, (1.5, 8): 3.70, (1.5, 16): 6.73, (1.5, 64): 25.2}


# -- measuring ----------------------------------------------------------------------------------------------


def contenders() -> dict[str, Contender]:
    """Everything that is measured, by name: all routers, and Dalton with the paper's settings and by micro-batches."""

    def whole(name: str, settings: Mapping[str, object]) -> Contender:
        return lambda stream, n, bound: measure(name, stream, n, bound, **settings)

    def by_batches(size: int) -> Contender:
        return lambda stream, n, bound: measure_batched(size, stream, n, bound)

    return {
        **{name: whole(name, {}) for name in ROUTERS},
        "dalton paper": whole("dalton", PAPER),
        **{f"dalton by {size}": by_batches(size) for size in BATCHES},
    }


def results(cell: Cell, seeds: Iterable[int], dose: Dose, names: Sequence[str] | None = None) -> Results:
    """The figures of all contenders, or of those named, in one cell of the grid."""
    exponent, n = cell
    chosen = {name: run for name, run in contenders().items() if names is None or name in names}
    out: dict[str, list[Figures]] = {name: [] for name in chosen}
    for seed in seeds:
        stream = stream_of(exponent, seed, dose)
        bound = bound_of(stream, n)
        for name, run in chosen.items():
            out[name].append(run(stream, n, bound))
    return out


# -- what must hold -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mark:
    """A limit for one contender in some cells. ``of`` says whether the median seed must keep it, or the worst."""

    name: str
    what: str
    value: Callable[[Figures, int], float]
    limit: float
    of: Callable[[Sequence[float]], float] = max
    exponents: Sequence[float] = EXPONENTS
    workers: Sequence[int] = WORKERS

    def reached(self, cell: Cell, found: Results) -> float | None:
        """What was reached, or None where the mark does not apply."""
        if self.name not in found or cell[0] not in self.exponents or cell[1] not in self.workers:
            return None
        return float(self.of([self.value(figures, cell[1]) for figures in found[self.name]]))


def _median(values: Sequence[float]) -> float:
    return float(np.median(values))


def _but_one_row(figures: Figures, n: int) -> float:
    return figures.highest - n / WINDOW


MARKS = (
    Mark("pk2", "imbalance / max(1, p1 n / 2), median seed", lambda f, _: f.imbalance / f.halved, 1.05, _median),
    Mark("pk2", "imbalance / heaviest pair of workers", lambda f, _: f.imbalance / f.paired, 1.05),
    Mark("porc", "worst window's imbalance, less a row", _but_one_row, 1.01),
    Mark("chbl", "worst window's imbalance, less a row", _but_one_row, 1.01),
    Mark("dalton", "window imbalance / B", lambda f, _: f.ratio, 1.15),
    Mark("dalton", "replication", lambda f, _: f.replication, 1.10, workers=(8, 16)),
    Mark("dalton", "replication", lambda f, _: f.replication, 1.25, workers=(64,)),
    Mark("dalton", "uniform: imbalance / hash", lambda f, _: f.imbalance / f.hashed, 1.02, exponents=(0.0,)),
    Mark("dalton", "uniform: replication", lambda f, _: f.replication, 1.01, exponents=(0.0,)),
    Mark("dalton by 10000", "batch imbalance / B", lambda f, _: f.batch_ratio(10_000), 1.15),
    Mark("dalton by 60000", "batch imbalance / B", lambda f, _: f.batch_ratio(60_000), 1.15),
)


def missed(cell: Cell, found: Results) -> list[str]:
    """Every mark of this cell that is not reached, in words."""
    reached = [(mark, mark.reached(cell, found)) for mark in MARKS]
    return [
        f"z {cell[0]}, n {cell[1]}, {mark.name}: {mark.what} is {value:.3f}, allowed {mark.limit}"
        for mark, value in reached
        if value is not None and value > mark.limit
    ]


# -- what is on record --------------------------------------------------------------------------------------

FIGURES: dict[str, Callable[[Figures], float]] = {
    "imbalance": lambda f: f.imbalance,
    "ratio": lambda f: f.ratio,
    "slide": lambda f: f.batch[1_000],
    "replication": lambda f: f.replication,
}
PARTS = ("median", "low", "high", "few")


@dataclass(frozen=True)
class Spread:
    """A figure over the seeds; ``few`` is the median of the first of them, which a small dose draws again."""

    median: float
    low: float
    high: float
    few: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(_median(values), min(values), max(values), _median(values[: len(FEW)]))

    def strays(self, values: Sequence[float]) -> bool:
        """Whether the median of these seeds, few or all, is a quarter of what seeds differ by from the one on record,
        and more than half a percent: other draws of numpy's stay inside, another rule does not."""
        before = self.few if len(values) == len(FEW) else self.median
        return abs(_median(values) - before) > 0.25 * (self.high - self.low) + 0.005 * before


Record = dict[tuple[str, float, int], dict[str, Spread]]


def recorded() -> Record:
    """The medians on record, by router, z and n."""
    with MEDIANS.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    return {
        (row["router"], float(row["z"]), int(row["n"])): {
            figure: Spread(*(float(row[f"{figure}_{part}"]) for part in PARTS)) for figure in FIGURES
        }
        for row in rows
    }


def write(record: Record) -> None:
    """Put these on record, in the registry's order."""
    order = {name: at for at, name in enumerate(contenders())}
    kept = sorted((key for key in record if key[0] in order), key=lambda key: (order[key[0]], key[1:]))
    with MEDIANS.open("w", newline="", encoding="utf-8") as lines:
        out = csv.writer(lines, lineterminator="\n")
        out.writerow(["router", "z", "n", *(f"{f}_{part}" for f in FIGURES for part in PARTS)])
        for key in kept:
            spreads = [record[key][figure] for figure in FIGURES]
            out.writerow([*key, *(f"{getattr(spread, part):.4f}" for spread in spreads for part in PARTS)])


def spreads(cell: Cell, found: Results) -> Record:
    """What to put on record of one cell."""
    return {
        (name, *cell): {figure: Spread.of([read(f) for f in seeds]) for figure, read in FIGURES.items()}
        for name, seeds in found.items()
    }


def strayed(cell: Cell, found: Results, record: Record) -> list[str]:
    """Every figure that is no longer what is on record, in words."""
    command = "python -m benchmarks.router_grid --write"
    out = [f"{name} is not on record: {command} --routers {name}" for name in found if (name, *cell) not in record]
    for name, figure in product(found, FIGURES):
        spread = record.get((name, *cell), {}).get(figure)
        values = [FIGURES[figure](f) for f in found[name]]
        if spread and spread.strays(values):
            out.append(f"z {cell[0]}, n {cell[1]}, {name}: {figure} is {_median(values):.3f} on these seeds; {spread}")
    return out


# -- the table ----------------------------------------------------------------------------------------------


def show(cell: Cell, found: Results) -> None:
    """One cell's table: median and worst over the seeds."""
    exponent, n = cell
    one = next(iter(found.values()))
    low, high = min(f.bound for f in one), max(f.bound for f in one)
    print(f"\nz {exponent}  n {n}   B {_median([f.bound for f in one]):.3f} ({low:.3f} to {high:.3f})")
    print(f"{'':16} {'window':>15} {'window / B':>15} {'batch / B of':>17} {'replication':>14} {'':>7} {'authors':>12}")
    print(
        f"{'':16} {'median':>7} {'worst':>7} {'median':>7} {'worst':>7} {'1k':>5} {'10k':>5} {'60k':>5}"
        f" {'window':>7} {'stream':>6} {'ns':>7}"
    )
    for name, seeds in found.items():
        theirs = AUTHORS.get(cell, {}).get(name)
        print(f"{name:16} {_row(seeds)}" + (f" {theirs[0]:6.2f} /{theirs[1]:5.2f}" if theirs else ""))
    if cell in HASH_MEANS and "hash" in found:
        mean = np.mean([f.imbalance for f in found["hash"]])
        print(f"hash, mean over the seeds: {mean:.2f} (FIDELITY: {HASH_MEANS[cell]})")


def _row(seeds: Sequence[Figures]) -> str:
    window, ratio = [f.imbalance for f in seeds], [f.ratio for f in seeds]
    batch = " ".join(f"{_median([f.batch_ratio(size) for f in seeds]):5.2f}" for size in BATCHES)
    return (
        f"{_median(window):7.3f} {max(window):7.3f} {_median(ratio):7.3f} {max(ratio):7.3f} {batch}"
        f" {_median([f.replication for f in seeds]):7.3f} {_median([f.whole for f in seeds]):6.3f}"
        f" {_median([f.nanoseconds for f in seeds]):7.1f}"
    )


def _names(text: str | None) -> list[str] | None:
    if text is None:
        return None
    unknown = set(names := text.split(",")) - set(contenders())
    if unknown:
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; there are: {', '.join(contenders())}")
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--routers", help="some of them, with commas between")
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--full", action="store_true", help="four times the rows")
    parser.add_argument("--write", action="store_true", help=f"put the medians on record in {MEDIANS.name}")
    given = parser.parse_args()
    if given.write and (given.full or given.seeds != len(SEEDS)):
        raise SystemExit("--write: the record is of the usual rows and seeds, so neither --full nor --seeds")
    names = _names(given.routers)
    if not kernels.COMPILED:
        print("numba is not installed: pip install 'unskew[fast]'")
        return
    dose = Dose(1_200_000) if given.full else Dose()
    print(f"FIDELITY's grid: {dose.rows:,} tuples, {given.seeds} seeds; figures from tuple {dose.warm:,} on")
    record = recorded() if names and MEDIANS.exists() else {}
    misses: list[str] = []
    for cell in CELLS:
        found = results(cell, range(given.seeds), dose, names)
        show(cell, found)
        record.update(spreads(cell, found))
        misses += missed(cell, found)
    print("\nmarks: all reached" if not misses else "\nmarks NOT reached:\n" + "\n".join(misses))
    if given.write:
        write(record)
        print(f"written: {MEDIANS.name}, {len(record)} rows")


if __name__ == "__main__":
    main()
