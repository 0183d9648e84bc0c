"""Which plan a batch is bound to: the newest, else the last one known, else plain hashing (DESIGN, promise 4).

A driver walks the ladder once, before it binds a batch; tasks never do. It never fails and never takes longer than its
deadline, whatever the service, its network or its bytes do: the question is asked in a thread, and who walks waits for
that no longer than the deadline. An answer that is late is not lost: it is the last one known of the next walk. While
the service keeps failing, the breaker saves the wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unskew.client.channel import seconds
from unskew.client.client import Client
from unskew.client.errors import NoAnswerError
from unskew.client.forks import tell_after_fork
from unskew.client.results import Fetched
from unskew.core.breaker import Breaker
from unskew.core.errors import UnskewError
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Plan
from unskew.core.planners import make_planner
from unskew.core.stream_spec import check_name

__all__ = ["HASH", "LAST", "NEWEST", "Chosen", "Ladder", "LatestPlan", "choose"]

NEWEST, LAST, HASH = "newest", "last", "hash"


@dataclass(frozen=True)
class LatestPlan:
    """What asking came to: a plan, or why there is none."""

    fetched: Fetched | None
    why: str = ""


@dataclass(frozen=True)
class Chosen:
    """A plan, the rung it stands on ("newest", "last" or "hash"), and why that one."""

    plan: Plan
    rung: str
    reason: str


def choose(heard: LatestPlan, last: Plan | None, plain: Plan, key_types: tuple[str, ...] | None = None) -> Chosen:
    """The decision, from what was heard, the ``last`` plan known and the ``plain`` one. A plan for another number of
    partitions or for other key types is not used; one that is older than the last known is not the newest."""
    reason = heard.why
    if heard.fetched is not None:
        plan = heard.fetched.plan
        reason = _unfit(plan, plain, key_types)
        if not reason and last is not None and plan.version < last.version:
            reason = f"the service has version {plan.version}, older than {last.version}"
        if not reason:
            held = "; it could not ask its store" if heard.fetched.stale else ""
            return Chosen(plan, NEWEST, f"version {plan.version} is the latest that the service has{held}")
    if last is not None:
        unfit = _unfit(last, plain, key_types)
        if not unfit:
            return Chosen(last, LAST, f"{reason}; version {last.version} is the last one known")
        reason = f"{reason}; the last one known: {unfit}"
    return Chosen(plain, HASH, f"{reason}; no other plan is known: plain hashing")


def _unfit(plan: Plan, plain: Plan, key_types: tuple[str, ...] | None) -> str:
    if plan.partitions != plain.partitions:
        return f"version {plan.version} is for {plan.partitions} partitions, not for {plain.partitions}"
    if key_types and plan.key_types and plan.key_types != key_types:
        return f"version {plan.version} is for keys of {', '.join(plan.key_types)}, not of {', '.join(key_types)}"
    return ""


class _Question:
    """Asked in a thread; answered later, or never."""

    def __init__(self) -> None:
        self.answered = threading.Event()
        self.heard = LatestPlan(None, "the service did not answer in time")


class Ladder:
    """The ladder of one stream. Thread-safe; a forked child goes on with the last plan known.

    ``timeout``: the longest that ``walk`` takes. ``last``: a plan that is known already, of an earlier run.
    """

    def __init__(
        self,
        client: Client,
        stream: str,
        partitions: int,
        *,
        timeout: float = 2.0,
        last: Plan | None = None,
        weights: Sequence[float] | None = None,
        seed: int = 7,
        key_types: Sequence[str] = (),
        breaker: Breaker | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stream = check_name("stream", stream)
        self.timeout = seconds("timeout", timeout)
        self._client, self._clock = client, clock
        self._plain = make_planner("hash", partitions, seed, weights).plan(Histogram.empty())
        self._last, self._key_types = last, tuple(key_types)
        self._breaker = breaker or Breaker(failures=2)
        self._lock = threading.Lock()
        self._open: _Question | None = None
        tell_after_fork(self)

    def after_fork(self) -> None:
        self._lock, self._open = threading.Lock(), None

    @property
    def last(self) -> Plan | None:
        """The newest plan that came."""
        return self._last

    def walk(self, timeout: float | None = None) -> Chosen:
        """The plan to bind to, within ``timeout`` seconds."""
        limit = self.timeout if timeout is None else seconds("timeout", timeout)
        heard = self._ask(limit)
        with self._lock:
            chosen = choose(heard, self._last, self._plain, self._key_types)
            if chosen.rung == NEWEST:
                self._last = chosen.plan
        return chosen

    def _ask(self, limit: float) -> LatestPlan:
        with self._lock:
            question = self._open
            if question is None:
                if not self._breaker.allow(self._clock()):
                    return LatestPlan(None, "the service failed again and again and is not asked for a while")
                question = self._open = _Question()
                threading.Thread(
                    target=self._fetch, args=(question, limit), name=f"unskew plan {self.stream}", daemon=True
                ).start()
        if question.answered.wait(limit):
            return question.heard
        return LatestPlan(None, f"the service did not answer in {limit:g} s")

    def _fetch(self, question: _Question, limit: float) -> None:
        fetched, answered = None, False
        try:
            fetched = self._client.get_plan(self.stream, timeout=limit)
            question.heard, answered = LatestPlan(fetched), True
        except UnskewError as why:
            answered = not isinstance(why, NoAnswerError)
            question.heard = LatestPlan(None, str(why))
        finally:
            with self._lock:
                self._open = None
                self._settle(fetched, answered=answered)
            question.answered.set()

    def _settle(self, fetched: Fetched | None, *, answered: bool) -> None:
        """What is kept of an answer, in time or not."""
        if answered:
            self._breaker.success()
        else:
            self._breaker.failure(self._clock())
        if fetched is None or _unfit(fetched.plan, self._plain, self._key_types):
            return
        if self._last is None or self._last.version <= fetched.plan.version:
            self._last = fetched.plan
