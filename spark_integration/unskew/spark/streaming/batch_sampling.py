"""How a batch's keys are sampled while its own job runs: no second read, no job of its own.

The frame that the handler gets counts its rows and collects a share of them, as pairs of key hash and spread hash,
while the user's job reads it (``DataFrame.observe``): about 5 % of a bare shuffle of two million short rows, where a
histogram job takes half of one (``docs/decisions/0018-streaming.md``). Counts of a key are then estimates: a key of 1 %
of the rows is known to 3 % from 100,000. A plan made from the batches before has more than that to fear from drift.

Rows are chosen by their position in the task, hashed: evenly, and not by their content, so that equal rows are sampled
as often as others. Far into a task that reads more than was expected fewer are chosen: the driver gets a bounded number
whatever comes. Which rows are sampled decides nothing about this batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, Observation
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from unskew.core.histogram.histogram import Histogram
from unskew.core.histogram.sampling import candidates, counted, listed_for, sample_for
from unskew.core.limits import host_bits
from unskew.spark.frame.jvm import metrics_of
from unskew.spark.frame.keys import helper

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BatchSample", "RowSampler", "every_for", "near_for", "sampled"]

BEHIND = 2.0  # seconds that Spark may take to deliver what a job has observed, once the job is done
_WIDTH = 16  # hexadecimal digits of a bigint
_INDEX = (1 << 33) - 1  # of a row in its task, in monotonically_increasing_id
_FEWER, _LEVELS = 8, 6  # of what comes further on in a task one in so many, so many times over
_UNEVEN = 4  # times its share that a task may have before it is
_LEAST, _MOST = 1 << 6, 1 << 14


@dataclass(frozen=True, eq=False)
class BatchSample:
    """The ``rows`` of a batch, and its histogram as estimated from ``sampled`` of them."""

    rows: int
    sampled: int
    histogram: Histogram


@dataclass(frozen=True, eq=False)
class RowSampler:
    """Samples one frame while its job runs."""

    observation: Observation
    partitions: int
    split: bool

    def sample(self, wait: float = BEHIND) -> BatchSample | None:
        """The sample, once the job has run; None where no job has read the frame."""
        metrics = metrics_of(self.observation, wait)
        if metrics is None:
            return None
        hashes = np.frombuffer(metrics["sample"] or b"", ">u8").astype(np.uint64)
        keys, spread = (hashes[::2], hashes[1::2]) if self.split else (hashes, None)
        rows = int(metrics["rows"] or 0)
        return BatchSample(rows, len(keys), _estimated(keys, spread, rows, self.partitions))


def every_for(rows: int, partitions: int) -> int:
    """One in how many rows is sampled, where so many are expected: a power of two."""
    return 1 << max((rows // sample_for(partitions)).bit_length() - 1, 0)


def near_for(tasks: int, partitions: int) -> int:
    """How many rows of a task are sampled before fewer are: all tasks together a small multiple of what is needed,
    also in a first batch of unknown size. A power of two, so that Spark seldom has to compile anew."""
    share = _UNEVEN * sample_for(partitions) // max(tasks, 1)
    return min(max(1 << max(share.bit_length() - 1, 0), _LEAST), _MOST)


def sampled(
    df: DataFrame, key: Column, spread: Column | None, partitions: int, every: int, near: int = _MOST
) -> tuple[DataFrame, RowSampler]:
    """The same frame, which samples one in ``every`` of its rows when a job reads it."""
    at = helper(df.columns, "sample")
    pair = _bytes(key) if spread is None else F.concat(_bytes(key), _bytes(spread))
    marked = df.withColumn(at, F.when(_chosen(every, near), pair))
    observation = Observation()
    metrics = F.expr("count(1) AS rows"), F.expr(f"listagg({at}) AS sample")
    return marked.observe(observation, *metrics).drop(at), RowSampler(observation, partitions, spread is not None)


def _chosen(every: int, near: int) -> Column:
    """Written as SQL, and without anything that is of one batch: then Spark need not compile it anew for each."""
    index = f"(monotonically_increasing_id() & {_INDEX})"
    steps = [every * _FEWER**level for level in range(_LEVELS + 1)]
    first = " ".join(f"WHEN {index} < {step * near}L THEN {step - 1}L" for step in steps[:-1])
    mask = f"CASE {first} ELSE {steps[-1] - 1}L END"
    return F.expr(f"xxhash64(monotonically_increasing_id()) & {mask} = 0")


def _bytes(number: Column) -> Column:
    """The eight bytes of a bigint, the highest first."""
    return F.unhex(F.lpad(F.hex(number), _WIDTH, "0"))


def _estimated(keys: NDArray[np.uint64], spread: NDArray[np.uint64] | None, rows: int, partitions: int) -> Histogram:
    """The histogram of so many rows of which these are a sample."""
    chosen = candidates(keys, spread, listed_for(partitions))
    distinct, counts = np.unique(keys, return_counts=True)
    ends = np.rint(np.cumsum(counts) * (rows / max(len(keys), 1)))  # so that all of them together are the rows
    scaled = np.maximum(np.diff(ends, prepend=0.0), 1).astype(np.int64)
    none = np.zeros(0, np.int64)
    return counted(replace(chosen, every=1), distinct, scaled, none, none, host_bits(partitions))
