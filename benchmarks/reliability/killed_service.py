"""A streaming query whose service is killed in the middle of a batch and is back some batches later, again and again.

``python -m benchmarks.reliability.killed_service FOLDER LIVES`` prints a line of JSON: batches that failed, rows that
were lost, doubled or elsewhere than their pin says.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.servers import free_ports
from tests.spark.conftest import SETTINGS
from tests.spark.streaming.lives import prepare
from tests.spark.streaming.queries import Notes, batches, run
from unskew.client import testing
from unskew.spark import Unskew

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCHES, BEFORE, BACK = 8, 2, 5
"""Killed in the batch ``BEFORE``, back before the batch ``BACK``."""


@dataclass
class Counts:
    batches: int = 0
    failed: int = 0
    wrong: int = 0
    strayed: int = 0
    killed: int = 0
    away: int = 0


def session(folder: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def life(spark: SparkSession, folder: Path, counts: Counts, delay: float) -> None:
    """One query of eight batches; the service is killed ``delay`` seconds after the third has begun."""
    notes = Notes()
    prepare(folder, BATCHES)
    ports: dict[str, Any] = dict(zip(("grpc_port", "http_port", "metrics_port"), free_ports(3), strict=True))
    with (
        testing.embedded(**ports) as first,
        ExitStack() as later,
        Unskew(spark, stream="clicks", partitions=4, policy="balanced", service=first.target) as sk,
    ):
        handle = batches(sk, notes, folder, fresh="auto")

        def each(df: DataFrame, batch: int) -> None:
            counts.batches += 1
            if batch == BEFORE:
                threading.Timer(delay, os.kill, (first.pid, signal.SIGKILL)).start()
                counts.killed += 1
            if batch == BACK:
                later.enter_context(testing.embedded(**ports))
            counts.away += BEFORE < batch < BACK
            handle(df, batch)

        with suppress(Exception):
            run(spark, folder, each)
    done = {batch for batch, _ in notes.sink}
    counts.failed += BATCHES - len(done)
    counts.wrong += notes.wrong(BATCHES)
    counts.strayed += notes.strayed(folder / "cp")


def main(folder: Path, lives: int) -> None:
    draw, counts = random.Random(2), Counts()
    spark = session(folder)
    for number in range(lives):
        life(spark, folder / f"life-{number}", counts, draw.random() if number else 0.0)
    spark.stop()
    print(json.dumps(vars(counts)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
