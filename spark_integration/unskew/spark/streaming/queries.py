"""What a batch's frame says of its query, and checks that it is the query that was meant.

Classic Spark runs the handler beside the query, so its checkpoint can be compared with the one that pins are kept in.
Under Connect the handler runs in a process of its own and learns nothing of the query: there is nothing to compare.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import xxhash

from unskew.core.errors import ConfigError
from unskew.spark.folders import Folder
from unskew.spark.frame.jvm import checkpoint_of, default_files
from unskew.spark.service_link import EMBEDDED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["check_checkpoint", "check_given", "check_remote", "check_scheme", "is_remote", "source_of"]

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_OTHER = re.compile(r"[^A-Za-z0-9._:-]+")


def is_remote(spark: SparkSession) -> bool:
    """Whether this is Spark Connect: handlers are pickled and run elsewhere."""
    return not hasattr(spark, "_jsparkSession")


def check_given(checkpoint: str | None, name: str | None) -> tuple[str, str]:
    """The folder and the name that a query's pins are kept under."""
    if not checkpoint or not isinstance(checkpoint, str):
        raise ConfigError(
            "checkpoint",
            checkpoint,
            "the query's checkpointLocation: a batch that runs again after a failure must find its plan there",
        )
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.startswith("."):
        raise ConfigError("name", name, "1 to 100 letters, digits and . _ -: the query's own name under its checkpoint")
    Folder(checkpoint).fs  # noqa: B018 - refuses what cannot be opened
    return checkpoint, name


def check_scheme(df: DataFrame, checkpoint: str) -> None:
    """Spark reads a path without a scheme by its default file system, which need not be the driver's disk."""
    default = default_files(df)
    if default is None or default.startswith("file:") or ":" in checkpoint:
        return
    raise ConfigError(
        "checkpoint", checkpoint, f"the same with its scheme: Spark takes it for one of {default}, and so must this"
    )


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


def check_remote(handler: object, *, embedded: bool = False) -> None:
    """Under Connect a handler is pickled and runs in another process: refused here, before the query starts."""
    from pyspark import cloudpickle

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
