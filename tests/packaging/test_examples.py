"""The examples do what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "drifting_stream.py"


def write(file: Path, *options: str) -> pa.Table:
    command = [
        sys.executable,
        "-W",
        "error",
        str(EXAMPLE),
        str(file),
        "--rows",
        "40000",
        "--keys",
        "2000",
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return pq.read_table(file)


def hottest(keys: pa.ChunkedArray) -> tuple[str, float]:
    """The most frequent key and its share."""
    counts = pc.value_counts(keys).to_pylist()
    top = max(counts, key=lambda count: count["counts"])
    return top["values"], top["counts"] / len(keys)


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    return write(tmp_path_factory.mktemp("example") / "new" / "stream.parquet", "--drift", "10000")


def test_the_stream_is_rows_of_time_and_string_key(stream: pa.Table) -> None:
    """The asked-for rows, in order of time, in a folder that it makes itself."""
    assert stream.schema.names == ["time", "key"]
    assert stream.schema.field("key").type == pa.string()
    assert stream.num_rows == 40_000
    times = stream["time"].to_numpy()
    assert bool((times[1:] > times[:-1]).all())


def test_a_few_keys_carry_the_rows_and_they_change(stream: pa.Table) -> None:
    """In each span the hottest key has far over a sixteenth of the rows, and another one has in the next."""
    spans = [hottest(stream["key"].slice(first, 10_000)) for first in range(0, 40_000, 10_000)]
    assert min(share for _, share in spans) > 1.5 / 16
    assert len({name for name, _ in spans}) == len(spans)


def test_the_seed_decides_the_stream(stream: pa.Table, tmp_path: Path) -> None:
    """The same seed writes the same rows, another seed others."""
    assert write(tmp_path / "same.parquet", "--drift", "10000").equals(stream)
    assert not write(tmp_path / "other.parquet", "--drift", "10000", "--seed", "8").equals(stream)


def test_a_size_of_nothing_is_refused(tmp_path: Path) -> None:
    """Zero rows ends with a usage line that names the options, and writes no file."""
    command = [sys.executable, str(EXAMPLE), str(tmp_path / "none.parquet"), "--rows", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--rows" in done.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []
