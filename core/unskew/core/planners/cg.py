"""Consistent Grouping as a plan: many equal virtual workers, owned by partitions in proportion to what they bear.

Keys go to virtual workers by PoRC, the power of random choices (CG section 5.1): a key's first virtual worker with
room takes it, where capacity is ``ceil((1 + epsilon) x mean load)``; a heavy key spreads over as many as it needs.
Partitions own virtual workers; when one signals busy and another idle, one virtual worker changes hands (5.2.1),
pairs in the order in which they signalled. Nothing migrates: only later rows go elsewhere, and partial state is
merged periodically (5.3), so keys may be split.

The tuple-at-a-time machine with its queues and time slots is ``core/routers/cg``; here one decision is a plan:
- a virtual worker is an equal run of hosts, so that the map can be read back from the previous plan's tail;
- the tail of a virtual worker stays with it; only listed keys choose (a host cannot tell its keys apart);
- the number of virtual workers is rounded up to a power of two, at most the number of hosts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.core.apportion import turns
from unskew.core.demand import Demand, listed_budget
from unskew.core.errors import ConfigError
from unskew.core.hashing import mix
from unskew.core.histogram import Histogram, fold_hosts
from unskew.core.placement import Placement
from unskew.core.plan import Plan, host_bits
from unskew.core.planners.base import Common, Feedback, Place

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

    common: Common
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
        demand = Demand.of(histogram, self.common.partitions, self._listed(histogram))
        virtual = fold_hosts(demand.host_rows, self.virtual_bits)
        capacity = -(-int(histogram.total * (1 + self.epsilon)) // len(virtual))
        tail = np.repeat(owner, len(demand.host_rows) // len(virtual))
        key, worker, rows, reason = self._porc(demand, virtual, max(capacity, 1))
        placement = Placement(tail, demand.hashes, key, owner[worker], rows, REASONS, reason)
        return Place(placement, f"{len(virtual)} virtual workers, {moved} changed hands")

    def _listed(self, histogram: Histogram) -> int:
        """Keys above a quarter of a virtual worker's mean load choose for themselves, as far as a plan has slots
        for the fragments they may come to."""
        mean = max(histogram.total / (1 << self.virtual_bits), 1.0)
        counts = np.sort(histogram.counts[histogram.counts > mean / 4])[::-1][:_LISTED]
        fragments = np.minimum(counts / mean + 2, self.common.partitions)
        return int((np.cumsum(fragments) <= listed_budget(self.common.partitions)).sum())

    def _owners(self, previous: Plan | None, feedback: Feedback | None) -> tuple[NDArray[np.int32], int]:
        """Virtual worker -> partition: as before, after the exchanges that were signalled since."""
        bits = self.virtual_bits
        same = previous is not None and previous.info.policy == "cg" and previous.tail_bits >= bits
        if previous is not None and same and previous.partitions == self.common.partitions:
            owner = previous.tail[:: 1 << (previous.tail_bits - bits)].copy()
        else:
            owner = turns(1 << bits, self.common.weights)
        moved = 0
        for busy, idle in zip(feedback.busy, feedback.idle, strict=False) if feedback else ():
            own = np.flatnonzero(owner == busy)
            if len(own) > 1 and busy != idle and 0 <= idle < self.common.partitions:
                owner[own[0]] = idle
                moved += 1
        return owner, moved

    def _porc(self, demand: Demand, load: I64, capacity: int) -> tuple[I64, I64, I64, NDArray[np.uint8]]:
        """Pour each listed key, heaviest first, over the virtual workers it chooses until all of it has room."""
        room = np.maximum(capacity - load, 0).tolist()
        out: list[tuple[int, int, int]] = []
        reason = np.zeros(len(demand.hashes), np.uint8)
        keys = zip(demand.hashes.tolist(), demand.rows.tolist(), demand.splittable.tolist(), strict=True)
        for i, (key, count, splittable) in enumerate(keys):
            first = key >> (64 - self.virtual_bits) if self.virtual_bits else 0
            if room[first] >= count:
                parts = [(first, count)]
            elif splittable:
                parts, reason[i] = self._poured(key, first, room, count), _POURED
            else:
                parts, reason[i] = [(self._roomiest(key, first, room, count), count)], _WHOLE
            for worker, rows in parts:
                room[worker] = max(room[worker] - rows, 0)
                out.append((i, worker, rows))
        triples = np.array(out, np.int64).reshape(-1, 3)
        return triples[:, 0], triples[:, 1], triples[:, 2], reason

    def _choices(self, key: int, first: int) -> Iterator[int]:
        """The key's choices: its host's virtual worker, salted hashes, and after many of those all that are left."""
        yield first
        bits = self.virtual_bits
        salts = np.arange(_SALTED, dtype=np.uint64) + np.uint64(key)
        yield from (mix(salts, self.common.seed) >> np.uint64(64 - bits)).tolist() if bits else ()
        rest = mix(np.arange(1 << bits, dtype=np.uint64) ^ np.uint64(key), self.common.seed)
        yield from np.argsort(rest, kind="stable").tolist()

    def _poured(self, key: int, first: int, room: list[int], count: int) -> list[tuple[int, int]]:
        """Fill the rooms of the choices in order; what finds none anywhere stays with the first choice."""
        parts: dict[int, int] = {}
        for worker in self._choices(key, first):
            if worker not in parts and room[worker] > 0:
                parts[worker] = min(room[worker], count)
                count -= parts[worker]
            if count == 0:
                break
        if count:
            parts[first] = parts.get(first, 0) + count
        return list(parts.items())

    def _roomiest(self, key: int, first: int, room: list[int], count: int) -> int:
        """The first choice that holds the whole key, else the roomiest of all."""
        choices = list(self._choices(key, first))
        return next((worker for worker in choices if room[worker] >= count), max(choices, key=room.__getitem__))
