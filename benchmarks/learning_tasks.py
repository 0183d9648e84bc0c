"""How even tasks that learn place a batch whose hot keys nobody has seen: ``learn=True`` without Spark.

Each batch is Zipf over 20,000 keys and comes in 8 partitions. Every task decides alone, by the pin of the batch
(``decide``, which executors run), reports, and the service's merge makes the next batch's pin. Printed for each cell:

- imbalance: the fullest partition of the batch over the mean; of a batch placed by hash beside it;
- replication: partitions a key is on, averaged over the keys of the batch;
- heaviest: partitions of the heaviest key over those that its share needs.

``alone`` is the null baseline: no pin carries what was learned in the batches before.

Run: ``python -m benchmarks.learning_tasks`` (1 minute; ``--rows``, ``--tasks`` and ``--batches`` for others)
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.core import make_planner
from unskew.core.dalton.qtable import QTable
from unskew.core.histogram.histogram import Histogram
from unskew.core.rounds.merge import merge
from unskew.core.rounds.messages import Answer
from unskew.core.rounds.partition_agent import PartitionRouting, RoutingChoice, decide, report_of
from unskew.simulate.key_streams import zipf_keys

KEYS, SEED = 20_000, 7
EXPONENTS = (1.0, 1.5, 2.0)
PARTITIONS = (16, 64)
MARKS = {16: 1.25, 64: 1.5}
"""Imbalance at Zipf 1.5 with other hot keys in every batch."""
MOST_COPIES, MOST_OVER_NEED = 1.10, 2.0

U64 = NDArray[np.uint64]


@dataclass(frozen=True)
class Placed:
    """What one batch came to."""

    imbalance: float
    by_hash: float
    replication: float
    heaviest: float


def batch_of(rng: np.random.Generator, names: U64, exponent: float, tasks: int, rows: int) -> list[U64]:
    return [names[zipf_keys(rng, rows, len(names), exponent)] for _ in range(tasks)]


def placed(keys: list[U64], done: list[PartitionRouting], n: int) -> Placed:
    """The figures of one batch."""
    every, at = np.concatenate(keys), np.concatenate([one.partitions for one in done]).astype(np.int64)
    distinct, index, counts = np.unique(every, return_inverse=True, return_counts=True)
    copies = np.bincount(np.unique(index * n + at) // n, minlength=len(distinct))
    need = np.ceil(counts.max() * n / len(every))
    hashed = np.bincount(make_planner("hash", n).plan(Histogram.from_hashes(every)).route(every), minlength=n)
    return Placed(
        float(np.bincount(at, minlength=n).max() * n / len(every)),
        float(hashed.max() * n / len(every)),
        float(copies.mean()),
        float(copies[counts.argmax()] / need),
    )


def run(exponent: float, n: int, every: int, tasks: int, rows: int, batches: int, *, alone: bool) -> Iterator[Placed]:
    """Batches whose ranks go to other keys every ``every`` of them (0: never)."""
    rng = np.random.default_rng(SEED)
    names = rng.integers(0, 2**64, KEYS, dtype=np.uint64)
    answer: Answer | None = None
    for batch in range(batches):
        if every and batch and batch % every == 0:
            names = rng.permutation(names)
        pin = RoutingChoice(n, table=QTable.empty(n), batch=batch, alike=True)
        if answer is not None and not alone:
            pin = pin.after(answer)
        keys = batch_of(rng, names, exponent, tasks, rows)
        done = [decide(pin, one, rng.integers(0, 2**64, rows, dtype=np.uint64)) for one in keys]
        reports = [
            report_of(pin, one, agent=f"a/{task}", session=1, seq=batch + 1, dsync=20.0)
            for task, one in enumerate(done)
        ]
        pool = merge(reports, answer)
        names_in = tuple(one.name for one in reports)
        answer = Answer(batch + 1, names_in, pool.table, pool.records, pool.unsure, pool.loads, 20.0, pool.split)
        yield placed(keys, done, n)


def worst(found: list[Placed]) -> str:
    parts = (
        f"imbalance {np.mean([one.imbalance for one in found]):.2f} (worst {max(one.imbalance for one in found):.2f}, "
        f"hash {np.mean([one.by_hash for one in found]):.2f})",
        f"replication {np.mean([one.replication for one in found]):.3f}",
        f"heaviest on {max(one.heaviest for one in found):.2f}x",
    )
    return "  ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--rows", type=int, nargs="*", default=[1_500, 15_000], help="of a task's partition")
    parser.add_argument("--batches", type=int, default=12)
    args = parser.parse_args()
    missed = []
    for rows in args.rows:
        for exponent in EXPONENTS:
            for n in PARTITIONS:
                for every, drift in ((1, "every batch"), (10, "every 10"), (0, "never")):
                    for alone in (False, True):
                        found = list(run(exponent, n, every, args.tasks, rows, args.batches, alone=alone))
                        cell = f"{rows:>6} rows a task  z {exponent}  n {n:>2}  {drift:<11}"
                        print(f"{cell} {'alone  ' if alone else 'learned'}  {worst(found)}", flush=True)
                        if exponent == 1.5 and every == 1 and not alone:
                            missed += misses(cell, found, n)
    print("\n".join(missed) or "every mark is met")


def misses(cell: str, found: list[Placed], n: int) -> list[str]:
    """The marks that a cell with other hot keys in every batch misses."""
    pairs = (
        ("imbalance", float(np.mean([one.imbalance for one in found])), MARKS[n]),
        ("replication", float(np.mean([one.replication for one in found])), MOST_COPIES),
        ("heaviest", max(one.heaviest for one in found), MOST_OVER_NEED),
    )
    return [f"missed: {cell} {name} {value:.3f}, mark {mark}" for name, value, mark in pairs if value > mark]


if __name__ == "__main__":
    main()
