"""The real service as a child process, for the benchmarks that load it from outside: where it is, what it takes."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Served", "bare_environment", "child", "processor_seconds", "raise_file_limit", "resident_mb", "serving"]

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Served:
    """A service, and its ports."""

    process: subprocess.Popen[str]
    http: int
    grpc: int
    metrics: int

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.grpc}"


def bare_environment() -> dict[str, str]:
    """Without settings of whoever runs this."""
    return {name: value for name, value in os.environ.items() if not name.startswith("UNSKEW_")}


@contextlib.contextmanager
def child(command: Sequence[str], given: str = "") -> Iterator[tuple[subprocess.Popen[str], dict[str, int]]]:
    """A process that reads what is ``given`` and says in one line of JSON where it is; killed by its pid at the end."""
    process = subprocess.Popen(
        [sys.executable, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=bare_environment(),
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(given)
        process.stdin.close()
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(command)} did not start")
        yield process, json.loads(line)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()


@contextlib.contextmanager
def serving(*flags: str) -> Iterator[Served]:
    """``python -m unskew.service`` on free ports, memory store unless the flags say otherwise."""
    ports = [flag for name in ("http", "grpc", "metrics") for flag in (f"--{name}-port", "0")]
    command = ["-m", "unskew.service", *ports, "--log-level", "warning", *flags]
    with child(command) as (process, told):
        yield Served(process, told["http"], told["grpc"], told["metrics"])


def resident_mb(pid: int) -> float:
    """Memory of the process that is in RAM now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 2**20


def processor_seconds(pid: int) -> float:
    """Processor time that the process's threads have used."""
    used = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            used += int((thread / "schedstat").read_text().split()[0])
    return used / 1e9


def raise_file_limit(wanted: int) -> int:
    """As many open files as are wanted, or as the hard limit allows; children have it too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    given = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft < given:
        resource.setrlimit(resource.RLIMIT_NOFILE, (given, hard))
    return max(soft, given)
