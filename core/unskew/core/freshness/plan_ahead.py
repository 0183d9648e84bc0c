"""What the next batch of a stream is bound to, decided from what the batches before it showed: a passive machine.

``after`` takes the facts of a finished batch. It adds the batch to the record, scores every way of placing it
(``ways``), and returns either what the next batch is bound to (``NextBatch``) or the plan that it needs first
(``PlanRequest``). ``answered`` takes the plan that the service made for that request, or None: then the same planner
makes one here. ``add_seconds`` takes a batch's time where it comes later than its facts.

Threads, the service and Spark are the caller's. Plans for later batches are made while rows are worked on, as by
Prompt's early release (section 4.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from unskew.core.errors import PlanError
from unskew.core.freshness.batch_price import COUNT_SHARE, BatchPrice, CountingTime, FlightTime
from unskew.core.freshness.stream_planner import StreamPlanner
from unskew.core.freshness.ways import OWN_ROWS, Fresh, Ways
from unskew.core.histogram.histogram import Histogram
from unskew.core.in_flight.cell_table import CellTable
from unskew.core.plan.plan import Plan
from unskew.core.planners import Feedback
from unskew.core.quality.cost_fit import CostFit, TaskTimes
from unskew.core.scaling.elastic import Decider, StageTimes
from unskew.core.scaling.values import ScaleDecision
from unskew.core.stream_spec import StreamSpec

__all__ = ["BatchFacts", "NextBatch", "Partitions", "PlanAhead", "PlanRequest"]

_SMALL_IN_A_ROW = 3  # batches


@dataclass(frozen=True, eq=False)
class BatchFacts:
    """A finished batch.

    ``batch`` is its number in the query and ``number`` in reports. ``plan`` is what it was bound to, or the cells that
    it was placed by in flight; ``histogram`` is of ``rows`` rows, estimated from ``sampled`` of them. ``seconds``: how
    long its handler ran; ``took``: the whole batch, where nobody will say so later. ``interval``: seconds from one
    batch to the next, 0 where that is not known. ``counting``: the seconds that counting the batch took, None where it
    was not counted; ``persisted``: whether its rows were kept for that, and not read again. ``slots``: how many tasks
    ran at once, None where that is not known. ``plans``: of each way, those that were there when the batch began.
    ``times``: rows, keys and seconds of each partition, None where they are not known. ``in_flight``: the seconds that
    reading the batch and placing it in flight took, None where it was placed in another way; ``flies``: whether the
    next batch could go so.
    """

    batch: int
    number: int
    plan: Plan | CellTable
    rows: int
    sampled: int
    histogram: Histogram
    stages: StageTimes = field(default_factory=StageTimes)
    interval: float = 0.0
    seconds: float = 0.0
    took: float | None = None
    counting: float | None = None
    slots: int | None = None
    plans: Mapping[str, Plan] | None = None
    times: TaskTimes | None = None
    persisted: bool = True
    in_flight: float | None = None
    flies: bool = False


@dataclass(frozen=True)
class Partitions:
    """The session's settings when a batch's facts come; ``owner``: whether this query owns the number of partitions."""

    spec: StreamSpec
    owner: bool = False


@dataclass(frozen=True, eq=False)
class NextBatch:
    """What the next batch is bound to, and why: ``plan``, or with ``way="same"`` the plan that a count of its own rows
    gives, made after this one; with ``"inflight"`` no plan, or where that cannot be, as for ``"same"``. ``rows`` and
    ``tasks`` are those of the batch before (0: not known). ``plans``: of each way. ``feedback``: what a plan from its
    own rows goes by besides. ``persist``: whether a batch that is counted is better persisted than read again."""

    way: str
    plan: Plan
    reason: str
    rows: int = 0
    tasks: int = 0
    plans: Mapping[str, Plan] = field(default_factory=dict)
    feedback: Feedback = field(default_factory=Feedback)
    persist: bool = True


@dataclass(frozen=True, eq=False)
class PlanRequest:
    """A plan to be made from the record, after these facts."""

    facts: BatchFacts


class PlanAhead:
    """Of one query. ``first`` is the plan before its first batch; batches of fewer rows than ``threshold`` are not
    planned from. With a ``decider`` measured times change the number of partitions.

    ``next`` is what the next batch is bound to, ``planner`` what plans are made by, and ``decision`` what the last
    event has changed about the number of partitions.
    """

    def __init__(
        self,
        planner: StreamPlanner,
        first: Plan,
        fresh: Fresh = "auto",
        *,
        threshold: int = 0,
        decider: Decider | None = None,
    ) -> None:
        self._ways, self._plan = Ways(planner, fresh), first
        self._fresh, self._threshold = fresh, max(threshold, 1)
        self.decider, self._owner = decider, decider is not None
        self.decision: ScaleDecision | None = None
        self.next = NextBatch(self._ways.next.way, first, self._ways.next.reason)
        self._unit = 0.0  # seconds, of the last batch whose tasks were timed
        self._counting, self._flight = CountingTime(), FlightTime()
        self._small_batches = 0  # in a row
        self._last: BatchFacts | None = None
        self._tasks = 0
        self._slots: int | None = None
        self._request: PlanRequest | None = None

    @property
    def planner(self) -> StreamPlanner:
        """What plans are made by."""
        return self._ways.planner

    @property
    def fit(self) -> CostFit:
        """What a row and a key cost, by the task times of the last batches."""
        return self._ways.fit

    def after(self, facts: BatchFacts, session: Partitions) -> NextBatch | PlanRequest:
        """What the next batch is bound to, or the plan that is needed first."""
        self.decision, self._slots = self._decide(facts), facts.slots
        partitions = self._partitions(session)
        self._tasks = facts.stages.maps or self._tasks
        self._time(facts)
        self.next = replace(self.next, rows=facts.rows, tasks=self._tasks, persist=self._counting.persists)
        if facts.rows:
            self._last = facts
        if facts.times is not None:
            self._ways.add_times(facts.times)
            self.next = replace(self.next, feedback=self._ways.feedback)
        self._small_batches = self._small_batches + 1 if facts.rows < self._threshold else 0
        if self._small_batches:
            return self._small(partitions)
        self._ways.score(facts.histogram, facts.number, self._price(facts), facts.plans, flies=facts.flies)
        self._resize(partitions)
        self._request = PlanRequest(facts)
        return self._request

    def answered(self, plan: Plan | None) -> NextBatch:
        """The service's plan for the request, or None: then it is made here."""
        if self._request is None:
            raise PlanError("no plan was asked for: call after() first")
        request, self._request = self._request, None
        self._ways.plan_ahead(request.facts.number, plan)
        self._plan = self._ways.plans["previous"]
        return self._bind()

    def add_seconds(self, batch: int, seconds: float, session: Partitions) -> NextBatch:
        """How long a batch took, from its trigger to its commit."""
        self.decision = None if self.decider is None else self.decider.add_seconds(batch, seconds)
        return self._rescaled(self._partitions(session))

    # -- plans ------------------------------------------------------------------------------------------------

    def _time(self, facts: BatchFacts) -> None:
        """Note what reading the batch took, and counting it or placing it in flight."""
        if facts.in_flight is None:
            reading, persisted = facts.stages.map_time, facts.persisted
            self._counting = self._counting.after(facts.rows, reading, facts.counting, persisted=persisted)
        elif facts.rows:
            self._counting = self._counting.older
        self._flight = self._flight.after(facts.rows, facts.in_flight)

    def _price(self, facts: BatchFacts) -> BatchPrice | None:
        """In seconds, by the fitted cost of rows and keys, else by the last batch whose stages were timed; None where
        none was."""
        histogram, cost = facts.histogram, self._ways.cost
        if self.fit.unit:
            self._unit = self.fit.unit
        elif facts.stages.reduce_work > 0.0 and histogram.total:
            self._unit = facts.stages.reduce_work / float(cost.model.tasks(histogram.total, histogram.keys))
        if not self._unit:
            return None
        even, counting = cost.even(histogram) * self._unit, self._counting
        count = counting.seconds(facts.rows, COUNT_SHARE * even)
        flight = self._flight.seconds(facts.rows, even, counting.reading)
        return BatchPrice(self._unit, count, timed=True, flight=flight)

    def _small(self, partitions: int) -> NextBatch:
        """After some batches of few rows the next one is not counted unless the user wants that: it would cost more
        than any plan gains."""
        if self._fresh == "auto" and self.next.way in OWN_ROWS and self._small_batches >= _SMALL_IN_A_ROW:
            self.next = replace(self.next, way="previous", reason=f"batches of fewer than {self._threshold:,} rows")
        return self._rescaled(partitions)

    def _bind(self) -> NextBatch:
        choice, ways = self._ways.next, self._ways
        before = ways.counted if choice.way in OWN_ROWS and ways.counted is not None else self._plan
        plan = ways.plans.get(choice.way, before)
        self.next = replace(self.next, way=choice.way, plan=plan, reason=choice.reason, plans=ways.plans)
        return self.next

    # -- the number of partitions -----------------------------------------------------------------------------

    def _decide(self, facts: BatchFacts) -> ScaleDecision | None:
        if self.decider is None:
            return None
        if facts.took is not None:
            self.decider.add_seconds(facts.batch, facts.took)
        return self.decider.add_rows(facts.batch, facts.plan.partitions, facts.rows, facts.histogram.keys, facts.stages)

    def _partitions(self, session: Partitions) -> int:
        """The number that this query has decided on; 0 where another one decides, or did until now: each would take
        back what the other has done."""
        new, self._owner = session.owner and not self._owner, session.owner
        self._ways.plan_by(replace(self.planner, spec=session.spec), self._slots)
        if self.decider is None or not session.owner:
            return 0
        if new:
            self.decider.restart_at(session.spec.partitions)
        return 0 if new else self.decider.partitions

    def _rescaled(self, partitions: int) -> NextBatch:
        """The record is good for any number of partitions; where batches were too small for it, the last one is. Before
        any batch had rows the plan stays as it is."""
        if partitions in (0, self._plan.partitions) or self._last is None:
            return self.next
        self._resize(partitions)
        if not self._ways.record.batches:
            self._ways.score(self._last.histogram, self._last.number)
        self._ways.plan_ahead(self._last.number)
        self._plan = self._ways.plans["previous"]
        self._bind()
        self.next = replace(self.next, reason=f"another number of partitions; {self.next.reason}")
        return self.next

    def _resize(self, partitions: int) -> None:
        spec = self.planner.spec
        if partitions not in (0, spec.partitions):
            spec = replace(spec, partitions=partitions, weights=())
            self._ways.plan_by(replace(self.planner, spec=spec), self._slots)
