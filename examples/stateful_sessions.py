"""Sessions of users whose clicks come as a stream, where one user has a third of all clicks.

A session is closed when its user has not clicked for half a minute. ``sk.stateful`` keeps what is open from batch to
batch; a session ends by event time, without a new click of its user, and the handler gets a row for it. The heavy user
has a partition of its own, once the first batches have shown that it is heavy.

    python examples/stateful_sessions.py [clicks]
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession

from unskew.spark import Unskew

GAP = 30_000  # milliseconds without a click
BATCHES = 6
CLICKS = "user string, at bigint, page int"
SESSION = "user string, began bigint, ended bigint, clicks bigint"


def sessions(key: tuple[Any, ...], clicks: pd.DataFrame, open_: dict[str, Any] | None) -> tuple[Any, Any]:
    """The sessions of one user that have ended, and the one that is open. Without clicks: its time is over."""
    ended = []
    for at in sorted(clicks["at"].tolist()):
        if open_ is not None and at > open_["expires"]:
            ended.append((key[0], open_["began"], open_["expires"] - GAP, open_["clicks"]))
            open_ = None
        began, before = (at, 0) if open_ is None else (open_["began"], open_["clicks"])
        open_ = {"began": began, "clicks": before + 1, "expires": at + GAP}
    if clicks.empty and open_ is not None:
        return [(key[0], open_["began"], open_["expires"] - GAP, open_["clicks"])], None
    return ended, open_


def write_clicks(folder: str, clicks: int) -> int:
    """Files of clicks, one after another in time; the last one is an hour later, so that all sessions end."""
    rng = np.random.default_rng(7)
    user = np.where(rng.random(clicks) < 0.33, 0, rng.integers(1, 400, clicks))
    at = np.sort(rng.integers(0, 600_000, clicks))
    frame = pd.DataFrame({"user": [f"user-{one}" for one in user], "at": at, "page": rng.integers(0, 50, clicks)})
    last = pd.DataFrame({"user": ["nobody"], "at": [int(at[-1]) + 3_600_000], "page": [0]})
    for number, part in enumerate([*np.array_split(np.arange(clicks), BATCHES), None, None]):
        rows = last.assign(at=last["at"] + (number - BATCHES) * GAP * 2) if part is None else frame.iloc[part]
        file = os.path.join(folder, f"{number}.json")  # noqa: PTH118 - as in the rest of a job
        rows.to_json(file, orient="records", lines=True)
        os.utime(file, (number, number))  # Spark takes the oldest first
    return clicks


def main(clicks: int = 60_000) -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[4]").appName("sessions")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    closed: list[Any] = []

    def handle(ended: DataFrame, _: int) -> None:
        """A job of your own writes them: by batch, so that a batch that comes again takes its own place."""
        closed.extend(ended.collect())

    with tempfile.TemporaryDirectory() as source, tempfile.TemporaryDirectory() as checkpoint:
        write_clicks(source, clicks)
        stream = spark.readStream.schema(CLICKS).option("maxFilesPerTrigger", 1).json(source)
        sk = Unskew(spark, stream="clicks", partitions=8)
        batches = sk.stateful(
            handle, "user", sessions, SESSION, "began bigint, clicks bigint, expires bigint",
            checkpoint, "sessions", time="at",
        )  # fmt: skip
        query = stream.writeStream.foreachBatch(batches).option("checkpointLocation", checkpoint)
        query.trigger(availableNow=True).start().awaitTermination()
        print(batches.report)
    counted = sum(row["clicks"] for row in closed if row["user"] != "nobody")
    print(f"{len(closed):,} sessions ended; they have {counted:,} of {clicks:,} clicks")
    heavy = [row for row in closed if row["user"] == "user-0"]
    print(f"user-0: {len(heavy)} session of {heavy[0]['clicks']:,} clicks")
    spark.stop()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
