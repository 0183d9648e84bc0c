"""Plans are made here: from what was reported, by the stream's policy, once for each purpose.

The decision is core's. Here it is made off the loop, given its version, and stored after the plan that it was made
from; where another replica was faster the decision is made again, or that replica's plan is used.

- Another number of partitions or other key types than those of the present plan: the next plan is made without it.
- A decision with the same routes as the present plan keeps that plan. For a batch it is stored once more, under the
  batch's name and the next version, so that the batch gets the same plan whenever it asks; its digest says that
  nothing changed.
- With a batch's plan comes the way that is advised for it (``way_advice``); what that was learned from is stored with
  the plan, at once, so that no batch counts twice.
- Where the store does not answer the last plan that is known here is the answer, marked stale
  (docs/decisions/0037-last-known.md).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from unskew.core.errors import UnskewError
from unskew.core.freshness.stream_planner import StreamPlanner
from unskew.core.freshness.way_scores import WayChoice
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Explanation, Plan, Version
from unskew.core.planners import Feedback, Origin, make_planner
from unskew.core.stream_spec import StreamSpec
from unskew.service.api.verbs import BuiltPlan
from unskew.service.concurrency import SingleFlight
from unskew.service.engine.base import Base
from unskew.service.engine.batches import Batches, Evidence
from unskew.service.engine.plan_cache import PlanCache
from unskew.service.engine.rounds.rounds import Rounds
from unskew.service.engine.streams import CachedStream, Streams
from unskew.service.engine.way_advice import WayAdvice, advise
from unskew.service.errors import NotFoundError, UnavailableError
from unskew.service.events.events import PlanBuilt, PlanServed, Skipped
from unskew.service.stores.records import PlanOutcome, PlanRecord
from unskew.wire.plans import plan_to_bytes
from unskew.wire.ways import choice_from_bytes, choice_to_bytes, ways_from_bytes, ways_to_bytes

__all__ = ["Draft", "PlanRequest", "Planning", "draft"]

NEW, KEPT, NOTHING, REPEATED = "new", "kept", "nothing reported", "repeated"


@dataclass(frozen=True, eq=False)
class PlanRequest:
    """The input of a plan. ``purpose``: what the plan is stored for; empty: for no batch of its own."""

    stream: str
    spec: StreamSpec
    batch: int | None
    evidence: Evidence
    feedback: Feedback
    purpose: str
    version: Version
    previous: Plan | None = None
    ways: WayAdvice = field(default_factory=WayAdvice)


@dataclass(frozen=True, eq=False)
class Draft:
    """A plan to answer with; ``data`` is empty where it is the present one, which is stored already. ``by_hash`` and
    ``by_plan`` are for display: the rows per partition by plain hashing and by this plan, of what was reported.
    ``advice``: the way for the batch; ``ways``: what it was learned from, in bytes."""

    plan: Plan
    data: bytes
    outcome: str
    reason: str
    by_hash: tuple[int, ...] = ()
    by_plan: tuple[int, ...] = ()
    advice: WayChoice | None = None
    ways: bytes = b""


def draft(request: PlanRequest) -> Draft:
    """The decision, and its bytes. Pure."""
    histogram, spec = request.evidence.histogram, request.spec
    plan_draft = _with_advice(request, _drafted(request))
    if histogram is None or plan_draft.outcome == NOTHING:
        return plan_draft
    hashed = make_planner("hash", spec.partitions, spec.seed, spec.weights or None).plan(histogram)
    plan = plan_draft.plan
    # The loads in a plan that is kept are of the time when it was made.
    loads = plan.info.loads if plan_draft.outcome == NEW else tuple(plan.loads(histogram).tolist())
    return replace(plan_draft, by_hash=hashed.info.loads, by_plan=loads)


def _with_advice(request: PlanRequest, made: Draft) -> Draft:
    """Where the plan is for a batch, and from those before it, the way is chosen anew; else it is what it was."""
    ways, batches = request.ways, request.evidence.batches
    if request.purpose and batches is not None:
        planner = StreamPlanner(request.stream, request.spec)
        ways = advise(planner, batches, ways, made.plan, request.feedback.times)
    return replace(made, advice=ways.choice, ways=b"" if ways.stored is None else ways_to_bytes(ways.stored))


def _drafted(request: PlanRequest) -> Draft:
    previous = request.previous
    fitting = previous if previous is not None and previous.key_types == request.spec.key_types else None
    same = fitting if fitting is not None and fitting.partitions == request.spec.partitions else None
    histogram = request.evidence.histogram
    if histogram is None or histogram.total == 0:
        return _nothing(request, same)
    plan, changed, reason = _decided(request, histogram, fitting, same)
    reason = f"{reason}; {request.evidence.source}"
    if same is not None and (not changed or plan.digest == same.digest):
        return _kept(request, same, reason)
    return Draft(plan, plan_to_bytes(plan), NEW, reason)


def _decided(
    request: PlanRequest, histogram: Histogram, fitting: Plan | None, same: Plan | None
) -> tuple[Plan, bool, str]:
    spec = request.spec
    planner = make_planner(spec.policy, spec.partitions, spec.seed, spec.weights or None, **spec.parameters)
    origin = Origin(request.stream, request.batch, spec.key_types, request.version)
    decision = planner.decide(histogram, same, request.feedback, origin)
    plan, reason = decision.plan, decision.reason
    if fitting is not None and same is None:
        reason = f"made anew: {fitting.partitions} partitions before, {spec.partitions} now; {reason}"
        moved = plan.moved(fitting, histogram)
        info = replace(plan.info, previous=fitting.version, moved_rows=moved[0], moved_keys=moved[1])
        plan = replace(plan, info=info)
    return plan, decision.changed, reason


def _kept(request: PlanRequest, present: Plan, reason: str) -> Draft:
    if not request.purpose:
        return Draft(present, b"", KEPT, reason)
    info = replace(
        present.info,
        version=request.version,
        batch=request.batch,
        previous=present.version,
        reason=f"as before: {reason}"[:2000],
        moved_rows=0.0,
        moved_keys=0.0,
    )
    plan = replace(present, info=info)
    return Draft(plan, plan_to_bytes(plan), KEPT, reason)


def _nothing(request: PlanRequest, same: Plan | None) -> Draft:
    """No keys were reported. Nothing is stored for the batch: it may be planned from what is reported later."""
    why = request.evidence.source if request.evidence.histogram is None else f"no rows; {request.evidence.source}"
    if same is not None:
        return Draft(same, b"", NOTHING, f"the present plan stays: {why}")
    spec = request.spec
    planner = make_planner("hash", spec.partitions, spec.seed, spec.weights or None)
    origin = Origin(request.stream, None, spec.key_types, request.version)
    plan = planner.plan(Histogram.empty(), None, None, origin)
    reason = f"plain hashing: {why}"
    plan = replace(plan, info=replace(plan.info, reason=reason))
    return Draft(plan, plan_to_bytes(plan), NOTHING, reason)


class _OvertakenError(UnavailableError):
    """The store answers; what the plan was made from is not there any more."""


class Planning:
    def __init__(self, base: Base, streams: Streams, plan_cache: PlanCache, batches: Batches, rounds: Rounds) -> None:
        self._base, self._streams, self._plan_cache = base, streams, plan_cache
        self._batches, self._rounds = batches, rounds
        self._builds: SingleFlight[BuiltPlan] = SingleFlight()

    # -- verbs

    async def build(self, stream: str, batch: int | None, histogram: Histogram | None, *, fresh: bool) -> BuiltPlan:
        """A plan; it is made once for all that ask at the same time."""
        try:
            if histogram is not None:
                return await self._build(stream, batch, histogram, "", fresh=fresh)
            purpose = "" if batch is None else f"batch:{batch}:{'same' if fresh else 'previous'}"
            return await self._builds.once(
                (stream, purpose, fresh), lambda: self._build(stream, batch, None, purpose, fresh=fresh)
            )
        except _OvertakenError:
            raise
        except UnavailableError as why:
            return await self._last_known(stream, why)

    async def _last_known(self, stream: str, why: UnavailableError) -> BuiltPlan:
        """The last plan that this replica has read, where it fits the stream as it was then; else the error."""
        record, cached = self._plan_cache.last_known(stream), self._streams.last_known(stream)
        if record is None or cached is None:
            raise why
        plan = await self._plan_cache.plan(stream, record)
        if (plan.partitions, plan.key_types) != (cached.spec.partitions, cached.spec.key_types):
            raise why
        self._base.observer(Skipped(stream, "plan", f"the last one is the answer: {why.message}"))
        self._base.observer(PlanServed(stream, None, stale=True))
        reason = f"no plan can be made now ({why.message}), this is the last one known here: {plan.info.reason}"
        advice = self._choice(stream, record)
        return BuiltPlan(record.data, record.digest, record.version, KEPT, reason, advice, stale=True)

    async def explain(self, stream: str, key: int, version: Version | None) -> Explanation:
        if version is None:
            record, _ = await self._plan_cache.latest(stream)
        else:
            await self._streams.get(stream)
            record = await self._plan_cache.at(stream, version)
        if record is None:
            raise NotFoundError(f"stream {stream!r} has no plan {version or 'yet'}; build one first", field="version")
        return (await self._plan_cache.plan(stream, record)).explain(key)

    # -- one build

    async def _build(
        self, stream: str, batch: int | None, histogram: Histogram | None, purpose: str, *, fresh: bool
    ) -> BuiltPlan:
        started = time.monotonic()
        # Where the last plan can be the answer this first question shows whether the store answers.
        patience = None if self._plan_cache.last_known(stream) is None else self._base.tuning.build_wait
        cached = await self._streams.get(stream, fresh=True, patience=patience)
        if purpose and (record := await self._base.store.plan_for(stream, purpose)) is not None:
            return await self._repeated(cached, record, purpose, started)
        if histogram is not None:
            async with self._base.room(2 * histogram.hashes.nbytes):
                evidence = Evidence(histogram, "from the histogram in the request")
                return await self._from_evidence(cached, batch, evidence, purpose, started)
        wanted = await self._batches.wanted(cached, batch, fresh=fresh)
        async with self._base.room(wanted.size):
            evidence = await self._batches.evidence(cached, wanted)
            return await self._from_evidence(cached, batch, evidence, purpose, started)

    async def _from_evidence(
        self, cached: CachedStream, batch: int | None, evidence: Evidence, purpose: str, started: float
    ) -> BuiltPlan:
        stream = cached.record.name
        feedback = await self._feedback(cached, batch)
        first = Version(cached.record.incarnation, 1)
        request = PlanRequest(stream, cached.spec, batch, evidence, feedback, purpose, first)
        for _ in range(self._base.tuning.tries):
            built = await self._attempt(cached, request, started)
            if built is not None:
                return built
            self._base.observer(Skipped(stream, "plan", f"another plan came between: {purpose or 'it'} is made anew"))
        raise _OvertakenError(f"stream {stream!r}: other plans came between {self._base.tuning.tries} times; try again")

    async def _attempt(self, cached: CachedStream, request: PlanRequest, started: float) -> BuiltPlan | None:
        """Decide from the present plan and store; None: it is no longer the present one."""
        stream = request.stream
        latest = await self._base.store.plan(stream)
        if latest is not None:
            previous = await self._plan_cache.plan(stream, latest)
            version = max(request.version, latest.version.next())
            ways = await self._ways(stream, latest, previous)
            request = replace(request, previous=previous, version=version, ways=ways)
        made = await self._base.heavy(request.evidence.keys, draft, request)
        if not made.data and latest is not None:
            return self._built(cached, made, latest, started)
        purpose = "" if made.outcome == NOTHING else request.purpose
        record = PlanRecord(
            request.version, made.plan.digest, made.data, purpose, choice_to_bytes(made.advice), made.ways
        )
        outcome = await self._base.store.put_plan(stream, record, None if latest is None else latest.version)
        if outcome is PlanOutcome.STORED:
            self._plan_cache.add(stream, record, made.plan)
            return self._built(cached, made, record, started)
        if outcome is PlanOutcome.PURPOSE_TAKEN:
            existing = await self._base.store.plan_for(stream, purpose)
            return None if existing is None else await self._repeated(cached, existing, purpose, started)
        current = await self._streams.get(stream, fresh=True)
        if current.record.incarnation != cached.record.incarnation:
            raise _OvertakenError(f"stream {stream!r} began anew meanwhile; try again")
        return None

    async def _ways(self, stream: str, latest: PlanRecord, present: Plan) -> WayAdvice:
        """What the latest plan's record has of them; where it cannot be read it is learned anew."""
        choice = self._choice(stream, latest)
        try:
            stored = ways_from_bytes(latest.ways) if latest.ways else None
        except UnskewError as why:
            self._base.observer(Skipped(stream, "advice", f"what was learned of the ways cannot be read: {why}"))
            stored = None
        if stored is None:
            return WayAdvice(choice)
        if stored.previous == latest.version:
            return WayAdvice(choice, stored, present)
        record = await self._plan_cache.at(stream, stored.previous)
        return WayAdvice(choice, stored, None if record is None else await self._plan_cache.plan(stream, record))

    def _choice(self, stream: str, record: PlanRecord) -> WayChoice | None:
        try:
            return choice_from_bytes(record.advice)
        except UnskewError as why:
            self._base.observer(Skipped(stream, "advice", f"the way of plan {record.version} cannot be read: {why}"))
            return None

    async def _feedback(self, cached: CachedStream, batch: int | None) -> Feedback:
        feedback = await self._batches.feedback(cached, batch)
        if cached.spec.policy != "dalton":
            return feedback
        return replace(feedback, table=await self._rounds.table(cached))

    async def _repeated(self, cached: CachedStream, record: PlanRecord, purpose: str, started: float) -> BuiltPlan:
        plan = await self._plan_cache.plan(cached.record.name, record)
        reason = f"the plan of {purpose} was made before: {plan.info.reason}"
        again = Draft(plan, b"", REPEATED, reason, advice=self._choice(cached.record.name, record))
        return self._built(cached, again, record, started)

    def _built(self, cached: CachedStream, made: Draft, record: PlanRecord, started: float) -> BuiltPlan:
        plan = made.plan
        self._base.observer(
            PlanBuilt(
                cached.record.name,
                cached.spec.policy,
                made.outcome,
                made.reason,
                time.monotonic() - started,
                record.digest,
                plan.partitions,
                len(plan.hot),
                plan.fragments_held,
                plan.info,
                made.by_hash,
                made.by_plan,
                made.advice,
            )
        )
        return BuiltPlan(record.data, record.digest, record.version, made.outcome, made.reason, made.advice)
