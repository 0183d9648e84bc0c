"""Write tests/events/logs: event logs of several Spark releases, cut down to what a reader needs of them.

    pip download --no-deps --no-binary :all: --no-build-isolation -d DIR pyspark==3.5.7; tar xf ...
    python -m tools.make_event_logs DIR/pyspark-3.5.7 [DIR/pyspark-4.0.1 ...]

Each release runs the jobs of ``tests/events/jobs.py`` from its source distribution, with AQE on and off, in a process
of its own. Lines that no reader looks at are left out, and of the others texts that tell of this machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "tests" / "events" / "logs"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.eventLog.enabled": "true",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
    "spark.eventLog.compress": "false",
}
LEFT_OUT = ("Start", "BlockManager", "DriverAccumUpdates", "ResourceProfile", "JobEnd", "UnpersistRDD", "BlockUpdated")
DROPPED = {
    "Details", "details", "physicalPlanDescription", "RDD Info", "Stage Infos", "JVM Information", "Classpath Entries",
    "System Properties", "Metrics Properties", "Hadoop Properties", "Task Executor Metrics", "modifiedConfigs",
    "Push Based Shuffle", "Log Urls", "jobTags", "Updated Blocks", "metadata",
}  # fmt: skip
KEPT_PROPERTIES = ("spark.sql.execution.id", "spark.task.cpus", "spark.sql.adaptive.enabled")
KEPT_STARTS = ("LogStart", "ApplicationStart", "JobStart", "ExecutionStart")


def main(homes: list[str]) -> int:
    for home in homes:
        release = Path(home).name.removeprefix("pyspark-")
        for aqe in ("on", "off"):
            target = LOGS / f"spark-{release}-aqe-{aqe}.zstd"
            with tempfile.TemporaryDirectory() as folder:
                _run(Path(home).resolve(), folder, aqe)
                target.write_bytes(_packed(Path(folder)))
            print(f"{target.relative_to(ROOT)}: {target.stat().st_size:,} bytes")
    return 0


def _run(home: Path, folder: str, aqe: str) -> None:
    paths = [str(home), str(next((home / "lib").glob("py4j-*.zip"))), str(ROOT)]
    spark_home = home / "deps"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "SPARK_HOME": str(spark_home)}
    command = [sys.executable, __file__, "--jobs", folder, aqe]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)


def _jobs(folder: str, aqe: str) -> None:
    """In the process of the release."""
    from pyspark.sql import SparkSession

    from tests.events.jobs import JOBS, skewed

    builder = SparkSession.builder.master("local[4]").appName(f"skewed, AQE {aqe}")
    settings = {**SETTINGS, "spark.eventLog.dir": Path(folder).as_uri(), "spark.sql.adaptive.enabled": str(aqe == "on")}
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    # Python workers start now: none of what is measured waits for one.
    skewed(spark, 8).repartition(4).mapInPandas(lambda frames: frames, "user long, shop long, id long").collect()
    for job in JOBS.values():
        job(spark)
    spark.stop()


def _packed(folder: Path) -> bytes:
    parts = sorted(
        path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "appstatus"))
    )
    here = f"{ROOT}{os.sep}"
    lines = [line for part in parts for line in part.read_text("utf-8").replace(here, "").splitlines()]
    text = "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in _cut(lines))
    return pa.compress(text.encode(), "zstd", asbytes=True)


def _cut(lines: list[str]) -> Iterator[Any]:
    for line in lines:
        event = json.loads(line)
        name = event["Event"]
        if not any(part in name for part in LEFT_OUT) or name.endswith(KEPT_STARTS):
            yield _without(event)


def _without(value: Any) -> Any:
    if isinstance(value, list):
        return [_without(one) for one in value]
    if not isinstance(value, dict):
        return value
    kept = {name: _without(one) for name, one in value.items() if name not in DROPPED}
    for name in ("Properties", "Spark Properties"):
        if isinstance(kept.get(name), dict):
            kept[name] = {one: kept[name][one] for one in KEPT_PROPERTIES if one in kept[name]}
    return (
        kept
        | {name: "host" for name in ("Host",) if name in kept}
        | {name: "user" for name in ("User",) if name in kept}
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--jobs"]:
        _jobs(*sys.argv[2:])
    else:
        raise SystemExit(main(sys.argv[1:]))
