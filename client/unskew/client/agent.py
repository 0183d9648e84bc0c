"""``Agent``: one of several partitioners that learn together (Dalton, section 4), in any Python process.

``route`` runs the state machine of ``core.rounds.agent`` under a lock and never waits for the service: a background
thread (``ReportSender``) sends the reports that are due and hands the answers back. Without a service, or while it is
down, the agent routes and learns by itself.

A forked child starts anew: its own name, session, machine and thread. It does not use the parent's machine: that may
have been half-way through a step, and its tuples would be counted twice.
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

from unskew.client.background import child_name, default_name
from unskew.client.channel import seconds
from unskew.client.client import Client, open_client
from unskew.client.errors import ClientClosedError
from unskew.client.forks import register_after_fork
from unskew.client.report_sender import ANSWERED, FAILED, ReportSender
from unskew.client.results import Synced
from unskew.core.arrays.frozen import hashes_of
from unskew.core.breaker import Breaker
from unskew.core.rounds.agent import Action, AgentSettings, AgentTick, Answered, Routed, SendReport, Tuples
from unskew.core.rounds.agent import Agent as Machine
from unskew.core.rounds.messages import Report
from unskew.core.rounds.round_digests import SeenRound
from unskew.core.stream_spec import check_name

__all__ = ["Agent", "Status"]

_NUMBERS = (1 << 30) - 1  # gives each agent random numbers of its own


@dataclass(frozen=True)
class Status:
    """The state of an agent.

    Parameters
    ----------
    name, session : the name, and the start of this agent's session in nanoseconds since 1970
    version : (incarnation, epoch) of the newest answer of the service
    awaiting : whether a report waits for its answer
    dsync : seconds between two reports
    tuples : rows that were routed
    sent, answered, failed : calls that were made, reports that were answered, calls that failed
    error : why the last call failed; empty if it did not
    breaker : "closed", "open" or "half open": whether the service is called

    Examples
    --------
    >>> with Agent("clicks", "localhost:1", workers=4, name="ann") as agent:
    ...     status = agent.status
    >>> status.name, status.version, status.breaker
    ('ann', (0, 0), 'closed')
    """

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
    """A partitioner that learns where hot keys should go, together with the stream's other agents. Thread-safe.

    Parameters
    ----------
    stream : the stream, one for all agents that learn together
    service : a ``Client``, or a target, for which the agent makes a client of its own and closes it
    workers : the number of workers to route to
    name : unique among the stream's agents; made of host and pid if left out
    dsync : seconds until the first report; later intervals come from the service
    window, slide, seed, capacity, lonely, parameters : as for ``AgentSettings``, for the router ``dalton``
    timeout : seconds for each call
    breaker : when to leave a failing service alone; a ``Breaker`` of its own if not given
    access : arguments of the agent's own ``Client``, such as ``token``

    Raises
    ------
    ConfigError : an argument is out of its range; the message names it

    Examples
    --------
    The service need not be there: the agent routes by what it has learned itself.

    >>> import numpy as np
    >>> with Agent("clicks", "localhost:1", workers=4, timeout=0.1) as agent:
    ...     workers = agent.route(np.array([7, 7, 8], dtype=np.uint64))
    ...     agent.close(timeout=0.0)
    False
    >>> workers.shape, int(workers.min()) >= 0, int(workers.max()) < 4
    ((3,), True, True)
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
        self._name = default_name() if name is None else check_name("name", name)
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
        self._closed = False
        self._client, self._owns_client = open_client(service, timeout, access)
        self._start_session()
        register_after_fork(self)

    def _start_session(self) -> None:
        """Begin without tuples and without a thread. The session's number is the wall clock's time, so that a later
        session of the same name has a greater one."""
        number = xxhash.xxh32_intdigest(self._name.encode()) & _NUMBERS
        self._settings = replace(self._settings, name=self._name, session=time.time_ns(), number=number)
        self._machine = Machine(self._settings)
        self._lock = threading.Lock()
        self._sender = ReportSender(self.stream, self._client, self, self._breaker, self._timeout)

    def after_fork(self) -> None:
        """In a forked child: a new name and a new session."""
        self._name = child_name(self._name)
        self._start_session()

    def route(self, hashes: ArrayLike, times: ArrayLike | None = None) -> NDArray[np.int32]:
        """The worker of each row, 0 to workers - 1. Never waits for the service.

        Parameters
        ----------
        hashes : the key hash of each row, signed or not
        times : the time of each row in seconds, not decreasing; ``window`` and ``slide`` are then in seconds

        Raises
        ------
        KeyTypeError : the hashes are not 64-bit integers
        ClientClosedError : the agent is closed
        """
        keys = hashes_of(hashes, "hashes")
        when = None if times is None else np.asarray(times, np.float64)
        with self._lock:
            if self._closed:
                raise ClientClosedError(f"the agent {self._name} of stream {self.stream!r} is closed; make a new one")
            self._sender.start()
            actions = self._machine.handle(Tuples(keys, when), time.monotonic())
            self._post(actions)
        routed = actions[0]
        assert isinstance(routed, Routed)
        return routed.workers

    def _post(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            if isinstance(action, SendReport):
                self._sender.post(action.report)

    # -- what the report sender needs -------------------------------------------------------------------------

    def tick(self) -> None:
        """Post a report if one is due, although nothing was routed."""
        with self._lock:
            self._post(self._machine.handle(AgentTick(), time.monotonic()))

    def take(self, synced: Synced) -> None:
        """Adopt an answer of the service, ``synced``."""
        if synced.answer is not None:
            with self._lock:
                self._machine.handle(Answered(synced.answer, synced.age), time.monotonic())

    @property
    def interval(self) -> float:
        """DSYNC now, in seconds."""
        return self._machine.dsync

    @property
    def version(self) -> tuple[int, int]:
        """(incarnation, epoch) of the newest answer."""
        return self._machine.version

    @property
    def seen(self) -> SeenRound:
        """The round of that answer, as the service is shown it."""
        return self._machine.seen

    @property
    def waiting(self) -> Report | None:
        """The report that waits for its answer."""
        return self._machine.waiting

    @property
    def status(self) -> Status:
        """What was routed and reported, and how the last call went."""
        sender, machine = self._sender, self._machine
        background = sender.background
        return Status(
            name=self._name,
            session=self._settings.session,
            version=machine.version,
            awaiting=machine.awaiting,
            dsync=machine.dsync,
            tuples=machine.router.tuples,
            sent=sender.sent,
            answered=sender.answered,
            failed=background.failed,
            error=background.error,
            breaker=background.breaker.state(time.monotonic()),
        )

    def close(self, timeout: float = 2.0) -> bool:
        """End within ``timeout`` seconds; whether the service has all that was learned. What it did not take by then is
        dropped: the other agents learn a little less, and no row is lost."""
        deadline = time.monotonic() + max(timeout, 0.0)
        with self._lock:
            if self._closed:
                return True
            self._closed = True
        all_sent = not self._sender.background.started
        if not all_sent and self._sender.stop(timeout):
            all_sent = self._flush(deadline)
        if self._owns_client:
            self._client.close()
        return all_sent

    def _flush(self, deadline: float) -> bool:
        """Send the report that waits, then what was learned after it, which only goes once the first is answered."""
        while True:
            with self._lock:
                awaiting = self._machine.awaiting
                actions = self._machine.handle(AgentTick(), time.monotonic() + 2 * self._machine.dsync)
            reports = [action.report for action in actions if isinstance(action, SendReport)]
            outcome = self._sender.send_last(reports[0], deadline) if reports else FAILED
            if outcome != ANSWERED or not awaiting:
                return outcome != FAILED and not awaiting

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Agent({self.stream!r}, {self._client.target!r}, workers={self._settings.workers}, name={self._name!r})"
