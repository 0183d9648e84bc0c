"""Which rows of a frame are sampled while a job reads it, and how they come to the driver.

Rows are chosen by their position in the task, hashed: evenly, and not by their content, so that equal rows are sampled
as often as others. Far into a task that reads more than was expected fewer are chosen: the driver gets a bounded number
whatever comes. Where the number of rows is a guess (``wary``) the first rows of a task are sampled more often than the
guess says, for a short stretch: a frame of a thousandth of the rows has a sample all the same.

Which rows are sampled decides nothing about where a row goes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, Observation
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from unskew.spark.frame.keys import helper

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "FEWER",
    "METRIC",
    "MOST_NEAR",
    "every_for",
    "first_of",
    "level_text",
    "logarithm_of",
    "near_for",
    "observed_rows",
    "weights_in",
    "words_in",
]

FEWER, _LEVELS = 8, 6  # of what comes further on in a task one in so many, so many times over
METRIC = "sample"  # what the sample is called among the frame's observed metrics
_WIDTH = 16  # hexadecimal digits of a bigint
_IN_TASK = (1 << 33) - 1  # the bits of Spark's number of a row that count the rows of its task
_START = 16  # the part of a level's rows that is sampled at each step of a wary start
_UNEVEN = 4  # times its share that a task may have before it is
_LEAST, MOST_NEAR = 1 << 6, 1 << 14
_LOG_STEPS = 1 << 32  # of a weight's logarithm, to the base 2
_NOT_FINITE = 1 << 62

_log = logging.getLogger("unskew.spark")


def every_for(rows: int, sample: int) -> int:
    """One in how many rows is sampled, where so many are expected and about so many wanted: a power of two."""
    return 1 << max((rows // sample).bit_length() - 1, 0)


def near_for(tasks: int, sample: int, *, least: int = _LEAST) -> int:
    """How many rows of a task are sampled before fewer are: all tasks together a small multiple of what is needed,
    also in a first batch of unknown size. A power of two, so that Spark seldom has to compile anew."""
    share = _UNEVEN * sample // max(tasks, 1)
    return min(max(1 << max(share.bit_length() - 1, 0), least), MOST_NEAR)


def observed_rows(
    df: DataFrame,
    parts: Sequence[Column],
    every: int,
    near: int,
    observation: Observation | str,
    *,
    wary: bool = False,
) -> DataFrame:
    """The same frame, which brings these bigints of one in ``every`` of its rows when a job reads it."""
    at, number = helper(df.columns, "sample"), _number(df)
    # A column of its own: what stands in a branch would count the rows that come there.
    numbered = df.withColumn(number, F.expr("monotonically_increasing_id()"))
    chosen = F.expr(_chosen(df, every, near, wary))
    marked = numbered.withColumn(at, F.when(chosen, F.array(*parts))).drop(number)
    # Written as text when all tasks have ended, by the driver: a task only gathers bigints.
    text = f"concat_ws('', transform(flatten(collect_list({at})), part -> lpad(hex(part), {_WIDTH}, '0')))"
    return marked.observe(observation, F.expr("count(1) AS rows"), F.expr(f"{text} AS {METRIC}")).drop(at)


def words_in(sample: str | None, parts: int) -> NDArray[np.uint64]:
    """The sampled rows, a line for each of the ``parts``. They come as hexadecimal text: bytes py4j decodes one by one
    in Python, in a third of a second for 150,000 rows."""
    return np.frombuffer(bytes.fromhex(sample or ""), ">u8").astype(np.uint64).reshape(-1, parts).T.copy()


def first_of(every: int, *, wary: bool) -> int:
    """One in how many of a task's first rows is sampled: what a row of level 0 stands for."""
    return _steps(every, wary)[0]


def level_text(df: DataFrame, every: int, near: int, *, wary: bool = False) -> str:
    """How often the share of rows that is sampled has been cut to one in ``FEWER`` before this row, a bigint as SQL:
    one of the parts of ``observed_rows``."""
    return _by_row(df, every, near, wary, list(range(len(_steps(every, wary)))))


def _number(df: DataFrame) -> str:
    return helper(df.columns, "row")


def _steps(every: int, wary: bool) -> list[int]:  # noqa: FBT001 - as callers name it
    """One in how many rows is sampled, at each level."""
    before = (every.bit_length() - 1) // (FEWER.bit_length() - 1) if wary else 0
    return [every * FEWER**level // FEWER**before for level in range(before + _LEVELS + 1)]


def _chosen(df: DataFrame, every: int, near: int, wary: bool) -> str:  # noqa: FBT001 - as callers name it
    """Whether a row is sampled, as SQL. What no level takes is refused before anything is asked of its level."""
    steps, hashed = _steps(every, wary), f"xxhash64({_number(df)})"
    by_level = f"{hashed} & {_by_row(df, every, near, wary, [step - 1 for step in steps])} = 0"
    return by_level if steps[0] == 1 else f"{hashed} & {steps[0] - 1}L = 0 AND {by_level}"


def _by_row(df: DataFrame, every: int, near: int, wary: bool, values: Sequence[int]) -> str:  # noqa: FBT001 - as above
    """One of these bigints, by how far into its task a row is. Written as SQL, and without anything that is of one
    batch: then Spark need not compile it anew for each."""
    ends = [step * (near if step >= every else max(near // _START, 1)) for step in _steps(every, wary)]
    index = f"({_number(df)} & {_IN_TASK}L)"
    cases = " ".join(f"WHEN {index} < {end}L THEN {value}L" for end, value in zip(ends[:-1], values, strict=False))
    return f"CASE {cases} ELSE {values[-1]}L END"


def logarithm_of(weight: Column) -> Column:
    """A weight as a bigint: eight bytes for any size, good to nine digits. What is not finite stays so."""
    steps = (F.log2(weight) * float(_LOG_STEPS)).try_cast("bigint")
    return F.when(weight > 0, F.coalesce(steps, F.lit(_NOT_FINITE))).otherwise(F.lit(-_NOT_FINITE))


def weights_in(logarithms: NDArray[np.uint64]) -> NDArray[np.float64] | None:
    """The weights again; None, so that rows are counted, where they have no finite sum above 0."""
    with np.errstate(over="ignore"):
        weights: NDArray[np.float64] = np.exp2(logarithms.view(np.int64) / _LOG_STEPS)
    if not len(weights) or 0.0 < float(weights.sum()) < np.inf:
        return weights
    _log.warning("a batch is counted by rows: its weights are not finite, or none is above 0")
    return None
