"""Consistent Grouping as a plan: many equal virtual workers, owned by partitions in proportion to their capacity.

Keys go to virtual workers by PoRC, the power of random choices (CG section 5.1): a key's first virtual worker with
space takes it, where capacity is ``ceil((1 + epsilon) x mean load)``; a heavy key spreads over as many as it needs.
Partitions own virtual workers. When one partition signals busy and another idle, one virtual worker changes hands
(5.2.1), pairs in the order in which they signalled. Nothing migrates: only later rows go elsewhere, and partial state
is merged periodically (5.3), so keys may be split.

The tuple-at-a-time router is ``routers.cg``. Here one decision is a plan, and these are the deviations:
- a virtual worker is an equal run of hosts, so that the map can be read back from the previous plan's tail;
- the tail of a virtual worker stays with it; only listed keys choose (a host cannot tell its keys apart);
- after a number of salted hashes a key takes what space is left in an order that all keys share;
- the number of virtual workers is rounded up to a power of two, at most the number of hosts;
- a partition that asks for a share of the rows is paired as often as it has virtual workers too many or too few for
  that, at least once. Shares are of all rows, which is what the partition measured. So signals that are applied twice,
  or that come from a batch which an older plan routed in part, move nearly nothing the second time;
- a busy partition without an idle one to pair with gives one virtual worker each to those that are neither (6.1.2), at
  once, because a plan does not store who was busy before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.core.arrays.apportion import turns
from unskew.core.arrays.mixing import mix
from unskew.core.arrays.types import I32, I64, Index
from unskew.core.histogram.histogram import Histogram, fold_hosts
from unskew.core.limits import host_bits, slot_budget
from unskew.core.parameters import check_range
from unskew.core.plan.build import Placement
from unskew.core.plan.plan import Plan
from unskew.core.planners.base import Feedback, Place, PlannerSettings
from unskew.core.planners.planner_view import PlannerView

__all__ = ["Cg"]

_LISTED = 4096
_SALTED = 16
REASONS = (
    "its first virtual worker had room",
    "PoRC: poured over the virtual workers it chose",
    "too few distinct spread values to split it: the roomiest virtual worker it chose",
)
_FIRST, _SPLIT, _WHOLE = range(3)


@dataclass(frozen=True, eq=False)
class Cg:
    """``alpha`` virtual workers a partition, each at most 1 + ``epsilon`` of the mean load."""

    common: PlannerSettings
    alpha: int = 100
    epsilon: float = 0.01

    def __post_init__(self) -> None:
        check_range("alpha", self.alpha, 1, 1000, "1 to 1000 virtual workers a partition")
        check_range("epsilon", self.epsilon, 0, 10)

    @property
    def virtual_bits(self) -> int:
        request = (self.alpha * self.common.partitions - 1).bit_length()
        return min(request, host_bits(self.common.partitions))

    def place(self, histogram: Histogram, previous: Plan | None, feedback: Feedback | None) -> Place:
        owner, moved = self._owners(previous, feedback)
        n, workers = self.common.partitions, 1 << self.virtual_bits
        view = PlannerView.of(histogram, n, self._listed(histogram), smallest=n / workers)
        placing = _KeyPlacement(self, owner, fold_hosts(view.host_rows, self.virtual_bits), view)
        key, worker, rows, reason = placing.run()
        tail = np.repeat(owner, len(view.host_rows) // workers)
        placement = Placement(tail, view.hashes, key, owner[worker], rows, REASONS, reason)
        return Place(placement, f"{workers} virtual workers, {moved} changed hands")

    def _listed(self, histogram: Histogram) -> int:
        """Keys above a quarter of a virtual worker's mean load choose for themselves."""
        least = histogram.total / (4 << self.virtual_bits)
        return min(int((histogram.counts > least).sum()), _LISTED)

    def _owners(self, previous: Plan | None, feedback: Feedback | None) -> tuple[I32, int]:
        """Virtual worker -> partition: as before, after the exchanges that were signalled since."""
        bits = self.virtual_bits
        same = previous is not None and previous.info.policy == "cg" and previous.tail_bits >= bits
        if previous is not None and same and previous.partitions == self.common.partitions:
            owner = previous.tail[:: 1 << (previous.tail_bits - bits)].copy()
        else:
            owner = turns(1 << bits, self.common.weights)
        return owner, 0 if feedback is None else _exchange(owner, feedback, self.common.partitions)


def _exchange(owner: I32, feedback: Feedback, partitions: int) -> int:
    """Hand virtual workers over, pair by pair, and return how many. An owner keeps at least one: a partition without
    rows could not signal."""
    owned = np.bincount(owner, minlength=partitions)
    busy, idle = ([p for p in queue if p in range(partitions)] for queue in (feedback.busy, feedback.idle))
    giving = {p: min(_request(p, owned, feedback, -1), int(owned[p]) - 1) for p in busy}
    taking = {p: _request(p, owned, feedback, 1) for p in idle if p not in giving}
    moved = 0
    for giver, taker, count in _pairs(giving, taking):
        owner[np.flatnonzero(owner == giver)[:count]] = taker
        moved += count
    fine = [p for p in feedback.fine if p in range(partitions) and p not in giving]
    for giver in giving:
        for taker in fine[: giving[giver]]:
            owner[np.flatnonzero(owner == giver)[0]] = taker
            moved += 1
    return moved


def _request(partition: int, owned: Index, feedback: Feedback, sign: int) -> int:
    """How many virtual workers a partition asks to get (``sign`` 1) or to lose (-1): at least one, and one where it
    named no share."""
    request = feedback.shares.get(partition)
    return 1 if request is None else max(sign * round(request * int(owned.sum()) - int(owned[partition])), 1)


def _pairs(busy: dict[int, int], idle: dict[int, int]) -> Iterator[tuple[int, int, int]]:
    """Pair the heads of both queues until one is empty. What remains in ``busy`` has no partner."""
    takers = list(idle.items())
    for giver, request in list(busy.items()):
        remaining = request
        while remaining > 0 and takers:
            taker, space = takers.pop(0)
            count = min(remaining, space)
            remaining -= count
            if space > count:
                takers.insert(0, (taker, space - count))
            yield giver, taker, count
        busy[giver] = remaining


class _KeyPlacement:
    """PoRC over the listed keys, heaviest first: the space left so far, and how many slots the plan still has."""

    def __init__(self, settings: Cg, owner: I32, load: I64, view: PlannerView) -> None:
        self.settings, self.view = settings, view
        self.owner: list[int] = owner.tolist()
        capacity = max(-(-int(view.total * (1 + settings.epsilon)) // len(load)), 1)
        self.space: list[int] = np.maximum(capacity - load, 0).tolist()
        self.slots = slot_budget(settings.common.partitions, len(view.hashes))
        order = mix(np.arange(len(load), dtype=np.uint64), settings.common.seed)
        self.rest: list[int] = np.argsort(order, kind="stable").tolist()
        self.next = 0

    def run(self) -> tuple[I64, I64, I64, NDArray[np.uint8]]:
        out: list[tuple[int, int, int]] = []
        reason = np.zeros(len(self.view.hashes), np.uint8)
        keys = zip(self.view.hashes.tolist(), self.view.rows.tolist(), self.view.splittable.tolist(), strict=True)
        for i, (key, count, splittable) in enumerate(keys):
            choices = self._choices(key)
            if self.space[choices[0]] >= count:
                parts = {choices[0]: count}
            elif splittable and self.slots > 0:
                parts, reason[i] = self._split(choices, count), _SPLIT
            else:
                parts, reason[i] = {self._most_space(choices, count): count}, _WHOLE
            for worker, rows in parts.items():
                self.space[worker] = max(self.space[worker] - rows, 0)
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

    def _split(self, choices: list[int], count: int) -> dict[int, int]:
        """Fill the choices in order, then all workers in turn. Rows for which there is no space or no slot left go to
        the first choice."""
        parts: dict[int, int] = {}
        for worker in self._in_turn(choices):
            if worker not in parts and self.space[worker] > 0:
                parts[worker] = min(self.space[worker], count)
                count -= parts[worker]
            if count == 0 or 2 * len(parts) >= self.slots:
                break
        if count:
            parts[choices[0]] = parts.get(choices[0], 0) + count
        self.slots -= 2 * len({self.owner[worker] for worker in parts})
        return parts

    def _in_turn(self, choices: list[int]) -> Iterator[int]:
        """The choices, then all workers that may have space; one that was passed over is full and is not tried
        again."""
        yield from choices
        while self.next < len(self.rest):
            yield self.rest[self.next]
            self.next += 1

    def _most_space(self, choices: list[int], count: int) -> int:
        """The first choice that has space for the whole key, else the one with most space."""
        fits = (worker for worker in choices if self.space[worker] >= count)
        return next(fits, max(choices, key=self.space.__getitem__))
