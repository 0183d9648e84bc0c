"""Consistent Grouping's delegation (CG, sections 5.2, 5.3 and 6.1.2): who owns which virtual worker.

``Grouping`` is the sources' side, a passive machine. Workers signal busy or idle (``core.grouping.signals``) and wait
in two first-come first-served queues. As long as neither is empty, virtual workers go from the head of one to the head
of the other, so their number never changes. Nothing migrates: a move concerns later rows only, and every ``aggregate``
seconds partial states must be merged (5.3). ``routers.cg`` routes the rows.

A signal carries the worker's own time. It counts if it was sent a time slot or more after the last one that counted,
so that lost, repeated and late ones do no harm. Of a worker's virtual workers the one it has had longest goes first.

Deviations from the paper:

- A worker stands in the queue for as many pairings of one virtual worker each as the share in its signal makes; for
  one, where there is none. One pairing a slot takes hundreds of slots for hundreds of moves (docs/decisions, 0009).
- What a worker gave or got within the slot of its signal is subtracted: its utilisation does not show it yet.
- Fine takes a worker out of the queues; so does silence for ``patience`` slots. Each keeps one virtual worker: without
  rows it could signal nothing.
- 6.1.2 (a freed virtual worker goes to who has not reported busy, else to who did longest ago) is used where no idle
  worker waits: a worker that is busy in a second slot without a partner gives one each to as many as it asks for, and
  none to those that say busy now (all busy: nobody gains).
- Workers that join or leave (the paper leaves elasticity out): a joiner gets its even share, and a leaver's are shared
  out among those that do not say busy, both in proportion to what they own: all that is known of their capacity.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from papers.grouping_events import Action, Aggregate, Event, GroupingRules, Ignored, Moved, WorkerJoined, WorkerLeft
from unskew.core.arrays.apportion import apportion
from unskew.core.errors import ConfigError
from unskew.core.grouping.signals import Kind, Signal, SignalRules
from unskew.core.limits import MAX_PARTITIONS

__all__ = ["Grouping"]

_NEARLY = 1.0 - 1e-9  # of a slot: times are sums of slots, which round


@dataclass
class _Member:
    """The state of a worker: when it joined, signalled last (by its clock and ours) and was last busy; how many
    ``pairings`` it waits for; when it was probed; and its virtual workers, the longest owned first."""

    joined: float
    virtual_workers: list[int]
    kind: Kind = "fine"
    last_signal: float | None = None
    last_heard: float | None = None
    busy_at: float | None = None
    recent: list[list[float]] = field(default_factory=list)
    pairings: int = 0
    probed: int = 0


@dataclass
class _State:
    """The whole state of the machine."""

    members: dict[int, _Member]
    busy: list[int] = field(default_factory=list)
    idle: list[int] = field(default_factory=list)
    left_at: dict[int, float] = field(default_factory=dict)
    version: int = 0
    merges: int = 0
    now: float = 0.0
    due: float | None = None


class Grouping:
    """The map of ``alpha`` virtual workers a worker to workers 0 .. n - 1, and how it changes.

    >>> machine = Grouping(workers=2, alpha=4)
    >>> machine.handle(Signal(0, at=1.0, kind="busy"), now=1.0)
    ()
    >>> machine.handle(Signal(1, at=1.0, kind="idle"), now=1.1)[0].virtual
    (0,)
    >>> machine.owners().tolist()
    [1, 1, 0, 1, 0, 1, 0, 1]
    """

    def __init__(self, workers: int, alpha: int = 100, rules: GroupingRules | None = None) -> None:
        if not 1 <= workers <= MAX_PARTITIONS:
            raise ConfigError("workers", workers, f"1 to {MAX_PARTITIONS}")
        if not 1 <= alpha <= 1000:
            raise ConfigError("alpha", alpha, "1 to 1000 virtual workers a worker")
        self.rules = rules or GroupingRules()
        self.virtual = workers * alpha
        owned = (list(range(worker, self.virtual, workers)) for worker in range(workers))
        self._state = _State({worker: _Member(0.0, virtual_workers) for worker, virtual_workers in enumerate(owned)})

    @property
    def version(self) -> int:
        """How many moves there were."""
        return self._state.version

    @property
    def workers(self) -> tuple[int, ...]:
        """The present workers, ascending."""
        return tuple(sorted(self._state.members))

    @property
    def wake(self) -> float | None:
        """When the next ``GroupingTick`` is needed, if nothing else happens before."""
        return self._state.due

    def owners(self) -> NDArray[np.int32]:
        """The worker of each virtual worker, as ``ConsistentGrouping.adopt`` takes it."""
        owner = np.full(self.virtual, -1, np.int32)
        for worker, member in self._state.members.items():
            owner[member.virtual_workers] = worker
        return owner

    def waiting(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The busy and the idle queue, heads first."""
        return tuple(self._state.busy), tuple(self._state.idle)

    def handle(self, event: Event, now: float) -> tuple[Action, ...]:
        """Take one event; what is to be done, in order. ``now`` is of any clock that counts seconds from 0 or later; it
        never falls: an earlier one counts as the last."""
        if not math.isfinite(now):
            raise ConfigError("now", now, "a finite number of seconds")
        at = self._state
        at.now = max(now, at.now)
        merge = self._merge(at.now)
        self._forget(at.now)
        if isinstance(event, Signal):
            return (*merge, *self._signal(event, at.now))
        if isinstance(event, WorkerJoined):
            return (*merge, *self._join(event))
        if isinstance(event, WorkerLeft):
            return (*merge, *self._leave(event))
        return merge

    def to_fields(self) -> dict[str, Any]:
        """The whole state as plain values, ready for JSON."""
        fields = asdict(self._state)
        for name in ("members", "left_at"):
            fields[name] = [[worker, value] for worker, value in fields[name].items()]
        return {"virtual": self.virtual, "rules": asdict(self.rules), **fields}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Grouping:
        """The inverse of ``to_fields``."""
        values = dict(fields)
        machine = cls.__new__(cls)
        rules = values.pop("rules")
        machine.virtual = int(values.pop("virtual"))
        machine.rules = GroupingRules(**{**rules, "signals": SignalRules(**rules["signals"])})
        members = {worker: _Member(**member) for worker, member in deepcopy(values.pop("members"))}
        machine._state = _State(members=members, left_at=dict(values.pop("left_at")), **deepcopy(values))
        owned = sorted(one for member in members.values() for one in member.virtual_workers)
        if owned != list(range(machine.virtual)):
            raise ConfigError(
                "virtual_workers", f"{len(owned)} virtual workers", f"each of 0 to {machine.virtual - 1} once"
            )
        return machine

    def _merge(self, now: float) -> tuple[Aggregate, ...]:
        """The merge that is due, if one is; several missed ones become one."""
        at, every = self._state, self.rules.aggregate
        if every is None:
            return ()
        if at.due is None:
            at.due = now + every
        if now < at.due:
            return ()
        at.due += every * (math.floor((now - at.due) / every) + 1)
        at.merges += 1
        return (Aggregate(at.merges),)

    def _forget(self, now: float) -> None:
        """Remove workers from the queues that have been silent for too long."""
        oldest = now - self.rules.patience * self.rules.slot
        for worker in [*self._state.busy, *self._state.idle]:
            last_heard = self._state.members[worker].last_heard
            if last_heard is None or last_heard < oldest:
                self._withdraw(worker)

    def _withdraw(self, worker: int) -> None:
        self._state.members[worker].pairings = 0
        for queue in (self._state.busy, self._state.idle):
            if worker in queue:
                queue.remove(worker)

    def _signal(self, signal: Signal, now: float) -> tuple[Action, ...]:
        member = self._state.members.get(signal.worker)
        if member is None or signal.at < member.joined:
            return (Ignored(f"worker {signal.worker} is not here"),)
        if member.last_signal is not None and signal.at - member.last_signal < self.rules.slot * _NEARLY:
            return (Ignored(f"worker {signal.worker} has been heard in this slot, or later"),)
        again = signal.kind == "busy" and signal.worker in self._state.busy
        member.last_signal, member.last_heard, member.kind = signal.at, now, signal.kind
        if signal.kind == "busy":
            member.busy_at = now
        self._enqueue(signal, member)
        moves = self._pair()
        if again and not moves and member.pairings and not self._felt_later(member):
            return self._probe(signal.worker)
        return tuple(moves)

    def _enqueue(self, signal: Signal, member: _Member) -> None:
        """In the queue of its kind, where it keeps its place if it waits there already, for as many as it wants."""
        queue, other = self._state.busy, self._state.idle
        if signal.kind == "idle":
            queue, other = other, queue
        if signal.kind == "fine" or signal.worker in other:
            self._withdraw(signal.worker)
        if signal.kind == "fine":
            return
        member.pairings = self._pairings(signal, member)
        if member.pairings == 0:
            self._withdraw(signal.worker)
        elif signal.worker not in queue:
            queue.append(signal.worker)

    def _pairings(self, signal: Signal, member: _Member) -> int:
        """Virtual workers to give or to get. What went to or fro within the slot that the signal is about counts
        against them: the worker cannot have felt it."""
        virtual_workers, giving = len(member.virtual_workers), signal.kind == "busy"
        most = virtual_workers - 1 if giving else self.virtual - virtual_workers
        if signal.share == 0.0:
            return min(1, most)
        received = sum(self._felt_later(member))
        pairings = max(int(signal.share * (virtual_workers - received)), 1) + (received if giving else -received)
        return min(max(pairings, 0), most)

    def _felt_later(self, member: _Member) -> list[int]:
        """What the worker got (or gave, below 0) within the last slot, move by move."""
        nearly = self.rules.slot * _NEARLY
        return [int(count) for when, count in member.recent if self._state.now - when < nearly]

    def _pair(self) -> list[Moved]:
        """Heads of both queues, one virtual worker a pairing, until one of the queues is empty."""
        at, moves = self._state, []
        while at.busy and at.idle:
            giver, taker = at.busy[0], at.idle[0]
            count = min(at.members[giver].pairings, at.members[taker].pairings)
            moves.append(self._move(giver, taker, count, f"{giver} is busy, {taker} is idle"))
            for worker in (giver, taker):
                at.members[worker].pairings -= count
                if at.members[worker].pairings == 0:
                    self._withdraw(worker)
        return moves

    def _probe(self, giver: int) -> tuple[Moved, ...]:
        """6.1.2: one virtual worker each to those that have not reported busy, then to those that did longest ago."""
        at = self._state
        others = [worker for worker in at.members if worker != giver and at.members[worker].kind != "busy"]
        moves = []
        for taker in sorted(others, key=self._reported)[: at.members[giver].pairings]:
            why = f"{giver} stays busy, no idle worker waits: {taker} reported busy longest ago"
            moves.append(self._move(giver, taker, 1, why))
            at.members[taker].probed = at.version
        at.members[giver].pairings -= len(moves)
        if at.members[giver].pairings == 0:
            self._withdraw(giver)
        return tuple(moves)

    def _reported(self, worker: int) -> tuple[float, int, int]:
        member = self._state.members[worker]
        return (-math.inf if member.busy_at is None else member.busy_at, member.probed, worker)

    def _move(self, giver: int, taker: int, count: int, reason: str) -> Moved:
        at = self._state
        source, target = at.members[giver], at.members[taker]
        moved_workers, source.virtual_workers = source.virtual_workers[:count], source.virtual_workers[count:]
        target.virtual_workers.extend(moved_workers)
        for member, moved in ((source, -count), (target, count)):
            member.recent = [one for one in member.recent if at.now - one[0] < self.rules.slot]
            member.recent.append([at.now, moved])
        at.version += 1
        return Moved(at.version, giver, taker, tuple(moved_workers), reason)

    def _join(self, event: WorkerJoined) -> tuple[Action, ...]:
        at, worker = self._state, event.worker
        member = at.members.get(worker)
        since = member.joined if member else at.left_at.get(worker, -1.0)
        if event.at <= since:
            return (Ignored(f"worker {worker} has joined or left since"),)
        if member:
            member.joined, member.last_signal, member.kind = event.at, None, "fine"
            self._withdraw(worker)
            return ()
        if len(at.members) >= self.virtual:
            return (Ignored(f"{self.virtual} virtual workers are too few for one more worker"),)
        at.left_at.pop(worker, None)
        givers = sorted(at.members)
        spare = [len(at.members[giver].virtual_workers) - 1 for giver in givers]
        counts = apportion(min(self.virtual // (len(givers) + 1), sum(spare)), spare)
        at.members[worker] = _Member(event.at, [])
        moves = [
            self._move(giver, worker, count, f"{worker} joined")
            for giver, count in zip(givers, counts, strict=True)
            if count
        ]
        for giver in list(at.busy):
            member = at.members[giver]
            member.pairings = min(member.pairings, len(member.virtual_workers) - 1)
            if member.pairings == 0:
                self._withdraw(giver)
        return tuple(moves)

    def _leave(self, event: WorkerLeft) -> tuple[Action, ...]:
        at, worker = self._state, event.worker
        member = at.members.get(worker)
        if member is None or event.at <= member.joined:
            return (Ignored(f"worker {worker} is not here, or has joined since"),)
        if len(at.members) == 1:
            return (Ignored(f"worker {worker} is the last: rows have nowhere else to go"),)
        self._withdraw(worker)
        others = sorted(set(at.members) - {worker})
        takers = [other for other in others if at.members[other].kind != "busy"] or others
        counts = apportion(len(member.virtual_workers), [len(at.members[taker].virtual_workers) for taker in takers])
        moves = [
            self._move(worker, taker, count, f"{worker} left")
            for taker, count in zip(takers, counts, strict=True)
            if count
        ]
        del at.members[worker]
        at.left_at[worker] = event.at
        return tuple(moves)
