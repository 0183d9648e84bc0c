"""What to replay: the policies, the partitions, and how many rows each policy looks back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from unskew.core.freshness.batch_price import COUNT_SHARE
from unskew.core.freshness.stream_planner import StreamPlanner
from unskew.core.freshness.ways import Fresh
from unskew.core.histogram.history import History
from unskew.core.planners import Planner, make_planner
from unskew.core.stream_spec import StreamSpec

__all__ = ["Job", "Sliding"]


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

    def spec(self, policy: str, key_types: tuple[str, ...] = ()) -> StreamSpec:
        """The settings of a stream that would be planned like this."""
        spec = StreamSpec(self.partitions, policy, weights=self.weights or (), seed=self.seed, key_types=key_types)
        return spec if self.window is None else replace(spec, history=self.window, decay=1.0)

    @property
    def record(self) -> History:
        """The record of batches that planners plan from, still empty: with ``--fresh same`` the batch itself."""
        if self.window is None and self.fresh == "same":
            return History(1)
        return StreamPlanner("", self.spec("hash")).record

    def planners(self) -> tuple[Planner, ...]:
        """One planner a policy. Raises ``ConfigError`` for a policy, weight or number that is not allowed."""
        return tuple(make_planner(name, self.partitions, self.seed, self.weights) for name in self.policies)
