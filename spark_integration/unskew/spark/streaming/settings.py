"""The settings of ``for_each_batch``, checked: plain values, which Spark Connect can pickle. And checks that a batch is
of the query that was meant.

Classic Spark runs the handler beside the query, so its checkpoint can be compared with the one that pins are kept in.
Under Connect the handler runs in a process of its own and learns nothing of the query: there is nothing to compare.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import xxhash

from unskew.core.errors import ConfigError
from unskew.core.freshness.ways import OWN_ROWS, Fresh
from unskew.core.scaling.elastic import Elastic
from unskew.spark.folders import Folder
from unskew.spark.frame.jvm import checkpoint_of, default_files
from unskew.spark.frame.keys import AUTO, Columns, quoted
from unskew.spark.service_link import EMBEDDED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "StreamingSettings",
    "check_checkpoint",
    "check_given",
    "check_remote",
    "check_scheme",
    "names_only",
    "source_of",
]

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_OTHER = re.compile(r"[^A-Za-z0-9._:-]+")
_GUESSED = 10.0


@dataclass(frozen=True)
class StreamingSettings:
    """The arguments of ``Unskew.for_each_batch``; ``key`` and ``spread`` are names of columns."""

    key: tuple[str, ...]
    checkpoint: str
    name: str
    spread: tuple[str, ...] = (AUTO,)
    fresh: Fresh = "auto"
    learn: bool = False
    threshold: int = 10_000
    deadline: float = 0.2
    persist: bool = False
    column: str | None = None
    interval: float | None = None
    elastic: Elastic | None = None
    weight: str | None = None

    def __post_init__(self) -> None:
        check_given(self.checkpoint, self.name)
        if self.fresh not in get_args(Fresh):
            raise ConfigError("fresh", self.fresh, get_args(Fresh))
        if self.learn and self.fresh in OWN_ROWS:
            raise ConfigError("fresh", self.fresh, "'auto' where learn=True: tasks count their rows themselves")
        if self.weight is not None and (self.learn or not isinstance(self.weight, str)):
            text = "a column's name or an expression in SQL, as text: a handler may be pickled"
            allowed = "None where learn=True: tasks count their rows" if self.learn else text
            raise ConfigError("weight", self.weight, allowed)
        if isinstance(self.threshold, bool) or not isinstance(self.threshold, int) or self.threshold < 0:
            raise ConfigError("threshold", self.threshold, "a whole number of rows, 0 or more")
        if not 0.0 <= self.deadline <= 60.0:
            raise ConfigError("deadline", self.deadline, "seconds, 0 to 60")
        if self.fresh == "inflight" and self.elastic is not None:
            allowed = "None where fresh='inflight': each batch gets the number of tasks that its rows need"
            raise ConfigError("elastic", self.elastic, allowed)
        if self.learn and self.elastic is not None:
            raise ConfigError(
                "elastic", self.elastic, "None where learn=True: a Q-table is for one number of partitions"
            )
        if self.interval is not None and not 0.0 < self.interval <= 1e6:
            raise ConfigError("interval", self.interval, "seconds above 0")
        if self.interval is None and self.elastic is not None:
            raise ConfigError("interval", None, "the trigger's seconds, against which elastic= holds a batch's time")

    @property
    def pace(self) -> float:
        """Seconds from one batch to the next, as given or guessed."""
        return _GUESSED if self.interval is None else self.interval

    @property
    def keys(self) -> Columns:
        return list(self.key)

    @property
    def spread_columns(self) -> Columns:
        return AUTO if self.spread == (AUTO,) else list(self.spread)

    def spread_of_pin(self, names: tuple[str, ...]) -> Columns:
        """The spread columns that a pin names. What "auto" stood for are names as they stand, dots and all."""
        if not names:
            return self.spread_columns
        return [quoted(name) for name in names] if self.spread == (AUTO,) else list(names)


def names_only(what: str, given: Columns) -> tuple[str, ...]:
    """Columns by their names: what a pin can hold, and another process understands."""
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, (list, tuple)) else ()
    if not names or not all(isinstance(one, str) and one for one in names):
        allowed = "names of columns, which a pin keeps as text: add an expression as a column first, with withColumn"
        raise ConfigError(what, given, allowed)
    return tuple(str(one) for one in names)


# -- the query -----------------------------------------------------------------------------------------------------


def check_given(checkpoint: str | None, name: str | None) -> tuple[str, str]:
    """The folder and the name that a query's pins are kept under."""
    if not checkpoint or not isinstance(checkpoint, str):
        allowed = "the query's checkpointLocation: a batch that runs again after a failure must find its plan there"
        raise ConfigError("checkpoint", checkpoint, allowed)
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.startswith("."):
        raise ConfigError("name", name, "1 to 100 letters, digits and . _ -: the query's own name under its checkpoint")
    Folder(checkpoint).fs  # noqa: B018 - refuses what cannot be opened
    return checkpoint, name


def check_scheme(df: DataFrame, checkpoint: str) -> None:
    """Spark reads a path without a scheme by its default file system, which need not be the driver's disk."""
    default = default_files(df)
    if default is None or default.startswith("file:") or ":" in checkpoint:
        return
    allowed = f"the same with its scheme: Spark takes it for one of {default}, and so must this"
    raise ConfigError("checkpoint", checkpoint, allowed)


def check_checkpoint(df: DataFrame, checkpoint: str) -> None:
    """Refuse a folder of pins that is not the query's own checkpoint, where Spark says which that is."""
    own = checkpoint_of(df)
    if own is None or Folder(own).same(Folder(checkpoint)):
        return
    raise ConfigError(
        "checkpoint",
        checkpoint,
        f"{own}, the checkpointLocation of this query: pins kept elsewhere would not go with it when it is copied, "
        "moved or deleted",
    )


def check_remote(spark: SparkSession, handler: object, *, embedded: bool = False) -> None:
    """Under Connect a handler is pickled and runs in another process: refused here, before the query starts."""
    from pyspark import cloudpickle

    if hasattr(spark, "_jsparkSession"):  # classic Spark
        return
    if embedded:
        raise ConfigError(
            "service", EMBEDDED, "a deployed one ('grpc://host:port') or None: the embedded service is classic Spark's"
        )
    try:
        cloudpickle.dumps(handler)  # type: ignore[no-untyped-call]  # pyspark has no types for it
    except Exception as why:  # whatever the handler's own values raise
        raise ConfigError(
            "handle",
            f"{type(why).__name__}: {why}",
            "a function that can be pickled, for Spark Connect runs it in another process: no session, frame, lock, "
            "connection or open file in what it refers to; make those inside it, from df.sparkSession",
        ) from why


def source_of(application: str, name: str, checkpoint: str) -> str:
    """The name in reports: the same in every run of the query, another one for every other query."""
    path = Folder(checkpoint).path()
    return f"{_OTHER.sub('-', application)[:60]}/{name[:60]}-{xxhash.xxh64_hexdigest(path.encode())[:8]}"
