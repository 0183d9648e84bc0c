"""The service as a process of its own: started on free ports, read by its log and metrics, ended by its pid."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.cli.command import environment

__all__ = ["FREE", "Process", "logged", "process", "until_told"]

FREE = ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]


@dataclass
class Process:
    """A service in a process of its own, and its ports."""

    run: subprocess.Popen[str]
    http: int
    grpc: int
    metrics: int

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.http}{path}"


@contextmanager
def process(
    folder: Path, *flags: str, module: str = "unskew.cli.entry", first: str = "serve", **more: str
) -> Iterator[Process]:
    """The real command, ended by its own pid whatever happens; ``more`` is added to its environment."""
    ports = folder / "ports.json"
    command = [sys.executable, "-W", "error", "-m", module, *([first] if first else []), *FREE, *flags]
    env = {name: value for name, value in environment().items() if not name.startswith(("UNSKEW_", "OTEL_"))} | more
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [*command, "--ports-file", str(ports)], cwd=folder, env=env, stdout=subprocess.PIPE, stderr=log, text=True
        ) as run,
    ):
        try:
            end = time.monotonic() + 90
            while not ports.exists():
                assert run.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < end
                time.sleep(0.02)
            told = json.loads(ports.read_text())
            assert told["pid"] == run.pid
            yield Process(run, told["http"], told["grpc"], told["metrics"])
        finally:
            if run.poll() is None:
                run.kill()
            run.wait()


def logged(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "log").read_text().splitlines()]


def until_told(service: Process, line: str) -> None:
    """Until the metrics have this line."""
    end = time.monotonic() + 60
    while line not in httpx.get(f"http://127.0.0.1:{service.metrics}/metrics", trust_env=False, timeout=60).text:
        assert time.monotonic() < end
        time.sleep(0.02)
