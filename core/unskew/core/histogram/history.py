"""A record of past histograms, from which a planner plans where one batch is not enough.

KIP/DR keeps "a record of past histograms" so that a plan is useful in the long run (section 3). The record is a value:
adding a batch returns a new record without the oldest batch. ``merged`` weighs a batch by ``decay`` once for each batch
after it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram

__all__ = ["History"]


@dataclass(frozen=True)
class History:
    """The last ``depth`` batches. ``decay=1`` is a plain sliding window, ``depth=1`` the last batch alone."""

    depth: int = 5
    decay: float = 1.0
    batches: tuple[Histogram, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.depth, bool) or not isinstance(self.depth, int) or self.depth < 1:
            raise ConfigError("depth", self.depth, "a whole number of batches, 1 or more")
        if not 0.0 < self.decay <= 1.0:
            raise ConfigError("decay", self.decay, "above 0 and up to 1")

    def add(self, batch: Histogram) -> History:
        """The record with one more batch."""
        return replace(self, batches=(*self.batches, batch)[-self.depth :])

    def merged(self) -> Histogram:
        """All batches as one histogram; empty where there is none."""
        ages = range(len(self.batches) - 1, -1, -1)
        aged = [batch.decay(self.decay**age) for batch, age in zip(self.batches, ages, strict=True)]
        return aged[0].merge(*aged[1:]) if len(aged) > 1 else aged[0] if aged else Histogram.empty()
