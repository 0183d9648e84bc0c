"""200 micro-batches whose hot keys change every 20: how long batches take once two have shown the new keys.

Mark: the 99th percentile, without the two batches after each change, is at most 1.3x of the median; Spark's own hash
partitioning (AQE on, as many partitions) is beside it, batch by batch in turn. For 30 batches in the middle the service
is gone: no batch fails, and none takes longer for it by more than the deadline (0.2 s).

Run: ``JAVA_HOME=$(bash tools/java.sh) python -m benchmarks.streaming_long [--batches N] [--rows N] [--ways unskew]``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from benchmarks.serving import serving
from benchmarks.streaming_arms import Arm, arm, bench, keys_of, median, write_batch

CHANGE = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--rows", type=int, default=24_000)
    parser.add_argument("--wait", type=float, default=1e-3, help="seconds of a row: with few, all is Spark's own time")
    parser.add_argument("--ways", nargs="+", choices=("hash", "unskew"), default=["hash", "unskew"])
    asked = parser.parse_args()
    gone = range(asked.batches * 3 // 10, asked.batches * 3 // 10 + asked.batches * 30 // 200)
    arms = run(asked.batches, asked.rows, gone, asked.wait, asked.ways)
    least = asked.rows * asked.wait / 16
    print(
        f"{asked.batches} batches of {asked.rows:,} rows, other hot keys every {CHANGE}; least possible {least:.2f} s"
    )
    calm = [number for number in range(2, asked.batches) if number % CHANGE >= 2]
    for way, one in arms.items():
        told = [one.took[number] for number in calm]
        p99, middle = float(np.percentile(told, 99)), median(told)
        print(f"{way:7} median {middle:.3f} s, 99th percentile {p99:.3f} s: {p99 / middle:.2f}x (mark 1.3)")
        blocks = [f"{median(one.took[at : at + CHANGE]):.2f}" for at in range(0, asked.batches, CHANGE)]
        print(f"        medians of {CHANGE} batches each: {' '.join(blocks)}")
        for number in sorted(calm, key=lambda number: -one.took[number])[:8]:
            print(
                f"        batch {number:3}: {one.took[number]:.2f} s, longest task {one.longest[number]:.2f} s, "
                f"imbalance {one.imbalance[number]:.2f}"
            )
    if "unskew" not in arms:
        return
    ours = arms["unskew"].took
    inside = [ours[number] for number in gone if number in calm]
    outside = [ours[number] for number in calm if number not in gone]
    print(
        f"service gone in batches {gone.start} to {gone.stop - 1}: median {median(inside):.3f} s and longest "
        f"{max(inside):.3f} s there, {median(outside):.3f} s and {max(outside):.3f} s elsewhere (mark: 0.2 s more)"
    )


def run(batches: int, rows: int, gone: range, wait: float, ways: Sequence[str]) -> dict[str, Arm]:
    keys = keys_of(7, batches * rows, 1.5, CHANGE * rows).reshape(batches, rows)
    with bench() as (spark, folder), ExitStack() as stack, ExitStack() as present:
        service = present.enter_context(serving())
        given = {"hash": {}, "unskew": {"service": service.target}}
        arms = {way: stack.enter_context(arm(spark, folder, way, wait=wait, **given[way])) for way in ways}
        for number in range(batches):
            write_batch(folder / "source", number, keys[number], (1.0,) * 4)
            if number == gone.start:
                present.close()
            if number == gone.stop:
                present.enter_context(serving("--grpc-port", str(service.grpc)))
            for one in list(arms.values())[:: 1 if number % 2 else -1]:
                one.run(number)
        return arms


if __name__ == "__main__":
    main()
