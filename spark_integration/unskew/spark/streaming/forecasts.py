"""From what a batch showed to the plan of a later one, off the batch's way.

One thread a query takes what was observed: it judges the plan that the batch was bound to (``core.freshness.trust``),
adds the batch to the record, tells the service, and has the next plan made, there or, where nobody answers, here. The
batch that comes next takes what is ready and waits for nothing: while rows are worked on the plan for those that follow
is made (Prompt's early release, section 4.2). A service that is away costs this thread its time-out, then nothing for a
while; the plans are then the driver's own, from the same record.
"""

from __future__ import annotations

import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from unskew.client import Breaker
from unskew.core.errors import UnskewError
from unskew.core.freshness.trust import BatchImbalance, Mode, Trust, TrustRules
from unskew.core.histogram.history import History
from unskew.core.plan.plan import Plan
from unskew.core.quality.measures import load_imbalance
from unskew.core.stream_spec import BatchWork, Part, Work
from unskew.spark.planning import Plans

if TYPE_CHECKING:
    from unskew.core.histogram.histogram import Histogram
    from unskew.spark.streaming.batch_sampling import BatchSample

__all__ = ["BatchRun", "Forecasts", "Next"]

_log = logging.getLogger("unskew.spark")
_COOLDOWN, _LONGEST = 5.0, 300.0
_SCATTER = 3.0  # standard deviations


@dataclass(frozen=True, eq=False)
class Next:
    """How the next batch is to be bound, and why."""

    mode: Mode
    plan: Plan
    reason: str


@dataclass(frozen=True, eq=False)
class BatchRun:
    """A batch that has run: its number in reports, the plan that it was bound to, what it held and took. The plans of
    later batches are for ``partitions``; 0: for as many as before."""

    number: int
    plan: Plan
    found: BatchSample
    interval: float = 0.0
    processing: float = 0.0
    map_time: float = 0.0
    reduce_time: float = 0.0
    partitions: int = 0


See = Callable[[], BatchRun | None]


class Forecasts:
    """Of one query. ``first`` is what its first batch is bound to; ``types`` are those of its key. Batches of fewer
    rows than ``threshold`` are reported and not planned from."""

    def __init__(
        self,
        plans: Plans,
        source: str,
        types: tuple[str, ...],
        first: Plan,
        rules: TrustRules | None = None,
        threshold: int = 0,
    ) -> None:
        self._plans, self._source, self._types = plans, source, types
        self._rules, self._threshold = rules or TrustRules(), threshold
        self._history = History(plans.spec.history, plans.spec.decay or 1.0)
        self._trust, self._plan = Trust(), first
        self._next = Next("previous", first, "the first plan")
        self._hash = self._plans.by_hash(self._types)
        self._breaker = Breaker(failures=1, cooldown=_COOLDOWN, longest=_LONGEST)
        self._put, self._own, self._closed = False, 0, False
        self._number = 0  # of the last batch that was seen
        self._last: Histogram | None = None  # what it held
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="unskew plans")
        self._under_way: Future[None] | None = None
        self._lock = threading.Lock()
        self._newest: See | None = None

    @property
    def next(self) -> Next:
        """The newest decision; never waits."""
        return self._next

    def settle(self, timeout: float) -> bool:
        """Wait until what was given is worked off, or given up by ``close``; no longer than this. Whether it is. What
        went wrong in there by a fault of unskew is raised."""
        if self._under_way is None:
            return True
        try:
            self._under_way.result(timeout)
        except concurrent.futures.TimeoutError:  # another one than Python's own before 3.11
            return False
        except concurrent.futures.CancelledError:
            return True
        return True

    def learn(self, see: See) -> None:
        """Take a batch in; ``see`` is called in the thread. One that still waits for its turn is passed over: by a
        service that is slower than the batches plans would be ever older. Nothing where the thread has ended: the query
        may outlive it."""
        if self._closed:
            return
        with self._lock:
            waits, self._newest = self._newest is not None, see
        if not waits:
            self._submit(self._next_one)

    def rescale(self, decide: Callable[[], int]) -> None:
        """Have ``decide`` called in the thread: for how many partitions plans are from now on."""
        self._submit(lambda: self._safely(lambda: self._rescaled(decide())))

    def _submit(self, work: Callable[[], None]) -> None:
        if self._closed:
            return
        try:
            self._under_way = self._thread.submit(work)
        except RuntimeError:  # the interpreter is ending, and its threads before the query
            self._closed = True

    def count(self, histogram: Histogram, batch: int) -> Plan:
        """A plan for a batch that was counted before it is placed."""
        return self._made_here(histogram, batch)

    def end(self) -> None:
        """There will be no more batches."""
        self._closed = True
        self._thread.shutdown(wait=False)

    def close(self) -> None:
        """What waits to be worked off is not wanted."""
        self._closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    # -- in the thread ----------------------------------------------------------------------------------------

    def _next_one(self) -> None:
        with self._lock:
            see, self._newest = self._newest, None
        if see is not None:
            self._safely(lambda: self._seen(see()))

    def _seen(self, ran: BatchRun | None) -> None:
        if ran is not None and ran.found.rows:
            self._number, self._last = ran.number, ran.found.histogram
        if ran is not None and ran.found.rows >= max(self._threshold, 1):
            self._learned(ran)
        elif ran is not None:
            self._reported(ran)
            self._rescaled(ran.partitions)

    def _safely(self, work: Callable[[], None]) -> None:
        try:
            work()
        except UnskewError as why:
            _log.warning("stream %s keeps its plan: %s", self._plans.stream, why)
        except BaseException:
            _log.exception("stream %s keeps its plan: what follows is a fault of unskew", self._plans.stream)
            raise

    def _learned(self, ran: BatchRun) -> None:
        changed = self._judge(ran)
        self._remember(ran.found.histogram)
        if ran.partitions not in (0, self._plan.partitions):
            self._resize(ran.partitions)
        record = self._history.merged()
        plan = self._asked(ran, record) or self._made_here(record, ran.number)
        self._plan = plan
        self._plan_next(changed or f"{plan.info.policy or 'plan'} from the last {len(self._history.batches)} batches")

    def _rescaled(self, partitions: int) -> None:
        """The record of the batches before is good for any number of partitions; where they were small, the last one
        is. Before any was seen the plan stays as it is."""
        if partitions in (0, self._plan.partitions) or self._last is None:
            return
        self._resize(partitions)
        record = self._history.merged() if self._history.batches else self._last
        self._plan = self._made_here(record, self._number)
        self._plan_next("another number of partitions")

    def _plan_next(self, reason: str) -> None:
        mode = self._trust.mode
        if self._hash.partitions != self._plan.partitions:  # another query of the session has decided on the number
            self._hash = self._plans.by_hash(self._types)
        self._next = Next(mode, self._hash if mode == "hash" else self._plan, reason)

    def _remember(self, histogram: Histogram) -> None:
        """Add the batch to the record. Where it lay otherwise than foretold the stream has changed: what was before
        says nothing of what comes, and the record begins with this batch. The service's own record still has the
        batches before; until they have fallen out of it, plans are asked for by ours."""
        self._own = max(self._own - 1, 0)
        if self._trust.surprised:
            self._history, self._own = replace(self._history, batches=()), self._history.depth
        self._history = self._history.add(histogram)

    def _judge(self, ran: BatchRun) -> str | None:
        """Compare what was foretold with what the batch held."""
        if ran.plan.partitions != self._plan.partitions or not ran.found.sampled:
            return None
        histogram, candidate = ran.found.histogram, self._plan
        noise = _SCATTER * (ran.plan.partitions / ran.found.sampled) ** 0.5
        observed = load_imbalance(ran.plan.loads(histogram))
        seen = BatchImbalance(
            predicted=load_imbalance(ran.plan.info.loads) if ran.plan.info.rows else observed,
            observed=observed,
            by_hash=load_imbalance(self._hash.loads(histogram)),
            other_predicted=load_imbalance(candidate.info.loads) if candidate.info.rows else 1.0,
            other=load_imbalance(candidate.loads(histogram)),
            noise=noise,
        )
        self._trust, told = self._trust.after(seen, self._rules)
        if told is not None:
            _log.warning("stream %s, batch %d: %s", self._plans.stream, ran.number, told)
        return told

    def _resize(self, partitions: int) -> None:
        """Plans for another number of partitions from now on: made anew, in one step."""
        self._plans.resize(partitions)
        self._hash, self._put = self._plans.by_hash(self._types), False

    def _made_here(self, histogram: Histogram, batch: int) -> Plan:
        fits = self._plan.partitions == self._plans.partitions and self._plan.info.rows > 0
        return self._plans.planned(histogram, self._types, batch, self._plan if fits else None)

    # -- the service ------------------------------------------------------------------------------------------

    def _asked(self, ran: BatchRun, record: Histogram) -> Plan | None:
        """The service's plan, or None where nobody answers."""
        client = self._plans.client
        if client is None or not self._breaker.allow(time.monotonic()):
            return None
        try:
            self._ready()
            stream, timeout = self._plans.stream, self._plans.timeout
            client.report_histogram(stream, Part(self._source, ran.number), ran.found.histogram, timeout=timeout)
            self._tell(ran)
            own = record if self._own else None
            plan = client.build_plan(stream, ran.number + 1, histogram=own, timeout=timeout).plan
        except UnskewError as why:  # a service that says no does not plan for us either
            self._away(why)
            return None
        self._breaker.success()
        return plan if plan.partitions == self._plans.spec.partitions and plan.key_types == self._types else None

    def _reported(self, ran: BatchRun) -> None:
        if self._plans.client is None or not self._breaker.allow(time.monotonic()):
            return
        try:
            self._ready()
            self._tell(ran)
        except UnskewError as why:
            self._away(why)
        else:
            self._breaker.success()

    def _away(self, why: UnskewError) -> None:
        self._put = False  # it may come back empty
        self._breaker.failure(time.monotonic())
        _log.warning("plans of stream %s are made in the driver for now: %s", self._plans.stream, why)

    def _ready(self) -> None:
        """The stream is there, for this number of partitions."""
        if not self._put and self._plans.client is not None:
            self._plans.put(self._plans.client, self._types)
            self._put = True

    def _tell(self, ran: BatchRun) -> None:
        if self._plans.client is None:
            return
        part = Part(self._source, ran.number, 0)
        work = work_of(ran)
        self._plans.client.report_batch(self._plans.stream, part, work, timeout=self._plans.timeout)


def work_of(ran: BatchRun) -> BatchWork:
    """What a finished batch is reported as."""
    rows = ran.plan.loads(ran.found.histogram).tolist()
    keys = ran.plan.cardinalities(ran.found.histogram).tolist()
    work = tuple(Work(at, int(n), int(k)) for at, (n, k) in enumerate(zip(rows, keys, strict=True)))
    known = ran.map_time + ran.reduce_time > 0
    return BatchWork(
        work,
        ran.interval if known else 0.0,
        ran.processing if known else 0.0,
        ran.map_time,
        ran.reduce_time,
        ran.plan.version if ran.plan.version.incarnation else None,
    )
