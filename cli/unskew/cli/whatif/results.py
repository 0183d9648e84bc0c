"""What came out of a replay, policy by policy, and which of them are about equally good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from unskew.cli.whatif.job import Fresh, Job
from unskew.cli.whatif.measure import Routed, Windowed
from unskew.core.plan.plan import Plan
from unskew.core.planners import PLANNERS
from unskew.core.routers import ROUTERS

__all__ = ["BatchResult", "PolicyResult", "Replay", "Result", "RoutedBatch", "RouterResult", "equals"]

_ABOUT = 1.02  # the makespan is a model: within 2 % of each other it does not decide


@dataclass(frozen=True)
class BatchResult:
    """One batch under one policy. ``moved`` is set where a new plan replaced another."""

    number: int
    rows: int
    routed: Routed
    planned: float
    new_plan: bool
    moved: float | None
    build_seconds: float


@dataclass(frozen=True, eq=False)
class PolicyResult:
    """All counted batches under one policy, and the last plan."""

    policy: str
    splits: bool
    batches: tuple[BatchResult, ...]
    relative_makespan: float
    plan: Plan
    windows: Windowed | None = None

    @property
    def label(self) -> str:
        return self.policy

    @property
    def may_split(self) -> bool:
        """Whether the policy may split a key, whatever it happened to do here."""
        return PLANNERS[self.policy].splits

    @property
    def imbalance(self) -> float:
        """Largest load over mean load, in the median batch."""
        return median(b.routed.imbalance for b in self.batches)

    @property
    def mean_imbalance(self) -> float:
        return fmean(b.routed.imbalance for b in self.batches)

    @property
    def worst_imbalance(self) -> float:
        return max(b.routed.imbalance for b in self.batches)

    @property
    def planned_imbalance(self) -> float:
        """What the plans promised on the rows they were made from, in the median batch."""
        return median(b.planned for b in self.batches)

    @property
    def replication(self) -> float:
        """(key, partition) pairs over keys, in the median batch. It is Prompt's KSR too."""
        return median(b.routed.ksr for b in self.batches)

    @property
    def mean_replication(self) -> float:
        return fmean(b.routed.ksr for b in self.batches)

    @property
    def bsi(self) -> float:
        return median(b.routed.bsi for b in self.batches)

    @property
    def bci(self) -> float:
        return median(b.routed.bci for b in self.batches)

    @property
    def moved_share(self) -> float:
        """The share of the rows whose place changed, mean of the plans that replaced another."""
        moved = [b.moved for b in self.batches if b.moved is not None]
        return fmean(moved) if moved else 0.0

    @property
    def moved_in_all(self) -> float:
        return sum(b.moved for b in self.batches if b.moved is not None)

    @property
    def plans(self) -> int:
        """Plans that route otherwise than the one before."""
        return sum(b.new_plan for b in self.batches)

    @property
    def build_ms(self) -> float:
        return 1000 * median(b.build_seconds for b in self.batches)


@dataclass(frozen=True)
class RoutedBatch:
    """One batch as a router routed it."""

    number: int
    rows: int
    routed: Routed


@dataclass(frozen=True, eq=False)
class RouterResult:
    """All counted batches under one router. ``ns_per_tuple`` is of the whole stream."""

    policy: str
    splits: bool
    batches: tuple[RoutedBatch, ...]
    relative_makespan: float
    ns_per_tuple: float
    windows: Windowed | None = None

    @property
    def label(self) -> str:
        """The name, as ``--policies`` takes it, that no planner has."""
        return f"router:{self.policy}" if self.policy in PLANNERS else self.policy

    @property
    def may_split(self) -> bool:
        return ROUTERS[self.policy].splits

    @property
    def imbalance(self) -> float:
        """Largest load over mean load, in the median batch."""
        return median(b.routed.imbalance for b in self.batches)

    @property
    def mean_imbalance(self) -> float:
        return fmean(b.routed.imbalance for b in self.batches)

    @property
    def worst_imbalance(self) -> float:
        return max(b.routed.imbalance for b in self.batches)

    @property
    def replication(self) -> float:
        """(key, partition) pairs over keys, in the median batch."""
        return median(b.routed.ksr for b in self.batches)

    @property
    def mean_replication(self) -> float:
        return fmean(b.routed.ksr for b in self.batches)


Result = PolicyResult | RouterResult


@dataclass(frozen=True, eq=False)
class Replay:
    """What came out, and of what. ``fresh`` may differ from what was asked: one batch can only plan for itself."""

    job: Job
    fresh: Fresh
    rows: int
    keys: int
    heaviest: float
    heaviest_in_batch: float
    batch_rows: tuple[int, ...]
    hash: tuple[Routed, ...]
    policies: tuple[PolicyResult, ...]
    routers: tuple[RouterResult, ...] = ()
    timed: bool = False

    @property
    def tried(self) -> tuple[Result, ...]:
        """Planners, then routers."""
        return (*self.policies, *self.routers)

    @property
    def counted(self) -> tuple[int, ...]:
        """The batches that the figures are over."""
        return tuple(range(1 if self.fresh == "previous" else 0, len(self.batch_rows)))


def equals(policies: Sequence[Result]) -> list[Result]:
    """The policies of about the shortest makespan, best first: the planner that moves least and makes fewest plans;
    after the planners, since no plan says what they will do, the router that splits least."""
    bound = _ABOUT * min(p.relative_makespan for p in policies)
    return sorted((p for p in policies if p.relative_makespan <= bound), key=_calm)


def _calm(p: Result) -> tuple[float, ...]:
    if isinstance(p, PolicyResult):
        return 0, p.moved_in_all, p.plans, p.relative_makespan
    return 1, p.replication, 0, p.relative_makespan
