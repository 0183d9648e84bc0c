"""Makes the plans of a stream by its settings: the same in a query's driver, in ``whatif`` and in benchmarks."""

from __future__ import annotations

from dataclasses import dataclass

from unskew.core.histogram.histogram import Histogram
from unskew.core.histogram.history import History
from unskew.core.plan.plan import Plan
from unskew.core.planners import Feedback, Origin, Planner, make_planner
from unskew.core.stream_spec import StreamSpec

__all__ = ["StreamPlanner"]


@dataclass(frozen=True)
class StreamPlanner:
    """Makes the plans of a stream by its settings, whose ``key_types`` are those of the keys at hand."""

    stream: str
    spec: StreamSpec

    @property
    def planner(self) -> Planner:
        """The stream's policy."""
        spec = self.spec
        return make_planner(spec.policy, spec.partitions, spec.seed, spec.weights or None, **spec.parameters)

    @property
    def cuts(self) -> bool:
        """Whether the stream's policy may put the rows of one key into several partitions."""
        return self.planner.splits and bool(self.spec.parameters.get("splits", True))

    @property
    def record(self) -> History:
        """The record of batches that plans are made from, still empty."""
        return History(self.spec.history if self.spec.decay else 1, self.spec.decay or 1.0)

    def plan(
        self, histogram: Histogram, batch: int, previous: Plan | None = None, feedback: Feedback | None = None
    ) -> Plan:
        """By the stream's policy."""
        origin = Origin(stream=self.stream, batch=batch, key_types=self.spec.key_types)
        return self.planner.plan(histogram, previous, feedback, origin=origin)

    def after(self, plan: Plan | None, histogram: Histogram, batch: int, feedback: Feedback | None = None) -> Plan:
        """The plan that follows ``plan``; made anew where that is for another number of partitions, or of no rows."""
        fits = plan is not None and plan.partitions == self.spec.partitions and plan.info.rows > 0
        return self.plan(histogram, batch, plan if fits else None, feedback)

    def by_hash(self) -> Plan:
        """Where keys go before anything is known of them."""
        spec, origin = self.spec, Origin(stream=self.stream, key_types=self.spec.key_types)
        hashed = make_planner("hash", spec.partitions, spec.seed, spec.weights or None)
        return hashed.plan(Histogram.empty(), origin=origin)
