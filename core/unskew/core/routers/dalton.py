"""Dalton (Algorithm 1): a contextual bandit learns where to send hot keys; the rest go by hash.

A key with L / n tuples or more, L being the load of the interval before, is hot for this interval and the next. Its
tuple goes to the worker with the highest Q, or with probability epsilon elsewhere to explore; the reward
``R = -(p1 CI + (1 - p1) CA)`` (Eq. 3, 4) of imbalance and fragmentation over the sliding window moves that worker's Q
by ``gamma (R - Q)`` (Eq. 5). A worker never tried has -2.

What the paper leaves open is settled in FIDELITY. These settings differ from the paper's, which cannot keep balance at
many workers (docs/decisions/0011); ``PAPER`` has its own:
- ``slide_weight``: R has a third term, CI of the slide in use; without it one slide's tuples pile up on one worker;
- ``look``: exploring takes the least loaded of so many random workers, not any one of them;
- ``keep_untried=False``: the first reward of a worker replaces -2, which is no reward, and is not averaged with it;
- ``split_cap="share"``: exploring puts no key on more workers than ``share`` times its share of the load needs (by
  micro-batches, where nothing else may either, 4 times);
- ``stats``: an interval (STATS_WIN) is whole slides of together ``stats`` n tuples at least, not one slide of any size:
  with fewer tuples L / n is too noisy;
- ``renew``: a hot key stays hot while it has this share of L / n; else a key at the threshold is hot in every other
  interval and nothing is learned about it.
Also: L is at least the tuples of the interval so far, so that a burst does not make every key hot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from unskew.core.arrays.types import I32, I64, U64
from unskew.core.dalton.settings import LearningSettings
from unskew.core.routers.base import RouterSettings
from unskew.core.routers.learner import Learner

__all__ = ["PAPER", "DaltonRouter"]

PAPER: Mapping[str, object] = MappingProxyType(
    {"slide_weight": 0.0, "look": 1, "keep_untried": True, "split_cap": None, "stats": 0, "renew": 1.0}
)


@dataclass(eq=False)
class DaltonRouter:
    """``quantum`` (key idea 2): a decision is for so many tuples of a key. ``frequencies`` (section 5): exact in a
    ``map``, by count-min ``sketch``, or ``hybrid``: the sketch after an interval of more than ``sketch_above`` keys.
    ``split_cap`` also takes a number, None, or "adaptive": from 2, doubled when 70 % of the hot keys are at it.
    """

    common: RouterSettings
    gamma: float = 0.1
    epsilon: float = 0.1
    p1: float = 0.5
    slide_weight: float = 0.5
    look: int = 8
    split_cap: int | str | None = "share"
    share: float = 6.0
    keep_untried: bool = False
    quantum: int = 1
    stats: int = 16
    renew: float = 0.5
    frequencies: str = "hybrid"
    sketch_above: int = 65_536
    learner: Learner = field(init=False)

    def __post_init__(self) -> None:
        self.learner = Learner(self.common, self._learning(), self.sketch_above, self.frequencies)

    def _learning(self) -> LearningSettings:
        return LearningSettings(
            self.gamma, self.epsilon, self.p1, self.slide_weight, self.look, self.split_cap, self.share,
            self.keep_untried, self.quantum, self.stats, self.renew,
        )  # fmt: skip

    def partner(self, number: int) -> Learner:
        """A learner with the same settings as one of several cooperating ones (section 4)."""
        return Learner(
            self.common, self._learning(), self.sketch_above, self.frequencies, number=number, cooperating=True
        )

    def step(self, keys: U64, slides: I64, out: I32) -> None:
        self.learner.step(keys, slides, out)
