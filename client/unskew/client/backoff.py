"""How long to wait before trying again: doubling, and at random, so that many clients do not come back at once."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

__all__ = ["Backoff"]


@dataclass
class Backoff:
    """``next()`` is between half of the present pause and all of it; ``reset()`` after a success."""

    first: float = 0.2
    longest: float = 5.0
    rng: random.Random = field(default_factory=random.Random, repr=False)
    _times: int = field(default=0, init=False)

    def next(self) -> float:
        pause = min(self.first * 2.0 ** min(self._times, 30), self.longest)
        self._times += 1
        return pause * self.rng.uniform(0.5, 1.0)

    def reset(self) -> None:
        self._times = 0
