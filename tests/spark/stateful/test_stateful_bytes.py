"""What a batch reads and writes: it grows with the keys that it touches and that move, not with the state."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from tests.spark.stateful.alone import COUNTS, FRAME, Alone, random_plan
from unskew.core import Histogram, hash_keys, make_planner
from unskew.core.operators.keyed_state import holding
from unskew.spark.folders import Folder
from unskew.spark.stateful.batch import DATA
from unskew.spark.stateful.blocks import Reader
from unskew.spark.stateful.store import stored_schema
from unskew.wire.manifests import Figures

PARTITIONS, EVENTS = 16, 1000


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory where the system has one."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        yield Path(folder)


def add(rows: pa.Table, states: pa.Table) -> tuple[pa.Table, pa.Table]:
    new = rows.select(["user", "v"]).rename_columns(["user", "n"])
    found = pa.concat_tables([states, new]).group_by("user").aggregate([("n", "sum")]).rename_columns(["user", "n"])
    return found, found


def rows_of(users: NDArray[np.int64]) -> pa.Table:
    return pa.table({"user": [f"user-{one}" for one in users.tolist()], "v": np.ones(len(users), np.int64)}, FRAME)


def spent(figures: Figures) -> int:
    return figures.bytes_read + figures.bytes_written + figures.bytes_output + figures.bytes_rows


def touched(query: Alone, rows: pa.Table) -> int:
    """The bytes of the blocks that these keys are in."""
    assert query.placed is not None
    hashes = np.unique(hash_keys(rows.column("user").combine_chunks()))
    place = query.placed.place(hashes)
    reader = Reader(Folder(query.folder).sub(DATA), stored_schema(COUNTS, expires=False))
    found = [reader.index(part) for part in query.parts]
    return sum(int(one["length"][holding(one, hashes[place == p])].sum()) for p, one in enumerate(found))


def costs(folder: Path, keys: int, batches: int = 12) -> tuple[float, float]:
    """Of a batch, once all keys have a state: what it costs, and the blocks that it touches; means."""
    rng, query = np.random.default_rng(keys), Alone(folder, add, "table", block=32)
    plan = make_planner("kip", PARTITIONS).plan(Histogram.empty())
    query.run(rows_of(np.arange(keys)), plan)
    total = need = 0
    for _ in range(batches):
        rows = rows_of(rng.integers(0, keys, EVENTS))
        need += touched(query, rows)
        total += spent(query.run(rows, plan))
    return total / batches, need / batches


def test_a_batch_costs_what_it_touches(memory: Path) -> None:
    """1,000 events drawn evenly from 200,000 keys of state: at most 3 times what they cost on 1,000 keys and the
    blocks that they are in. Means, so that what is copied now and then counts."""
    small, _ = costs(memory / "small", 1_000)
    large, blocks = costs(memory / "large", 200_000)
    assert large <= 3 * (small + blocks)
    assert blocks < 0.25 * 200_000 * 20, "and those are a part of the state"


def test_an_untouched_partition_keeps_its_files(memory: Path) -> None:
    """It reads and writes nothing."""
    query = Alone(memory, add, "table")
    plan = make_planner("kip", PARTITIONS).plan(Histogram.empty())
    query.run(rows_of(np.arange(2_000)), plan)
    before = query.parts
    rows = rows_of(np.array([5, 6]))
    places = set(plan.route(hash_keys(rows.column("user").combine_chunks())).tolist())
    query.run(rows, plan)
    for partition, (old, new, done) in enumerate(zip(before, query.parts, query.done, strict=True)):
        assert (old == new) == (partition not in places)
        assert (done.figures.bytes_read + done.figures.bytes_written > 0) == (partition in places)


def test_a_batch_without_rows_reads_what_moves_and_no_more(memory: Path) -> None:
    """A re-plan that moves a tenth of the hosts reads a part of the state; the same plan again reads nothing."""
    rng, query = np.random.default_rng(1), Alone(memory, add, "table", block=16)
    plan = random_plan(rng, 4, np.zeros(0, np.uint64))
    query.run(rows_of(np.arange(20_000)), plan)
    near = random_plan(rng, 4, np.zeros(0, np.uint64), plan)
    figures = query.run(rows_of(np.zeros(0, np.int64)), near)
    hashes = hash_keys([f"user-{one}" for one in range(20_000)])
    assert figures.moved == (plan.place(hashes) != near.place(hashes)).sum() > 0
    assert len(query.counts()) == 20_000
    again = query.run(rows_of(np.zeros(0, np.int64)), near)
    assert spent(again) == 0
