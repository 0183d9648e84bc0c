"""Plans are made here: from what was reported, by the stream's policy, once for each purpose.

The decision is core's. Here it is asked for off the loop, given its version, and stored after the plan that it was made
from; where another replica was faster the decision is made anew, or theirs is taken.

- Another number of partitions or other key types than those of the present plan: the next plan is made without it.
- A decision that routes as the present plan does is no news: the present plan is kept. For a batch it is stored once
  more, under the batch's name and the next version, so that the batch has the same plan whenever it is asked for; its
  digest says that nothing changes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Explanation, Plan, Version
from unskew.core.planners import Feedback, Origin, make_planner
from unskew.core.stream_spec import StreamSpec
from unskew.service.api.verbs import BuiltPlan
from unskew.service.concurrency import SingleFlight
from unskew.service.engine.base import Base
from unskew.service.engine.batches import Batches, Evidence
from unskew.service.engine.plan_cache import PlanCache
from unskew.service.engine.rounds import Rounds
from unskew.service.engine.streams import CachedStream, Streams
from unskew.service.errors import NotFoundError, UnavailableError
from unskew.service.events.events import PlanBuilt, Skipped
from unskew.service.stores.ports import PlanOutcome, PlanRecord
from unskew.wire.plans import plan_to_bytes

__all__ = ["Draft", "PlanRequest", "Planning", "draft"]

NEW, KEPT, NOTHING, REPEATED = "new", "kept", "nothing reported", "repeated"


@dataclass(frozen=True, eq=False)
class PlanRequest:
    """All that a plan is made from."""

    stream: str
    spec: StreamSpec
    batch: int | None
    evidence: Evidence
    previous: Plan | None
    version: Version
    feedback: Feedback
    bound: bool  # whether the plan is stored under a purpose of its own


@dataclass(frozen=True, eq=False)
class Draft:
    """A plan to answer with; ``data`` is empty where it is the present one, which is stored already. To be shown: the
    rows per partition that plain hashing would give for what was reported, and those that this plan does."""

    plan: Plan
    data: bytes
    outcome: str
    reason: str
    by_hash: tuple[int, ...] = ()
    by_plan: tuple[int, ...] = ()


def draft(asked: PlanRequest) -> Draft:
    """The decision, and its bytes. Pure."""
    made, histogram, spec = _drafted(asked), asked.evidence.histogram, asked.spec
    if histogram is None or made.outcome == NOTHING:
        return made
    hashed = make_planner("hash", spec.partitions, spec.seed, spec.weights or None).plan(histogram)
    # One that is kept has its loads from when it was made.
    loads = made.plan.info.loads if made.outcome == NEW else tuple(made.plan.loads(histogram).tolist())
    return replace(made, by_hash=hashed.info.loads, by_plan=loads)


def _drafted(asked: PlanRequest) -> Draft:
    previous = asked.previous
    fitting = previous if previous is not None and previous.key_types == asked.spec.key_types else None
    same = fitting if fitting is not None and fitting.partitions == asked.spec.partitions else None
    histogram = asked.evidence.histogram
    if histogram is None or histogram.total == 0:
        return _nothing(asked, same)
    plan, changed, reason = _decided(asked, histogram, fitting, same)
    reason = f"{reason}; {asked.evidence.source}"
    if same is not None and (not changed or plan.digest == same.digest):
        return _kept(asked, same, reason)
    return Draft(plan, plan_to_bytes(plan), NEW, reason)


def _decided(
    asked: PlanRequest, histogram: Histogram, fitting: Plan | None, same: Plan | None
) -> tuple[Plan, bool, str]:
    spec = asked.spec
    planner = make_planner(spec.policy, spec.partitions, spec.seed, spec.weights or None, **spec.parameters)
    origin = Origin(asked.stream, asked.batch, spec.key_types, asked.version)
    decision = planner.decide(histogram, same, asked.feedback, origin)
    plan, reason = decision.plan, decision.reason
    if fitting is not None and same is None:
        reason = f"made anew: {fitting.partitions} partitions before, {spec.partitions} now; {reason}"
        moved = plan.moved(fitting, histogram)
        info = replace(plan.info, previous=fitting.version, moved_rows=moved[0], moved_keys=moved[1])
        plan = replace(plan, info=info)
    return plan, decision.changed, reason


def _kept(asked: PlanRequest, present: Plan, reason: str) -> Draft:
    if not asked.bound:
        return Draft(present, b"", KEPT, reason)
    info = replace(
        present.info,
        version=asked.version,
        batch=asked.batch,
        previous=present.version,
        reason=f"as before: {reason}"[:2000],
        moved_rows=0.0,
        moved_keys=0.0,
    )
    plan = replace(present, info=info)
    return Draft(plan, plan_to_bytes(plan), KEPT, reason)


def _nothing(asked: PlanRequest, same: Plan | None) -> Draft:
    """Nothing is known of the keys. It is not stored for the batch: what is reported yet may be planned from."""
    why = asked.evidence.source if asked.evidence.histogram is None else f"no rows; {asked.evidence.source}"
    if same is not None:
        return Draft(same, b"", NOTHING, f"the present plan stays: {why}")
    spec = asked.spec
    planner = make_planner("hash", spec.partitions, spec.seed, spec.weights or None)
    origin = Origin(asked.stream, None, spec.key_types, asked.version)
    plan = planner.plan(Histogram.empty(), None, None, origin)
    reason = f"plain hashing: {why}"
    plan = replace(plan, info=replace(plan.info, reason=reason))
    return Draft(plan, plan_to_bytes(plan), NOTHING, reason)


class Planning:
    def __init__(self, base: Base, streams: Streams, shelf: PlanCache, batches: Batches, rounds: Rounds) -> None:
        self._base, self._streams, self._shelf = base, streams, shelf
        self._batches, self._rounds = batches, rounds
        self._builds: SingleFlight[BuiltPlan] = SingleFlight()

    # -- verbs

    async def build(self, stream: str, batch: int | None, histogram: Histogram | None, *, fresh: bool) -> BuiltPlan:
        """A plan; one that is asked for by many at once is made once."""
        if histogram is not None:
            return await self._build(stream, batch, histogram, "", fresh=fresh)
        purpose = "" if batch is None else f"batch:{batch}:{'same' if fresh else 'previous'}"
        return await self._builds.once(
            (stream, purpose, fresh), lambda: self._build(stream, batch, None, purpose, fresh=fresh)
        )

    async def explain(self, stream: str, key: int, version: Version | None) -> Explanation:
        if version is None:
            record, _ = await self._shelf.latest(stream)
        else:
            await self._streams.get(stream)
            record = await self._shelf.at(stream, version)
        if record is None:
            raise NotFoundError(f"stream {stream!r} has no plan {version or 'yet'}; build one first", field="version")
        return (await self._shelf.plan(stream, record)).explain(key)

    # -- one build

    async def _build(
        self, stream: str, batch: int | None, histogram: Histogram | None, purpose: str, *, fresh: bool
    ) -> BuiltPlan:
        started = time.monotonic()
        known = await self._streams.get(stream, fresh=True)
        if purpose and (found := await self._base.store.plan_for(stream, purpose)) is not None:
            return await self._repeated(known, found, purpose, started)
        if histogram is None:
            evidence = await self._batches.evidence(known, batch, fresh=fresh)
        else:
            evidence = Evidence(histogram, "from the histogram in the request")
        feedback = await self._feedback(known, batch)
        for _ in range(self._base.tuning.tries):
            done = await self._attempt(known, batch, evidence, feedback, purpose, started)
            if done is not None:
                return done
            self._base.observer(Skipped(stream, "plan", f"another plan came between: {purpose or 'it'} is made anew"))
        raise UnavailableError(
            f"stream {stream!r}: other plans came between {self._base.tuning.tries} times; try again"
        )

    async def _attempt(
        self,
        known: CachedStream,
        batch: int | None,
        evidence: Evidence,
        feedback: Feedback,
        purpose: str,
        started: float,
    ) -> BuiltPlan | None:
        """Decide from the present plan and store; None: it is no longer the present one."""
        stream = known.record.name
        latest = await self._base.store.plan(stream)
        previous = None if latest is None else await self._shelf.plan(stream, latest)
        version = _next(known, latest)
        asked = PlanRequest(stream, known.spec, batch, evidence, previous, version, feedback, bool(purpose))
        made = await self._base.heavy(draft, asked)
        if not made.data and latest is not None:
            return self._told(known, made, latest, started)
        bound = "" if made.outcome == NOTHING else purpose
        record = PlanRecord(version, made.plan.digest, made.data, bound)
        outcome = await self._base.store.put_plan(stream, record, None if latest is None else latest.version)
        if outcome is PlanOutcome.STORED:
            self._shelf.add(stream, record, made.plan)
            return self._told(known, made, record, started)
        if outcome is PlanOutcome.PURPOSE_TAKEN:
            found = await self._base.store.plan_for(stream, bound)
            return None if found is None else await self._repeated(known, found, bound, started)
        known_now = await self._streams.get(stream, fresh=True)
        if known_now.record.incarnation != known.record.incarnation:
            raise UnavailableError(f"stream {stream!r} began anew meanwhile; try again")
        return None

    async def _feedback(self, known: CachedStream, batch: int | None) -> Feedback:
        feedback = await self._batches.feedback(known, batch)
        if known.spec.policy != "dalton":
            return feedback
        return replace(feedback, table=await self._rounds.table(known))

    async def _repeated(self, known: CachedStream, record: PlanRecord, purpose: str, started: float) -> BuiltPlan:
        plan = await self._shelf.plan(known.record.name, record)
        reason = f"the plan of {purpose} was made before: {plan.info.reason}"
        return self._told(known, Draft(plan, b"", REPEATED, reason), record, started)

    def _told(self, known: CachedStream, made: Draft, record: PlanRecord, started: float) -> BuiltPlan:
        plan = made.plan
        self._base.observer(
            PlanBuilt(
                known.record.name,
                known.spec.policy,
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
            )
        )
        return BuiltPlan(record.data, record.digest, record.version, made.outcome, made.reason)


def _next(known: CachedStream, latest: PlanRecord | None) -> Version:
    """The version after the latest one, in the stream's own numbering."""
    first = Version(known.record.incarnation, 1)
    return first if latest is None else max(first, latest.version.next())
