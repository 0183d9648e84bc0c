"""The histogram of a DataFrame's key, counted by Spark: two passes over the key's columns, nothing per row in Python.

1. A sample of some 100,000 rows (1 % of the frame, more of a small one) comes to the driver as hashes. It says which
   keys may be heavy, and how many distinct spread values they have: too few, and a plan will not split them.
2. One exact pass counts the candidates by key and everything else by host, combined on the map side: a few thousand
   groups however many keys there are. Where the first pass has brought every row, the driver counts them instead.

Rows are exact for every listed key and every host. A key that the sample missed is in its host's count; a key with a
share f of the rows is missed with probability about ``(1 + s f) exp(-s f)`` for s sampled rows: at s = 100,000 less
than one in 10^17 where f >= 1/2,000. The frame is read twice, so persist it if it is dear to compute.

The two sides of a join are counted for the same keys: what a sample of either side calls heavy.

With a ``weight`` rows are not counted but weighed: a key's count is its weight, in rows of the mean weight, so that a
plan evens out what rows cost. The sample is drawn anew by weight, and the second pass sums it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code
from pyspark.sql.types import NumericType

from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram
from unskew.core.histogram.sampling import (
    Candidates,
    candidates,
    counted,
    draw_by_weight,
    listed_for,
    one_in,
    rows_of_mean_weight,
    sample_for,
    sample_histogram,
)
from unskew.core.limits import host_bits
from unskew.core.operators.join_plan import LEFT, RIGHT, JoinRows
from unskew.core.plan.lookup import find_lookup
from unskew.spark.frame.keys import Columns, key_of, quoted, spread_of
from unskew.spark.place.native import hot_column

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["Sampling", "Weight", "counted_sides", "histogram_of", "sampling_for", "weight_of"]

Weight: TypeAlias = "str | Column"
"""What a row weighs: a column's name, an expression in SQL, or a ``Column``."""
Side = tuple["DataFrame", Column, "Column | None"]  # a frame, what places its rows, their spread if it may be split

# Spark's sample and rand draw alike from one seed: a frame made with rand(seed) would be sampled by its own values.
_APART = 0x5EED_5A3B

# A host among key hashes: a range that no key has on purpose (NULL hashes to 42, so not the small numbers). A key in it
# by chance, one in 2^46 or fewer, is counted for a host.
_HOSTS = 0x5EED_C0DE << 32


@dataclass(frozen=True)
class Sampling:
    """How rows are sampled before they are counted: a ``fraction`` of them, chosen by ``seed``.

    >>> from unskew.spark import Sampling
    >>> Sampling(fraction=0.05).seed
    7
    """

    fraction: float = 0.01
    seed: int = 7

    def __post_init__(self) -> None:
        if not 0.0 < self.fraction <= 1.0:
            raise ConfigError("fraction", self.fraction, "more than 0, at most 1")


def sampling_for(rows: int, partitions: int, least: Sampling) -> Sampling:
    """How to sample a frame of about so many rows: all of a small one, whose keys are then counted in one job."""
    enough = sample_for(partitions)
    if not rows:
        return least
    return replace(least, fraction=1.0 if rows <= 1.5 * enough else max(least.fraction, min(1.25 * enough / rows, 1.0)))


def histogram_of(
    df: DataFrame,
    key: Columns,
    partitions: int,
    spread: Columns | None = None,
    sampling: Sampling | None = None,
    weight: Weight | None = None,
) -> Histogram:
    """How many rows each heavy key has, and each host; with ``spread``, whether the heavy ones can be split."""
    key_hash, spread_hash = key_of(df, key).hash, None if spread is None else spread_of(df, spread).hash
    weights = None if weight is None else weight_of(df, weight)
    sample = _first_pass(df, key_hash, spread_hash, partitions, sampling or Sampling(), weights)
    if not sample.whole:
        return _exact_counts(df, key_hash, _heavy(sample, partitions), partitions, weights)
    return sample_histogram(sample.keys, sample.spread, len(sample.keys), partitions, sample.weights)


def weight_of(df: DataFrame, weight: Weight) -> Column:
    """What each row weighs, as a double; NULL and what is below 0 weigh nothing."""
    named = isinstance(weight, str) and weight in df.columns
    try:
        given = F.col(quoted(str(weight))) if named else F.expr(weight) if isinstance(weight, str) else weight
        kind = df.select(given).schema[0].dataType
    except AnalysisException as why:
        raise ConfigError("weight", weight, f"a column, or an expression of columns ({_first_line(why)})") from None
    if not isinstance(kind, NumericType):
        raise ConfigError("weight", weight, f"a number for each row, not {kind.simpleString()}")
    return F.greatest(F.coalesce(given.cast("double"), F.lit(0.0)), F.lit(0.0))


def _first_line(why: Exception) -> str:
    return str(why).splitlines()[0]


def _exact_counts(
    df: DataFrame, key: Column, chosen: Candidates, partitions: int, weights: Column | None = None
) -> Histogram:
    """The second pass: rows of these keys one by one, of all others by host."""
    bits = host_bits(partitions)
    count = F.count(F.lit(1)).alias("n")
    group = _group(key, chosen, bits).alias("g")
    if weights is None:
        table = df.select(group).groupBy("g").agg(count).toArrow()
        rows = _longs(table, "n")
    else:
        table = df.select(group, weights.alias("w")).groupBy("g").agg(count, F.sum("w").alias("w")).toArrow()
        table = table.sort_by("g")
        rows = rows_of_mean_weight(table.column("w").to_numpy(), int(_longs(table, "n").sum()))
    groups, rows = _longs(table, "g")[rows > 0], rows[rows > 0]  # what weighs next to nothing is not there
    host = _is_host(groups, bits)
    return counted(chosen, groups[~host].view(np.uint64), rows[~host], groups[host] ^ _HOSTS, rows[host], bits)


def counted_sides(how: str, left: Side, right: Side, partitions: int, sampling: Sampling) -> JoinRows:
    """Both sides of a join, in two jobs a side. A key that one side lists and the other does not is counted on both."""
    sides = {LEFT: left, RIGHT: right}
    samples = {name: _heavy(_first_pass(*side, partitions, sampling), partitions) for name, side in sides.items()}
    keys = np.union1d(samples[LEFT].hashes, samples[RIGHT].hashes)
    counts = {
        name: _exact_counts(df, key, replace(samples[name], hashes=keys, spread=None), partitions)
        for name, (df, key, _) in sides.items()
    }
    spread = {name: _spread_at(keys, sample) for name, sample in samples.items()}
    return JoinRows(how, counts[LEFT], counts[RIGHT], keys, spread)


def _spread_at(keys: NDArray[np.uint64], sample: Candidates) -> NDArray[np.int64]:
    """Spread values by key; 0 for keys that this side's sample does not have twice."""
    spread = np.zeros(len(keys), np.int64)
    if sample.spread is not None:
        spread[np.searchsorted(keys, sample.hashes)] = sample.spread
    return spread


@dataclass(frozen=True, eq=False)
class _Sample:
    """Rows of a frame as hashes; ``whole``: all of them, else of about so many ``rows``."""

    keys: NDArray[np.uint64]
    spread: NDArray[np.uint64] | None
    weights: NDArray[np.float64] | None
    whole: bool
    rows: float


def _first_pass(
    df: DataFrame, key: Column, spread: Column | None, partitions: int, how: Sampling, weights: Column | None = None
) -> _Sample:
    """The rows that say which keys may be heavy."""
    enough = sample_for(partitions)
    columns = [key.alias("h"), *([] if spread is None else [spread.alias("s")])]
    columns += [] if weights is None else [weights.alias("w")]
    table = _sample(df, columns, how.fraction, 2 * enough, how.seed)
    fraction = how.fraction
    if 2 * table.num_rows < enough and fraction < 1.0:  # a small frame: look at more of it
        fraction = min(1.0, fraction * 1.25 * enough / max(table.num_rows, 1))
        table = _sample(df, columns, fraction, 2 * enough, how.seed)
    cut = table.num_rows == 2 * enough
    return _Sample(
        _longs(table, "h").view(np.uint64),
        None if spread is None else _longs(table, "s").view(np.uint64),
        None if weights is None else table.column("w").to_numpy(),
        fraction >= 1.0 and not cut,
        inf if cut else table.num_rows / fraction,
    )


def _heavy(sample: _Sample, partitions: int) -> Candidates:
    """Which keys may be heavy."""
    at = slice(None) if sample.weights is None else draw_by_weight(sample.weights)
    spreads = None if sample.spread is None else sample.spread[at]
    chosen = candidates(sample.keys[at], spreads, listed_for(partitions), one_in(sample.rows))
    return _without_hosts(chosen, host_bits(partitions))


def _sample(df: DataFrame, columns: list[Column], fraction: float, most: int, seed: int) -> pa.Table:
    """These columns of a share of the rows; of more than ``most`` a random choice: the driver never gets more."""
    seed ^= _APART
    rows = df.select(*columns) if fraction >= 1.0 else df.sample(fraction, seed).select(*columns)
    if fraction >= 1.0:  # all of them, if they are so few: sorting them would take two jobs more
        table = rows.limit(most).toArrow()
        if table.num_rows < most:
            return table
    return rows.orderBy(F.rand(seed)).limit(most).toArrow()


def _group(key: Column, chosen: Candidates, bits: int) -> Column:
    """The key's hash where it is counted by itself, else its host's mark."""
    alone = key.bitwiseAND(chosen.every - 1) == 0
    if len(chosen.hashes):
        alone = hot_column(find_lookup(chosen.hashes), chosen.hashes, key) | alone
    return F.when(alone, key).otherwise(F.shiftrightunsigned(key, 64 - bits).bitwiseXOR(_HOSTS))


def _is_host(group: NDArray[np.int64], bits: int) -> NDArray[np.bool_]:
    marked: NDArray[np.bool_] = (group ^ _HOSTS) >> bits == 0
    return marked


def _without_hosts(chosen: Candidates, bits: int) -> Candidates:
    kept = ~_is_host(chosen.hashes.view(np.int64), bits)
    return replace(chosen, hashes=chosen.hashes[kept], spread=None if chosen.spread is None else chosen.spread[kept])


def _longs(table: pa.Table, name: str) -> NDArray[np.int64]:
    values: Any = table.column(name).to_numpy()
    return np.ascontiguousarray(values, np.int64)
