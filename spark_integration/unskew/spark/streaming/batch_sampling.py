"""How a batch's keys are sampled while its own job runs: no second read, no job of its own.

The frame that the handler gets counts its rows and collects a share of them, as pairs of key hash and spread hash,
while the user's job reads it (``DataFrame.observe``): about 5 % of a bare shuffle of two million short rows, where a
histogram job takes half of one (``docs/decisions/0018-streaming.md``). Counts of a key are then estimates: a key of 1 %
of the rows is known to 3 % from 100,000. A plan made from the batches before has more than that to fear from drift.

Rows are chosen by their position in the task, hashed: evenly, and not by their content, so that equal rows are sampled
as often as others. With ``weight`` each comes with its own, so that a key is estimated by what its rows weigh: a key of
few heavy rows is known less well than one of many. Far into a task that reads more than was expected fewer are chosen:
the driver gets a bounded number whatever comes. Which rows are sampled decides nothing about this batch.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, Observation
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from unskew.core.histogram.histogram import Histogram
from unskew.core.histogram.sampling import sample_for, sample_histogram
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
_STEPS = 1 << 32  # of a weight's logarithm, to the base 2
_NOT_FINITE = 1 << 62

_log = logging.getLogger("unskew.spark")


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
    weighed: bool = False

    def sample(self, wait: float = BEHIND) -> BatchSample | None:
        """The sample, once the job has run; None where no job has read the frame."""
        metrics = metrics_of(self.observation, wait)
        if metrics is None:
            return None
        columns = 1 + self.split + self.weighed
        taken = np.frombuffer(metrics["sample"] or b"", ">u8").astype(np.uint64).reshape(-1, columns).T.copy()
        weights = _weights(taken[-1]) if self.weighed else None
        rows = int(metrics["rows"] or 0)
        spread = taken[1] if self.split else None
        return BatchSample(rows, taken.shape[1], sample_histogram(taken[0], spread, rows, self.partitions, weights))


def every_for(rows: int, partitions: int) -> int:
    """One in how many rows is sampled, where so many are expected: a power of two."""
    return 1 << max((rows // sample_for(partitions)).bit_length() - 1, 0)


def near_for(tasks: int, partitions: int) -> int:
    """How many rows of a task are sampled before fewer are: all tasks together a small multiple of what is needed,
    also in a first batch of unknown size. A power of two, so that Spark seldom has to compile anew."""
    share = _UNEVEN * sample_for(partitions) // max(tasks, 1)
    return min(max(1 << max(share.bit_length() - 1, 0), _LEAST), _MOST)


def sampled(
    df: DataFrame,
    key: Column,
    spread: Column | None,
    partitions: int,
    every: int,
    near: int = _MOST,
    weight: Column | None = None,
) -> tuple[DataFrame, RowSampler]:
    """The same frame, which samples one in ``every`` of its rows when a job reads it, each with its weight."""
    at = helper(df.columns, "sample")
    parts = [key, *([] if spread is None else [spread]), *([] if weight is None else [_logarithm(weight)])]
    marked = df.withColumn(at, F.when(_chosen(every, near), F.concat(*map(_bytes, parts))))
    observation = Observation()
    metrics = F.expr("count(1) AS rows"), F.expr(f"listagg({at}) AS sample")
    sampler = RowSampler(observation, partitions, spread is not None, weight is not None)
    return marked.observe(observation, *metrics).drop(at), sampler


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


def _logarithm(weight: Column) -> Column:
    """A weight as a bigint: eight bytes for any size, good to nine digits. What is not finite stays so."""
    steps = (F.log2(weight) * float(_STEPS)).try_cast("bigint")
    return F.when(weight > 0, F.coalesce(steps, F.lit(_NOT_FINITE))).otherwise(F.lit(-_NOT_FINITE))


def _weights(logarithms: NDArray[np.uint64]) -> NDArray[np.float64] | None:
    """The weights again; None, so that rows are counted, where they have no finite sum above 0."""
    with np.errstate(over="ignore"):
        weights: NDArray[np.float64] = np.exp2(logarithms.view(np.int64) / _STEPS)
    if not len(weights) or 0.0 < float(weights.sum()) < np.inf:
        return weights
    _log.warning("a batch is counted by rows: its weights are not finite, or none is above 0")
    return None
