"""A streaming query with keyed state in a process of its own, which dies where it is told to.

``python -m tests.spark.stateful.query_job FOLDER [STEP BATCH] [CONNECT]``: reads FOLDER/in, a file a batch, until all
are done. The handler writes what it gets to FOLDER/seen/<batch>.json. ``STEP`` is where the driver gets SIGKILL, or a
task an exception. ``CONNECT`` is the address of a Spark Connect server, for a client of it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from tests.spark.connect_server import started
from unskew.spark import Unskew
from unskew.spark.folders import Folder
from unskew.spark.stateful import stateful

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

__all__ = ["FAILS", "STEPS"]

STEPS = ("before the tasks", "in a task", "before the commit", "before the handler", "after the handler")
FAILS = "a task fails"
PARTITIONS = 3
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.python.daemon.module": "unskew.spark.demo.daemon",  # for a short life
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
}


def count(key: tuple[Any, ...], rows: pd.DataFrame, state: dict[str, Any] | None) -> tuple[Any, Any]:
    """Rows of a key so far; one with a row of 0 is forgotten."""
    n = (state["n"] if state else 0) + len(rows)
    return [(*key, n)], None if (rows["v"] == 0).any() else (n,)


class Query:
    """The handler: plain values, so that Spark Connect can pickle it too."""

    def __init__(self, folder: str, step: str, batch: int) -> None:
        self.folder, self.step, self.batch, self.driver = folder, step, batch, os.getpid()

    def here(self, step: str, batch: int) -> None:
        if (step, batch) == (self.step, self.batch):
            os.kill(self.driver, signal.SIGKILL)

    def handle(self, out: DataFrame, batch: int) -> None:
        self.here("before the handler", batch)
        rows = sorted(list(row) for row in out.collect())
        (Path(self.folder) / "seen" / f"{batch}.json").write_text(json.dumps(rows))
        self.here("after the handler", batch)

    def update(self, key: tuple[Any, ...], rows: pd.DataFrame, state: dict[str, Any] | None) -> tuple[Any, Any]:
        """Dies with one of the keys: some tasks have put their files, and some have not. Or fails with it, once."""
        if key == (f"last of {self.batch}",):
            if self.step == "in a task":
                os.kill(self.driver, signal.SIGKILL)
            failed = Path(self.folder) / "failed"
            if self.step == FAILS and not failed.exists():
                failed.touch()
                raise RuntimeError("a task fails once")
        return count(key, rows, state)


def dying(query: Query, step: Any) -> Any:
    """The handler of a query whose driver dies around it."""

    def run(df: DataFrame, batch: int) -> None:
        query.here("before the tasks", batch)
        if (query.step, query.batch) == ("before the commit", batch):
            Folder.create = lambda *_: os.kill(query.driver, signal.SIGKILL)  # type: ignore[method-assign, assignment]
        step(df, batch)

    return run


def main(folder: str, step: str = "", batch: str = "-1", *, connect: str = "") -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warnings.simplefilter("ignore")
    builder = SparkSession.builder
    if connect:
        builder = builder.remote(connect)
    else:
        builder = builder.master("local[2,2]")
        for name, value in _SETTINGS.items():
            builder = builder.config(name, value)
    spark = builder.getOrCreate()
    query = Query(folder, step, int(batch))
    sk = Unskew(spark, stream="clicks", partitions=PARTITIONS)
    made = stateful(
        sk, query.handle, "user", query.update, "user string, n bigint", "n bigint", f"{folder}/checkpoint", "q"
    )
    stream = spark.readStream.schema("user string, v bigint").option("maxFilesPerTrigger", 1).json(f"{folder}/in")
    writer = stream.writeStream.foreachBatch(made if connect else dying(query, made))
    running = started(writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True))
    try:
        running.awaitTermination()
    finally:
        spark.stop()


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if not word.startswith("sc://")]
    main(*words, connect="".join(word for word in sys.argv[1:] if word.startswith("sc://")))
