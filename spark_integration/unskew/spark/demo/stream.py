"""The demo's stream: a flow of events, each with a key in words, whose hot keys change every few batches.

A function of the seed alone. Each batch is a folder of Parquet files, as a stream that lands in files has it, so both
arms read the same bytes and Spark knows nothing about them beforehand.
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
        """The events of a batch: an id of their own, the key, and an amount."""
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
        found: U64 = self.hashes[self.numbers[batch]]
        return found

    def named(self, key: int) -> str:
        """The key with this hash."""
        at = np.flatnonzero(self.hashes == np.uint64(key))
        return self.names[int(at[0])].as_py() if len(at) else f"hash {key:#018x}"


def folder_of(folder: Path, batch: int) -> Path:
    """Where the batch stands, by the name that Spark reads as a column ``batch``."""
    return folder / f"batch={batch}"


def words(keys: int, rng: np.random.Generator) -> pa.StringArray:
    """So many different names, in random order, so that hot keys do not look alike."""
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
