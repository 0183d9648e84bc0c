"""docs/whatif.md: its commands run, and it has every option that there is and no other."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.command import in_process, skewed

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "whatif.md").read_text()
COMMANDS = [
    line.partition(" #")[0].removeprefix("$ ").split()
    for block in re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if line.removeprefix("$ ").startswith("unskew ")
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that the examples are about: users, and a row every millisecond."""
    folder = tmp_path_factory.mktemp("docs")
    keys = skewed(150_000)
    table = {"user": pa.array([f"user-{key}" for key in keys.tolist()]), "at": np.arange(len(keys)) / 1000}
    pq.write_table(pa.table(table), folder / "events.parquet")
    return folder


@pytest.mark.parametrize("command", [c for c in COMMANDS if c[1] == "whatif"], ids=" ".join)
def test_the_commands_that_are_shown_run(
    command: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a stream of one and a half batches, with a verdict at the end."""
    monkeypatch.chdir(folder)
    done = in_process(capsys, *command[1:])
    assert (done.code, done.err) == (0, "")
    assert "Best here" in done.out


def test_every_option_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """The page names no option that the help does not, and leaves none out."""
    helped = in_process(capsys, "whatif", "--help").out + in_process(capsys, "explain", "--help").out
    there = set(re.findall(r"--[a-z-]+", helped)) - {"--help"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", PAGE)) == there
