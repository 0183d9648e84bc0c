"""The plans of one stream, in a driver: by the service if it answers, else by the same planners here.

The histogram goes to the service; the plan comes back, numbered and kept. Rows never pass through either.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from unskew.client import Breaker, Client, NotThereError, ServiceCallError, testing
from unskew.client.errors import UNSERVED
from unskew.core.errors import ConfigError, PlanError
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Plan
from unskew.core.planners import Origin, make_planner
from unskew.core.stream_spec import Part, StreamSpec, check_name
from unskew.spark.caller_frame import outside
from unskew.spark.frame.jvm import freed
from unskew.spark.frame.keys import AUTO, Columns, has_all, is_auto, key_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["EMBEDDED", "CurrentBatch", "Plans", "ServiceWarning", "spec_of"]

EMBEDDED = "embedded"


class ServiceWarning(UserWarning):
    """The service did not answer, or did not let us in, and the driver planned by itself."""


def spec_of(
    partitions: int, policy: str, parameters: Mapping[str, object] | None, weights: Sequence[float], seed: int
) -> StreamSpec:
    """A round is a batch in Spark, so DSYNC does not adapt: it would end up shorter than a batch."""
    return StreamSpec(partitions, policy, dict(parameters or {}), tuple(weights), seed, dsync_min=StreamSpec.dsync)


@dataclass(frozen=True, eq=False)
class CurrentBatch:
    """What the batch that a handler has in hand is routed by: ``None`` where its tasks decided. ``key`` are the names
    of its key's columns; ``deadline``: the longest that it waits for a service; ``held``: frames that are freed with
    its end."""

    plan: Plan | None
    key: tuple[str, ...]
    spread: Columns
    deadline: float
    held: list[DataFrame] = field(default_factory=list)

    def spread_for(self, df: DataFrame) -> Columns:
        """What tells the rows of this frame apart: as those of the batch, unless it has not all of those columns. A
        shuffle of its own needs no more than what is the same when its tasks run again."""
        return self.spread if is_auto(self.spread) or has_all(df, self.spread) else AUTO


@dataclass(eq=False)
class Plans:
    """Of one stream; ``last`` is the plan that is used where none is given; ``began`` (ms) is where the numbers begin
    by which the service knows this session's batches. ``close`` ends what it opened."""

    spark: SparkSession
    stream: str
    spec: StreamSpec
    service: str | None = None
    required: bool = False
    timeout: float = 10.0
    access: Mapping[str, Any] = field(default_factory=dict, repr=False)
    last: Plan | None = field(default=None, init=False)
    client: Client | None = field(default=None, init=False)
    _batch: int = field(default=-1, init=False)
    began: int = field(default_factory=lambda: time.time_ns() // 1_000_000, init=False)
    _open: ExitStack = field(default_factory=ExitStack, init=False)
    _breaker: Breaker = field(default_factory=lambda: Breaker(failures=1, cooldown=5.0), init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    decides: bool = field(default=False, init=False)  # on the stream's number of partitions
    _deciders: list[object] = field(default_factory=list, init=False)  # its queries that would: the last one does
    _here: threading.local = field(default_factory=threading.local, init=False)

    def __post_init__(self) -> None:
        check_name("stream", self.stream)
        if self.service is not None:
            self.client = self._connect(self.service)
        elif self.required:
            raise ConfigError("service", self.service, "'embedded' or 'grpc://host:port' where required=True")

    @property
    def partitions(self) -> int:
        return self.spec.partitions

    @property
    def source(self) -> str:
        """Application and stream: reports of another application are others."""
        return check_name("source", f"{self.spark.conf.get('spark.app.id', 'spark')}/{self.stream}"[:200])

    @property
    def application(self) -> str:
        """By its name, which the next life of the driver has too."""
        return str(self.spark.conf.get("spark.app.name", "spark") or "spark")

    def next_batch(self) -> int:
        """Histograms, plans and pins share these numbers: what two of them counted is two parts of the stream."""
        self._batch += 1
        return self._batch

    def chosen(self, plan: Plan | None) -> Plan:
        """The plan that was given or the last one, if it fits this session."""
        chosen = self.last if plan is None else plan
        if chosen is None:
            raise ConfigError("plan", None, "a plan: make one with plan(df, key) first")
        if chosen.partitions != self.partitions:
            raise PlanError(
                f"the plan is for {chosen.partitions} partitions and this session for {self.partitions}: both sides of "
                "a join must have the same number; make a plan here, or a session with the plan's number"
            )
        return chosen

    def resize(self, partitions: int) -> None:
        """Plans for another number of partitions from now on: the stream's, who decides on it by measured times. The
        service hears of it with what is next asked for."""
        self.decides = True
        if partitions != self.spec.partitions:
            self.spec = replace(self.spec, partitions=partitions, weights=())

    def will_decide(self, who: object) -> None:
        """A query begins that decides on the number of partitions, as long as no later one does."""
        with self._lock:
            self._deciders.append(who)

    def decided(self, who: object) -> None:
        """It has ended, or does not want to any more."""
        with self._lock:
            self._deciders = [one for one in self._deciders if one is not who]

    @property
    def decider(self) -> object | None:
        """Which query decides now."""
        with self._lock:
            return self._deciders[-1] if self._deciders else None

    # -- the batch in hand ------------------------------------------------------------------------------------

    @contextmanager
    def bind(self, bound: CurrentBatch) -> Iterator[None]:
        """While it lasts, what is asked for in this thread without a plan goes by this batch's. (Two queries of one
        stream have their handlers run in two threads.)"""
        before = self.bound
        self._here.bound = bound
        try:
            yield
        finally:
            self._here.bound = before
            freed(bound.held)

    @property
    def bound(self) -> CurrentBatch | None:
        """What the batch is bound to that this thread's handler has in hand."""
        found: CurrentBatch | None = getattr(self._here, "bound", None)
        return found

    def bound_for(self, df: DataFrame, key: Columns) -> CurrentBatch | None:
        """What the batch in hand is bound to, where an operator works by the same key."""
        here = self.bound
        return None if here is None or here.key != key_names(df, key) else here

    # -- making plans -----------------------------------------------------------------------------------------

    def ready(self, types: tuple[str, ...]) -> Client | None:
        """The client, once the stream is there and fits; before any job runs. None: nobody answers."""
        if self.client is None or not self._may_ask():
            return None
        try:
            self.put(self.client, types)
        except UNSERVED as why:
            self.alone(why)
            return None
        return self.client

    def _may_ask(self) -> bool:
        """A batch in hand does not wait for a service, batch after batch, that has just not answered."""
        here = self.bound
        if here is None or self.required:
            return True
        with self._lock:
            return here.deadline > 0 and self._breaker.allow(time.monotonic())

    @property
    def patience(self) -> float:
        """Seconds that a call may take here: a batch in hand waits no longer than its query lets it."""
        here = self.bound
        return self.timeout if here is None or self.required else min(self.timeout, here.deadline)

    def made(self, client: Client | None, histogram: Histogram, types: tuple[str, ...]) -> Plan:
        """The next plan of the stream, and the one that is used from now on where none is given."""
        batch = self.next_batch()
        plan = None if client is None else self._asked(client, histogram, types, self.began + batch)
        if plan is not None:
            with self._lock:
                self._breaker.success()
        previous = self.last if self.last is not None and self.last.key_types in ((), types) else None
        self.last = plan or self.planned(histogram, types, batch, previous)
        return self.last

    def own(self, policy: str, histogram: Histogram, types: tuple[str, ...]) -> Plan:
        """A plan of the driver's own, which no other frame follows."""
        planner = make_planner(policy, self.partitions, self.spec.seed, self.spec.weights or None)
        return planner.plan(histogram, origin=Origin(stream=self.stream, key_types=types))

    def by_hash(self, types: tuple[str, ...]) -> Plan:
        """Where keys go before anything is known of them."""
        return make_planner("hash", self.spec.partitions, self.spec.seed).plan(
            Histogram.empty(), origin=Origin(stream=self.stream, key_types=types)
        )

    def planned(self, histogram: Histogram, types: tuple[str, ...], batch: int, previous: Plan | None) -> Plan:
        """By the stream's policy, here."""
        spec = self.spec
        planner = make_planner(spec.policy, spec.partitions, spec.seed, spec.weights or None, **spec.parameters)
        origin = Origin(stream=self.stream, batch=batch, key_types=types)
        return planner.plan(histogram, previous, origin=origin)

    def _asked(self, client: Client, histogram: Histogram, types: tuple[str, ...], number: int) -> Plan | None:
        """By a number that no other session has: the service makes one plan for each, and gives that to all who ask."""
        try:
            try:
                return self._sent(client, histogram, number)
            except NotThereError:  # the service has lost the stream while the rows were counted
                self.put(client, types)
                return self._sent(client, histogram, number)
        except (*UNSERVED, NotThereError) as why:
            self.alone(why)
            return None

    def _sent(self, client: Client, histogram: Histogram, number: int) -> Plan:
        client.report_histogram(self.stream, Part(self.source, number), histogram, timeout=self.patience)
        return client.build_plan(self.stream, number, fresh=True, timeout=self.patience).plan

    def alone(self, why: ServiceCallError, instead: str = "planned in the driver instead") -> None:
        """Say that the driver goes on by itself, or that it may not."""
        if self.required:
            raise why
        with self._lock:
            self._breaker.failure(time.monotonic())
        warnings.warn(f"{instead}: {why}", ServiceWarning, stacklevel=outside())

    def put(self, client: Client, types: tuple[str, ...]) -> None:
        """See that the stream is there, for this number of partitions and these key types. Another number is somebody
        else's decision, and refused, unless it is made here."""
        try:
            spec = client.get_stream(self.stream, timeout=self.patience).spec
        except NotThereError:
            client.put_stream(self.stream, replace(self.spec, key_types=types), timeout=self.patience)
            return
        if spec.partitions != self.partitions and not self.decides:
            raise ConfigError("partitions", self.partitions, f"{spec.partitions}, as stream {self.stream} has")
        if spec.key_types and spec.key_types != types:
            raise PlanError(
                f"stream {self.stream} is for keys of type ({', '.join(spec.key_types)}), these are of "
                f"({', '.join(types)}): cast the key columns, or use another stream"
            )
        if spec.partitions != self.partitions:
            client.put_stream(self.stream, replace(spec, partitions=self.partitions, weights=()), timeout=self.patience)

    # -- the service ------------------------------------------------------------------------------------------

    def _connect(self, service: str) -> Client:
        target = self._open.enter_context(testing.embedded()).target if service == EMBEDDED else service
        try:
            client = Client(target, **{"timeout": self.timeout, **self.access})
            self._open.callback(client.close)
            if self.required:
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
