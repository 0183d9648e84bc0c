"""Consistent Grouping as a plan: many equal virtual workers, owned by partitions in proportion to what they bear.

Keys go to virtual workers by PoRC, the power of random choices (CG section 5.1): a key's first virtual worker with
room takes it, where capacity is ``ceil((1 + epsilon) x mean load)``; a heavy key spreads over as many as it needs.
Partitions own virtual workers; when one signals busy and another idle, one virtual worker changes hands (5.2.1),
pairs in the order in which they signalled. Nothing migrates: only later rows go elsewhere, and partial state is
merged periodically (5.3), so keys may be split.

The tuple-at-a-time machine with its queues and time slots is ``core/routers/cg``; here one decision is a plan:
- a virtual worker is an equal run of hosts, so that the map can be read back from the previous plan's tail;
- the tail of a virtual worker stays with it; only listed keys choose (a host cannot tell its keys apart);
- after a number of salted hashes a key takes what room is left in an order that all keys share;
- the number of virtual workers is rounded up to a power of two, at most the number of hosts;
- who said which share of the rows it wants stands in its queue for as many pairings as it has virtual workers too many
  or too few for that, at least one. A share of the *rows* is what was felt: asked again for the same signals, or for
  those of a batch that an older plan still routed in part, nearly nothing moves;
- a busy one that no idle one is left for gives one virtual worker each to those that said neither (6.1.2): at once,
  because a plan does not remember who was busy before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.core.arrays.apportion import turns
from unskew.core.arrays.mixing import mix
from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram, fold_hosts
from unskew.core.limits import host_bits, slot_budget
from unskew.core.plan.build import Placement
from unskew.core.plan.plan import Plan
from unskew.core.planners.base import Feedback, Place, PlannerSettings
from unskew.core.planners.planner_view import PlannerView

__all__ = ["Cg"]

I64 = NDArray[np.int64]
_LISTED = 4096
_SALTED = 16
REASONS = (
    "its first virtual worker had room",
    "PoRC: poured over the virtual workers it chose",
    "too few distinct spread values to split it: the roomiest virtual worker it chose",
)
_FIRST, _POURED, _WHOLE = range(3)


@dataclass(frozen=True, eq=False)
class Cg:
    """``alpha`` virtual workers a partition, each at most 1 + ``epsilon`` of the mean load."""

    common: PlannerSettings
    alpha: int = 100
    epsilon: float = 0.01

    def __post_init__(self) -> None:
        if not 1 <= self.alpha <= 1000:
            raise ConfigError("alpha", self.alpha, "1 to 1000 virtual workers a partition")
        if not 0.0 <= self.epsilon <= 10.0:
            raise ConfigError("epsilon", self.epsilon, "0 to 10")

    @property
    def virtual_bits(self) -> int:
        wanted = (self.alpha * self.common.partitions - 1).bit_length()
        return min(wanted, host_bits(self.common.partitions))

    def place(self, histogram: Histogram, previous: Plan | None, feedback: Feedback | None) -> Place:
        owner, moved = self._owners(previous, feedback)
        n, workers = self.common.partitions, 1 << self.virtual_bits
        demand = PlannerView.of(histogram, n, self._listed(histogram), smallest=n / workers)
        pouring = _Pouring(self, owner, fold_hosts(demand.host_rows, self.virtual_bits), demand)
        key, worker, rows, reason = pouring.run()
        tail = np.repeat(owner, len(demand.host_rows) // workers)
        placement = Placement(tail, demand.hashes, key, owner[worker], rows, REASONS, reason)
        return Place(placement, f"{workers} virtual workers, {moved} changed hands")

    def _listed(self, histogram: Histogram) -> int:
        """Keys above a quarter of a virtual worker's mean load choose for themselves."""
        least = histogram.total / (4 << self.virtual_bits)
        return min(int((histogram.counts > least).sum()), _LISTED)

    def _owners(self, previous: Plan | None, feedback: Feedback | None) -> tuple[NDArray[np.int32], int]:
        """Virtual worker -> partition: as before, after the exchanges that were signalled since."""
        bits = self.virtual_bits
        same = previous is not None and previous.info.policy == "cg" and previous.tail_bits >= bits
        if previous is not None and same and previous.partitions == self.common.partitions:
            owner = previous.tail[:: 1 << (previous.tail_bits - bits)].copy()
        else:
            owner = turns(1 << bits, self.common.weights)
        return owner, 0 if feedback is None else _exchange(owner, feedback, self.common.partitions)


def _exchange(owner: NDArray[np.int32], feedback: Feedback, partitions: int) -> int:
    """Hand virtual workers over, pairing by pairing; how many. An owner keeps one: without rows it could signal
    nothing."""
    here, held = range(partitions), np.bincount(owner, minlength=partitions)
    busy = {one: min(_asked(one, held, feedback, -1), int(held[one]) - 1) for one in feedback.busy if one in here}
    idle = {one: _asked(one, held, feedback, 1) for one in feedback.idle if one in here and one not in busy}
    moved = 0
    for giver, taker, count in _pairs(busy, idle):
        owner[np.flatnonzero(owner == giver)[:count]] = taker
        moved += count
    fine = [one for one in feedback.fine if one in here and one not in busy]
    for giver in busy:
        for taker in fine[: busy[giver]]:
            owner[np.flatnonzero(owner == giver)[0]] = taker
            moved += 1
    return moved


def _asked(one: int, held: NDArray[np.intp], feedback: Feedback, sign: int) -> int:
    """Virtual workers that it would have besides (``sign`` 1) or be rid of (-1): at least one, also where it said no
    number."""
    wanted = feedback.wanted.get(one)
    return 1 if wanted is None else max(sign * round(wanted * int(held.sum()) - int(held[one])), 1)


def _pairs(busy: dict[int, int], idle: dict[int, int]) -> Iterator[tuple[int, int, int]]:
    """Heads of both queues until one is empty. What is left of ``busy`` found nobody."""
    takers = list(idle.items())
    for giver, wanted in list(busy.items()):
        left = wanted
        while left > 0 and takers:
            taker, room = takers.pop(0)
            count = min(left, room)
            left -= count
            if room > count:
                takers.insert(0, (taker, room - count))
            yield giver, taker, count
        busy[giver] = left


class _Pouring:
    """PoRC over the listed keys, heaviest first: the rooms so far, and how many slots the plan still has."""

    def __init__(self, settings: Cg, owner: NDArray[np.int32], load: I64, demand: PlannerView) -> None:
        self.settings, self.demand = settings, demand
        self.owner: list[int] = owner.tolist()
        capacity = max(-(-int(demand.total * (1 + settings.epsilon)) // len(load)), 1)
        self.room: list[int] = np.maximum(capacity - load, 0).tolist()
        self.slots = slot_budget(settings.common.partitions, len(demand.hashes))
        order = mix(np.arange(len(load), dtype=np.uint64), settings.common.seed)
        self.rest: list[int] = np.argsort(order, kind="stable").tolist()
        self.next = 0

    def run(self) -> tuple[I64, I64, I64, NDArray[np.uint8]]:
        out: list[tuple[int, int, int]] = []
        reason = np.zeros(len(self.demand.hashes), np.uint8)
        keys = zip(self.demand.hashes.tolist(), self.demand.rows.tolist(), self.demand.splittable.tolist(), strict=True)
        for i, (key, count, splittable) in enumerate(keys):
            choices = self._choices(key)
            if self.room[choices[0]] >= count:
                parts = {choices[0]: count}
            elif splittable and self.slots > 0:
                parts, reason[i] = self._poured(choices, count), _POURED
            else:
                parts, reason[i] = {self._roomiest(choices, count): count}, _WHOLE
            for worker, rows in parts.items():
                self.room[worker] = max(self.room[worker] - rows, 0)
                out.append((i, worker, rows))
        triples = np.array(out, np.int64).reshape(-1, 3)
        return triples[:, 0], triples[:, 1], triples[:, 2], reason

    def _choices(self, key: int) -> list[int]:
        """The virtual worker of the key's host, then salted hashes of the key."""
        bits = self.settings.virtual_bits
        if bits == 0:
            return [0]
        salts = np.arange(_SALTED, dtype=np.uint64) + np.uint64(key)
        return [key >> (64 - bits), *(mix(salts, self.settings.common.seed) >> np.uint64(64 - bits)).tolist()]

    def _poured(self, choices: list[int], count: int) -> dict[int, int]:
        """Fill the rooms of the choices in order, then those of all workers in turn; what finds no room anywhere, or
        no slot to say so, stays with the first choice."""
        parts: dict[int, int] = {}
        for worker in self._in_turn(choices):
            if worker not in parts and self.room[worker] > 0:
                parts[worker] = min(self.room[worker], count)
                count -= parts[worker]
            if count == 0 or 2 * len(parts) >= self.slots:
                break
        if count:
            parts[choices[0]] = parts.get(choices[0], 0) + count
        self.slots -= 2 * len({self.owner[worker] for worker in parts})
        return parts

    def _in_turn(self, choices: list[int]) -> Iterator[int]:
        """The choices, then all that may have room; whoever had to be passed is full and is not asked again."""
        yield from choices
        while self.next < len(self.rest):
            yield self.rest[self.next]
            self.next += 1

    def _roomiest(self, choices: list[int], count: int) -> int:
        """The first choice that holds the whole key, else the roomiest of them."""
        fits = (worker for worker in choices if self.room[worker] >= count)
        return next(fits, max(choices, key=self.room.__getitem__))
