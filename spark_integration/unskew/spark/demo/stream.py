"""The demo's stream: events whose keys are words, with other hot keys every few batches; a function of the seed.

Each batch is a folder of Parquet files, so both arms read the same bytes and Spark has no statistics of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unskew.core.keys.hashing import hash_keys
from unskew.simulate.key_streams import drifting
from unskew.spark.demo.settings import Demo

__all__ = ["SCHEMA", "Stream", "folder_of", "make_stream", "words"]

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
        """The batch as files."""
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


def words(keys: int, rng: np.random.Generator) -> pa.StringArray:
    """As many different names as ``keys``, in random order, so that hot keys have unlike names."""
    first, second = _FIRST.split(), _SECOND.split()
    pairs = len(first) * len(second)
    names = [
        f"{first[i % pairs // len(second)]}-{second[i % len(second)]}" + (f"-{i // pairs + 1}" if i >= pairs else "")
        for i in range(keys)
    ]
    return pa.array(names).take(pa.array(rng.permutation(keys)))


def make_stream(demo: Demo) -> Stream:
    """All batches."""
    rng = np.random.default_rng(demo.seed)
    names = words(demo.keys, rng)
    rows, change = demo.batches * demo.rows, demo.change * demo.rows
    numbers = drifting(rng, rows, demo.keys, demo.exponent, change, demo.hot)
    return Stream(numbers.reshape(demo.batches, demo.rows), names, hash_keys(names))
