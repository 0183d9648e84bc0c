"""For users' own tests: the real service, on free ports of this machine, while a ``with`` block lasts.

::

    from unskew.client import testing

    with testing.embedded() as service, service.client() as client:
        client.put_stream("clicks", partitions=4)

It is a process of its own, because the client carries no server: ``unskew[service]`` must be installed. It is gone with
the block, and with this process, however that ends.
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
_GIVEN_TO_END = 5.0
_LAST_LINES = 15

# The service's end of a pipe that this process holds: it closes with this process, also after a SIGKILL.
_RUN = """
import os, runpy, signal, sys, threading
def last(pid=os.getpid()):
    while os.read(0, 1 << 10):
        pass
    os.kill(pid, signal.SIGTERM)
threading.Thread(target=last, daemon=True).start()
runpy.run_module("unskew.service", run_name="__main__", alter_sys=True)
"""


class EmbeddedError(UnskewError, RuntimeError):
    """The embedded service cannot be had; says why, with the end of its log."""


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
    """The service, healthy. ``settings`` are its options by name: ``embedded(store="redis://...")``. Those of the
    environment (``UNSKEW_*``) are left out, so that a test is the same everywhere."""
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
    own: dict[str, object] = {"http_port": 0, "grpc_port": 0, "metrics_port": 0, "drain": 1, "log_level": "warning"}
    own.update(settings)
    own["ports_file"] = ports
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("UNSKEW_")}
    return inherited | {f"UNSKEW_{name.upper()}": str(value) for name, value in own.items()}


def _running(process: subprocess.Popen[bytes], ports: Path, log: Path, limit: float) -> Embedded:
    found = _ports(process, ports, log, limit)
    service = Embedded(
        process.pid,
        f"grpc://127.0.0.1:{found['grpc']}",
        f"http://127.0.0.1:{found['http']}",
        f"http://127.0.0.1:{found['metrics']}",
        log,
    )
    with service.client() as client:
        while True:
            try:
                next(client.list_streams(timeout=max(limit - time.monotonic(), _POLL)), None)
            except NoAccessError:
                return service  # it is there, and asks for credentials
            except NoAnswerError as why:
                _go_on(process, log, limit, str(why))
            else:
                return service


def _ports(process: subprocess.Popen[bytes], ports: Path, log: Path, limit: float) -> dict[str, int]:
    while True:
        try:
            found: dict[str, int] = json.loads(ports.read_text())
        except (OSError, ValueError):  # not there yet, or half written
            _go_on(process, log, limit, "it did not open its ports")
        else:
            return found


def _go_on(process: subprocess.Popen[bytes], log: Path, limit: float, why: str) -> None:
    """Wait a little, or give up."""
    code = process.poll()
    if code is None and time.monotonic() < limit:
        time.sleep(_POLL)
        return
    ended = "is not healthy in time" if code is None else f"ended with code {code}"
    said = "\n".join(log.read_text(errors="replace").splitlines()[-_LAST_LINES:])
    raise EmbeddedError(f"the embedded service {ended}: {why}. Its log ends with:\n{said or '(nothing)'}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_GIVEN_TO_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdin is not None:
        process.stdin.close()
