"""Which batch the handler in this thread has in hand, so that a verb without a plan goes by that batch's plan."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from unskew.core.plan.plan import Plan
from unskew.spark.frame.jvm import unpersist
from unskew.spark.frame.keys import AUTO, Columns, has_all, is_auto, key_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BatchContext", "CurrentBatch"]


@dataclass(frozen=True, eq=False)
class CurrentBatch:
    """How a batch is routed: by ``plan``, or (None) by what its tasks decide. ``key`` are the names of its key's
    columns. A verb waits for the service no longer than ``deadline``. Frames in ``held`` are unpersist at its end."""

    plan: Plan | None
    key: tuple[str, ...]
    spread: Columns
    deadline: float
    held: list[DataFrame] = field(default_factory=list)

    def spread_for(self, df: DataFrame) -> Columns:
        """The columns that tell the rows of this frame apart: those of the batch, unless it has not all of them. A
        shuffle of its own needs no more than what is the same when its tasks run again."""
        return self.spread if is_auto(self.spread) or has_all(df, self.spread) else AUTO


class BatchContext:
    """The batch in hand, for each thread: the handlers of two queries of one session run in two threads."""

    def __init__(self) -> None:
        self._local = threading.local()

    @property
    def batch(self) -> CurrentBatch | None:
        """The batch that this thread's handler has in hand."""
        batch: CurrentBatch | None = getattr(self._local, "batch", None)
        return batch

    @contextmanager
    def bind(self, batch: CurrentBatch) -> Iterator[None]:
        """Within it, verbs of this thread that are given no plan go by this batch's."""
        before = self.batch
        self._local.batch = batch
        try:
            yield
        finally:
            self._local.batch = before
            unpersist(batch.held)

    def matching(self, df: DataFrame, key: Columns) -> CurrentBatch | None:
        """The batch in hand, if an operator on ``df`` works by the same key."""
        batch = self.batch
        return None if batch is None or batch.key != key_names(df, key) else batch
