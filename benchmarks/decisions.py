"""What following the cheapest way so far costs, against the best single way in hindsight, plain hash and the floor.

Runs the machine that ships (``unskew.core.freshness.ways``, policy ``auto``) over streams in batches, and measures what
was really routed: the slowest partition's rows and keys plus the merging of cut keys, in even shares (1.0 is the best).
A counted batch pays ``COUNT_SHARE`` on top. Streams: Zipf that stays; Zipf 1.0 and 1.5 whose keys all change every
batch, every 10 and every 50; a slow ramp (keys swap ranks batch by batch); changed_folders, a real stream; web_paths,
of whose 10,000 real requests batches are drawn at random; with ``--file F --column C`` any other.

The first miss is excepted, as no machine can know it: the first batch in which a way from the batches before costs half
as much again as it did so far. It is left out on both sides of the ratio, and printed.

With ``--key-cost K`` a key costs K rows, and the machine gets the times of each batch's tasks: a tenth of noise, one
task in twenty ten times as long. ``--without-times`` keeps them from it.

Run: ``python -m benchmarks.decisions`` (10 minutes; ``--quick`` for batches of 10,000 rows at n = 16 and 64 only)
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unskew.core import Histogram, Plan, hash_keys
from unskew.core.freshness.batch_price import COUNT_SHARE
from unskew.core.freshness.stream_planner import StreamPlanner
from unskew.core.freshness.ways import Ways
from unskew.core.quality.cost_fit import TaskTimes
from unskew.core.quality.measures import LinearCost, cardinalities, loads, makespan
from unskew.core.stream_spec import StreamSpec
from unskew.simulate.key_streams import zipf_probabilities

U64 = NDArray[np.uint64]
DATA = Path(__file__).parent / "data"
KEYS, BATCHES = 100_000, 30
SIZES, WORKERS = (10_000, 60_000), (8, 16, 64)
SURPRISE = 1.5


@dataclass(frozen=True)
class Source:
    """A stream: Zipf whose keys all change every ``every`` batches, or ``swaps`` of them each batch; or a file's, in
    its order or ``drawn`` from it at random."""

    name: str
    exponent: float = 0.0
    every: int = 0
    swaps: int = 0
    file: Path | None = None
    column: str = "key"
    drawn: bool = False

    def batches(self, size: int) -> Iterator[U64]:
        """The key hashes of one batch after another."""
        if self.file is not None:
            column = pq.read_table(self.file, columns=[self.column]).column(0).combine_chunks()
            hashes = np.asarray(hash_keys(column))
            if self.drawn:
                hashes = np.random.default_rng(1).choice(hashes, size * BATCHES)
            yield from (hashes[at : at + size] for at in range(0, len(hashes) - size + 1, size))
            return
        rng = np.random.default_rng(round(10 * self.exponent) + self.every + self.swaps)
        ends = np.cumsum(zipf_probabilities(KEYS, self.exponent))
        key_of_rank = rng.integers(0, 2**64, KEYS, dtype=np.uint64)
        for number in range(max(BATCHES, 2 * self.every + 20)):
            if self.every and number % self.every == 0:
                key_of_rank = rng.integers(0, 2**64, KEYS, dtype=np.uint64)
            if self.swaps:
                hot, cold = rng.choice(1_000, self.swaps, replace=False), rng.choice(KEYS, self.swaps, replace=False)
                key_of_rank[hot], key_of_rank[cold] = key_of_rank[cold], key_of_rank[hot]
            yield key_of_rank[np.minimum(np.searchsorted(ends, rng.random(size)), KEYS - 1)]


SOURCES = (
    *(Source(f"zipf {z:g}", z) for z in (0.0, 0.5, 1.0, 1.5, 2.0)),
    *(Source(f"zipf {z:g}, others every {every}", z, every) for z in (1.0, 1.5) for every in (1, 10, 50)),
    Source("zipf 1.5, slow ramp", 1.5, swaps=20),
    Source("changed_folders", file=DATA / "changed_folders.parquet"),
    Source("web_paths", file=DATA / "web_paths.parquet", drawn=True),
)


@dataclass(frozen=True)
class Cell:
    """One stream in batches of ``size``: the cost of each counted batch by each way, and the way taken."""

    source: str
    size: int
    n: int
    splits: bool
    ways: dict[str, list[float]]
    taken: list[str]
    floor: float
    planned: bool

    @property
    def costs(self) -> list[float]:
        return [self.ways[way][at] for at, way in enumerate(self.taken)]

    @property
    def miss(self) -> int | None:
        """The first batch in which the way taken, one from the batches before, was surprised."""
        for at, (way, cost) in enumerate(zip(self.taken, self.costs, strict=True)):
            if at and way not in ("same", "hash") and cost > SURPRISE * fmean(self.ways[way][:at]):
                return at
        return None

    def mean(self, costs: list[float], *, without: int | None = None) -> float:
        return fmean(cost for at, cost in enumerate(costs) if at != without)

    @property
    def best(self) -> str:
        return min(self.ways, key=lambda way: self.mean(self.ways[way], without=self.miss))

    @property
    def regret(self) -> float:
        """The cost over that of the best single way in hindsight, the first miss excepted."""
        miss = self.miss
        return self.mean(self.costs, without=miss) / self.mean(self.ways[self.best], without=miss)


def run(source: Source, size: int, n: int, cost: LinearCost, *, splits: bool, timed: bool) -> Cell:
    machine = Ways(StreamPlanner("", StreamSpec(n, "auto", {"splits": splits})))
    ways: dict[str, list[float]] = {}
    taken, floors, planned = [], [], False
    for number, hashes in enumerate(source.batches(size)):
        batch = Histogram.from_hashes(hashes)
        spread = np.random.default_rng(number).integers(0, 2**64, size, dtype=np.uint64)
        counted, memo = machine.plan_counted(batch, number), dict[str, float]()
        plans = {**machine.plans, "same": counted}
        if number:  # the first finds no plan, and is counted
            for way, plan in plans.items():
                if plan.digest not in memo:
                    memo[plan.digest] = cost_of(plan, hashes, spread, batch, cost)
                ways.setdefault(way, []).append(memo[plan.digest] + (COUNT_SHARE if way == "same" else 0.0))
            taken.append(machine.next.way)
            heaviest, whole = cost.tasks([batch.counts.max(), batch.total], [1, batch.keys])
            floors.append(1.0 if splits else max(1.0, heaviest * n / whole))
            planned |= taken[-1] != "hash" and len(plans[taken[-1]].hot) > 0
        if timed:
            machine.add_times(times_of(plans[machine.next.way], hashes, spread, cost, number))
        machine.score(batch, number)
        machine.plan_ahead(number)
    return Cell(source.name, size, n, splits, ways, taken, fmean(floors), planned)


def cost_of(plan: Plan, hashes: U64, spread: U64, batch: Histogram, cost: LinearCost) -> float:
    n = plan.partitions
    at = plan.route(hashes, spread)
    keys = cardinalities(hashes, at, n)
    cuts = cost.per_fragment * (int(keys.sum()) - batch.keys) / n
    return (makespan(cost.tasks(loads(at, n), keys)) + cuts) / float(cost.tasks(batch.total / n, batch.keys / n))


def times_of(plan: Plan, hashes: U64, spread: U64, cost: LinearCost, number: int) -> TaskTimes:
    """What Spark would say of the tasks of a batch that went by this plan."""
    at, rng = plan.route(hashes, spread), np.random.default_rng(number)
    rows, keys = loads(at, plan.partitions), cardinalities(hashes, at, plan.partitions)
    slow = np.where(rng.random(len(rows)) < 0.05, 10.0, 1.0)
    return TaskTimes(rows, keys, 1e-5 * cost.tasks(rows, keys) * rng.lognormal(0.0, 0.1, len(rows)) * slow)


def show(cell: Cell) -> None:
    ways = "  ".join(f"{way} {cell.mean(costs):.2f}" for way, costs in cell.ways.items())
    taken = ", ".join(f"{way} {times}" for way, times in Counter(cell.taken).most_common())
    miss = ""
    if cell.miss is not None:
        least = min(cell.mean(costs) for costs in cell.ways.values())
        raw = cell.mean(cell.costs) / least
        miss = f"; first miss in batch {cell.miss + 1}: {cell.costs[cell.miss]:.2f}, / best way with it {raw:.3f}"
    cost = cell.mean(cell.costs)
    print(
        f"{cell.source:26} {cell.size:6,} n {cell.n:2} {'split' if cell.splits else 'whole'}  cost {cost:6.3f}"
        f"  / best way {cell.regret:.3f}  / hash {cost / cell.mean(cell.ways['hash']):.3f}"
        f"  / floor {cost / cell.floor:.3f}   [{ways}]  taken: {taken}{miss}",
        flush=True,
    )


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="batches of 10,000 rows, n = 16 and 64")
    options.add_argument("--file", type=Path, help="a Parquet file instead of the streams above")
    options.add_argument("--column", default="key")
    options.add_argument("--only", default="", help="streams whose name has this in it")
    options.add_argument("--key-cost", type=float, help="a key's cost in rows, and the machine gets task times")
    options.add_argument("--without-times", action="store_true", help="the machine does not get them")
    given = options.parse_args()
    cost = LinearCost() if given.key_cost is None else LinearCost(per_key=given.key_cost)
    timed = given.key_cost is not None and not given.without_times
    sources = SOURCES if given.file is None else (Source(given.file.stem, file=given.file, column=given.column),)
    sizes, workers = (SIZES[:1], WORKERS[1:]) if given.quick else (SIZES, WORKERS)
    cells = []
    for source, size, n, splits in product(sources, sizes, workers, (True, False)):
        if given.only in source.name:
            cells.append(run(source, size, n, cost, splits=splits, timed=timed))
            show(cells[-1])
    return judge(cells)


def judge(cells: list[Cell]) -> int:
    """The marks, computed; 1 where one is missed."""
    regrets = sorted(cell.regret for cell in cells)
    near = sum(regret <= 1.05 for regret in regrets) / len(regrets)
    hashed = max(cell.mean(cell.costs) / cell.mean(cell.ways["hash"]) for cell in cells)
    floor = max(cell.mean(cell.costs, without=cell.miss) / cell.floor for cell in cells)
    moved = [cell for cell in cells if cell.source == "zipf 0" and cell.planned]
    marks = {
        f"within 1.05 of the best single way in {near:.0%} of {len(cells)} cells (mark 95 %)": near >= 0.95,
        f"at most {regrets[-1]:.3f} of the best single way (mark 1.10)": regrets[-1] <= 1.10,
        f"at most {hashed:.3f} of plain hash (mark 1.02)": hashed <= 1.02,
        f"at most {floor:.3f} of the floor (mark 1.30)": floor <= 1.30,
        f"even streams with a plan: {len(moved)} (mark 0)": not moved,
    }
    for words, met in marks.items():
        print(f"{'met   ' if met else 'MISSED'} {words}")
    return 0 if all(marks.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
