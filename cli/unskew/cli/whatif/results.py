"""What a replay gives, policy by policy, and which policies are about equally good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from unskew.cli.whatif.job import Job
from unskew.cli.whatif.measure import RoutedBatch, WindowFigures
from unskew.core.freshness.ways import Fresh
from unskew.core.plan.plan import Plan
from unskew.core.planners import PLANNERS
from unskew.core.routers import ROUTERS

__all__ = ["BatchResult", "PlannedBatch", "PolicyResult", "Replay", "best_policies"]

_ABOUT = 1.02  # the makespan is a model: policies within 2 % of each other are equally good


@dataclass(frozen=True)
class BatchResult:
    """One batch under one policy."""

    number: int
    rows: int
    routed: RoutedBatch


@dataclass(frozen=True)
class PlannedBatch:
    """What a planner did for one batch: the imbalance that its plan promised, whether the plan was new, the share of
    rows that it moved (only where it replaced another), and the time to make it."""

    imbalance: float
    new_plan: bool
    moved: float | None
    build_seconds: float


@dataclass(frozen=True, eq=False)
class PolicyResult:
    """All counted batches under one planner or router. A planner has its last ``plan``, and one of ``planned`` for each
    batch; a router has ``ns_per_tuple``, over the whole stream. With ``--fresh auto`` a planner has the way that each
    batch ``taken`` went, and the mean cost of each of the ``ways`` had it been taken throughout."""

    policy: str
    splits: bool
    batches: tuple[BatchResult, ...]
    relative_makespan: float
    windows: WindowFigures | None
    plan: Plan | None = None
    planned: tuple[PlannedBatch, ...] = ()
    ns_per_tuple: float | None = None
    count_cost: float = 0.0
    taken: tuple[str, ...] = ()
    ways: Mapping[str, float] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The name as ``--policies`` takes it: ``router:`` before a name that a planner has too."""
        return f"router:{self.policy}" if self.plan is None and self.policy in PLANNERS else self.policy

    @property
    def may_split(self) -> bool:
        """Whether the policy may split a key, even if it did not in this replay."""
        return (ROUTERS if self.plan is None else PLANNERS)[self.policy].splits

    @property
    def cost(self) -> float:
        """What a batch costs in even shares, its count included, in the mean."""
        return fmean(b.routed.cost for b in self.batches) + self.count_cost

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
        """What the plans promised for the rows they were made from, in the median batch."""
        return median(b.imbalance for b in self.planned)

    @property
    def replication(self) -> float:
        """(key, partition) pairs over keys, in the median batch. For planners it is Prompt's KSR too."""
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
    def moved(self) -> tuple[float, ...]:
        """The share of the rows that each plan moved which replaced another."""
        return tuple(b.moved for b in self.planned if b.moved is not None)

    @property
    def moved_share(self) -> float:
        return fmean(self.moved) if self.moved else 0.0

    @property
    def plans(self) -> int:
        """Plans that route differently from the one before."""
        return sum(b.new_plan for b in self.planned)

    @property
    def build_ms(self) -> float:
        return 1000 * median(b.build_seconds for b in self.planned)


@dataclass(frozen=True, eq=False)
class Replay:
    """A replay and its options. ``fresh`` may differ from the job's: a single batch can only be planned from itself."""

    job: Job
    fresh: Fresh
    rows: int
    keys: int
    heaviest: float
    heaviest_in_batch: float
    batch_rows: tuple[int, ...]
    hash: tuple[RoutedBatch, ...]
    policies: tuple[PolicyResult, ...]
    routers: tuple[PolicyResult, ...] = ()
    timed: bool = False

    @property
    def results(self) -> tuple[PolicyResult, ...]:
        """Planners, then routers."""
        return (*self.policies, *self.routers)

    @property
    def hash_imbalance(self) -> float:
        """The imbalance of plain hash in the median batch, as far as batches are counted."""
        return median(self.hash[number].imbalance for number in self.counted)

    @property
    def counted(self) -> tuple[int, ...]:
        """The batches that the figures are over."""
        return tuple(range(0 if self.fresh == "same" else 1, len(self.batch_rows)))


def best_policies(policies: Sequence[PolicyResult]) -> list[PolicyResult]:
    """The policies of about the shortest makespan, best first: the planner that moves least and makes fewest plans;
    after the planners, since no plan says what they will do, the router that splits least."""
    bound = _ABOUT * min(p.relative_makespan for p in policies)
    return sorted((p for p in policies if p.relative_makespan <= bound), key=_rank)


def _rank(p: PolicyResult) -> tuple[float, ...]:
    if p.plan is None:
        return 1, p.replication, 0, p.relative_makespan
    return 0, sum(p.moved), p.plans, p.relative_makespan
