"""What to replay: the policies, the partitions, and how many rows each policy looks back."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal

from unskew.core.planners import Planner, make_planner

__all__ = ["Fresh", "Job", "Sliding"]

Fresh = Literal["previous", "same"]


@dataclass(frozen=True)
class Sliding:
    """A sliding window, in rows; in seconds where the recording has times."""

    window: float
    slide: float

    @property
    def whole(self) -> float:
        """The window in whole slides, the present one included, as the routers keep it."""
        return ceil(self.window / self.slide) * self.slide


@dataclass(frozen=True)
class Job:
    """``policies`` are planners and ``window`` is how many batches they see.

    ``routers`` remember the rows of ``sliding``, or all rows without it; figures per window need it. Each router has
    ``agents`` that get the rows in turn, and that cooperate every ``dsync`` rows if the router can.
    """

    policies: tuple[str, ...]
    partitions: int = 16
    batch: int = 100_000
    window: int = 1
    weights: tuple[float, ...] | None = None
    seed: int = 7
    fresh: Fresh = "previous"
    routers: tuple[str, ...] = ()
    sliding: Sliding | None = None
    agents: int = 1
    dsync: int | None = None

    def planners(self) -> tuple[Planner, ...]:
        """One planner a policy. Raises ``ConfigError`` for a policy, weight or number that is not allowed."""
        return tuple(make_planner(name, self.partitions, self.seed, self.weights) for name in self.policies)
