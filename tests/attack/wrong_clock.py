"""Processes whose clock is wrong, by libfaketime: what they read as the time of day can be moved while they run. The
monotonic clock is the machine's, as it is where somebody sets the time."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.servers import Server, single

__all__ = ["Clock", "redis_by"]

_SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "faketime.sh"


@dataclass
class Clock:
    """``environment`` is for the processes that go by it."""

    file: Path
    library: str

    @classmethod
    def at(cls, file: Path) -> Clock:
        """Right at first. Without libfaketime the test is skipped, but not in CI, which is there to run it."""
        found = subprocess.run(["bash", _SCRIPT], capture_output=True, text=True, timeout=600)
        if found.returncode and not os.environ.get("CI"):
            pytest.skip(found.stderr.strip().splitlines()[-1])
        assert found.returncode == 0, found.stderr
        clock = cls(file, found.stdout.strip())
        clock.shift(0)
        return clock

    @property
    def environment(self) -> dict[str, str]:
        return {
            # redis-server's jemalloc asks for the time before libfaketime can tell it: libc's malloc comes first.
            "LD_PRELOAD": f"{self.library} libc.so.6",
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
        }

    def shift(self, seconds: int) -> None:
        """The clock jumps to so many seconds from the right time."""
        new = self.file.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.replace(self.file)


@contextmanager
def redis_by(clock: Clock, folder: Path) -> Iterator[Server]:
    with patch.dict(os.environ, clock.environment):
        running = single(folder)
        server = running.__enter__()
    try:
        yield server
    finally:
        running.__exit__(None, None, None)
