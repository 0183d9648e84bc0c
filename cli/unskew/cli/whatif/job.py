"""What to replay: the policies, the partitions, and how far each of them looks back."""

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
    def slides(self) -> int:
        """How many slides the window reaches back, the one in use included."""
        return ceil(self.window / self.slide)

    @property
    def whole(self) -> float:
        """The window in whole slides, as the routers keep it."""
        return self.slides * self.slide


@dataclass(frozen=True)
class Job:
    """``policies`` are planners and ``window`` is how many batches they see.

    ``routers`` remember ``sliding``, or all of the stream without it; figures per window are made with it only. Rows
    are dealt to ``agents`` of each router in turn, which cooperate every ``dsync`` rows if they are of a kind that can.
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
        """One planner a policy; a policy, weight or number that is not allowed is refused here."""
        return tuple(make_planner(name, self.partitions, self.seed, self.weights) for name in self.policies)
