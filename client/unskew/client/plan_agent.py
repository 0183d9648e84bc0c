"""``PlanAgent``: a partitioner that routes by the service's plans, in any Python process. (``Agent`` learns instead.)

For streams whose policy makes plans: CG, KIP, Prompt and the others. ``route`` is a pure function of the row and the
plan in force, and never waits. Once a time slot a background thread reports how many rows each key had, asks for the
next slot's plan, and puts that in force if it is newer. Slots are those of the wall clock, so that all agents of a
stream ask for the same plan, which is made once, with what the workers reported of their load (``Reporter``).

Without a service, or while it is down, the last plan stays in force, and before the first one plain hashing. A pipeline
that needs one plan for a whole batch takes it from ``plan`` and routes by that.
"""

from __future__ import annotations

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

from unskew.client.background import Background, child_name, default_name
from unskew.client.channel import seconds
from unskew.client.client import Client, open_client
from unskew.client.errors import ClientClosedError, NotThereError
from unskew.client.forks import register_after_fork
from unskew.client.plan_choice import HASH, PlanChoice, choose_plan
from unskew.client.results import Fetched
from unskew.core.arrays.frozen import hashes_of
from unskew.core.arrays.mixing import mix
from unskew.core.arrays.ranking import heaviest
from unskew.core.breaker import Breaker
from unskew.core.errors import ConfigError
from unskew.core.freshness.way_scores import WayChoice
from unskew.core.histogram.histogram import Histogram
from unskew.core.limits import host_bits
from unskew.core.plan.plan import Plan, Version
from unskew.core.planners import make_planner
from unskew.core.stream_spec import Part, check_name

__all__ = ["PlanAgent", "PlanStatus"]

U64 = NDArray[np.uint64]

_LISTED = 16_384  # keys that a histogram names; the others are counted by host
_ROWS = 1 << 20  # hashes that wait to be counted, at most: 8 MB


@dataclass(frozen=True)
class PlanStatus:
    """The state of a plan agent.

    Parameters
    ----------
    name : the agent's name
    version, rung, reason : the plan in force; "newest", "last" or "hash"; and why that one
    rows, uncounted : rows that were routed, and how many of them came too fast to be counted
    told : histograms that the service took
    failed, error : calls that failed, and why the last one did; empty if it did not
    breaker : "closed", "open" or "half open": whether the service is called
    advice : the way that the service advises for the present slot; None if it has not advised any

    Examples
    --------
    >>> with PlanAgent("clicks", "localhost:1", workers=4, name="ann") as agent:
    ...     status = agent.status
    >>> status.rung, status.rows, status.reason
    ('hash', 0, 'no plan was fetched yet: plain hashing')
    """

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
    advice: WayChoice | None = None


class PlanAgent:
    """A partitioner that routes by the newest plan of its stream. Thread-safe.

    Parameters
    ----------
    stream, service, workers, name, timeout, breaker, access : as for ``Agent``
    slot : seconds between two plans, the same for all agents of the stream and for its workers' reports
    grace : how long after a slot's end its plan is asked for, in slots, so that the workers' reports are there
    seed : for plain hashing, before the first plan
    key_types : Spark types of the key's columns; a plan for other types is not used

    Raises
    ------
    ConfigError : an argument is out of its range; the message names it

    Examples
    --------
    The service need not be there: the agent routes by plain hashing until it has a plan.

    >>> import numpy as np
    >>> with PlanAgent("clicks", "localhost:1", workers=4, timeout=0.1) as agent:
    ...     workers = agent.route(np.array([7, 7, 8], dtype=np.uint64))
    >>> bool(workers[0] == workers[1]), agent.status.rows
    (True, 3)
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
        if not 0.0 <= grace < 1.0:
            raise ConfigError("grace", grace, "0 to less than 1 slot")
        self._name = default_name() if name is None else check_name("name", name)
        self._slot, self._grace, self._timeout = seconds("slot", slot), grace, seconds("timeout", timeout)
        self._plain = make_planner("hash", workers, seed).plan(Histogram.empty())
        self._key_types, self._breaker, self._closed = tuple(key_types), breaker, False
        self._chosen = PlanChoice(self._plain, HASH, "no plan was fetched yet: plain hashing")
        self._advice: WayChoice | None = None
        self._client, self._owns_client = open_client(service, timeout, access)
        self._start_counting()
        register_after_fork(self)

    def _start_counting(self) -> None:
        """Begin without rows and without a thread."""
        self._lock = threading.Lock()
        self._background = Background(f"unskew plans {self.stream}", self._breaker)
        self._salt = xxhash.xxh32_intdigest(self._name.encode())
        self._waiting: list[U64] = []
        self._waiting_rows = self._rows = self._uncounted = self._reported = 0
        self._counted: Histogram | None = None
        self._slot_planned = self._last_slot()

    def after_fork(self) -> None:
        """In a forked child: a new name, no rows, the same plan."""
        self._name = child_name(self._name)
        self._start_counting()

    @property
    def plan(self) -> Plan:
        """The plan in force. It never changes: another one takes its place."""
        return self._chosen.plan

    def route(self, hashes: ArrayLike, spread: ArrayLike | None = None) -> NDArray[np.int32]:
        """The worker of each row, 0 to workers - 1, by the plan in force. Never waits for the service.

        Parameters
        ----------
        hashes : the key hash of each row, signed or not
        spread : a hash of the row's other columns, which spreads the rows of a split key; without it the row's number
            in this agent's stream does

        Raises
        ------
        KeyTypeError : the hashes are not 64-bit integers
        ClientClosedError : the agent is closed
        """
        keys = hashes_of(hashes, "hashes")
        plan = self._chosen.plan
        first = self._count(keys.copy())
        if spread is not None:
            return plan.route(keys, hashes_of(spread, "spread"))
        if not plan.splits:
            return plan.route(keys)
        return plan.route(keys, mix(np.arange(first, first + len(keys), dtype=np.uint64), self._salt))

    def _count(self, keys: U64) -> int:
        """Leave these keys to the thread to count; how many rows were routed before them."""
        with self._lock:
            if self._closed:
                raise ClientClosedError(f"the agent {self._name} of stream {self.stream!r} is closed; make a new one")
            self._background.start(self._run)
            first, self._rows = self._rows, self._rows + len(keys)
            if self._waiting_rows + len(keys) <= _ROWS:
                self._waiting.append(keys)
                self._waiting_rows += len(keys)
            else:
                self._uncounted += len(keys)
        return first

    def _run(self) -> None:
        self._attempt(self._fetch_latest)
        while True:
            self._background.pause(min(self._slot / 8, 1.0))
            if self._background.stopped:
                return
            self._fold()
            slot = self._last_slot()
            if slot > self._slot_planned:
                self._slot_planned = slot
                self._attempt(self._report_and_plan)

    def _last_slot(self) -> int:
        """The last slot of the wall clock that ended at least ``grace`` ago."""
        return math.floor(time.time() / self._slot - self._grace) - 1

    def _fold(self) -> None:
        """Count the keys that wait. Of too many keys the lightest are counted by host."""
        with self._lock:
            waiting, self._waiting, self._waiting_rows = self._waiting, [], 0
        if waiting:
            new = Histogram.from_hashes(np.concatenate(waiting))
            self._counted = _bounded(new if self._counted is None else self._counted.merge(new), self._plain.partitions)

    def _fetch_latest(self) -> None:
        """Adopt the plan that the stream has already, if it has one."""
        with suppress(NotThereError):
            self._adopt(self._client.get_plan(self.stream, timeout=self._timeout))

    def _report_and_plan(self) -> None:
        """Report the keys of the slot that ended, and adopt the plan for the one that runs."""
        counted, self._counted = self._counted, None
        if counted is not None and counted.total:
            self._client.report_histogram(
                self.stream, Part(self._name, self._slot_planned), counted, timeout=self._timeout
            )
            self._reported += 1
        built = self._client.build_plan(self.stream, self._slot_planned + 1, timeout=self._timeout)
        self._advice = built.advice
        self._adopt(Fetched(built.plan, stale=built.stale))

    def _adopt(self, fetched: Fetched) -> None:
        present = self._chosen.plan
        last = None if present is self._plain else present
        choice = choose_plan(fetched, last, self._plain, self._key_types)
        same = (choice.plan.version, choice.plan.digest) == (present.version, present.digest)
        self._chosen = replace(choice, plan=present) if same else choice

    def _attempt(self, call: Callable[[], None]) -> None:
        """Make calls to the service, unless the breaker is open. If they fail, the plan in force stays."""
        if self._background.allowed():
            version = self._chosen.plan.version
            self._background.attempt(call, f"stream {self.stream}: no new plan; version {version} stays in force")

    @property
    def chosen(self) -> PlanChoice:
        """The plan in force, and why that one."""
        return self._chosen

    @property
    def status(self) -> PlanStatus:
        """What was routed and reported, which plan is in force, and how the last call went."""
        background = self._background
        return PlanStatus(
            name=self._name,
            version=self._chosen.plan.version,
            rung=self._chosen.rung,
            reason=self._chosen.reason,
            rows=self._rows,
            uncounted=self._uncounted,
            told=self._reported,
            failed=background.failed,
            error=background.error,
            breaker=background.breaker.state(time.monotonic()),
            advice=self._advice,
        )

    def close(self, timeout: float = 2.0) -> bool:
        """End within ``timeout`` seconds; whether the thread ended. Rows that were not reported yet are dropped."""
        with self._lock:
            self._closed = True
        self._background.stop()
        if self._owns_client:
            self._client.close()
        return self._background.join(timeout)

    def __enter__(self) -> PlanAgent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        workers = self._plain.partitions
        return f"PlanAgent({self.stream!r}, {self._client.target!r}, workers={workers}, name={self._name!r})"


def _bounded(histogram: Histogram, partitions: int) -> Histogram:
    """With at most ``_LISTED`` keys by name."""
    if len(histogram.hashes) <= _LISTED:
        return histogram
    listed = np.zeros(len(histogram.hashes), bool)
    listed[heaviest(histogram.hashes, histogram.counts, _LISTED // 2)] = True
    return Histogram(histogram.hashes[listed], histogram.counts[listed], histogram.fold(listed, host_bits(partitions)))
