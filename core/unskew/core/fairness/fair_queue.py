"""Who computes next: jobs of many identities wait for a few threads, as a passive machine (start-time fair queueing,
Goyal, Vin and Cheng, 1996).

A job has a cost. Identities that wait have their work done in equal shares of cost, whatever each has waiting and
however large its jobs are: of two that both wait all the time none is ahead by more than one job of each. An identity
that had nothing waiting begins at the present share; it saves up nothing.

A job that has begun cannot be stopped, so small jobs have slots that large ones never get: a small job waits for small
ones alone. The other slots take a large job first, and a small one where no large one waits. So neither kind can keep
the other from its slots, and no slot is idle that a waiting job may have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

__all__ = ["FairQueue"]

J = TypeVar("J", bound=Hashable)


@dataclass
class _Flow(Generic[J]):
    """What waits of one identity; ``begun``: the cost of all that it began, as shares are counted."""

    begun: float
    jobs: deque[tuple[float, J]] = field(default_factory=deque)


class _Jobs(Generic[J]):
    """Jobs of one kind, by identity."""

    def __init__(self) -> None:
        self._flows: dict[str, _Flow[J]] = {}
        self._share = 0.0
        self.waiting = 0

    def put(self, identity: str, cost: float, job: J) -> None:
        flow = self._flows.setdefault(identity, _Flow(self._share))
        if not flow.jobs:
            flow.begun = max(flow.begun, self._share)
        flow.jobs.append((cost, job))
        self.waiting += 1

    def take(self) -> J:
        """The first job of the identity that is furthest behind; of several the one that waits longest for a turn."""
        identity, flow = min(((n, f) for n, f in self._flows.items() if f.jobs), key=lambda one: one[1].begun)
        cost, job = flow.jobs.popleft()
        self._share = flow.begun
        flow.begun += cost
        self._flows[identity] = self._flows.pop(identity)
        self._left()
        return job

    def remove(self, identity: str, job: J) -> None:
        flow = self._flows[identity]
        flow.jobs = deque(one for one in flow.jobs if one[1] != job)
        self._left()

    def _left(self) -> None:
        """One less waits. Who waits for nothing is forgotten once the others have caught up."""
        self.waiting -= 1
        self._flows = {n: f for n, f in self._flows.items() if f.jobs or f.begun > self._share}


class FairQueue(Generic[J]):
    """``slots`` for jobs of any cost, ``small_slots`` more for jobs that cost at most ``small``; at most ``most`` jobs
    wait.

    >>> queue = FairQueue(slots=1, small=10, most=100)
    >>> for job in range(3):
    ...     _ = queue.put("etl", 1000.0, f"etl {job}")
    >>> queue.put("web", 1000.0, "web"), queue.put("web", 1.0, "small")
    (True, True)
    >>> queue.begin(), queue.begin(), queue.begin()
    ('small', 'etl 0', None)
    >>> queue.end("etl 0")
    >>> queue.begin()
    'web'
    """

    def __init__(self, slots: int, small: float, most: int, small_slots: int = 1) -> None:
        self.small, self._most = small, most
        self._free, self._free_for_small = slots, small_slots
        self._large: _Jobs[J] = _Jobs()
        self._small: _Jobs[J] = _Jobs()
        self._waiting: dict[J, tuple[str, _Jobs[J]]] = {}
        self._waiting_of: dict[str, int] = {}
        self._running: dict[J, bool] = {}  # whether it has a slot for small jobs

    def __len__(self) -> int:
        """Jobs that wait."""
        return len(self._waiting)

    def put(self, identity: str, cost: float, job: J) -> bool:
        """Let a job wait; False where it may not: an identity has no more waiting than there is room left, so that
        there is room for another one always."""
        if self._waiting_of.get(identity, 0) >= self._most - len(self._waiting):
            return False
        jobs = self._small if cost <= self.small else self._large
        jobs.put(identity, cost, job)
        self._waiting[job] = identity, jobs
        self._waiting_of[identity] = self._waiting_of.get(identity, 0) + 1
        return True

    def begin(self) -> J | None:
        """The next job that has a slot now; ``end`` gives it back."""
        if self._small.waiting and self._free_for_small:
            self._free_for_small -= 1
            return self._begun(self._small.take(), in_small=True)
        jobs = self._large if self._large.waiting else self._small
        if not (self._free and jobs.waiting):
            return None
        self._free -= 1
        return self._begun(jobs.take(), in_small=False)

    def end(self, job: J) -> None:
        """The job has ended, or its caller has left while it waited."""
        if job in self._waiting:
            identity, jobs = self._waiting[job]
            jobs.remove(identity, job)
            self._forget(job)
        elif self._running.pop(job):
            self._free_for_small += 1
        else:
            self._free += 1

    def _begun(self, job: J, *, in_small: bool) -> J:
        self._forget(job)
        self._running[job] = in_small
        return job

    def _forget(self, job: J) -> None:
        identity, _ = self._waiting.pop(job)
        self._waiting_of[identity] -= 1
        if not self._waiting_of[identity]:
            del self._waiting_of[identity]
