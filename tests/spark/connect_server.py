"""A Spark Connect server of its own for the tests of clients, and how a client of it starts a query.

One server serves them all: a JVM takes ten seconds to start, a session on it none.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from pyspark.errors.exceptions.connect import SparkConnectException

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

__all__ = ["running", "started"]

ROOT = Path(__file__).resolve().parents[2]
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "4",
    "spark.python.daemon.module": "unskew.spark.demo.daemon",  # workers that need not load pandas anew
}


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """Its address. Its workers import this suite's modules."""
    from tests.servers import free_ports, wait_for  # its clients need no pytest

    (port,) = free_ports(1)
    settings = {**_SETTINGS, "spark.connect.grpc.binding.port": str(port)}
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]", "--class", _SERVER]
    for name, value in settings.items():
        submit += ["--conf", f"{name}={value}"]
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
    environment |= {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*submit, "spark-internal"], cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            wait_for("the Spark Connect server", lambda: _listens(process, port, folder / "log"), 180.0)
            yield f"sc://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def _listens(process: subprocess.Popen[bytes], port: int, log: Path) -> bool:
    if process.poll() is not None:
        raise RuntimeError(f"the Spark Connect server ended: {log.read_text(errors='replace')[-2000:]}")
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def started(query: DataStreamWriter) -> StreamingQuery:
    """Start it. Spark gives the process of its handler ten seconds to come up, which no setting changes: on a busy
    machine it is tried again."""
    for _ in range(20):
        try:
            return query.start()
        except SparkConnectException as why:
            if "failed to connect back" not in str(why):
                raise
    return query.start()
