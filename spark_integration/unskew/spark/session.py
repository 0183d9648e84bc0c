"""``Unskew``: what a job writes. It binds a Spark session to a stream and, where there is one, to a service.

Without a service plans are made in the driver, by the same planners. With one, the histogram goes there, and the plan
comes back, numbered and kept; where it cannot be reached the driver plans by itself and says so, unless ``required``.
Rows never pass through here or there.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING

from pyspark.sql import Column

from unskew.client import Client, NoAnswerError, NotThereError, testing
from unskew.core.errors import ConfigError, PlanError
from unskew.core.histogram import Histogram
from unskew.core.plan import Plan
from unskew.core.planners import Origin, make_planner
from unskew.core.stream import Part, StreamSpec, check_name
from unskew.spark.histogram import Sampling, histogram_of
from unskew.spark.jvm import spark_version
from unskew.spark.keys import AUTO, Columns, key_of, key_unseen, spread_unseen
from unskew.spark.native import route_column
from unskew.spark.physical import dropped_exchange
from unskew.spark.repartition import repartition, routed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["EMBEDDED", "ServiceWarning", "Unskew"]

EMBEDDED = "embedded"
_NAME = "partition"  # of a route: Spark would name the column by all its tables


class ServiceWarning(UserWarning):
    """The service did not answer, and the driver planned by itself."""


class Unskew:
    """Plans and placement for the frames of one stream.

    ``service``: None, ``"embedded"`` (a real service beside the driver, gone with it), or ``"grpc://host:port"``.
    ``parameters`` are the policy's own. A service that has the stream already keeps its settings, but for the number of
    partitions, which must be the same here and there.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        stream: str,
        partitions: int,
        policy: str = "auto",
        service: str | None = None,
        parameters: Mapping[str, object] | None = None,
        weights: Sequence[float] = (),
        seed: int = 7,
        sampling: Sampling | None = None,
        required: bool = False,
        timeout: float = 10.0,
    ) -> None:
        self.spark, self.stream = spark, check_name("stream", stream)
        self._spec = StreamSpec(partitions, policy, dict(parameters or {}), tuple(weights), seed)
        self._sampling = sampling or Sampling(seed=seed)
        self._required, self._timeout = required, timeout
        self._batch = -1
        self._last: Plan | None = None
        self._spread: Columns = AUTO
        self._open = ExitStack()
        spark_version(spark.range(0))
        self._client = self._connect(service)

    # -- plans ------------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> int:
        return self._spec.partitions

    @property
    def client(self) -> Client | None:
        """The service's verbs, where there is a service."""
        return self._client

    @property
    def last(self) -> Plan | None:
        """The plan that is used where none is given: the last one made here."""
        return self._last

    def histogram(self, df: DataFrame, key: Columns, spread: Columns | None = AUTO) -> Histogram:
        """How the rows of ``df`` are distributed over keys; two jobs (``unskew.spark.histogram``)."""
        return histogram_of(df, key, self.partitions, spread, self._sampling)

    def plan(self, df: DataFrame, key: Columns, spread: Columns | None = AUTO) -> Plan:
        """A plan for rows distributed like those of ``df``. ``spread``: what tells the rows of one key apart."""
        types = key_of(df, key).types
        client = self._ready(types)
        histogram = self.histogram(df, key, spread)
        self._batch += 1
        plan = None if client is None else self._asked(client, histogram)
        self._last, self._spread = plan or self._planned(histogram, types), AUTO if spread is None else spread
        return self._last

    def _planned(self, histogram: Histogram, types: tuple[str, ...]) -> Plan:
        spec = self._spec
        planner = make_planner(spec.policy, spec.partitions, spec.seed, spec.weights or None, **spec.parameters)
        previous = self._last if self._last is not None and self._last.key_types in ((), types) else None
        origin = Origin(stream=self.stream, batch=self._batch, key_types=types)
        return planner.plan(histogram, previous, origin=origin)

    def _ready(self, types: tuple[str, ...]) -> Client | None:
        """The client, once the stream is there and fits; before any job runs. None: nobody answers."""
        if self._client is None:
            return None
        try:
            self._put(self._client, types)
        except NoAnswerError as why:
            self._alone(why)
            return None
        return self._client

    def _asked(self, client: Client, histogram: Histogram) -> Plan | None:
        try:
            part = Part(self._source, self._batch)
            client.report_histogram(self.stream, part, histogram, timeout=self._timeout)
            return client.build_plan(self.stream, self._batch, fresh=True, timeout=self._timeout).plan
        except NoAnswerError as why:
            self._alone(why)
            return None

    def _alone(self, why: NoAnswerError) -> None:
        """Say that the driver plans by itself, or that it may not."""
        if self._required:
            raise why
        warnings.warn(f"planned in the driver instead: {why}", ServiceWarning, stacklevel=4)

    def _put(self, client: Client, types: tuple[str, ...]) -> None:
        """See that the stream is there, for this number of partitions and these key types."""
        try:
            spec = client.get_stream(self.stream, timeout=self._timeout).spec
        except NotThereError:
            made = StreamSpec(
                self.partitions, self._spec.policy, self._spec.parameters, self._spec.weights, self._spec.seed, types
            )
            client.put_stream(self.stream, made, timeout=self._timeout)
            return
        if spec.partitions != self.partitions:
            raise ConfigError("partitions", self.partitions, f"{spec.partitions}, as stream {self.stream} has")
        if spec.key_types and spec.key_types != types:
            raise PlanError(
                f"stream {self.stream} is for keys of type ({', '.join(spec.key_types)}), these are of "
                f"({', '.join(types)}): cast the key columns, or use another stream"
            )

    @property
    def _source(self) -> str:
        """Application and stream: reports of another application are others."""
        return check_name("source", f"{self.spark.conf.get('spark.app.id', 'spark')}/{self.stream}"[:200])

    # -- placement --------------------------------------------------------------------------------------------

    def route(
        self, key: Columns, plan: Plan | None = None, spread: Columns | None = None, *, df: DataFrame | None = None
    ) -> Column:
        """The partition of each row as a Column. With ``df`` keys are checked now and ``spread`` may be "auto"; without
        it Spark checks the key types when it plans the query, and a split plan needs ``spread`` columns."""
        chosen = self._chosen(plan)
        if df is not None:
            return routed(df, chosen, key, AUTO if spread is None else spread).alias(_NAME)
        if chosen.splits and (spread is None or _is_auto(spread)):
            raise ConfigError("spread", spread, "columns that tell the rows of a key apart, or give df= for auto")
        told = None if spread is None or _is_auto(spread) else spread_unseen(spread)
        return route_column(chosen, key_unseen(key, chosen), told).alias(_NAME)

    def repartition(
        self,
        df: DataFrame,
        key: Columns,
        plan: Plan | None = None,
        spread: Columns | None = None,
        *,
        column: str | None = None,
    ) -> DataFrame:
        """``df`` placed by the plan, in one native shuffle (``unskew.spark.repartition``). Without ``spread`` by that
        of the last plan made here, which the plan was judged by."""
        told = self._spread if spread is None else spread
        return repartition(df, self._chosen(plan), key, told, column=column)

    def dropped_exchange(self, df: DataFrame, plan: Plan | None = None) -> str | None:
        """Why rows of ``df`` are not where the plan puts them, or None (``unskew.spark.physical``)."""
        return dropped_exchange(df, self._chosen(plan))

    def _chosen(self, plan: Plan | None) -> Plan:
        chosen = self._last if plan is None else plan
        if chosen is None:
            raise ConfigError("plan", None, "a plan: make one with plan(df, key) first")
        if chosen.partitions != self.partitions:
            raise PlanError(
                f"the plan is for {chosen.partitions} partitions and this session for {self.partitions}: both sides of "
                "a join must have the same number; make a plan here, or a session with the plan's number"
            )
        return chosen

    # -- the service ------------------------------------------------------------------------------------------

    def _connect(self, service: str | None) -> Client | None:
        if service is None:
            if self._required:
                raise ConfigError("service", service, "'embedded' or 'grpc://host:port' where required=True")
            return None
        target = service
        if service == EMBEDDED:
            target = self._open.enter_context(testing.embedded()).target
        try:
            client = Client(target, timeout=self._timeout)
            self._open.callback(client.close)
            if self._required:
                self._reach(client)
        except BaseException:
            self.close()
            raise
        return client

    def _reach(self, client: Client) -> None:
        """Nothing, or why the service cannot be had: before any job runs."""
        try:
            client.get_stream(self.stream)
        except NotThereError:
            return

    def close(self) -> None:
        """End the connection, and the embedded service."""
        self._open.close()

    def __enter__(self) -> Unskew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _is_auto(spread: Columns) -> bool:
    """Not ``==``: a Column compared is another Column."""
    return isinstance(spread, str) and spread == AUTO
