"""The settings of Dalton's learner, checked, and the same in the form that its compiled loops take.

Nothing here imports numba, so a process that only plans loads no compiler.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from unskew.core.errors import ConfigError
from unskew.core.limits import MAX_PARTITIONS
from unskew.core.parameters import check_range

__all__ = ["FIRST_ROOM", "MOST_CELLS", "LearningSettings", "UpdateRule"]

FIRST_ROOM = 16
MOST_CELLS = 1 << 24  # of a Q-table: 128 MB; never reached in practice, as at most n keys are hot at a time
_BITS = 53  # of a random number that decides whether to explore
# No reward is -2 or less, and no step from -2 is lost in rounding: -2 always means untried.
_RANGES = (
    ("gamma", 1e-6, 1), ("epsilon", 0, 1), ("p1", 0, 1), ("slide_weight", 0, 1), ("share", 1, 1000), ("renew", 0, 1),
    ("look", 1, 64), ("quantum", 1, 1_000_000), ("stats", 0, 1_000_000),
)  # fmt: skip


class UpdateRule(NamedTuple):
    """The settings of the learner, as ``routers.dalton`` explains them."""

    step: float  # how far a value moves towards a reward: 1 - (1 - gamma)^quantum
    explore: np.uint64  # epsilon, of 2^53
    look: int
    imbalance: float  # p1
    fragments: float  # p2
    slide: float  # weight of the slide's own imbalance
    replace: int  # whether the first reward takes the place of -2
    cap: int  # 0: by share, else DaltonRows.books[CAP]
    share: float
    adaptive: int
    quantum: int
    renew: float  # a key in the Q-table stays hot from this share of L / n on
    records: int  # an interval lasts whole slides until it has as many tuples
    room: int  # no more rows than this
    salt: np.uint64


@dataclass(frozen=True)
class LearningSettings:
    """How Dalton learns; ``routers.dalton`` says what each of these is, and what the paper has."""

    gamma: float
    epsilon: float
    p1: float
    slide_weight: float
    look: int
    split_cap: int | str | None
    share: float
    keep_untried: bool
    quantum: int
    stats: int
    renew: float

    def __post_init__(self) -> None:
        for name, least, most in _RANGES:
            check_range(name, getattr(self, name), least, most)
        cap = self.split_cap
        if not (cap in (None, "share", "adaptive") or (isinstance(cap, int) and 1 <= cap <= MAX_PARTITIONS)):
            raise ConfigError("split_cap", cap, f"'share', 'adaptive', None or 1 to {MAX_PARTITIONS} workers a key")

    def rule(self, workers: int, salt: np.uint64, *, windowed: bool) -> UpdateRule:
        """The settings as the loops take them. Without a window no slide ends an interval, so it lasts 32 n tuples at
        least, as the first one does."""
        stats = self.stats if windowed else max(self.stats, 32)
        return UpdateRule(
            step=1.0 - (1.0 - self.gamma) ** self.quantum,
            explore=np.uint64(int(self.epsilon * (1 << _BITS))),
            look=self.look,
            imbalance=float(self.p1),
            fragments=1.0 - self.p1,
            slide=float(self.slide_weight),
            replace=int(not self.keep_untried),
            cap=0 if self.split_cap == "share" else 1,
            share=float(self.share),
            adaptive=int(self.split_cap == "adaptive"),
            quantum=int(self.quantum),
            renew=float(self.renew),
            records=max(stats * workers, 1),
            room=min(max(16 * workers, FIRST_ROOM), max(MOST_CELLS // workers, 1)),
            salt=salt,
        )

    def first_cap(self, workers: int) -> int:
        """How many workers a key may be on before an adaptive cap has grown."""
        if isinstance(self.split_cap, int):
            return min(self.split_cap, workers)
        return min(2, workers) if self.split_cap == "adaptive" else workers
