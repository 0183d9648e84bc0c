"""A small cluster on this machine: two executors, each a process of its own that can be killed.

Spark's ``local-cluster`` mode keeps its workers' folders under ``SPARK_HOME``, so it gets a home of links in a
temporary folder; shuffle files lie there too, where a test can delete them. Its workers are all on one host, and Spark
starts a task's twin on another host only: for that there is a standalone cluster, its two workers on two addresses.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from tests.servers import free_ports, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["executors", "kill", "local_cluster", "session", "shuffle_files", "two_hosts"]

EXECUTORS = 2
CORES = 2
_ROOT = Path(__file__).resolve().parents[3]
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.python.daemon.module": "unskew.spark.demo.daemon",  # workers that need not load pandas anew
    "spark.task.maxFailures": "8",
    "spark.stage.maxConsecutiveAttempts": "10",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "200ms",
    "spark.locality.wait": "0",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
}
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.25",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "200ms",
}
TAKEN_AWAY = {  # executors that have nothing to do go at once, and the map outputs that they have with them
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.timeout": "1s",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.initialExecutors": str(EXECUTORS),
    "spark.dynamicAllocation.maxExecutors": str(EXECUTORS),
    "spark.executor.cores": str(CORES),
}


def spark_home(folder: Path) -> Path:
    """A home with the tests' Spark in it (``tests.jvm``), else the installed one, by links."""
    home, own = folder / "spark", os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    home.mkdir()
    for part in Path(own).iterdir():
        if part.name != "work":
            (home / part.name).symlink_to(part)
    return home


@contextmanager
def local_cluster(folder: Path) -> Iterator[str]:
    """The master's address of Spark's own cluster for tests. Once in a process: the gateway keeps its home."""
    os.environ["SPARK_HOME"] = str(spark_home(folder))
    yield f"local-cluster[{EXECUTORS},{CORES},1024]"


@contextmanager
def two_hosts(folder: Path) -> Iterator[str]:
    """The master's address of a standalone cluster: a master, and a worker on each of two loopback addresses."""
    home = spark_home(folder)
    os.environ["SPARK_HOME"] = str(home)
    port, *others = free_ports(2 + 2 * EXECUTORS)
    master = f"spark://127.0.0.1:{port}"
    started = [_daemon(home, "master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", others.pop())]
    try:
        wait_for("the master", lambda: _listens(port))
        for number in range(EXECUTORS):
            place = ("--host", f"127.0.0.{2 + number}", "--port", others.pop(), "--webui-port", others.pop())
            size = ("--cores", CORES, "--memory", "1g", "--work-dir", home / "work")
            started.append(_daemon(home, "worker.Worker", *place, *size, master))
        yield master
    finally:
        for one in reversed(started):
            one.terminate()
        for one in started:
            one.wait(60.0)


def _daemon(home: Path, name: str, *words: object) -> subprocess.Popen[bytes]:
    run = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *map(str, words)]
    with (home.parent / f"{name}.log").open("ab") as log:
        return subprocess.Popen(run, stdout=log, stderr=log, env={**os.environ, "SPARK_HOME": str(home)})


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def session(
    folder: Path, master: str, *, speculation: bool = False, more: Mapping[str, str] | None = None
) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("unskew-failures")
    settings = {**_SETTINGS, **(SPECULATION if speculation else {}), **(more or {})}
    settings["spark.local.dir"] = str(folder / "local")
    settings["spark.sql.warehouse.dir"] = str(folder / "warehouse")
    settings["spark.executorEnv.PYTHONPATH"] = str(_ROOT)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def executors(folder: Path) -> list[int]:
    """The process ids of this cluster's executors."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:  # it has ended meanwhile
                continue
            if "CoarseGrainedExecutorBackend" in words and str(folder) in words:
                found.append(int(entry.name))
    return sorted(found)


def kill(pid: int) -> None:
    """As a machine that loses power."""
    os.kill(pid, signal.SIGKILL)


def shuffle_files(folder: Path) -> list[Path]:
    """The map outputs that lie on the executors' disks."""
    return sorted((folder / "local").rglob("shuffle_*.data")) + sorted(
        (folder / "spark" / "work").rglob("shuffle_*.data")
    )
