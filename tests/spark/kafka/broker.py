"""A real Kafka broker for tests: one java process in KRaft mode on this machine's loopback, its data in a folder.

``tools/kafka.sh`` fetches the jars. Where it cannot, the tests skip and say what it said. Topics are made when first
written to or asked for.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from tests.servers import free_ports, wait_for

__all__ = ["TOPIC_PARTITIONS", "Broker", "broker"]

TOPIC_PARTITIONS = 4
_ROOT = Path(__file__).resolve().parents[3]
_FETCH = 180.0  # seconds for Maven: the first time it loads some 55 MB
_TRIES = 3
_CLUSTER = "dW5za2V3LWZvci10ZXN0cw"  # 16 bytes in base64


@dataclass(frozen=True)
class Broker:
    """Where it listens, and the jars of Spark's Kafka source and sink, as ``spark.jars`` takes them."""

    address: str
    spark_jars: str


def _jars() -> Path:
    """The folder of jars, or a skip that says why there is none."""
    try:
        ran = subprocess.run(
            ["bash", str(_ROOT / "tools" / "kafka.sh"), pyspark.__version__],
            capture_output=True,
            text=True,
            timeout=_FETCH,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"no Kafka for the tests: Maven had not fetched it after {_FETCH:.0f} s")
    if ran.returncode:
        pytest.skip(ran.stderr.strip().splitlines()[-1])
    return Path(ran.stdout.strip())


@contextmanager
def broker(folder: Path) -> Iterator[Broker]:
    """Runs until the end of the ``with``; nothing of it is left then but the folder."""
    jars = _jars()
    process, port = _started(jars, folder)
    try:
        yield Broker(f"127.0.0.1:{port}", ",".join(map(str, sorted((jars / "spark").glob("*.jar")))))
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _started(jars: Path, folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """On free ports; on others, if somebody took one meanwhile."""
    for attempt in range(_TRIES):
        port, own = free_ports(2)
        process = _run(jars, folder / str(attempt), port, own)
        try:
            wait_for(f"the Kafka broker on port {port}", lambda one=process, at=port: _listens(one, at), 180.0)
        except BaseException as error:
            _end(process)
            if isinstance(error, RuntimeError) and attempt < _TRIES - 1:
                continue
            raise
        return process, port
    raise AssertionError


def _run(jars: Path, folder: Path, port: int, own: int) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True)
    config = folder / "server.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in _settings(folder, port, own).items()))
    java = _java(jars)
    with (folder / "broker.log").open("wb") as log:
        formatting = [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(config)]
        subprocess.run(formatting, stdout=log, stderr=log, check=True, timeout=180.0)
        return subprocess.Popen([*java, "kafka.Kafka", str(config)], stdout=log, stderr=log)


def _java(jars: Path) -> list[str]:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    return [
        java,
        "-Xmx512m",
        "-XX:+UseSerialGC",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        f"{jars / 'broker'}/*",
    ]


def _settings(folder: Path, port: int, own: int) -> dict[str, object]:
    """A broker that is its own controller. Of its own topics Kafka wants several copies, and there is one broker. A
    broker that is silent for nine seconds is shut out, by itself here; on a busy machine it may be so."""
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{own}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{own}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": folder / "data",
        "num.partitions": TOPIC_PARTITIONS,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "broker.session.timeout.ms": 300_000,
        "log.cleaner.dedupe.buffer.size": 4 << 20,  # by default 128 MB, to compact logs: none is compacted here
    }


def _listens(process: subprocess.Popen[bytes], port: int) -> bool:
    if process.poll() is not None:
        raise RuntimeError(f"the Kafka broker ended with {process.returncode}")
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
