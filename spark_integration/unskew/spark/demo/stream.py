"""The demo's sizes, and its stream by a seed: events keyed by words, with other hot keys every few batches.

Each batch is a folder of Parquet files, so both arms read the same bytes and Spark has no statistics of them.

The work of a row is a fixed wait, as for a call to another system; a task sleeps once an Arrow batch. A wait needs no
processor, so sixteen tasks can run at once on two cores as on a cluster, and the longest task decides how long a batch
takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unskew.core.errors import ConfigError
from unskew.core.keys.hashing import hash_keys
from unskew.simulate.key_streams import drifting

__all__ = ["BOUNDS", "SCHEMA", "Demo", "Stream", "folder_of", "make_stream", "quick"]

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]

SCHEMA = "id bigint, word string, amount bigint"
_FILES = 4  # tasks that read a batch
_AMOUNTS = 97
_FIRST = (
    "amber brave calm dusty eager fair gentle happy icy jolly keen lively mellow noble olive proud quiet rapid silver "
    "tidy upper vivid warm young"
)
_SECOND = (
    "acorn badger cedar delta ember falcon garden harbor island jasmine kettle lantern meadow nectar otter pebble "
    "quartz river saddle timber umbrella valley willow zephyr"
)
BOUNDS = {"batches": (2, 500), "rows": (1_000, 5_000_000), "partitions": (2, 64), "seed": (0, 2**63 - 1)}


@dataclass(frozen=True)
class Demo:
    """``rows`` a batch; after every ``change`` batches other keys are the hottest ``hot``; ``wait`` seconds of work a
    row; the keys' frequencies follow Zipf's law with ``exponent``."""

    batches: int = 9
    rows: int = 120_000
    partitions: int = 16
    seed: int = 7
    change: int = 3
    wait: float = 1.2e-4
    keys: int = 40_000
    hot: int = 100
    exponent: float = 1.5

    def __post_init__(self) -> None:
        for name, (least, most) in BOUNDS.items():
            if not least <= getattr(self, name) <= most:
                raise ConfigError(name, getattr(self, name), f"a whole number, {least} to {most}")

    @property
    def least_seconds(self) -> float:
        """The least time of a batch, with equal partitions: work over slots."""
        return self.rows * self.wait / self.partitions


def quick() -> Demo:
    """A run of seconds instead of minutes, as a trial: most of its time is Spark's own, not the placement's."""
    return Demo(batches=3, rows=20_000, partitions=6, change=2, wait=2e-4)


@dataclass(frozen=True, eq=False)
class Stream:
    """``numbers[batch, row]`` is the key's number, ``names`` and ``hashes`` are by number."""

    numbers: I64
    names: pa.StringArray
    hashes: U64

    def table(self, batch: int) -> pa.Table:
        """The events of a batch: a unique id, the key, and an amount."""
        numbers = self.numbers[batch]
        first = batch * len(numbers)
        ids = np.arange(first, first + len(numbers), dtype=np.int64)
        return pa.table({"id": ids, "word": self.names.take(pa.array(numbers)), "amount": (ids * 31) % _AMOUNTS})

    def write(self, folder: Path, batch: int) -> None:
        table, home = self.table(batch), folder_of(folder, batch)
        home.mkdir(parents=True)
        step = -(-table.num_rows // _FILES)
        for number in range(_FILES):
            pq.write_table(table.slice(number * step, step), home / f"part-{number}.parquet")

    def hottest(self, batch: int) -> tuple[str, float]:
        """The most frequent key of a batch, and its share of the rows."""
        counts = np.bincount(self.numbers[batch], minlength=len(self.names))
        top = int(counts.argmax())
        return self.names[top].as_py(), float(counts[top] / len(self.numbers[batch]))

    def hashes_of(self, batch: int) -> U64:
        """The key hash of each row, as Spark's ``xxhash64(word)``."""
        hashes: U64 = self.hashes[self.numbers[batch]]
        return hashes

    def named(self, key: int) -> str:
        """The key with this hash."""
        at = np.flatnonzero(self.hashes == np.uint64(key))
        return self.names[int(at[0])].as_py() if len(at) else f"hash {key:#018x}"


def folder_of(folder: Path, batch: int) -> Path:
    """The batch's folder, with a name that Spark reads as a column ``batch``."""
    return folder / f"batch={batch}"


def _words(keys: int, rng: np.random.Generator) -> pa.StringArray:
    """As many different names as ``keys``, in random order, so that hot keys have unlike names."""
    first, second = _FIRST.split(), _SECOND.split()
    pairs = len(first) * len(second)
    names = [
        f"{first[i % pairs // len(second)]}-{second[i % len(second)]}" + (f"-{i // pairs + 1}" if i >= pairs else "")
        for i in range(keys)
    ]
    return pa.array(names).take(pa.array(rng.permutation(keys)))


def make_stream(demo: Demo) -> Stream:
    rng = np.random.default_rng(demo.seed)
    names = _words(demo.keys, rng)
    rows, change = demo.batches * demo.rows, demo.change * demo.rows
    numbers = drifting(rng, rows, demo.keys, demo.exponent, change, demo.hot)
    return Stream(numbers.reshape(demo.batches, demo.rows), names, hash_keys(names))
