"""KIP, the Key Isolator Partitioner: Algorithm 1 (KIPUPDATE) of KIP / Dynamic Repartitioning, section 4.

The top ``lambda * N`` keys are placed one by one, heaviest first: where they were, else where they hash, else on
the least loaded partition; then hosts leave the partitions that are over MAXLOAD. Keys are never split.

Loads are in rows instead of relative frequencies, and divided by the partition's weight where weights are given.
Deviations and choices:
- line 5 and 8 compare with <=, so that the heaviest key fits its own MAXLOAD when the slack is 0;
- a key heavier than a mean partition gets a partition that holds nothing else, where the rest finds room
  (FIDELITY; the listing would let it share up to the heaviest key's load);
- ``host_loads="exact"`` weighs each host by its own rows where the histogram knows them (the paper's average is
  ``"average"``; the figures of both are in ``benchmarks/kip_figures.py``);
- a re-plan is taken only when the gate (``gate.py``) finds that it pays; ``gate=False`` forces it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from unskew.core.demand import MAX_LISTED, Demand
from unskew.core.errors import ConfigError
from unskew.core.histogram import Histogram
from unskew.core.placement import Placement, build_plan
from unskew.core.plan import Plan, PlanInfo, host_bits
from unskew.core.planners.base import Common, Feedback, Keep, Place
from unskew.core.planners.gate import Gate
from unskew.core.planners.hashed import hash_tail

__all__ = ["Kip"]

F64 = NDArray[np.float64]
REASONS = (
    "heavier than a partition's share: alone where the rest finds room",
    "stays where it was",
    "placed where it hashes, where it will be when it is no longer heavy",
    "placed on the least loaded partition",
)
_ALONE, _STAYS, _HASHES, _LEAST = range(4)


@dataclass(frozen=True, eq=False)
class Kip:
    """KIPUPDATE. ``factor`` is the paper's lambda, ``slack`` its epsilon in mean loads."""

    common: Common
    factor: float = 2.0
    slack: float = 0.02
    host_loads: Literal["exact", "average"] = "exact"
    gate: bool = True
    horizon: float = 5.0
    migration_cost: float = 1.0
    least_gain: float = 0.05
    _gate: Gate = field(init=False, repr=False)

    def __post_init__(self) -> None:
        most = MAX_LISTED / self.common.partitions
        if not 0 <= self.factor <= most:
            raise ConfigError("factor", self.factor, f"0 to {most:g} hot keys a partition")
        if not 0 <= self.slack <= 1:
            raise ConfigError("slack", self.slack, "0 to 1, in mean loads")
        if self.host_loads not in ("exact", "average"):
            raise ConfigError("host_loads", self.host_loads, ("exact", "average"))
        object.__setattr__(self, "_gate", Gate(self.horizon, self.migration_cost, self.least_gain))

    def place(self, histogram: Histogram, previous: Plan | None, feedback: Feedback | None) -> Place | Keep:
        demand = Demand.of(histogram, self.common.partitions, round(self.factor * self.common.partitions))
        placement = _Update(self, demand, previous).run()
        if previous is None:
            return Place(placement, f"first plan, {len(demand.hashes)} heavy keys placed")
        if not self.gate:
            return Place(placement, "forced: the gate is off")
        candidate = build_plan(placement, self.common.partitions, PlanInfo())
        state = feedback.state if feedback and feedback.state else histogram
        verdict = self._gate.judge(candidate, previous, histogram, state, self.common.relative)
        return Place(placement, verdict.reason) if verdict.switch else Keep(verdict.reason)


class _Update:
    """One run of Algorithm 1: the loads so far, and what has been decided."""

    def __init__(self, settings: Kip, demand: Demand, previous: Plan | None) -> None:
        self.settings, self.demand = settings, demand
        n = settings.common.partitions
        self.relative = settings.common.relative
        self.hashed = hash_tail(settings.common)
        fits = previous is not None and previous.partitions == n
        self.tail = _tail_of(previous, n).copy() if previous and fits else self.hashed.copy()
        self.before = previous if fits else None
        self.load: F64 = np.zeros(n)
        self.alone = np.zeros(n, bool)
        heaviest = demand.rows[0] / self.relative.max() if len(demand.rows) else 0.0
        self.allowed = max(demand.mean, heaviest) + settings.slack * demand.mean

    def run(self) -> Placement:
        home = np.empty(len(self.demand.hashes), np.int32)
        reason = np.empty(len(home), np.uint8)
        was, hashes_to = self._candidates()
        for i, rows in enumerate(self.demand.rows.tolist()):
            home[i], reason[i] = self._place_key(float(rows), int(was[i]), int(hashes_to[i]))
        self._move_hosts()
        return Placement.whole(self.tail, self.demand.hashes, home, self.demand.rows, REASONS, reason)

    def _candidates(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """For each heavy key its place under the previous plan (-1: none, or it was split) and its hash place."""
        host = self.demand.hashes >> np.uint64(64 - self.demand.bits)
        hashes_to = self.tail[host.view(np.int64)]
        was = self.before.place(self.demand.hashes) if self.before else np.full(len(host), -1, np.int32)
        return was, hashes_to

    def _place_key(self, rows: float, was: int, hashes_to: int) -> tuple[int, int]:
        """Lines 3-10 for one key."""
        heavy = rows >= self.demand.mean and self.alone.sum() < len(self.load) - 1
        for partition, why in ((was, _STAYS), (hashes_to, _HASHES)):
            if partition >= 0 and self._fits(partition, rows, heavy=heavy):
                return self._put(partition, rows, why, heavy=heavy)
        free = np.where(self.alone, np.inf, (self.load + rows) / self.relative)
        return self._put(int(np.argmin(free)), rows, _LEAST, heavy=heavy)

    def _fits(self, partition: int, rows: float, *, heavy: bool) -> bool:
        if self.alone[partition] or (heavy and self.load[partition] > 0):
            return False
        return bool(self.load[partition] + rows <= self.allowed * self.relative[partition])

    def _put(self, partition: int, rows: float, why: int, *, heavy: bool) -> tuple[int, int]:
        self.load[partition] += rows
        if heavy:
            self.alone[partition] = True
        return partition, _ALONE if heavy else why

    def _move_hosts(self) -> None:
        """Lines 11-15: hosts leave the partitions that are over their limit, for the first that has room."""
        weight = self._host_weights()
        np.add.at(self.load, self.tail, weight)
        limit = np.where(self.alone, 0.0, self.allowed * self.relative)
        over = np.flatnonzero(self.load > limit)
        targets = iter(np.flatnonzero(~self.alone & (self.load < limit)).tolist())
        target = next(targets, None)
        for partition in over.tolist():
            hosts = np.flatnonzero(self.tail == partition)
            for host in hosts[np.argsort(-weight[hosts], kind="stable")].tolist():
                if self.load[partition] <= limit[partition]:
                    break
                while target is not None and self.load[target] + weight[host] > limit[target]:
                    target = next(targets, None)
                if target is None:
                    return self._least_loaded(weight, limit)
                self._move(host, target, float(weight[host]))
        return None

    def _least_loaded(self, weight: F64, limit: F64) -> None:
        """Where no partition is left under the limit: what is still over goes to the least loaded."""
        for partition in np.flatnonzero(self.load > limit).tolist():
            for host in np.flatnonzero(self.tail == partition).tolist():
                scaled = np.where(self.alone, np.inf, (self.load + weight[host]) / self.relative)
                target = int(np.argmin(scaled))
                if scaled[target] >= self.load[partition] / self.relative[partition]:
                    break
                self._move(host, target, float(weight[host]))

    def _move(self, host: int, target: int, rows: float) -> None:
        self.load[self.tail[host]] -= rows
        self.load[target] += rows
        self.tail[host] = target

    def _host_weights(self) -> F64:
        if self.settings.host_loads == "exact":
            return self.demand.host_rows.astype(np.float64)
        hosts = len(self.demand.host_rows)
        return np.full(hosts, self.demand.tail_rows / hosts)


def _tail_of(previous: Plan, partitions: int) -> NDArray[np.int32]:
    bits = host_bits(partitions)
    return previous.tail_at(bits) if previous.tail_bits < bits else previous.tail
