"""What the next batch of a stream is bound to, decided from what the batches before it showed: a passive machine.

``after`` takes the facts of a finished batch. It judges the plan that the batch was bound to, adds the batch to the
record, and returns either what the next batch is bound to (``NextBatch``) or the plan that it needs first
(``PlanRequest``). ``answered`` takes the plan that the service made for that request, or None: then the same planner
makes one here. ``add_seconds`` takes a batch's time where it comes later than its facts.

Whether the next batch goes by this plan, by a count of its own rows or by plain hash is decided by a
``FreshnessChoice``: another way to choose is another class with its three members. Threads, the service and Spark are
the caller's. Plans for later batches are made while rows are worked on, as by Prompt's early release (section 4.2).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

from unskew.core.errors import PlanError
from unskew.core.freshness.trust import BatchImbalance, Mode, Trust, TrustRules
from unskew.core.histogram.histogram import Histogram
from unskew.core.histogram.history import History
from unskew.core.plan.plan import Plan
from unskew.core.planners import Origin, make_planner
from unskew.core.quality.measures import load_imbalance
from unskew.core.scaling.elastic import Decider, StageTimes
from unskew.core.scaling.values import ScaleDecision
from unskew.core.stream_spec import StreamSpec

__all__ = [
    "BatchFacts",
    "FreshnessChoice",
    "NextBatch",
    "Partitions",
    "PlanAhead",
    "PlanRequest",
    "StreamPlanner",
    "TrustChoice",
]

_SCATTER = 3.0  # standard deviations


@dataclass(frozen=True)
class StreamPlanner:
    """Makes the plans of a stream by its settings, whose ``key_types`` are those of the keys at hand."""

    stream: str
    spec: StreamSpec

    def plan(self, histogram: Histogram, batch: int, previous: Plan | None = None) -> Plan:
        """By the stream's policy."""
        spec = self.spec
        planner = make_planner(spec.policy, spec.partitions, spec.seed, spec.weights or None, **spec.parameters)
        origin = Origin(stream=self.stream, batch=batch, key_types=spec.key_types)
        return planner.plan(histogram, previous, origin=origin)

    def after(self, plan: Plan, histogram: Histogram, batch: int) -> Plan:
        """The plan that follows ``plan``; made anew where that is for another number of partitions, or of no rows."""
        fits = plan.partitions == self.spec.partitions and plan.info.rows > 0
        return self.plan(histogram, batch, plan if fits else None)

    def by_hash(self) -> Plan:
        """Where keys go before anything is known of them."""
        origin = Origin(stream=self.stream, key_types=self.spec.key_types)
        return make_planner("hash", self.spec.partitions, self.spec.seed).plan(Histogram.empty(), origin=origin)


@dataclass(frozen=True, eq=False)
class BatchFacts:
    """A finished batch.

    ``batch`` is its number in the query and ``number`` in reports. ``plan`` is what it was bound to; ``histogram`` is
    of ``rows`` rows, estimated from ``sampled`` of them. ``seconds``: how long its handler ran; ``took``: the whole
    batch, where nobody will say so later. ``interval``: seconds from one batch to the next, 0 where that is not known.
    """

    batch: int
    number: int
    plan: Plan
    rows: int
    sampled: int
    histogram: Histogram
    stages: StageTimes = field(default_factory=StageTimes)
    interval: float = 0.0
    seconds: float = 0.0
    took: float | None = None


@dataclass(frozen=True)
class Partitions:
    """The session's settings when a batch's facts come; ``owner``: whether this query owns the number of partitions."""

    spec: StreamSpec
    owner: bool = False


@dataclass(frozen=True, eq=False)
class NextBatch:
    """What the next batch is bound to, and why: ``plan``, or with ``mode="same"`` the plan that a count of its own rows
    gives, made after this one. ``rows`` and ``tasks`` are those of the batch before (0: not known)."""

    mode: Mode
    plan: Plan
    reason: str
    rows: int = 0
    tasks: int = 0


@dataclass(frozen=True, eq=False)
class PlanRequest:
    """A plan to be made from ``record``. ``changed``: the stream has changed, and until the batches before the change
    have left the service's own record a plan is asked for with this one. ``news``: what the choice has changed."""

    facts: BatchFacts
    record: Histogram
    changed: bool
    news: str | None


class FreshnessChoice(Protocol):
    """Chooses how the next batch is placed. A value: ``after`` gives another one."""

    @property
    def mode(self) -> Mode:
        """By the batches before it, by a count of its own rows (``"same"``), or by plain hash."""

    @property
    def surprised(self) -> bool:
        """Whether the last batch was so unlike those before it that the record starts anew."""

    def after(self, batch: BatchImbalance) -> tuple[FreshnessChoice, str | None]:
        """The choice after this batch, and in words what has changed, if anything has."""


@dataclass(frozen=True)
class TrustChoice:
    """By how often plans from the batches before were wrong in a row (``unskew.core.freshness.trust``)."""

    rules: TrustRules = field(default_factory=TrustRules)
    trust: Trust = field(default_factory=Trust)

    @property
    def mode(self) -> Mode:
        return self.trust.mode

    @property
    def surprised(self) -> bool:
        return self.trust.surprised

    def after(self, batch: BatchImbalance) -> tuple[TrustChoice, str | None]:
        trust, news = self.trust.after(batch, self.rules)
        return replace(self, trust=trust), news


class PlanAhead:
    """Of one query. ``first`` is what its first batch is bound to; batches of fewer rows than ``threshold`` are not
    planned from. With a ``decider`` measured times change the number of partitions.

    ``next`` is what the next batch is bound to, ``planner`` what plans are made by, and ``decision`` what the last
    event has changed about the number of partitions.
    """

    def __init__(
        self,
        planner: StreamPlanner,
        first: Plan,
        choice: FreshnessChoice | None = None,
        *,
        threshold: int = 0,
        decider: Decider | None = None,
    ) -> None:
        self.planner, self._plan, self._hash = planner, first, planner.by_hash()
        self._choice: FreshnessChoice = choice or TrustChoice()
        self._threshold = max(threshold, 1)
        self.decider, self._owner = decider, decider is not None
        self.decision: ScaleDecision | None = None
        self.next = NextBatch("previous", first, "the first plan")
        self._history = History(planner.spec.history, planner.spec.decay or 1.0)
        self._until_alike = 0  # batches until the service's record has none from before the last change
        self._last: BatchFacts | None = None
        self._tasks = 0
        self._request: PlanRequest | None = None

    def after(self, facts: BatchFacts, session: Partitions) -> NextBatch | PlanRequest:
        """What the next batch is bound to, or the plan that is needed first."""
        self.decision = self._decide(facts)
        partitions = self._partitions(session)
        self._tasks = facts.stages.maps or self._tasks
        self.next = replace(self.next, rows=facts.rows, tasks=self._tasks)
        if facts.rows:
            self._last = facts
        if facts.rows < self._threshold:
            return self._rescaled(partitions)
        news = self._judge(facts)
        self._remember(facts.histogram)
        self._resize(partitions)
        self._request = PlanRequest(facts, self._history.merged(), self._until_alike > 0, news)
        return self._request

    def answered(self, plan: Plan | None) -> NextBatch:
        """The service's plan for the request, or None: then it is made here."""
        if self._request is None:
            raise PlanError("no plan was asked for: call after() first")
        request, self._request = self._request, None
        self._plan = plan or self.planner.after(self._plan, request.record, request.facts.number)
        source = f"{self._plan.info.policy or 'plan'} from the last {len(self._history.batches)} batches"
        return self._bind(request.news or source)

    def add_seconds(self, batch: int, seconds: float, session: Partitions) -> NextBatch:
        """How long a batch took, from its trigger to its commit."""
        self.decision = None if self.decider is None else self.decider.add_seconds(batch, seconds)
        return self._rescaled(self._partitions(session))

    # -- plans ------------------------------------------------------------------------------------------------

    def _judge(self, facts: BatchFacts) -> str | None:
        """Compare the imbalance that plans predicted with what the batch had; what the choice has changed."""
        if facts.plan.partitions != self._plan.partitions or not facts.sampled:
            return None
        histogram, candidate = facts.histogram, self._plan
        observed = load_imbalance(facts.plan.loads(histogram))
        batch = BatchImbalance(
            predicted=load_imbalance(facts.plan.info.loads) if facts.plan.info.rows else observed,
            observed=observed,
            by_hash=load_imbalance(self._hash.loads(histogram)),
            other_predicted=load_imbalance(candidate.info.loads) if candidate.info.rows else 1.0,
            other=load_imbalance(candidate.loads(histogram)),
            noise=_SCATTER * (facts.plan.partitions / facts.sampled) ** 0.5,
        )
        self._choice, news = self._choice.after(batch)
        return news

    def _remember(self, histogram: Histogram) -> None:
        """Add the batch to the record. Where the stream has changed the batches before say nothing of those to come,
        and the record begins with this one."""
        self._until_alike = max(self._until_alike - 1, 0)
        if self._choice.surprised:
            self._history, self._until_alike = replace(self._history, batches=()), self._history.depth
        self._history = self._history.add(histogram)

    def _bind(self, reason: str) -> NextBatch:
        if self._hash.partitions != self._plan.partitions:  # another query of the session has changed the number
            self._hash = self.planner.by_hash()
        mode = self._choice.mode
        plan = self._hash if mode == "hash" else self._plan
        self.next = replace(self.next, mode=mode, plan=plan, reason=reason)
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
        self.planner = replace(self.planner, spec=session.spec)
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
        record = self._history.merged() if self._history.batches else self._last.histogram
        self._plan = self.planner.after(self._plan, record, self._last.number)
        return self._bind("another number of partitions")

    def _resize(self, partitions: int) -> None:
        if partitions in (0, self._plan.partitions):
            return
        spec = self.planner.spec
        if partitions != spec.partitions:
            self.planner = replace(self.planner, spec=replace(spec, partitions=partitions, weights=()))
        self._hash = self.planner.by_hash()
