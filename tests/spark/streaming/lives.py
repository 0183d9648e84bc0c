"""A query that dies again and again, and what is to be said of its rows when it is done."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tests.planning import some_histogram
from tests.spark.streaming.job import NAME, PARTITIONS, STREAM, Orders
from unskew.client import Client, NotThereError
from unskew.core import hash_keys
from unskew.core.histogram.histogram import Histogram
from unskew.core.stream_spec import Part, StreamSpec
from unskew.spark.folders import Folder
from unskew.spark.frame.keys import SPREAD_SEED
from unskew.wire import StoredPin, pinned_from_bytes

__all__ = [
    "ROWS",
    "VARIED",
    "Verdict",
    "another_plan",
    "ids_of",
    "judge",
    "live",
    "lives",
    "prepare",
    "routed_by",
    "users_of",
]

ROWS = 1_500  # a batch
_KEYS, _HOT = 300, 0.4
_ROOT = Path(__file__).resolve().parents[3]
_LONGEST = 180.0
VARIED: list[dict[str, Any]] = [
    {},
    {"shuffles": 7, "policy": "kip"},
    {"shuffles": 2, "partitions": 6, "service": None},
    {"policy": "prompt", "service": None},
    {"shuffles": 200, "partitions": 3, "service": None},
]
"""What is different in each life; the service keeps the stream's number of partitions."""


@dataclass(frozen=True)
class Verdict:
    """Rows of the output that are lost or doubled; rows that two runs of a batch had in different partitions; rows that
    were elsewhere than the batch's pin says; batches that ran more than once; pins."""

    lost: int
    doubled: int
    moved: int
    strayed: int
    again: int
    pins: int


def users_of(batch: int) -> NDArray[np.str_]:
    """The keys of a batch: 40 % have one key, another one in every third batch."""
    rng = np.random.default_rng(batch)
    keys = rng.integers(0, _KEYS, ROWS)
    keys[rng.random(ROWS) < _HOT] = _KEYS + batch // 3
    return np.char.add("u", keys.astype(str))


def ids_of(batch: int) -> NDArray[np.int64]:
    return np.arange(batch * ROWS, (batch + 1) * ROWS)


def prepare(folder: Path, batches: int) -> None:
    """The input, a file a batch; Spark takes them by their times."""
    (folder / "in").mkdir(parents=True)
    for batch in range(batches):
        at = folder / "in" / f"{batch:03}.parquet"
        pq.write_table(pa.table({"user": pa.array(users_of(batch).tolist()), "id": ids_of(batch)}), at)
        os.utime(at, (1_700_000_000 + batch, 1_700_000_000 + batch))


def live(folder: Path, orders: Orders) -> None:
    """One life of the driver, to the end that it was told to have."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.streaming.job", str(folder), json.dumps(asdict(orders))],
            cwd=_ROOT,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            code = process.wait(_LONGEST)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    expected = -signal.SIGKILL if orders.kill else 0
    assert code == expected, (orders, code, (folder / "log").read_text(errors="replace")[-4000:])


def another_plan(client: Client, seed: int) -> None:
    """The service loses all that it knew, and hears of keys that come otherwise."""
    with suppress(NotThereError):
        client.delete_stream(STREAM)
    client.put_stream(STREAM, StreamSpec(PARTITIONS, "balanced", key_types=("string",)))
    rng = np.random.default_rng(seed)
    hot = hash_keys(np.char.add("u", rng.integers(0, _KEYS, 20).astype(str)).tolist())
    known = Histogram.from_counts(np.unique(hot), rng.integers(1, 500, len(np.unique(hot))))
    other = some_histogram(rows=5_000, keys=2_000, seed=seed)
    client.report_histogram(STREAM, Part("somebody", 0), known.merge(other))
    client.build_plan(STREAM, 0, fresh=True)


def lives(
    folder: Path,
    client: Client,
    target: str,
    kills: Sequence[tuple[str, int]],
    first: Orders,
    each: Sequence[Mapping[str, Any]] = ({},),
) -> None:
    """A life for each of these deaths and one to the end, with what is different in ``each``; in between the service
    gets another plan."""
    for number, (kill, batch) in enumerate([*kills, ("", -1)]):
        another_plan(client, number)
        orders = replace(first, life=number, kill=kill, batch=batch, service=target)
        live(folder, replace(orders, **each[number % len(each)]))


def judge(folder: Path, batches: int) -> Verdict:
    pins = Folder(folder / "cp" / "unskew" / NAME / "pins")
    firsts = [int(name.removesuffix(".pb")) for name in pins.names()]
    lost = doubled = moved = strayed = again = 0
    for batch in range(batches):
        found = np.concatenate([ids for _, ids in _written(folder / "out" / str(batch))])
        times = np.bincount(found - batch * ROWS, minlength=ROWS)
        lost, doubled = lost + int((times == 0).sum()), doubled + int((times > 1).sum())
        runs = [_placed(one, batch) for one in sorted((folder / "tries" / str(batch)).iterdir())]
        again += len(runs) > 1
        moved += _differ(runs)
        if firsts:
            data = pins.read(f"{max(one for one in firsts if one <= batch)}.pb")
            assert data is not None
            wanted = routed_by(pinned_from_bytes(data), batch)
            strayed += sum(int(((run >= 0) & (run != wanted)).sum()) for run in runs)
    return Verdict(lost, doubled, moved, strayed, again, len(firsts))


def _written(folder: Path) -> list[tuple[int, NDArray[np.int64]]]:
    files = [one for one in sorted(folder.iterdir()) if not one.name.startswith(".")]
    return [(int(one.name), np.frombuffer(one.read_bytes(), np.int64)) for one in files]


def _placed(folder: Path, batch: int) -> NDArray[np.int64]:
    """By row the partition that it was in; -1 where no task came as far."""
    where = np.full(ROWS, -1)
    for partition, ids in _written(folder):
        where[ids - batch * ROWS] = partition
    return where


def _differ(runs: list[NDArray[np.int64]]) -> int:
    all_runs = np.stack(runs)
    highest = all_runs.max(axis=0)
    lowest = np.where(all_runs < 0, np.iinfo(np.int64).max, all_runs).min(axis=0)
    return int(((highest >= 0) & (lowest < highest)).sum())


def routed_by(pinned: StoredPin, batch: int) -> NDArray[np.int64]:
    """Where the pin puts the rows of a batch, by numpy."""
    by = pinned.bound.plan or pinned.bound.cells
    assert by is not None
    spread = hash_keys(np.full(ROWS, SPREAD_SEED, np.int32), ids_of(batch))
    return by.route(hash_keys(users_of(batch).tolist()), spread).astype(np.int64)
