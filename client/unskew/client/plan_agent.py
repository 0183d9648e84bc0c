"""``PlanAgent``: a partitioner that routes by the service's plans, in any Python process. (``Agent`` learns instead.)

For streams whose policy makes plans: CG, KIP, Prompt and the others. ``route`` is a pure function of the row and the
plan in force, and never waits. A thread does the rest, once a time slot: it tells how many rows each key had, asks for
the next slot's plan, and puts that in force if it is newer. Slots are those of the wall's clock, so that all agents of
a stream ask for the same plan, which is made once; what workers say of their load (``Reporter``) is in it.

Without a service, or while it is down, the last plan stays in force, and before the first one plain hashing. A pipeline
that needs one plan for a whole batch takes it from ``plan`` and binds to that; a driver of batches uses ``Ladder``.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xxhash
from numpy.typing import ArrayLike, NDArray

from unskew.client.channel import seconds
from unskew.client.client import Client, check_access
from unskew.client.errors import ClientClosedError, NoAnswerError, NotThereError
from unskew.client.forks import tell_after_fork
from unskew.client.ladder import Chosen, LatestPlan, choose
from unskew.client.names import child_name, own_name
from unskew.client.results import Fetched
from unskew.core.arrays.frozen import hashes_of
from unskew.core.arrays.mixing import mix
from unskew.core.arrays.ranking import heaviest
from unskew.core.breaker import Breaker
from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram
from unskew.core.limits import host_bits
from unskew.core.plan.plan import Plan, Version
from unskew.core.planners import make_planner
from unskew.core.stream_spec import Part, check_name

__all__ = ["PlanAgent", "PlanStatus"]

U64 = NDArray[np.uint64]

_log = logging.getLogger("unskew.client")
_LISTED = 16_384  # keys that a histogram names; the others are counted by host
_ROWS = 1 << 20  # hashes that wait to be counted, at most: 8 MB


@dataclass(frozen=True)
class PlanStatus:
    """How it gets on. ``rows`` were routed, ``uncounted`` of them came too fast to be counted; ``told`` histograms were
    taken; ``rung`` and ``reason``: which plan is in force, and why; ``error``: why the last call failed."""

    name: str
    version: Version
    rung: str
    reason: str
    rows: int
    uncounted: int
    told: int
    failed: int
    error: str
    breaker: str


class PlanAgent:
    """``with PlanAgent("clicks", "grpc://host:8081", workers=16) as agent: workers = agent.route(hashes)``

    ``slot``: seconds between two plans, the same for all agents of a stream and for its workers' reports. ``grace``:
    how long after a slot's end the plan is asked for, in slots, so that the workers' reports of that slot are in.
    ``service``, ``name``, ``access``, ``timeout`` are as for ``Agent``. Thread-safe.
    """

    def __init__(
        self,
        stream: str,
        service: Client | str = "grpc://127.0.0.1:8081",
        *,
        workers: int,
        name: str | None = None,
        slot: float = 20.0,
        grace: float = 0.1,
        seed: int = 7,
        key_types: Sequence[str] = (),
        timeout: float = 5.0,
        breaker: Breaker | None = None,
        **access: Any,
    ) -> None:
        self.stream = check_name("stream", stream)
        check_access(service, access)
        if not 0.0 <= grace < 1.0:
            raise ConfigError("grace", grace, "0 to less than 1 slot")
        self._name = own_name() if name is None else check_name("name", name)
        self._slot, self._grace, self._timeout = seconds("slot", slot), grace, seconds("timeout", timeout)
        self._plain = make_planner("hash", workers, seed).plan(Histogram.empty())
        self._key_types, self._fresh = tuple(key_types), breaker or Breaker()
        self._owns, self._closed = not isinstance(service, Client), False
        self._client = service if isinstance(service, Client) else Client(service, timeout=timeout, **access)
        self._chosen = choose(LatestPlan(None, "nothing was asked yet"), None, self._plain)
        self._begin_life()
        tell_after_fork(self)

    def _begin_life(self) -> None:
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._started = False
        self._thread = threading.Thread(target=self._run, name=f"unskew plans {self.stream}", daemon=True)
        self._salt = xxhash.xxh32_intdigest(self._name.encode())
        self._waiting: list[U64] = []
        self._kept = self._rows = self._uncounted = self._told = self._failed = 0
        self._counted: Histogram | None = None
        self._breaker, self._error = replace(self._fresh), ""
        self._ended = self._slot_ended()

    def after_fork(self) -> None:
        """A child goes on with the plan, under a name of its own."""
        self._name = child_name(self._name)
        self._begin_life()

    # -- routing ----------------------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        """The plan in force. It never changes: another one takes its place."""
        return self._chosen.plan

    def route(self, hashes: ArrayLike, spread: ArrayLike | None = None) -> NDArray[np.int32]:
        """The worker of each row, by its key hash (signed or not) and, where its key is split, its spread hash: a hash
        of the row's other columns. Without ``spread`` a row's place in this agent's stream is taken."""
        keys = hashes_of(hashes, "hashes")
        plan = self._chosen.plan
        first = self._count(keys.copy())
        if spread is not None:
            return plan.route(keys, hashes_of(spread, "spread"))
        return plan.route(keys, self._places(first, len(keys)) if plan.splits else None)

    def _count(self, keys: U64) -> int:
        """Keep these to be counted by the thread; how many rows were before them."""
        with self._lock:
            if self._closed:
                raise ClientClosedError(f"the agent {self._name} of stream {self.stream!r} is closed; make a new one")
            if not self._started:
                self._started = True
                self._thread.start()
            first, self._rows = self._rows, self._rows + len(keys)
            if self._kept + len(keys) <= _ROWS:
                self._waiting.append(keys)
                self._kept += len(keys)
            else:
                self._uncounted += len(keys)
        return first

    def _places(self, first: int, rows: int) -> U64:
        return mix(np.arange(first, first + rows, dtype=np.uint64), self._salt)

    # -- the thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._try(self._latest)
        while not self._stopped.wait(min(self._slot / 8, 1.0)):
            self._fold()
            ended = self._slot_ended()
            if ended > self._ended:
                self._ended = ended
                self._try(self._next)

    def _slot_ended(self) -> int:
        """The last slot of the wall's clock that ended long enough ago."""
        return math.floor(time.time() / self._slot - self._grace) - 1

    def _fold(self) -> None:
        """Count what waits. Keys beyond the bound are counted by host, the lightest first."""
        with self._lock:
            waiting, self._waiting, self._kept = self._waiting, [], 0
        if waiting:
            new = Histogram.from_hashes(np.concatenate(waiting))
            self._counted = _bounded(new if self._counted is None else self._counted.merge(new), self._plain.partitions)

    def _latest(self) -> None:
        """The plan that is there already, if there is one."""
        with suppress(NotThereError):
            self._adopt(self._client.get_plan(self.stream, timeout=self._timeout))

    def _next(self) -> None:
        """What the slot had, and the plan for the one that runs."""
        counted, self._counted = self._counted, None
        if counted is not None and counted.total:
            self._client.report_histogram(self.stream, Part(self._name, self._ended), counted, timeout=self._timeout)
            self._told += 1
        built = self._client.build_plan(self.stream, self._ended + 1, timeout=self._timeout)
        self._adopt(Fetched(built.plan))

    def _adopt(self, fetched: Fetched) -> None:
        present = self._chosen
        known = None if present.plan is self._plain else present.plan
        chosen = choose(LatestPlan(fetched), known, self._plain, self._key_types)
        same = (chosen.plan.version, chosen.plan.digest) == (present.plan.version, present.plan.digest)
        self._chosen = replace(chosen, plan=present.plan) if same else chosen

    def _try(self, act: Callable[[], None]) -> None:
        """One exchange with the service. Whatever fails, routing goes on by the plan in force."""
        now = time.monotonic()
        if not self._breaker.allow(now):
            return
        try:
            act()
        except Exception as why:  # noqa: BLE001 - whatever it is, routing goes on and the next slot tries again
            if isinstance(why, NoAnswerError):
                self._breaker.failure(time.monotonic())
            self._fail(why)
        else:
            self._breaker.success()
            self._error = ""

    def _fail(self, why: Exception) -> None:
        if self._stopped.is_set():
            return
        self._failed += 1
        _log.log(
            logging.DEBUG if self._error else logging.WARNING,
            "stream %s: no new plan; version %s stays in force. %s",
            self.stream,
            self._chosen.plan.version,
            why,
        )
        self._error = f"{type(why).__name__}: {why}"

    # -- life -------------------------------------------------------------------------------------------------

    @property
    def chosen(self) -> Chosen:
        """The plan in force, and why that one."""
        return self._chosen

    @property
    def status(self) -> PlanStatus:
        return PlanStatus(
            name=self._name,
            version=self._chosen.plan.version,
            rung=self._chosen.rung,
            reason=self._chosen.reason,
            rows=self._rows,
            uncounted=self._uncounted,
            told=self._told,
            failed=self._failed,
            error=self._error,
            breaker=self._breaker.state(time.monotonic()),
        )

    def close(self, timeout: float = 2.0) -> bool:
        """End within ``timeout`` seconds; whether the thread ended. What was not reported yet is dropped."""
        with self._lock:
            self._closed = True
        self._stopped.set()
        if self._owns:
            self._client.close()
        if self._started:
            self._thread.join(max(timeout, 0.0))
        return not self._thread.is_alive()

    def __enter__(self) -> PlanAgent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        workers = self._plain.partitions
        return f"PlanAgent({self.stream!r}, {self._client.target!r}, workers={workers}, name={self._name!r})"


def _bounded(histogram: Histogram, partitions: int) -> Histogram:
    """At most so many keys by name."""
    if len(histogram.hashes) <= _LISTED:
        return histogram
    kept = np.zeros(len(histogram.hashes), bool)
    kept[heaviest(histogram.hashes, histogram.counts, _LISTED // 2)] = True
    return Histogram(histogram.hashes[kept], histogram.counts[kept], histogram.fold(kept, host_bits(partitions)))
