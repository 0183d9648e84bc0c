"""How a batch's keys are sampled while its own job runs: no second read, no job of its own.

The frame that the handler gets counts its rows and collects a share of them, as pairs of key hash and spread hash,
while the user's job reads it (``DataFrame.observe``): about 5 % of a bare shuffle of two million short rows, where a
histogram job takes half of one (``docs/decisions/0018-streaming.md``). Counts of a key are then estimates: a key of 1 %
of the rows is known to 3 % from 100,000. A plan made from the batches before has more than that to fear from drift.

Rows are chosen by their position in the task (``frame/row_sampling.py``). With ``weight`` each comes with its own, so
that a key is estimated by what its rows weigh: a key of few heavy rows is known less well than one of many. Which rows
are sampled decides nothing about this batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Column, Observation

from unskew.core.histogram.histogram import Histogram
from unskew.core.histogram.sampling import sample_histogram
from unskew.spark.frame.jvm import metrics_of
from unskew.spark.frame.row_sampling import METRIC, MOST_NEAR, logarithm_of, observed_rows, weights_in, words_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BatchSample", "RowSampler", "sampled"]

BEHIND = 2.0  # seconds that Spark may take to deliver what a job has observed, once the job is done


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
        taken = words_in(metrics[METRIC], columns)
        weights = weights_in(taken[-1]) if self.weighed else None
        rows = int(metrics["rows"] or 0)
        spread = taken[1] if self.split else None
        return BatchSample(rows, taken.shape[1], sample_histogram(taken[0], spread, rows, self.partitions, weights))


def sampled(
    df: DataFrame,
    key: Column,
    spread: Column | None,
    partitions: int,
    every: int,
    near: int = MOST_NEAR,
    weight: Column | None = None,
) -> tuple[DataFrame, RowSampler]:
    """The same frame, which samples one in ``every`` of its rows when a job reads it, each with its weight."""
    parts = [key, *([] if spread is None else [spread]), *([] if weight is None else [logarithm_of(weight)])]
    sampler = RowSampler(Observation(), partitions, spread is not None, weight is not None)
    return observed_rows(df, parts, every, near, sampler.observation), sampler
