"""The driver's own part of placing rows in flight: the sample's words read, tasks decided on, the frame made.

Statistics are made up, as many map tasks as are asked for having run: words as ``SampledCells`` brings them, of rows of
Zipf 1.5, some for each map task. The frame is made by py4j calls over a small shuffle of as many cells, and never run.
Seconds by the clock, the median of some turns, with the mark that they are held to; and processor seconds of words and
tasks, which other work on the machine changes less.

Run: ``JAVA_HOME=$(bash tools/java.sh) python -m benchmarks.in_flight_driver [--rounds 7]`` (1 minute)
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace

import numpy as np
from pyspark.sql import functions as F

from benchmarks.streaming_arms import bench, median
from unskew.core.arrays.types import U64
from unskew.core.in_flight.assign import assign
from unskew.core.in_flight.cell_loads import LEVEL_SHIFT, MAP_SHIFT
from unskew.core.in_flight.layout import coarse_cells, fine_cells
from unskew.spark.in_flight.cell_sample import METRICS, KeyCells, SampledCells
from unskew.spark.in_flight.map_stage import run_map_stage

SIZES = ((64, 1_000, 0.1), (2_048, 10_000, 0.5))  # partitions, map tasks, the mark
KEYS, ROWS_A_TASK = 1_000_000, 20_000


@dataclass(frozen=True)
class Case:
    """So many partitions and map tasks; cells fine or coarse, keys cut or whole."""

    partitions: int
    tasks: int
    mark: float
    cut: bool

    @property
    def cells(self) -> int:
        return coarse_cells(self.partitions) if self.cut else fine_cells(self.partitions)


def made_up(case: Case, near: int) -> str:
    """The sample of tasks of ``ROWS_A_TASK`` rows each, where nobody knew how many: what each has at each level."""
    rng = np.random.default_rng(case.tasks)
    levels = [near] + [near * 7 // 8] * max(int(np.log2(max(ROWS_A_TASK / near, 1)) // 3), 0)
    each = np.repeat(np.arange(len(levels)), levels)
    keys = rng.zipf(1.5, case.tasks * len(each)).astype(np.uint64) % np.uint64(KEYS) * np.uint64(0x9E3779B97F4A7C15)
    word = np.tile(each, case.tasks) << LEVEL_SHIFT | np.repeat(np.arange(case.tasks), len(each)) << MAP_SHIFT
    words: U64 = word.astype(np.uint64) | keys % np.uint64(case.cells)
    return np.stack([keys, words], axis=1).astype(">u8").tobytes().hex()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    with bench() as (spark, _):
        frame = spark.range(0, 4_000, 1, 2).selectExpr("id", "id % 97 k")
        print(
            "| partitions | map tasks | keys | tasks | sample, MB | words | assign | frame | in all | processor "
            "| mark | |"
        )
        print("|---|---|---|---|---|---|---|---|---|---|---|---|")
        for partitions, tasks, mark in SIZES:
            for cut in (True, False):
                case = Case(partitions, tasks, mark, cut)
                by_key = KeyCells([frame["k"]], case.cells)
                cells = SampledCells(frame, by_key, F.xxhash64("k"), partitions, tasks=tasks)
                stage = run_map_stage(cells.frame, case.cells, METRICS, "the driver's part")
                sample = made_up(case, cells.rate[1])
                rows = case.tasks * ROWS_A_TASK
                many = replace(stage, tasks=tasks, metrics=(rows, sample))
                took, count = [], 0
                for _ in range(rounds):
                    at, began = [time.perf_counter()], time.process_time()
                    read = cells.of(many)
                    at.append(time.perf_counter())
                    ranges = assign(read.loads, partitions, partitions, cut=cut)
                    at.append(time.perf_counter())
                    worked = time.process_time() - began
                    many.frame(ranges, whole=not cut)
                    at.append(time.perf_counter())
                    took.append([*np.diff(at), at[-1] - at[0], worked])
                    count = len(ranges.ranges)
                parts = [median([one[part] for one in took]) for part in range(5)]
                held = "held" if parts[3] <= mark else "MISSED"
                what = "cut" if cut else "whole"
                print(
                    f"| {partitions:,} | {tasks:,} | {what} | {count:,} | {len(sample) / 2e6:.1f} | "
                    + " | ".join(f"{one * 1000:.0f} ms" for one in parts)
                    + f" | {mark * 1000:.0f} ms | {held} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
