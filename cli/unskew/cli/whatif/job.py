"""What to replay: the policies, the partitions, and how many rows each policy looks back."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal

from unskew.core.freshness.ways import COUNT_SHARE
from unskew.core.histogram.history import History
from unskew.core.planners import Planner, make_planner
from unskew.core.stream_spec import StreamSpec

__all__ = ["Fresh", "Job", "Sliding"]

Fresh = Literal["previous", "same", "auto"]


@dataclass(frozen=True)
class Sliding:
    """A sliding window, in rows; in seconds where the recording has times."""

    window: float
    slide: float

    @property
    def slides(self) -> int:
        """How many slides the window has, the present one included."""
        return ceil(self.window / self.slide)

    @property
    def whole(self) -> float:
        """The window in whole slides, as the routers keep it."""
        return self.slides * self.slide


@dataclass(frozen=True)
class Job:
    """``policies`` are planners and ``window`` is how many batches they see; None: the record that a stream has unless
    its settings say otherwise. ``count_cost`` is what counting a batch costs, in even shares of the batch.

    ``routers`` remember the rows of ``sliding``, or all rows without it; figures per window need it. Each router has
    ``agents`` that get the rows in turn, and that cooperate every ``dsync`` rows if the router can.
    """

    policies: tuple[str, ...]
    partitions: int = 16
    batch: int = 100_000
    window: int | None = None
    weights: tuple[float, ...] | None = None
    seed: int = 7
    fresh: Fresh = "previous"
    routers: tuple[str, ...] = ()
    sliding: Sliding | None = None
    agents: int = 1
    dsync: int | None = None
    count_cost: float = COUNT_SHARE

    @property
    def record(self) -> History:
        """The record of batches that planners plan from, still empty."""
        if self.window is not None:
            return History(self.window)
        return History(StreamSpec.history, StreamSpec.decay)

    def planners(self) -> tuple[Planner, ...]:
        """One planner a policy. Raises ``ConfigError`` for a policy, weight or number that is not allowed."""
        return tuple(make_planner(name, self.partitions, self.seed, self.weights) for name in self.policies)
