"""Plans for the frames of one stream: by the service if it answers, else by the same planners in the driver.

The histogram goes to the service; the plan comes back, numbered and kept. Rows never pass through either.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from unskew.client import Client, NoAnswerError, NotThereError
from unskew.core.errors import ConfigError, PlanError
from unskew.core.freshness.stream_planner import StreamPlanner
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Plan
from unskew.core.planners import Origin, make_planner
from unskew.core.stream_spec import Part, StreamSpec
from unskew.spark.service_link import Left, ServiceLink
from unskew.spark.session_stream import BatchContext, SessionStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from unskew.spark.frame.histogram import Sampling

__all__ = ["Plans", "Session"]

_ALONE = "planned in the driver instead"


@dataclass(eq=False)
class Plans:
    """Makes the plans of a session. ``last`` is the plan that is used where none is given."""

    stream: SessionStream
    link: ServiceLink
    context: BatchContext = field(default_factory=BatchContext)
    last: Plan | None = field(default=None, init=False)

    @classmethod
    def open(
        cls,
        spark: SparkSession,
        stream: str,
        spec: StreamSpec,
        service: str | None = None,
        *,
        required: bool = False,
        timeout: float = 10.0,
        access: Mapping[str, Any] | None = None,
    ) -> Plans:
        """With a connection of their own, which ``close`` ends."""
        named = SessionStream(spark, stream, spec)
        return cls(named, ServiceLink.open(service, stream, required=required, timeout=timeout, access=access))

    def chosen(self, plan: Plan | None) -> Plan:
        """The plan that was given or the last one, if it fits this session."""
        chosen, partitions = self.last if plan is None else plan, self.stream.partitions
        if chosen is None:
            raise ConfigError("plan", None, "a plan: make one with plan(df, key) first")
        if chosen.partitions != partitions:
            raise PlanError(
                f"the plan is for {chosen.partitions} partitions and this session for {partitions}: both sides of "
                "a join must have the same number; make a plan here, or a session with the plan's number"
            )
        return chosen

    # -- the service ------------------------------------------------------------------------------------------

    @property
    def patience(self) -> float | None:
        """Seconds that a verb may wait for the service, in a batch as its query lets it. None: as the client does."""
        batch = self.context.batch
        return None if batch is None or self.link.required else min(self.link.timeout, batch.deadline)

    def ready(self, types: tuple[str, ...]) -> bool:
        """Whether the service answers and has the stream for these keys; asked before any job runs."""
        patience = self.patience
        if patience == 0.0:
            return False

        def put(client: Client, left: Left) -> bool:
            self.put_stream(client, types, left, again=True)
            return True

        return bool(self.link.ask(put, _ALONE, within=patience, always=patience is None))

    def put_stream(self, client: Client, types: tuple[str, ...], left: Left, *, again: bool = False) -> None:
        """See that the service has this session's stream, for keys of these types."""
        spec, owner = self.spec_for(types), self.stream.owned
        self.link.put_stream(client, self.stream.name, spec, left, owner=owner, again=again)

    def spec_for(self, types: tuple[str, ...]) -> StreamSpec:
        return replace(self.stream.spec, key_types=types)

    def close(self) -> None:
        self.link.close()

    # -- making plans -----------------------------------------------------------------------------------------

    def make(self, histogram: Histogram, types: tuple[str, ...], *, ready: bool) -> Plan:
        """The next plan of the stream, used from now on where none is given; by the service if it was ``ready``."""
        batch = self.stream.next_batch()
        plan = self._by_service(histogram, types, self.stream.began + batch) if ready else None
        previous = self.last if self.last is not None and self.last.key_types in ((), types) else None
        self.last = plan or self.planner(types).plan(histogram, batch, previous)
        return self.last

    def planner(self, types: tuple[str, ...]) -> StreamPlanner:
        """Plans by the stream's policy, made here."""
        return StreamPlanner(self.stream.name, self.spec_for(types))

    def own(self, policy: str, histogram: Histogram, types: tuple[str, ...]) -> Plan:
        """A plan of the driver's own, which no other frame follows."""
        spec = self.stream.spec
        planner = make_planner(policy, spec.partitions, spec.seed, spec.weights or None)
        return planner.plan(histogram, origin=Origin(stream=self.stream.name, key_types=types))

    def report(self, histogram: Histogram, types: tuple[str, ...]) -> None:
        """Tell the service of rows that were placed without its plan, in a thread of its own: nobody waits."""
        if self.link.client is None:
            return
        number = self.stream.began + self.stream.next_batch()

        def told(client: Client, left: Left) -> None:
            self.put_stream(client, types, left)
            client.report_histogram(self.stream.name, Part(self.stream.source, number), histogram, timeout=left())

        unreported = f"stream {self.stream.name} does not show rows that were placed in flight"
        ask = partial(self.link.ask_in_background, told, unreported)
        threading.Thread(target=ask, name="unskew report", daemon=True).start()

    def _by_service(self, histogram: Histogram, types: tuple[str, ...], number: int) -> Plan | None:
        """By a number that no other session has: the service makes one plan for each, and gives it to every caller."""

        def build(client: Client, left: Left) -> Plan:
            name = self.stream.name
            client.report_histogram(name, Part(self.stream.source, number), histogram, timeout=left())
            built = client.build_plan(name, number, fresh=True, timeout=left())
            if built.stale:  # a plan of other rows: the driver has counted these, and plans better by itself
                raise NoAnswerError("BuildPlan", name, str(client.url), "UNAVAILABLE", built.reason)
            return built.plan

        def build_or_put(client: Client, left: Left) -> Plan:
            try:
                return build(client, left)
            except NotThereError:  # the service has lost the stream while the rows were counted
                self.put_stream(client, types, left, again=True)
                return build(client, left)

        return self.link.ask(build_or_put, _ALONE, within=self.patience, always=True)


class Session(Protocol):
    """What a verb in a module of its own needs of ``Unskew``."""

    @property
    def spark(self) -> SparkSession: ...

    @property
    def plans(self) -> Plans: ...

    @property
    def sampling(self) -> Sampling: ...
