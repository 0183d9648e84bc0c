"""Micro-batches in which one key has 39 % of the rows, another one every so many: which freshness, and what it costs.

Arms, batch by batch in turn on one Spark: Spark's own ``repartition(n, key)`` (``hash``), and ``for_each_batch`` with
``fresh="previous"``, ``"same"`` and ``"auto"``. A row costs a fixed wait. Marks: the sum of auto's batches is at most
1.10 of the better of the other two and a third of hash's, the batch of the change at most 1.35 of the median; where the
key stays (``--every 0``) at most 1.03 of ``previous``. The first two batches are left out: Java is slow at first.

Run: ``JAVA_HOME=$(bash tools/java.sh) python -m benchmarks.streaming_drift [--every 1 3 20 0] [--wait 1.2e-4]``
(10 minutes with four values of ``--every``)
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from benchmarks.streaming_arms import KEYS, Arm, arm, bench, median, write_batch
from unskew.core.freshness.ways import Fresh

SHARE = 0.39
FRESH: tuple[Fresh, ...] = ("previous", "same", "auto")
WARM = 2
CALM = 24  # batches where the key changes rarely or never


def keys_of(number: int, rows: int, every: int) -> NDArray[np.int64]:
    """The rows of a batch: one key has 39 %, the others are even."""
    rng = np.random.default_rng(number)
    hot = KEYS + (number // every if every else 0)
    return np.where(rng.random(rows) < SHARE, hot, rng.integers(0, KEYS, rows))


def run(every: int, batches: int, rows: int, wait: float) -> dict[str, Arm]:
    """All arms over the same batches."""
    with bench() as (spark, folder), ExitStack() as stack:
        arms = {"hash": stack.enter_context(arm(spark, folder, "hash", wait=wait))}
        for fresh in FRESH:
            arms[fresh] = stack.enter_context(arm(spark, folder, "unskew", wait=wait, fresh=fresh))
        for number in range(batches):
            write_batch(folder / "source", number, keys_of(number, rows, every), (1.0,) * 4)
            for one in list(arms.values())[:: 1 if number % 2 else -1]:
                one.run(number, settled=True)
        return arms


def judge(every: int, arms: dict[str, Arm]) -> bool:
    """Print the figures and the marks; whether all are met."""
    sums = {name: sum(one.took[WARM:]) for name, one in arms.items()}
    auto, better = arms["auto"].took[WARM:], min(sums["previous"], sums["same"])
    changed = [took for at, took in enumerate(auto, WARM) if every > 1 and at % every == 0]
    marks = {
        f"auto / hash {sums['auto'] / sums['hash']:.2f} (mark 0.33)": 3.0 * sums["auto"] <= sums["hash"],
    }
    if every:
        marks[f"auto / better of the two {sums['auto'] / better:.2f} (mark 1.10)"] = sums["auto"] <= 1.10 * better
    else:
        ratio = sums["auto"] / sums["previous"]
        marks[f"auto / previous, nothing changes: {ratio:.2f} (mark 1.03)"] = ratio <= 1.03
    if changed:
        ratio = max(changed) / median(auto)
        marks[f"a batch of a change / the median {ratio:.2f} (mark 1.35)"] = ratio <= 1.35
    print(f"every {every}: " + ", ".join(f"{name} {total:.1f} s" for name, total in sums.items()))
    print("   auto's batches: " + " ".join(f"{took:.2f}" for took in auto))
    for words, met in marks.items():
        print(f"   {'met   ' if met else 'MISSED'} {words}", flush=True)
    return all(marks.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, nargs="+", default=[1, 3, 20, 0])
    parser.add_argument("--batches", type=int, help="of each stream (10; 24 and more where the key changes rarely)")
    parser.add_argument("--rows", type=int, default=120_000)
    parser.add_argument("--wait", type=float, default=1.2e-4, help="seconds a row")
    given = parser.parse_args()
    met = []
    for every in given.every:
        batches = given.batches or (10 if 0 < every < 10 else max(CALM, 2 * every + 4))
        met.append(judge(every, run(every, batches, given.rows, given.wait)))
    return 0 if all(met) else 1


if __name__ == "__main__":
    raise SystemExit(main())
