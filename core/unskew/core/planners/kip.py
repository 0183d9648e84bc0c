"""KIP, the Key Isolator Partitioner: Algorithm 1 (KIPUPDATE) of KIP / Dynamic Repartitioning, section 4.

The top ``lambda * N`` keys are placed one by one, heaviest first: where they were, else where they hash, else on
the least loaded partition; then hosts leave the partitions that are over MAXLOAD. Keys are never split.

Loads are in rows instead of relative frequencies, and divided by the partition's weight where weights are given. Line 5
and 8 compare with <=, so that the heaviest key fits its own MAXLOAD when the slack is 0. The rest of this list is where
the paper leaves a choice, or where measuring found a better one (docs/decisions/0006-kip-figures.md);
``as_published=True`` goes back to the listing:
- a key heavier than a mean partition gets a partition that holds nothing else, where the rest finds room
  (FIDELITY; the listing would let it share up to the heaviest key's load);
- a key that leaves the top ``lambda * N`` keeps its place, up to ``keep`` times as many: going back is a move too;
- a host's own rows decide when it must leave, shrunk to the average by the share of their variance that is counting
  noise. As a load that others leave space for, a host is expected to get ``host_loads="blend"``: half of that and half
  the paper's average, because much of the tail is new in every batch of a drifting stream;
- which hosts move, and where: ``rehost.py``;
- epsilon is ``slack`` = 0.35 mean loads: that gives a quarter of Readj's migration for hardly any imbalance, since
  drift within a batch does more. Without a previous plan there is no state to spare and no drift to expect, so all
  hosts may move, weighed by their own rows, within a slack of at most 0.02;
- a new plan is taken only if the gate (``gate.py``) finds that it pays; ``gate=False`` forces it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from unskew.core.arrays.ranking import heaviest, marked
from unskew.core.arrays.types import F64, Index
from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram, host_of
from unskew.core.limits import MAX_LISTED, host_bits, listed_budget
from unskew.core.parameters import check_range
from unskew.core.plan.build import Placement, build_plan
from unskew.core.plan.plan import Plan, PlanInfo
from unskew.core.planners.base import Feedback, KeepPrevious, Place, PlannerSettings
from unskew.core.planners.gate import Gate
from unskew.core.planners.hashed import hash_tail
from unskew.core.planners.rehost import TailHosts, first_fit, relieve
from unskew.core.quality.cost_fit import fit_cost

__all__ = ["Kip"]

HOST_LOADS = {"exact": 0.0, "blend": 0.5, "average": 1.0}  # the weight of the average
REASONS = (
    "heavier than a partition's share: alone where the rest finds room",
    "stays where it was",
    "placed where it hashes, where it will be when it is no longer heavy",
    "placed on the least loaded partition",
)
_ALONE, _STAYS, _HASHES, _LEAST = range(4)
_EVIDENCE = 10  # rows below which no key is heavy: a key that occurs once would get a partition for itself by chance
_FIRST_SLACK = 0.02


@dataclass(frozen=True, eq=False)
class Kip:
    """KIPUPDATE. ``factor`` is the paper's lambda, ``slack`` its epsilon in mean loads."""

    common: PlannerSettings
    factor: float = 2.0
    slack: float = 0.35
    host_loads: Literal["blend", "exact", "average"] = "blend"
    keep: float = 2.0
    gate: bool = True
    horizon: float = 5.0
    migration_cost: float = 1.0
    least_gain: float = 0.05
    as_published: bool = False
    _gate: Gate = field(init=False, repr=False)

    def __post_init__(self) -> None:
        most = MAX_LISTED / self.common.partitions
        check_range("factor", self.factor, 0, most, f"0 to {most:g} hot keys a partition")
        check_range("slack", self.slack, 0, 1, "0 to 1, in mean loads")
        if self.host_loads not in HOST_LOADS:
            raise ConfigError("host_loads", self.host_loads, HOST_LOADS)
        check_range("keep", self.keep, 1, 64, "1 to 64 times the list")
        object.__setattr__(self, "_gate", Gate(self.horizon, self.migration_cost, self.least_gain))

    def place(self, histogram: Histogram, previous: Plan | None, feedback: Feedback | None) -> Place | KeepPrevious:
        state = feedback.state if feedback is not None and feedback.state is not None else histogram
        update = _Update(self, histogram, previous, state)
        placement = update.run()
        if previous is None:
            return Place(placement, f"first plan, {len(update.hashes)} heavy keys placed")
        if not self.gate:
            return Place(placement, "forced: the gate is off")
        candidate = build_plan(placement, self.common.partitions, PlanInfo())
        fit = fit_cost(feedback.times) if feedback is not None else None
        verdict = self._gate.judge(candidate, previous, histogram, state, self.common.relative, fit)
        return Place(placement, verdict.reason) if verdict.switch else KeepPrevious(verdict.reason)


class _Update:
    """One run of Algorithm 1: its input, the loads of the listed keys so far, and which partitions hold one key
    alone."""

    def __init__(self, settings: Kip, histogram: Histogram, previous: Plan | None, state: Histogram) -> None:
        n = settings.common.partitions
        self.settings, self.state = settings, state
        self.relative = settings.common.relative
        self.before = previous if previous is not None and previous.partitions == n else None
        self.tail = hash_tail(settings.common)
        if self.before is not None:
            self.tail = self.before.tail_at(max(host_bits(n), self.before.tail_bits))
        self.bits = len(self.tail).bit_length() - 1
        listed = self._listed(histogram)
        self.hashes, self.rows = histogram.hashes[listed], histogram.counts[listed]
        self.unlisted = histogram.fold(marked(listed, len(histogram.hashes)), self.bits)
        self.mean = histogram.total / n
        self.load: F64 = np.zeros(n)
        self.alone = np.zeros(n, bool)
        heaviest = float(self.rows[0]) / float(self.relative.max()) if len(self.rows) else 0.0
        self.allowed = max(self.mean, heaviest) + self._slack() * self.mean

    def run(self) -> Placement:
        home = np.empty(len(self.hashes), np.int32)
        reason = np.empty(len(home), np.uint8)
        hashes_to = self.tail.take(host_of(self.hashes, self.bits))
        was = self.before.place(self.hashes) if self.before else np.full(len(home), -1, np.int32)
        for i, rows in enumerate(self.rows.tolist()):
            home[i], reason[i] = self._place_key(float(rows), int(was[i]), int(hashes_to[i]))
        move = first_fit if self.settings.as_published else relieve
        return Placement.whole(move(self._tail_hosts()), self.hashes, home, self.rows, REASONS, reason)

    def _slack(self) -> float:
        fresh = self.before is None and not self.settings.as_published
        return min(self.settings.slack, _FIRST_SLACK) if fresh else self.settings.slack

    def _averaged(self) -> float:
        """The weight of the average host in what a host is expected to get."""
        if self.settings.as_published:
            return 1.0
        return HOST_LOADS[self.settings.host_loads] if self.before is not None else 0.0

    def _listed(self, histogram: Histogram) -> Index:
        """The top lambda * N keys, and after them those that the previous plan placed away from where they hash."""
        n = self.settings.common.partitions
        limit = min(round(self.settings.factor * n), listed_budget(n))
        top = heaviest(histogram.hashes, histogram.counts, limit)
        if self.before is None or self.settings.as_published or len(self.before.hot) == 0:
            return top
        hot = self.before.hot
        away = hot.home != self.before.tail.take(host_of(hot.hashes, self.before.tail_bits))
        own = np.isin(histogram.hashes, hot.hashes[away])
        own[top] = False
        index = np.flatnonzero(own)
        most = min(round(self.settings.keep * limit), listed_budget(n)) - len(top)
        others = index[heaviest(histogram.hashes[index], histogram.counts[index], most)]
        return np.concatenate([top, others])

    def _place_key(self, rows: float, was: int, hashes_to: int) -> tuple[int, int]:
        """Lines 3-10 for one key."""
        isolate = not self.settings.as_published and self.alone.sum() < len(self.load) - 1
        heavy = isolate and rows >= max(self.mean, _EVIDENCE)
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

    def _tail_hosts(self) -> TailHosts:
        """Lines 11-13: what each host adds to the loads, and what moving it would cost."""
        own = self.unlisted.rows.astype(np.float64)
        average, variance = float(own.mean()), float(own.var())
        noise = 0.0 if self.settings.as_published else min(1.0, average / max(variance, 1e-300))
        measured = own + (average - own) * noise
        weight = measured + (average - measured) * self._averaged()
        pinned = np.zeros(len(weight), bool)
        pinned[host_of(self.hashes, self.bits)] = True
        limit = self.allowed * self.relative
        return TailHosts(
            self.tail, measured, weight, self._state(), pinned, self.load, limit, self.alone, self.relative
        )

    def _state(self) -> F64:
        """The rows of state that moving each host would move; none before the first plan."""
        if self.before is None:
            return np.zeros(len(self.tail))
        listed = np.isin(self.state.hashes, self.hashes)
        return self.state.fold(listed, self.bits).rows.astype(np.float64)
