"""Jobs that place rows in flight, with harm done in the map stage, between the stages, or in mid reduce.

Faces: ``in-flight-whole`` and ``in-flight-cut`` are ``Unskew.repartition`` by a policy that keeps keys whole or may cut
them, ``in-flight-groups`` is ``Unskew.group_apply``, ``in-flight-states`` is ``Unskew.aggregate``, whose states are a
key's ids. The map stage runs when the frame is made, the reduce tasks when it is read, so there is a moment in between.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from tests.servers import wait_for
from tests.spark.failures import cluster
from tests.spark.failures.gates import Gate
from tests.spark.failures.jobs import (
    MIDDLE,
    PARTITIONS,
    delete_outputs,
    difference,
    kill_one,
    rows_of,
    stages_again,
)
from unskew.spark import Unskew

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["InFlightOutcome", "run"]

POLICIES = {
    "in-flight-whole": "kip",
    "in-flight-cut": "prompt",
    "in-flight-groups": "kip",
    "in-flight-states": "prompt",
}


@dataclass(frozen=True)
class InFlightOutcome:
    """What came out, and what happened on the way. ``apart``: keys that are in several tasks; ``maps_again``,
    ``reduces_again``: how often a task came that had come before; ``freed``: no shuffle file is left of the job, which
    is looked at where no executor died with its own."""

    face: str
    harm: str
    rows: int
    lost: int
    doubled: int
    apart: int
    cut: bool
    maps_again: int
    reduces_again: int
    stages_again: int
    killed: int
    error: str
    running: int
    freed: bool


@dataclass(frozen=True)
class InFlightHarm:
    """Where tasks stand still, and what is done: while map tasks stand, between the stages, while reduce tasks do."""

    before: dict[str, tuple[int, ...]]
    after: dict[str, tuple[int, ...]]
    in_map: Callable[[Path, Gate], int] | None = None
    between: Callable[[Path], int] | None = None
    in_reduce: Callable[[Path, Gate], int] | None = None


def _kill_any(folder: Path) -> int:
    """An executor dies with the map outputs that it has."""
    cluster.kill(cluster.executors(folder)[0])
    return 1


def _delete_half(folder: Path) -> int:
    """Half of the map outputs are gone, the executors live."""
    for file in cluster.shuffle_files(folder)[::2]:
        file.unlink()
    return 0


def _on_both(folder: Path, gate: Gate) -> int:
    """As many map tasks as there are slots are held at the same time: so each executor has map outputs."""
    gate.await_held()
    return 0


def _idle(folder: Path) -> int:
    """Spark takes executors that have nothing to do, and their map outputs with them."""
    wait_for("an executor to be taken away", lambda: len(cluster.executors(folder)) == 1, 180.0)
    return 1


HARMS = {
    "killed-in-map": InFlightHarm({"held": MIDDLE}, {}, in_map=kill_one),
    "killed-between": InFlightHarm({}, {}, between=_kill_any),
    "killed-in-reduce": InFlightHarm({}, {"held": MIDDLE}, in_reduce=kill_one),
    "deleted-between": InFlightHarm({}, {}, between=_delete_half),
    "deleted-in-reduce": InFlightHarm({}, {"held": MIDDLE}, in_reduce=delete_outputs),
    "tasks-fail": InFlightHarm({"fail": (2,)}, {"fail": (1, 5)}),
    "speculation": InFlightHarm({"slow": (3,)}, {"slow": (2, 5)}),
    # Tasks that wait make Spark start the executor again that it took away in the run before.
    "taken-away": InFlightHarm({"held": (0, 1, 2, 3)}, {}, in_map=_on_both, between=_idle),
    "cancelled": InFlightHarm({"held": MIDDLE}, {}),
}


def run(spark: SparkSession, folder: Path, number: int, face: str, name: str) -> InFlightOutcome:
    """Place the rows, do the harm, read what came out; then let all go."""
    harm, group, places = HARMS[name], f"{face}-{number}", []
    for stage in ("before", "after"):
        places.append(folder / f"gate-{number}-{stage}")
        places[-1].mkdir()
    before, after = Gate(str(places[0]), **harm.before), Gate(str(places[1]), **harm.after)
    spark.sparkContext.setJobGroup(group, "harmed", True)
    rows = rows_of(spark).mapInArrow(before.passing(), "id bigint, k bigint")
    before_it = set(cluster.shuffle_files(folder))
    with Unskew(spark, stream=group, partitions=PARTITIONS, policy=POLICIES[face]) as sk:
        error = _cancelled(spark, sk, rows, before, group) if name == "cancelled" else ""
        running = len(set(spark.sparkContext.statusTracker().getActiveJobsIds()))
        made, killed = _harmed(partial(_placed, sk, face, rows), folder, before, harm.in_map if not error else None)
        assert sk.placed is not None, "the rows were counted first"
        cut = sk.placed.ranges.cuts
        killed += harm.between(folder) if harm.between else 0
        told = made.select("id", "k", F.spark_partition_id().alias("there"))
        gated = told.mapInArrow(after.passing(), "id bigint, k bigint, there int")
        table, more = _harmed(gated.toPandas, folder, after, harm.in_reduce)
        sk._placed = None
    again = [max((one.before for one in gate.arrivals()), default=0) for gate in (before, after)]
    del made, told, gated
    return InFlightOutcome(
        face,
        name,
        len(table),
        *difference(table["id"].to_numpy(np.int64)),
        int((table.groupby("k")["there"].nunique() > 1).sum()),
        cut,
        *again,
        stages_again(spark, group),
        killed + more,
        error,
        running,
        killed + more > 0 or _freed(spark, folder, before_it),
    )


def _placed(sk: Unskew, face: str, rows: DataFrame) -> DataFrame:
    if face == "in-flight-groups":
        return sk.group_apply(rows, "k", lambda group: group, "id bigint, k bigint")
    if face == "in-flight-states":
        states = sk.aggregate(rows, "k", _ids, _all_ids, "k bigint, ids array<bigint>")
        return states.selectExpr("explode(ids) id", "k")
    return sk.repartition(rows, "k")


def _ids(rows: Any) -> Any:
    return rows[:1].assign(ids=[rows["id"].tolist()])[["k", "ids"]]


def _all_ids(states: Any) -> Any:
    return states[:1].assign(ids=[np.concatenate(states["ids"].tolist()).tolist()])


def _harmed(
    work: Callable[[], Any], folder: Path, gate: Gate, do: Callable[[Path, Gate], int] | None
) -> tuple[Any, int]:
    """What the work gives, while harm is done to it in a thread; and how many died. The gate opens in any case."""
    died = [0]

    def harm() -> None:
        try:
            if do is not None:
                died[0] = do(folder, gate)
        finally:
            gate.open()

    thread = Thread(target=harm, daemon=True)
    thread.start()
    made = work()
    thread.join(90.0)
    return made, died[0]


def _cancelled(spark: SparkSession, sk: Unskew, rows: DataFrame, gate: Gate, group: str) -> str:
    """The group's jobs are cancelled while map tasks stand at the gate, which stays shut: what the caller gets."""

    def cancel() -> None:
        gate.await_held()
        spark.sparkContext.cancelJobGroup(group)

    thread = Thread(target=cancel, daemon=True)
    thread.start()
    try:
        sk.repartition(rows, "k")
    except Exception as why:  # noqa: BLE001 - whatever it is, it is told
        return str(why)[:2000]
    finally:
        thread.join(90.0)
        gate.open()
    return ""


def _freed(spark: SparkSession, folder: Path, before: set[Path]) -> bool:
    """Whether all shuffle files go that were not there before, once nobody has a frame any more."""
    jvm: Any = spark._jvm

    def gone() -> bool:
        gc.collect()
        jvm.System.gc()
        return before.issuperset(cluster.shuffle_files(folder))

    try:
        wait_for("shuffle files to go", gone, 60.0)
    except BaseException:  # noqa: BLE001 - pytest's own kind of failure
        return False
    return True
