"""Compares both arms' results with each other and with the stream, by Spark, from the files that the arms wrote.

Twice: as multisets of every key of every batch, each minus the other; and as a SHA-256 over the sorted lines of the
final merge, one a key, beside that of a plain ``groupBy`` over the events, independent of both arms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from unskew.spark.demo.stream import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Digest", "Proof", "prove"]

_RESULT = "word string, n bigint, amount bigint, ids bigint"


@dataclass(frozen=True)
class Digest:
    """The keys and rows of a result, and the SHA-256 of its sorted lines."""

    keys: int
    rows: int
    sha256: str


@dataclass(frozen=True)
class Proof:
    """``digests`` by name (``stream``, ``hash``, ``unskew``); how many results only one arm has."""

    digests: Mapping[str, Digest]
    only_hash: int
    only_unskew: int

    @property
    def equal(self) -> bool:
        return len(set(self.digests.values())) == 1 and self.only_hash == self.only_unskew == 0


def prove(spark: SparkSession, stream: Path, hashed: Path, planned: Path) -> Proof:
    """Compare the stream and the files of both arms."""
    events = spark.read.schema(f"{SCHEMA}, batch int").parquet(str(stream))
    truth = events.groupBy("batch", "word").agg(
        F.count(F.lit(1)).alias("n"), F.sum("amount").alias("amount"), F.sum("id").alias("ids")
    )
    one, other = (spark.read.schema(f"{_RESULT}, batch int").parquet(str(arm)) for arm in (hashed, planned))
    digests = {"stream": _digest(truth), "hash": _digest(one), "unskew": _digest(other)}
    return Proof(digests, one.exceptAll(other).count(), other.exceptAll(one).count())


def _digest(results: DataFrame) -> Digest:
    """The final merge: the state of each key over all batches."""
    merged = results.groupBy("word").agg(*(F.sum(name).alias(name) for name in ("n", "amount", "ids")))
    line = F.concat_ws("\t", "word", "n", "amount", "ids")
    lines = F.concat_ws("\n", F.array_sort(F.collect_list(line)))
    row = merged.agg(F.count(F.lit(1)), F.sum("n"), F.sha2(lines, 256)).head()
    assert row is not None  # an aggregate without keys has one row
    return Digest(int(row[0]), int(row[1] or 0), str(row[2]))
