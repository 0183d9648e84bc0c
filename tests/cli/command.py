"""Runs the `unskew` command: in this process, or as a user would, in one of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.cli.entry import main
from unskew.simulate.key_streams import drifting


@dataclass(frozen=True)
class Done:
    """What a run left behind."""

    code: int
    out: str
    err: str


def in_process(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Done:
    """The command in this process: fast."""
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    code = left.value.code
    assert isinstance(code, int)
    return Done(code, said.out, said.err)


def environment() -> dict[str, str]:
    """The same packages in a process of its own, from whatever folder it runs in."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def in_shell(folder: Path, *arguments: str | Path, python: Sequence[str] = ("-m", "unskew.cli.entry")) -> Done:
    """The real command in a process of its own, warnings as errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *python, *map(str, arguments)],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def on_a_terminal(width: int, *arguments: str | Path) -> list[str]:
    """The lines that the real command puts on a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    env = {name: value for name, value in environment().items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen(
        [sys.executable, "-m", "unskew.cli.entry", *map(str, arguments)],
        env={**env, "TERM": "xterm", "NO_COLOR": "1"},
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    ) as run:
        os.close(theirs)
        shown = b""
        while chunk := _read(ours):
            shown += chunk
    os.close(ours)
    assert run.returncode == 0
    bare = shown.decode().replace("\x1b[1m", "").replace("\x1b[0m", "")
    return [line.rstrip() for line in bare.splitlines()]


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux reports the closed other end so
        return b""


def is_one_line(err: str) -> bool:
    """One line of ours, and no traceback."""
    return err.startswith("unskew: ") and err.count("\n") == 1 and err.endswith("\n") and "Traceback" not in err


def skewed(rows: int = 8_000, seed: int = 3) -> np.ndarray:
    """Key numbers of a drifting skewed stream."""
    return drifting(np.random.default_rng(seed), rows, 500, 1.4, rows // 2, 5)


def write_stream(path: Path, rows: int = 8_000) -> Path:
    """A Parquet file of that stream: a string key, the number itself, and a day."""
    keys = skewed(rows)
    table = pa.table(
        {
            "key": pa.array([f"user-{key}" for key in keys.tolist()]),
            "number": pa.array(keys),
            "day": pa.array((keys % 28).astype(np.int32)).cast(pa.date32()),
        }
    )
    pq.write_table(table, path, row_group_size=1000)
    return path
