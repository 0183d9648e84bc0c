"""``Agent``: one of several partitioners that learn together (Dalton, section 4), in any Python process.

``route`` is the machine of ``core.rounds.agent`` under a lock, and never waits for the service: reports that fall due
go to a background thread (``courier``), which sends them, waits for the round, and hands the answers back. Without a
service, or while it is down, it routes and learns on by itself.

A forked child begins a new life: its own name, session, machine and thread. It does not go on with the parent's
machine: that may have been half-way through a step, and its tuples would be counted twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xxhash
from numpy.typing import ArrayLike, NDArray

from unskew.client.channel import seconds
from unskew.client.client import Client, check_access
from unskew.client.errors import ClientClosedError
from unskew.client.forks import tell_after_fork
from unskew.client.names import child_name, own_name
from unskew.client.report_sender import ANSWERED, FAILED, ReportSender
from unskew.client.results import Synced
from unskew.core.arrays.frozen import hashes_of
from unskew.core.breaker import Breaker
from unskew.core.rounds.agent import Action, AgentSettings, AgentTick, Answered, Routed, SendReport, Tuples
from unskew.core.rounds.agent import Agent as Machine
from unskew.core.rounds.messages import Report
from unskew.core.stream_spec import check_name

__all__ = ["Agent", "Status"]

_NUMBERS = (1 << 30) - 1  # sets the random numbers of agents apart


@dataclass(frozen=True)
class Status:
    """How an agent gets on. ``version``: (incarnation, epoch) of the newest answer; ``error``: why the last call
    failed, empty if it did not; ``breaker``: whether the service is asked at all."""

    name: str
    session: int
    version: tuple[int, int]
    awaiting: bool
    dsync: float
    tuples: int
    sent: int
    answered: int
    failed: int
    error: str
    breaker: str


class Agent:
    """``with Agent("clicks", "grpc://host:8081", workers=16) as agent: workers = agent.route(hashes)``

    ``service``: a ``Client``, or a target, for which the agent makes a client of its own (``access`` are its arguments)
    and closes it. ``name`` has to be unique among the stream's agents; without one it is made of host and pid.
    ``window``, ``slide`` and ``parameters`` are those of the router ``dalton``; ``dsync`` is the first interval, then
    the service decides. ``timeout`` is that of each call. Thread-safe.
    """

    def __init__(
        self,
        stream: str,
        service: Client | str = "grpc://127.0.0.1:8081",
        *,
        workers: int,
        name: str | None = None,
        dsync: float = 20.0,
        window: float | None = None,
        slide: float | None = None,
        seed: int = 7,
        capacity: int = 4096,
        lonely: bool = False,
        parameters: Mapping[str, object] | None = None,
        timeout: float = 5.0,
        breaker: Breaker | None = None,
        **access: Any,
    ) -> None:
        self.stream = check_name("stream", stream)
        check_access(service, access)
        self._name = own_name() if name is None else check_name("name", name)
        self._settings = AgentSettings(
            name=self._name,
            workers=workers,
            dsync=dsync,
            window=window,
            slide=slide,
            seed=seed,
            capacity=capacity,
            lonely=lonely,
            parameters=dict(parameters or {}),
        )
        self._timeout, self._breaker = seconds("timeout", timeout), breaker or Breaker()
        self._owns, self._closed = not isinstance(service, Client), False
        self._client = service if isinstance(service, Client) else Client(service, timeout=timeout, **access)
        self._begin_life()
        tell_after_fork(self)

    def _begin_life(self) -> None:
        """A new session: of the wall's clock, because a later life of the same name has to have a greater one."""
        number = xxhash.xxh32_intdigest(self._name.encode()) & _NUMBERS
        self._settings = replace(self._settings, name=self._name, session=time.time_ns(), number=number)
        self._machine = Machine(self._settings)
        self._lock = threading.Lock()
        self._started = False
        self._courier = ReportSender(self.stream, self._client, self, replace(self._breaker), self._timeout)

    def after_fork(self) -> None:
        self._name = child_name(self._name)
        self._begin_life()

    # -- routing ----------------------------------------------------------------------------------------------

    def route(self, hashes: ArrayLike, times: ArrayLike | None = None) -> NDArray[np.int32]:
        """The worker of each row, 0 to workers - 1, by its key hash (signed or not); with ``times`` (seconds, never
        falling) window and slide are in seconds."""
        keys = hashes_of(hashes, "hashes")
        when = None if times is None else np.asarray(times, np.float64)
        with self._lock:
            if self._closed:
                raise ClientClosedError(f"the agent {self._name} of stream {self.stream!r} is closed; make a new one")
            if not self._started:
                self._started = True
                self._courier.start()
            actions = self._machine.handle(Tuples(keys, when), time.monotonic())
            self._post(actions)
        routed = actions[0]
        assert isinstance(routed, Routed)
        return routed.workers

    def _post(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            if isinstance(action, SendReport):
                self._courier.post(action.report)

    # -- what the courier asks for ----------------------------------------------------------------------------

    def tick(self) -> None:
        """Time has passed; a report may be due although nothing was routed."""
        with self._lock:
            self._post(self._machine.handle(AgentTick(), time.monotonic()))

    def take(self, synced: Synced) -> None:
        """An answer of the service."""
        if synced.answer is not None:
            with self._lock:
                self._machine.handle(Answered(synced.answer, synced.age), time.monotonic())

    @property
    def interval(self) -> float:
        return self._machine.dsync

    @property
    def version(self) -> tuple[int, int]:
        return self._machine.version

    @property
    def waiting(self) -> Report | None:
        return self._machine.waiting

    # -- life -------------------------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        courier, machine = self._courier, self._machine
        return Status(
            name=self._name,
            session=self._settings.session,
            version=machine.version,
            awaiting=machine.awaiting,
            dsync=machine.dsync,
            tuples=machine.router.position[0],
            sent=courier.sent,
            answered=courier.answered,
            failed=courier.failed,
            error=courier.error,
            breaker=courier.breaker.state(time.monotonic()),
        )

    def close(self, timeout: float = 2.0) -> bool:
        """End within ``timeout`` seconds. Whether the service has all that was learned: what it did not take by then is
        dropped, which costs the others a little knowledge and no row anything."""
        deadline = time.monotonic() + max(timeout, 0.0)
        with self._lock:
            if self._closed:
                return True
            self._closed = True
        told = not self._started
        if self._started and self._courier.stop(max(timeout, 0.0)):
            told = self._flush(deadline)
        if self._owns:
            self._client.close()
        return told

    def _flush(self, deadline: float) -> bool:
        """The report that waits, and what came after it: only an answer to the first lets the second go."""
        while True:
            with self._lock:
                waited = self._machine.awaiting
                actions = self._machine.handle(AgentTick(), time.monotonic() + 2 * self._machine.dsync)
            reports = [action.report for action in actions if isinstance(action, SendReport)]
            outcome = self._courier.carry_last(reports[0], deadline) if reports else FAILED
            if outcome != ANSWERED or not waited:
                return outcome != FAILED and not waited

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Agent({self.stream!r}, {self._client.target!r}, workers={self._settings.workers}, name={self._name!r})"
