"""For users' own tests: the real service on free ports of this machine, for the length of a ``with`` block.

::

    from unskew.client import testing

    with testing.embedded() as service, service.client() as client:
        client.put_stream("clicks", partitions=4)

It runs in a process of its own and needs ``unskew[service]``, because the client contains no server. It ends with the
block, and with this process, even if that is killed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from unskew.client.channel import seconds
from unskew.client.client import Client
from unskew.client.errors import NoAccessError, NoAnswerError
from unskew.core.errors import UnskewError

__all__ = ["Embedded", "EmbeddedError", "embedded"]

_NEEDED = ("unskew.service", "fastapi", "uvicorn", "pydantic_settings", "prometheus_client", "grpc_health")
_POLL = 0.02
_SHUTDOWN = 5.0  # seconds
_LAST_LINES = 15

# The service's end of a pipe that this process holds: it closes with this process, also after a SIGKILL.
_RUN = """
import os, runpy, signal, sys, threading
def end_with_parent(pid=os.getpid()):
    while os.read(0, 1 << 10):
        pass
    os.kill(pid, signal.SIGTERM)
threading.Thread(target=end_with_parent, daemon=True).start()
runpy.run_module("unskew.service", run_name="__main__", alter_sys=True)
"""


class EmbeddedError(UnskewError, RuntimeError):
    """The embedded service could not be started; the message says why, with the end of its log."""


@dataclass(frozen=True)
class Embedded:
    """A running service. ``target`` is for ``Client``, ``http`` the address of REST."""

    pid: int
    target: str
    http: str
    metrics: str
    log: Path

    def client(self, **settings: Any) -> Client:
        """A client of it; ``settings`` are those of ``Client``."""
        return Client(self.target, **settings)


@contextmanager
def embedded(*, start_timeout: float = 30.0, **settings: object) -> Iterator[Embedded]:
    """Start the service, and end it with the block. The environment's ``UNSKEW_*`` do not apply.

    Parameters
    ----------
    start_timeout : seconds until the service must be healthy
    settings : the service's settings by name, such as ``store="redis://..."``

    Raises
    ------
    EmbeddedError : ``unskew[service]`` is not installed, or the service did not start
    """
    _check_installed()
    limit = time.monotonic() + seconds("start_timeout", start_timeout)
    with tempfile.TemporaryDirectory(prefix="unskew-") as folder:
        ports, log = Path(folder) / "ports.json", Path(folder) / "log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-c", _RUN],
                stdin=subprocess.PIPE,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=_environment(settings, ports),
            )
        try:
            yield _running(process, ports, log, limit)
        finally:
            _end(process)


def _check_installed() -> None:
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise EmbeddedError(
            f"the embedded service needs {', '.join(missing)}: pip install 'unskew[service]', or give a test the "
            "address of a service that runs elsewhere"
        )


def _environment(settings: dict[str, object], ports: Path) -> dict[str, str]:
    own = {"http_port": 0, "grpc_port": 0, "metrics_port": 0, "drain": 1, "log_level": "warning", **settings}
    own["ports_file"] = ports
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("UNSKEW_")}
    return inherited | {f"UNSKEW_{name.upper()}": str(value) for name, value in own.items()}


def _running(process: subprocess.Popen[bytes], ports: Path, log: Path, limit: float) -> Embedded:
    numbers = _ports(process, ports, log, limit)
    grpc, http, metrics = (f"127.0.0.1:{numbers[name]}" for name in ("grpc", "http", "metrics"))
    service = Embedded(process.pid, f"grpc://{grpc}", f"http://{http}", f"http://{metrics}", log)
    with service.client() as client:
        while True:
            try:
                next(client.list_streams(timeout=max(limit - time.monotonic(), _POLL)), None)
            except NoAccessError:
                return service  # it is up, and wants credentials
            except NoAnswerError as why:
                _wait_more(process, log, limit, str(why))
            else:
                return service


def _ports(process: subprocess.Popen[bytes], ports: Path, log: Path, limit: float) -> dict[str, int]:
    while True:
        try:
            numbers: dict[str, int] = json.loads(ports.read_text())
        except (OSError, ValueError):  # not there yet, or half written
            _wait_more(process, log, limit, "it did not open its ports")
        else:
            return numbers


def _wait_more(process: subprocess.Popen[bytes], log: Path, limit: float, why: str) -> None:
    """Wait a little, or give up."""
    code = process.poll()
    if code is None and time.monotonic() < limit:
        time.sleep(_POLL)
        return
    ended = "is not healthy in time" if code is None else f"ended with code {code}"
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-_LAST_LINES:])
    raise EmbeddedError(f"the embedded service {ended}: {why}. Its log ends with:\n{tail or '(nothing)'}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_SHUTDOWN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdin is not None:
        process.stdin.close()
