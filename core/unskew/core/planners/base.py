"""What every planner has in common: its settings, its decision, and how a decision becomes a plan.

An algorithm is a frozen dataclass with one method, ``place``: histogram in, placement out, or ``KeepPrevious`` to leave
the plan as it is. ``Planner`` does the rest for all of them: checks, versions, predicted loads, moved share, reasons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from unskew.core.arrays.frozen import by_fields, frozen
from unskew.core.arrays.types import F64
from unskew.core.dalton.qtable import QTable
from unskew.core.errors import ConfigError, PlanError
from unskew.core.histogram.histogram import Histogram
from unskew.core.limits import MAX_PARTITIONS
from unskew.core.plan.build import Placement, build_plan
from unskew.core.plan.plan import Plan, PlanInfo, Version
from unskew.core.quality.cost_fit import TaskTimes

__all__ = [
    "Decision",
    "Feedback",
    "KeepPrevious",
    "Origin",
    "Place",
    "Planner",
    "PlannerAlgorithm",
    "PlannerSettings",
    "common",
]


@dataclass(frozen=True, eq=False)
class PlannerSettings:
    """The settings that every planner takes."""

    partitions: int
    seed: int
    weights: F64

    __reduce__ = by_fields

    @property
    def relative(self) -> F64:
        """Weights scaled to a mean of 1: loads divided by it are comparable between partitions."""
        relative: F64 = self.weights / self.weights.mean()
        return relative

    @property
    def smallest(self) -> float:
        """The smallest weight, relative to the mean."""
        return float(self.relative.min())

    @property
    def even(self) -> bool:
        return bool((self.weights == self.weights[0]).all())


def common(partitions: int, seed: int = 7, weights: ArrayLike | None = None) -> PlannerSettings:
    """Checked settings, or a ``ConfigError`` that names the bad one."""
    if isinstance(partitions, bool) or not isinstance(partitions, (int, np.integer)):
        raise ConfigError("partitions", partitions, f"a whole number, 1 to {MAX_PARTITIONS}")
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise ConfigError("partitions", int(partitions), f"1 to {MAX_PARTITIONS}")
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise ConfigError("seed", seed, "a whole number")
    if weights is None:
        return PlannerSettings(int(partitions), seed, frozen(np.ones(int(partitions)), np.float64))
    try:
        values = np.asarray(weights, np.float64)
    except (TypeError, ValueError):
        raise ConfigError("weights", weights, "one positive number a partition") from None
    if values.shape != (partitions,):
        raise ConfigError("weights", f"{values.size} values", f"one for each of the {partitions} partitions")
    if not (np.isfinite(values) & (values > 0)).all():
        bad = values[~(np.isfinite(values) & (values > 0))][0]
        raise ConfigError("weights", float(bad), "finite numbers above 0; to close a partition plan with fewer")
    with np.errstate(over="ignore"):  # may overflow to infinity, which is refused
        ratio = float(values.max() / values.min())
    if ratio > 1e6:
        raise ConfigError("weights", ratio, "a ratio of at most 1e6 between any two")
    return PlannerSettings(int(partitions), seed, frozen(values / values.max(), np.float64))


@dataclass(frozen=True, eq=False)
class Feedback:
    """What was observed since the last plan. Everything is optional; each planner uses what it needs.

    ``times`` are rows, keys and seconds of the tasks of the last batches, the latest last. ``busy`` and ``idle`` are
    partitions in the order in which they signalled (CG's FCFS queues), ``fine`` those that are neither; ``shares`` is
    the share of all rows that a busy or idle partition asks for, where it said how much (docs/decisions, 0009).
    ``state`` counts the rows of state that would move with each key, where that is not the histogram itself. ``table``
    is the Q-table of the partitioners (Dalton).
    """

    times: Sequence[TaskTimes] = ()
    busy: Sequence[int] = ()
    idle: Sequence[int] = ()
    fine: Sequence[int] = ()
    shares: Mapping[int, float] = field(default_factory=dict)
    state: Histogram | None = None
    table: QTable | None = None


@dataclass(frozen=True, eq=False)
class Place:
    """A placement and why it was chosen."""

    placement: Placement
    reason: str


@dataclass(frozen=True)
class KeepPrevious:
    """Keep the present plan, and why."""

    reason: str


class PlannerAlgorithm(Protocol):
    """The algorithm of one file of this package."""

    @property
    def common(self) -> PlannerSettings: ...

    def place(self, histogram: Histogram, previous: Plan | None, feedback: Feedback | None) -> Place | KeepPrevious: ...


@dataclass(frozen=True)
class Origin:
    """Which stream, batch and key types a plan is for, and its version; the routing does not depend on it."""

    stream: str = ""
    batch: int | None = None
    key_types: tuple[str, ...] = ()
    version: Version | None = None


@dataclass(frozen=True, eq=False)
class Decision:
    """The plan to use from now on, whether it is a new one, and why."""

    plan: Plan
    changed: bool
    reason: str


@dataclass(frozen=True, eq=False)
class Planner:
    """A planning policy with its settings, as ``make_planner`` returns it.

    It has no state: the same arguments always give the same plan.
    """

    name: str
    algorithm: PlannerAlgorithm
    splits: bool

    @property
    def partitions(self) -> int:
        return self.algorithm.common.partitions

    def plan(
        self,
        histogram: Histogram,
        previous: Plan | None = None,
        feedback: Feedback | None = None,
        origin: Origin | None = None,
    ) -> Plan:
        """Make the plan for rows distributed like ``histogram``.

        Parameters
        ----------
        histogram
            The rows of each key.
        previous
            The plan in force, if there is one.
        feedback
            What was observed since that plan, for the policies that use it.
        origin
            The stream, batch, key types and version to record in the plan.

        Returns
        -------
        Plan
            A new plan, or ``previous`` itself where changing it is not worth it.

        Raises
        ------
        ConfigError
            If ``histogram`` is not a ``Histogram``.
        PlanError
            If the previous plan is for keys of other types.

        Examples
        --------
        >>> from unskew.core import Histogram, hash_keys, make_planner
        >>> planner = make_planner("kip", partitions=4)
        >>> planner.plan(Histogram.from_hashes(hash_keys(["a", "b", "a"]))).partitions
        4
        """
        return self.decide(histogram, previous, feedback, origin).plan

    def decide(
        self,
        histogram: Histogram,
        previous: Plan | None = None,
        feedback: Feedback | None = None,
        origin: Origin | None = None,
    ) -> Decision:
        """As ``plan``, with the reason, and whether the plan has changed.

        A policy that keeps keys whole ignores a previous plan that splits keys, and starts anew.
        """
        if not isinstance(histogram, Histogram):
            raise ConfigError("histogram", type(histogram).__name__, "a Histogram: Histogram.from_hashes(hashes)")
        origin = origin or Origin()
        _same_keys(previous, origin)
        usable = previous if previous is None or self.splits or not previous.splits else None
        answer = self.algorithm.place(histogram, usable, feedback)
        if isinstance(answer, KeepPrevious):
            if previous is None:
                raise RuntimeError(f"planner {self.name} kept a plan that does not exist")
            return Decision(previous, changed=False, reason=answer.reason)
        plan = self._finish(answer, histogram, previous, origin)
        return Decision(plan, changed=True, reason=answer.reason)

    def _finish(self, answer: Place, histogram: Histogram, previous: Plan | None, origin: Origin) -> Plan:
        key_types = origin.key_types or (previous.key_types if previous else ())
        bare = build_plan(answer.placement, self.partitions, PlanInfo(), key_types)
        moved = bare.moved(previous, histogram) if previous else (0.0, 0.0)
        version = origin.version or (previous.version.next() if previous else Version(0, 1))
        info = PlanInfo(
            stream=origin.stream or (previous.info.stream if previous else ""),
            version=version,
            policy=self.name,
            reason=answer.reason,
            batch=origin.batch,
            previous=previous.version if previous else None,
            moved_rows=moved[0],
            moved_keys=moved[1],
            rows=histogram.total,
            keys=histogram.keys,
            loads=tuple(bare.loads(histogram).tolist()),
        )
        return Plan(self.partitions, bare.tail, bare.hot, key_types, info)


def _same_keys(previous: Plan | None, origin: Origin) -> None:
    """Refuse a previous plan for other key types: they hash the same key differently."""
    if previous is None or not previous.key_types or not origin.key_types or previous.key_types == origin.key_types:
        return
    raise PlanError(
        f"the previous plan is for keys of type {', '.join(previous.key_types)}, this one for "
        f"{', '.join(origin.key_types)}: begin anew, without a previous plan"
    )
