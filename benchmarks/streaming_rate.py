"""The highest input rate without queueing (Prompt, Fig. 11), by way (``streaming_arms``).

A batch every ``--interval`` seconds, at a constant rate and at one that swings by half around its mean. A rate holds
if what is left to do at the end of each period is nothing: the queue grows by what a batch takes longer than the
interval and shrinks by what it takes less. The rate is found by halving the span between one that holds and one that
does not, with batches that are really run, counting, pinning and planning included.

Run: ``JAVA_HOME=$(bash tools/java.sh) python -m benchmarks.streaming_rate [--exponents 0.5 1 1.5 2] [--steps 4]``.
"""

from __future__ import annotations

import argparse
import math
import shutil
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.streaming_arms import SLOTS, Arm, arm, bench, keys_of, write_batch
from unskew.spark.demo.local import STEADY
from unskew.spark.demo.stream import folder_of

WAIT = 1e-3
"""Seconds of a row in its slot. Two cores stand for sixteen: only while what Spark itself does with a row, some ten
microseconds of them, is little beside its wait."""
PERIOD = 6
WAYS = ("aqe", "hash", "sliced", "unskew")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--exponents", type=float, nargs="+", default=[0.5, 1.0, 1.5, 2.0])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--swings", type=float, nargs="+", default=[0.0, 0.5])
    parser.add_argument("--interval", type=float, default=4.0, help="a batch costs Spark a second or two on two cores")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    asked = parser.parse_args()
    most = SLOTS / WAIT
    print(f"rows a second that hold; all {SLOTS} slots working without pause would do {most:,.0f}")
    with bench(java=STEADY) as (spark, folder):
        for swing in asked.swings:
            for exponent in asked.exponents:
                held = {
                    way: highest(spark, folder, way, asked.interval, exponent, swing, asked.steps) for way in asked.ways
                }
                told = "  ".join(f"{way} {rate:>7,.0f}" for way, rate in held.items())
                profile = f"swing {swing:.0%}" if swing else "constant"
                print(f"Zipf {exponent:.1f}, {profile:9}: {told}", flush=True)


def highest(
    spark: SparkSession, folder: Path, way: str, interval: float, exponent: float, swing: float, steps: int
) -> float:
    """To a ``steps``-th halving of the span up to what the slots can do at all."""
    low, high = 0.0, SLOTS / WAIT
    with arm(spark, folder, way, wait=WAIT) as one:
        number = _fed(one, 0, [0.3 * high * interval] * 3, exponent, swing)[1]  # Java and the plan warm up
        for _ in range(steps):
            rate = (low + high) / 2.0
            rows = [rate * interval * (1.0 + swing * math.sin(2.0 * math.pi * at / PERIOD)) for at in range(PERIOD)]
            holds, number = _fed(one, number, rows, exponent, swing, interval)
            low, high = (rate, high) if holds else (low, rate)
    return low


def _fed(
    one: Arm, number: int, rows: Sequence[float], exponent: float, swing: float, interval: float = math.inf
) -> tuple[bool, int]:
    """Whether nothing is left to do when batches of so many rows, one an interval, have come that began with nothing;
    the next batch's number. What cannot end well is not run to its end."""
    queue = 0.0
    for at, count in enumerate(rows):
        around = [1.0 + swing * math.sin(2.0 * math.pi * (at + part / SLOTS) / PERIOD) for part in range(SLOTS)]
        write_batch(one.source, number, keys_of(number, int(count), exponent), around)
        queue = max(queue + one.run(number, settled=True) - interval, 0.0)
        shutil.rmtree(folder_of(one.source, number))
        number += 1
        if queue > (len(rows) - 1 - at) * interval:
            break
    return queue == 0.0, number


if __name__ == "__main__":
    main()
