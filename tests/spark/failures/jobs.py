"""One process, one cluster, some jobs with harm done to them: ``python -m tests.spark.failures.jobs FOLDER RUN ...``

A run is ``face/harm``. Each prints a line of JSON: how many rows were lost, doubled or misplaced, and the evidence that
the harm was done. Faces:

- ``native``: ``Unskew.repartition``; ``executor``: ``Unskew.place``, where Python tasks route;
- ``unpinned``: what nobody should write. Each attempt of a task asks the service for its newest plan.

- ``in-flight-*``: without a plan, in ``failures.in_flight``, which has harms of its own.

In every other job the service gets another histogram and makes another plan before the harmed tasks go on.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from tests.spark.failures import cluster
from tests.spark.failures.gates import Gate
from tests.spark.frames import setting
from unskew.client import Client, testing
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Plan
from unskew.core.stream_spec import Part
from unskew.spark import Unskew
from unskew.spark.frame.keys import spread_without_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS, MAPS, PARTITIONS = 24_000, 8, 12
SCHEMA = "id bigint, there int"
_KEYS = 500
# From Spark 4.1 a map task that runs again and gives other rows is noticed, and the job is failed where finished tasks
# have read the first ones. The unpinned face runs without it, as on 4.0; the others must never set it off.
_UNGUARDED = {
    "spark__sql__shuffle__orderIndependentChecksum__enabled": "false",
    "spark__sql__shuffle__orderIndependentChecksum__enableFullRetryOnMismatch": "false",
}


@dataclass(frozen=True)
class Outcome:
    """What came out, and what happened on the way."""

    face: str
    harm: str
    rows: int
    lost: int
    doubled: int
    misplaced: int
    stages_again: int
    tasks_again: int
    killed: int
    newer_plan: bool


@dataclass(frozen=True)
class Harm:
    """What is done, and where tasks stand still for it: ``before`` the placement or after it."""

    before: dict[str, tuple[int, ...]]
    after: dict[str, tuple[int, ...]]
    do: Callable[[Path, Gate], int]


def kill_one(folder: Path, gate: Gate) -> int:
    """The executor of a task at the gate dies; returns how many died."""
    cluster.kill(gate.await_held()[0].executor)
    return 1


def delete_outputs(folder: Path, gate: Gate) -> int:
    """Half of the map outputs are gone, the executors live."""
    gate.await_held()
    for file in cluster.shuffle_files(folder)[::2]:
        file.unlink()
    return 0


def _nothing(folder: Path, gate: Gate) -> int:
    return 0


MIDDLE = (4, 5, 6, 7)  # of twelve on four slots: four are done, four stand here, four have not begun
HARMS = {
    "killed-in-map": Harm({"held": MIDDLE}, {}, kill_one),
    "killed-in-shuffle": Harm({}, {"held": MIDDLE}, kill_one),
    "outputs-deleted": Harm({}, {"held": MIDDLE}, delete_outputs),
    "tasks-fail": Harm({"fail": (2,)}, {"fail": (1, 9)}, _nothing),
    "speculation": Harm({"slow": (3,)}, {"slow": (2, 5)}, _nothing),
}


def main(folder: Path, runs: list[str]) -> None:
    """All runs on one cluster; twins need one with two hosts, and executors that Spark takes away other settings, so
    those runs are processes of their own."""
    from tests.spark.failures import in_flight

    taken = any(run.endswith("/taken-away") for run in runs)
    speculation = any(run.endswith("/speculation") for run in runs)
    with (cluster.two_hosts if speculation else cluster.local_cluster)(folder) as master:
        spark = cluster.session(folder, master, speculation=speculation, more=cluster.TAKEN_AWAY if taken else None)
        spark.range(8).repartition(8).mapInArrow(lambda batches: batches, "id long").count()  # workers are up
        with testing.embedded() as served:
            for number, run in enumerate(runs):
                face, harm = run.split("/")
                if face.startswith("in-flight"):
                    _tell(in_flight.run(spark, folder, number, face, harm))
                    continue
                with setting(spark, **(_UNGUARDED if face == "unpinned" else {})):
                    outcome = _run(spark, served.target, folder, number, face, harm)
                _tell(outcome)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            spark.stop()


def _tell(outcome: Any) -> None:
    sys.stdout.write(json.dumps(asdict(outcome)) + "\n")
    sys.stdout.flush()


def _run(spark: SparkSession, target: str, folder: Path, number: int, face: str, name: str) -> Outcome:
    harm, stream = HARMS[name], f"{face}-{number}"
    before, after = _gate(folder, number, "before", harm.before), _gate(folder, number, "after", harm.after)
    rows = rows_of(spark).mapInArrow(before.passing(), "id bigint, k bigint") if harm.before else rows_of(spark)
    with Unskew(spark, stream=stream, partitions=PARTITIONS, policy="prompt", service=target, required=True) as sk:
        plan = sk.plan(rows_of(spark), "k", "id")
        assert plan.splits
        placed = FACE[face](sk, rows)
        gated = placed.select("id", F.spark_partition_id().alias("there")).mapInArrow(after.passing(), SCHEMA)
        harming = Harming(sk, harm, folder, before if harm.before.get("held") else after)
        spark.sparkContext.setJobGroup(stream, "harmed")
        harming.start()
        table = gated.toArrow()
        harming.join(90.0)
        newer = sk.client is not None and sk.client.get_stream(stream).digest != plan.digest
    arrivals = [*before.arrivals(), *after.arrivals()]
    return Outcome(
        face,
        name,
        table.num_rows,
        *difference(table.column("id").to_numpy()),
        _misplaced(spark, plan, table) if face == "native" else 0,
        stages_again(spark, stream),
        max(one.before for one in arrivals),
        harming.killed,
        newer,
    )


class Harming(Thread):
    """Does the harm while the job runs, then opens the gate; whatever happens the gate opens."""

    def __init__(self, sk: Unskew, harm: Harm, folder: Path, gate: Gate) -> None:
        super().__init__(daemon=True)
        self._sk, self._harm, self._folder, self._gate = sk, harm, folder, gate
        self.killed = 0

    def run(self) -> None:
        try:
            if self._gate.held:
                self._gate.await_held()
            self._replan()
            self.killed = self._harm.do(self._folder, self._gate)
        finally:
            self._gate.open()

    def _replan(self) -> None:
        """The service learns of other hot keys, and plans for them."""
        hashes = np.sort(np.random.default_rng(5).integers(0, 2**64, 40, dtype=np.uint64))
        client, stream = self._sk.client, self._sk.stream
        assert client is not None
        client.report_histogram(stream, Part("other", 1), Histogram(hashes, np.arange(40, 0, -1) * 1000))
        client.build_plan(stream, 1, fresh=True)


def stages_again(spark: SparkSession, group: str) -> int:
    """How often stages of the job were run again."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    found = [tracker.getStageInfo(stage) for stage in stages]
    return sum(info.currentAttemptId for info in found if info is not None)


def rows_of(spark: SparkSession) -> DataFrame:
    """Half of the rows have one key of few; ``id`` tells rows apart."""
    return spark.range(0, ROWS, 1, MAPS).selectExpr("id", f"if(hash(id) % 2 = 0, id % 3, id % {_KEYS}) k")


def _gate(folder: Path, number: int, name: str, how: dict[str, tuple[int, ...]]) -> Gate:
    place = folder / f"gate-{number}-{name}"
    place.mkdir()
    return Gate(str(place), **how)


def _native(sk: Unskew, rows: DataFrame) -> DataFrame:
    return sk.repartition(rows, "k", spread="id")


def _executor(sk: Unskew, rows: DataFrame) -> DataFrame:
    return sk.place(rows, "k", spread="id")


def _unpinned(sk: Unskew, rows: DataFrame) -> DataFrame:
    """A live look-up in each task: what promise 2 forbids."""
    assert sk.client is not None
    target, stream = sk.client.target, sk.stream

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with Client(target) as client:
            plan = client.get_plan(stream).plan
        for batch in batches:
            keys, spread = (batch.column(name).to_numpy().view(np.uint64) for name in ("h", "s"))
            yield pa.RecordBatch.from_arrays(
                [batch.column("id"), pa.array(plan.route(keys, spread), pa.int32())], names=["id", "p"]
            )

    hashed = rows.select("id", F.xxhash64("k").alias("h"), F.xxhash64("id").alias("s"))
    return hashed.mapInArrow(task, "id bigint, p int").repartitionById(PARTITIONS, F.col("p"))


FACE = {"native": _native, "executor": _executor, "unpinned": _unpinned}


def difference(found: NDArray[np.int64]) -> tuple[int, int]:
    """How many rows are missing, and how many are there too often."""
    times = np.bincount(found, minlength=ROWS)
    return int(np.count_nonzero(times == 0)), int((times[times > 1] - 1).sum())


def _misplaced(spark: SparkSession, plan: Plan, table: pa.Table) -> int:
    """Rows that are not where the pinned plan puts them, by the numpy face."""
    hashed = rows_of(spark).select("id", F.xxhash64("k").alias("h"), spread_without_frame("id").alias("s")).toArrow()
    keys, spread = (hashed.column(name).to_numpy().view(np.uint64) for name in ("h", "s"))
    planned = np.zeros(ROWS, np.int32)
    planned[hashed.column("id").to_numpy()] = plan.route(keys, spread)
    return int(np.count_nonzero(planned[table.column("id").to_numpy()] != table.column("there").to_numpy()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
