"""What all verbs of a session share: its stream, with settings, batch numbers and which query owns its number of
partitions; and which batch the handler in this thread has in hand, so that a verb without a plan goes by its plan."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from unskew.core.plan.plan import Plan
from unskew.core.quality.cost_fit import CostFit
from unskew.core.stream_spec import StreamSpec, check_name
from unskew.spark.frame.jvm import unpersist
from unskew.spark.frame.keys import AUTO, Columns, has_all, is_auto, key_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BatchContext", "CurrentBatch", "SessionStream", "spec_of"]


def spec_of(
    partitions: int, policy: str, parameters: Mapping[str, object] | None, weights: Sequence[float], seed: int
) -> StreamSpec:
    """A round is a batch in Spark, so DSYNC does not adapt: it would end up shorter than a batch."""
    return StreamSpec(partitions, policy, dict(parameters or {}), tuple(weights), seed, dsync_min=StreamSpec.dsync)


class SessionStream:
    """Shared by the threads of a session: handlers, those that plan, Spark's listeners.

    ``began`` (milliseconds) is where the numbers start by which the service knows this session's batches. A query with
    ``elastic=`` claims the number of partitions; of several the one that started last owns it. ``cost`` is what a row
    and a key took in the last batches of its queries, None before there were any.
    """

    def __init__(self, spark: SparkSession, name: str, spec: StreamSpec) -> None:
        self.spark, self.name = spark, check_name("stream", name)
        self.began = time.time_ns() // 1_000_000
        self._lock = threading.Lock()
        self._spec, self._batch = spec, -1
        self._owned = False
        self._claims: list[object] = []
        self.cost: CostFit | None = None

    @property
    def spec(self) -> StreamSpec:
        with self._lock:
            return self._spec

    @property
    def partitions(self) -> int:
        return self.spec.partitions

    @property
    def source(self) -> str:
        """Application and stream: reports of another application are others."""
        return check_name("source", f"{self.spark.conf.get('spark.app.id', 'spark')}/{self.name}"[:200])

    @property
    def application(self) -> str:
        """The application's name, which the next run of the driver has too."""
        return str(self.spark.conf.get("spark.app.name", "spark") or "spark")

    def next_batch(self) -> int:
        """Histograms, plans and pins share these numbers: two of one number would be two parts of one batch."""
        with self._lock:
            self._batch += 1
            return self._batch

    # -- the number of partitions -----------------------------------------------------------------------------

    def resize(self, partitions: int) -> None:
        """Plans are for another number of partitions from now on. The service gets it with the next call."""
        with self._lock:
            self._owned = True
            if partitions != self._spec.partitions:
                self._spec = replace(self._spec, partitions=partitions, weights=())

    @property
    def owned(self) -> bool:
        """Whether this session sets the number of partitions that the service has for the stream."""
        with self._lock:
            return self._owned

    def claim(self, query: object) -> None:
        with self._lock:
            self._claims.append(query)

    def release(self, query: object) -> None:
        """The query has ended."""
        with self._lock:
            self._claims = [one for one in self._claims if one is not query]

    @property
    def owner(self) -> object | None:
        with self._lock:
            return self._claims[-1] if self._claims else None


@dataclass(frozen=True, eq=False)
class CurrentBatch:
    """How a batch is routed: by ``plan``, or (None) by what its tasks decide. ``key`` are the names of its key's
    columns. A verb waits for the service no longer than ``deadline``. Frames in ``held`` are unpersist at its end.
    ``counted``: the plan is from a count of the batch's own rows; ``in_flight``: there is none, they were placed so."""

    plan: Plan | None
    key: tuple[str, ...]
    spread: Columns
    deadline: float
    held: list[DataFrame] = field(default_factory=list)
    counted: bool = False
    in_flight: bool = False

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
