"""Several Spark applications on one stream: what their tasks learn together, beside one application that sees all.

Each application is a process with a Spark of its own and a streaming query with ``learn=True``. Half of its rows have
keys that only it has, with hot ones among them (Zipf 1.5). Rows come by the clock, so batches of both begin together.

Marks (issue 6): after 30 batches one Q-table version; replication at most 1.05 of the single application's; no key is
split that is hot only in one of them. A key is hot with a worker's mean share of all rows, GL / n: here no key is so
near to it that chance decides.

Run: ``JAVA_HOME=$(bash tools/java.sh) python -m benchmarks.convergence`` (3 minutes; ``--batches 30 --late 5``)
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.client import testing
from unskew.wire import StoredPin, pinned_from_bytes

__all__ = ["HOT", "App", "Batch", "Figures", "Together", "beside", "figures", "keys_of", "run", "together"]

I64 = NDArray[np.int64]
N, ROWS, BATCHES, INTERVAL, TASKS = 20, 20_000, 30, 2.0, 2
HOT = 20  # ranks whose keys an application has for itself
WARM = 5  # batches until all are under way
MARK = 1.05


@dataclass(frozen=True)
class App:
    """One application: ``own`` are the sets of hot keys in its rows."""

    name: str
    own: tuple[int, ...]
    rows: int = ROWS
    tasks: int = TASKS
    interval: float = INTERVAL
    batches: int = BATCHES
    partitions: int = N
    stream: str = "convergence"


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of one batch by (partition, key); the round that it was bound to, and how many rows that had; when its
    handler began, and how long it took."""

    partitions: I64
    keys: I64
    rows: I64
    version: tuple[int, int] = (0, 0)
    records: int = 0
    began: float = 0.0
    seconds: float = 0.0


def keys_of(app: App) -> str:
    """The key of a row as SQL over ``value``, which counts the rows."""
    uniform = "pmod(xxhash64(value), 1000003) / 1000003D"
    rank = f"cast(least(pow(1 - {uniform}, -2), 1e6) as bigint)"
    own = f"element_at(array({', '.join(map(str, app.own))}), cast(pmod(value, {len(app.own)}) + 1 as int))"
    return f"if({rank} <= {HOT}, {rank} + ({own} + 1) * 10000000, {rank})"


# -- one application: a process of its own -----------------------------------------------------------------------


def application(app: App, target: str, folder: str) -> None:
    """Run the query to its last batch; what came out is in ``folder``."""
    from pyspark.sql import DataFrame, SparkSession

    from unskew.spark import Unskew

    spark = session(app.name)
    done, batches = threading.Event(), []

    def handle(df: DataFrame, batch: int) -> None:
        began = time.time()
        found = df.groupBy("p", "k").count().toArrow()
        batches.append((batch, began, time.time() - began))
        out = {name: found[name].to_numpy().astype(np.int64) for name in found.column_names}
        np.savez(Path(folder) / f"{batch}.npz", **out)
        if batch + 1 >= app.batches:
            done.set()

    assert isinstance(spark, SparkSession)
    with Unskew(spark, stream=app.stream, partitions=app.partitions, service=target) as sk:
        checkpoint = f"{folder}/checkpoint"
        each = sk.for_each_batch(
            handle, "k", checkpoint, "q", learn=True, column="p", interval=app.interval, deadline=2.0
        )
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", app.rows)
        frame = rows.option("numPartitions", app.tasks).load().selectExpr("value", f"{keys_of(app)} k")
        spark.range(1000).selectExpr("id value").selectExpr(f"{keys_of(app)} k").groupBy("k").count().collect()
        print("ready", flush=True)
        sys.stdin.readline()
        writer = frame.writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
        query = writer.trigger(processingTime=f"{int(app.interval * 1000)} milliseconds").start()
        while not done.wait(0.2):
            if not query.isActive:
                raise RuntimeError(str(query.exception()))
        query.stop()
        each.close()
    (Path(folder) / "times.json").write_text(json.dumps(batches))
    spark.stop()


def session(name: str) -> Any:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[1]").appName(name)
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "4",
    }.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


# -- several of them ---------------------------------------------------------------------------------------------


def run(apps: Sequence[App], target: str, folder: Path, late: float = 0.0) -> list[list[Batch]]:
    """The batches of each application. All begin together, or each ``late`` seconds after the one before."""
    with ExitStack() as open_ones:
        processes = [open_ones.enter_context(_started(app, target, folder)) for app in apps]
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                raise RuntimeError("an application did not start; its errors are above")
        for at, process in enumerate(processes):
            time.sleep(late if at else 0.0)  # what is measured: one begins later
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        codes = [process.wait(timeout=300 + 10 * apps[0].batches * apps[0].interval) for process in processes]
    if any(codes):
        raise RuntimeError(f"applications ended with {codes}; their errors are above")
    return [list(_batches(folder / app.name)) for app in apps]


def _started(app: App, target: str, folder: Path) -> subprocess.Popen[str]:
    own = folder / app.name
    own.mkdir(parents=True)
    command = [sys.executable, "-m", "benchmarks.convergence", "--app", json.dumps(asdict(app)), target, str(own)]
    root = Path(__file__).resolve().parents[1]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root)


def pins_in(folder: Path) -> dict[int, StoredPin]:
    """Every pin of the query, by its first batch."""
    pins = (pinned_from_bytes(file.read_bytes()) for file in folder.glob("checkpoint/unskew/q/pins/*.pb"))
    return {pin.bound.batch: pin for pin in sorted(pins, key=lambda pin: pin.bound.batch)}


def _batches(folder: Path) -> Iterator[Batch]:
    pins = pins_in(folder)
    for batch, began, seconds in json.loads((folder / "times.json").read_text()):
        found = np.load(folder / f"{batch}.npz")
        bound = pins[max(first for first in pins if first <= batch)].bound
        yield Batch(found["p"], found["k"], found["count"], bound.version, bound.records, began, seconds)


# -- what came of it ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Together:
    """Of the batches with one number: (key, partition) pairs over keys, largest load over the mean, and the keys that
    are split and are not hot, by whether they are hot to one of the applications."""

    replication: float
    imbalance: float
    split: int
    locally: tuple[int, ...]
    others: tuple[int, ...]
    versions: tuple[tuple[int, int], ...]


def together(batches: Sequence[Batch], partitions: int = N) -> Together:
    """The batches of all applications as one."""
    keys = np.concatenate([one.keys for one in batches])
    where = np.concatenate([one.partitions for one in batches])
    rows = np.concatenate([one.rows for one in batches])
    load = np.bincount(where, rows, partitions)
    pairs = np.unique(np.stack([keys, where]), axis=1)
    different, fragments = np.unique(pairs[0], return_counts=True)
    counts = np.bincount(np.searchsorted(different, keys), rows)
    cold = (fragments > 1) & (counts < counts.sum() / partitions)
    local = np.zeros(len(different), np.bool_)
    for one in batches:
        mine = np.bincount(np.searchsorted(different, one.keys), one.rows, len(different))
        local |= mine >= one.rows.sum() / partitions
    return Together(
        replication=pairs.shape[1] / len(different),
        imbalance=float(load.max() / load.mean()),
        split=int((fragments > 1).sum()),
        locally=tuple(different[cold & local].tolist()),
        others=tuple(different[cold & ~local].tolist()),
        versions=tuple(one.version for one in batches),
    )


def beside(found: Sequence[Sequence[Batch]], warm: int = WARM) -> list[list[Batch]]:
    """Batches that ran at the same time, after the warm-up of each application."""
    steady = [batches[warm:] for batches in found]
    start = max(batches[0].began for batches in steady)
    first = [one for one in steady[0] if one.began >= start - 1e-3]
    return [[min(batches, key=lambda one: abs(one.began - at.began)) for batches in steady] for at in first]


@dataclass(frozen=True)
class Figures:
    """Means over the batches that ran at the same time; ``locally`` and ``others`` count split keys that are not hot.
    ``whole``: the share of batches that were bound to a round which had all rows; ``same``: where all of those that ran
    at the same time were bound to one round; ``apart``: by how many rounds they differed at most."""

    replication: float
    imbalance: float
    split: float
    locally: int
    others: int
    whole: float
    same: float
    apart: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"replication {self.replication:.4f}  max/mean {self.imbalance:.2f}  split {self.split:.1f}, of them not "
            f"hot: only to one {self.locally}, to none {self.others}  round of all {self.whole:.0%}  one version "
            f"{self.same:.0%}, at most {self.apart} apart  batch {self.seconds:.2f} s"
        )


def figures(found: Sequence[Sequence[Batch]], rows: int = 2 * ROWS) -> Figures:
    """Of all applications together; their batches have so many ``rows``."""
    at_once = beside(found)
    rounds = [together(batches) for batches in at_once]
    epochs = [[one.version[1] for one in batches] for batches in at_once]
    assert len({one.version[0] for batches in at_once for one in batches}) == 1
    every = [one for batches in at_once for one in batches]
    return Figures(
        replication=float(np.mean([one.replication for one in rounds])),
        imbalance=float(np.mean([one.imbalance for one in rounds])),
        split=float(np.mean([one.split for one in rounds])),
        locally=sum(len(one.locally) for one in rounds),
        others=sum(len(one.others) for one in rounds),
        whole=float(np.mean([one.records == rows for one in every])),
        same=float(np.mean([len(set(one)) == 1 for one in epochs])),
        apart=max(max(one) - min(one) for one in epochs),
        seconds=float(np.median([one.seconds for one in every])),
    )


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--app", nargs=3)
    options.add_argument("--batches", type=int, default=BATCHES)
    options.add_argument("--late", type=float, default=5.0)
    given = options.parse_args()
    if given.app:
        fields = json.loads(given.app[0])
        application(App(**{**fields, "own": tuple(fields["own"])}), *given.app[1:])
        return
    b = given.batches
    one = [App("one", (0, 1), rows=2 * ROWS, tasks=2 * TASKS, batches=b, stream="one")]
    two = [App("a", (0,), batches=b, stream="two"), App("b", (1,), batches=b, stream="two")]
    late = [App("c", (0,), batches=b, stream="late"), App("d", (1,), batches=b, stream="late")]
    with tempfile.TemporaryDirectory() as folder, testing.embedded() as service:
        alone = figures(run(one, service.target, Path(folder)))
        print(f"one application       {alone}", flush=True)
        for name, apps, apart in (("two, together", two, 0.0), (f"two, {given.late:g} s apart", late, given.late)):
            found = figures(run(apps, service.target, Path(folder), apart))
            ratio = found.replication / alone.replication
            print(f"{name:20}  {found}\n{'':20}  replication {ratio:.3f} of one's (mark {MARK})", flush=True)


if __name__ == "__main__":
    main()
