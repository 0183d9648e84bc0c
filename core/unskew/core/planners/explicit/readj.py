"""Readj: explicit items are moved or swapped between the most and the least loaded partitions until balanced.

Gedik's, reconstructed (``items`` says from what), with theta = 0.2 as in KIP/DR's evaluation. Items start where they
were. Each step takes the most loaded partition and, of its partners, the least loaded with which a move or a swap of
items lowers the larger of the two loads, and there the step that lowers it most. It ends when every load is within
(1 + theta) means, or when no step gains. Choices of ours: ``_PARTNERS`` least loaded partitions are tried, and a bound
on the steps keeps the cost near linear.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from unskew.core.arrays.types import F64
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Plan
from unskew.core.planners.base import Feedback, Place, PlannerSettings
from unskew.core.planners.explicit.items import Items, check_explicit, limit_of

__all__ = ["Readj"]

_PARTNERS = 8
_STEPS_PER_ITEM = 4
_LEAST_GAIN = 1e-9

_Item = tuple[float, int]


@dataclass(frozen=True, eq=False)
class Readj:
    """Moves and swaps. ``factor`` is lambda, ``theta`` the balance bound in mean loads above the mean."""

    common: PlannerSettings
    factor: float = 2.0
    theta: float = 0.2

    def __post_init__(self) -> None:
        check_explicit(self.common, self.factor, self.theta)

    def place(self, histogram: Histogram, previous: Plan | None, feedback: Feedback | None) -> Place:
        items = Items.of(histogram, previous, feedback, self.common, limit_of(self.common, self.factor))
        state = _Readjustment(items)
        steps = state.run(1 + self.theta)
        return Place(items.placement(state.at), f"{steps} moves and swaps: {items.summary(state.at)}")


@dataclass(frozen=True)
class _Step:
    """Item ``give`` goes from the loaded partition, item ``take`` (if any) comes back."""

    larger: float
    give: _Item
    take: _Item | None


class _Readjustment:
    """The items of each partition, ordered by load, while they are exchanged."""

    def __init__(self, items: Items) -> None:
        self.items, self.at = items, items.start
        self.load = items.loads(self.at)
        self.items_of: list[list[_Item]] = [[] for _ in self.load]
        for i in range(len(items) - 1, -1, -1):
            insort(self.items_of[int(self.at[i])], (float(items.load[i]), i))

    def run(self, bound: float) -> int:
        """Steps taken until balanced within ``bound`` mean loads, or until none gains."""
        for step in range(_STEPS_PER_ITEM * len(self.items)):
            scaled = self.load / self.items.relative
            loaded = int(np.argmax(scaled))
            if scaled[loaded] <= bound or not self._relieve(loaded, scaled):
                return step
        return _STEPS_PER_ITEM * len(self.items)

    def _relieve(self, loaded: int, scaled: F64) -> bool:
        for partner in _least(scaled):
            step = self._best(loaded, partner)
            if step is not None and step.larger < scaled[loaded] - _LEAST_GAIN:
                self._move(step.give, loaded, partner)
                if step.take is not None:
                    self._move(step.take, partner, loaded)
                return True
        return False

    def _best(self, loaded: int, partner: int) -> _Step | None:
        """The move or swap after which the larger of the two loads is least."""
        weight = self.items.relative
        ideal = float(
            (self.load[loaded] * weight[partner] - self.load[partner] * weight[loaded])
            / (weight[loaded] + weight[partner])
        )
        best: _Step | None = None
        for give, take in _near(self.items_of[loaded], self.items_of[partner], ideal):
            over = give[0] - (take[0] if take else 0.0)
            larger = max((self.load[loaded] - over) / weight[loaded], (self.load[partner] + over) / weight[partner])
            if best is None or larger < best.larger:
                best = _Step(float(larger), give, take)
        return best

    def _move(self, item: _Item, source: int, target: int) -> None:
        del self.items_of[source][bisect_left(self.items_of[source], item)]
        insort(self.items_of[target], item)
        self.at[item[1]] = target
        self.load[source] -= item[0]
        self.load[target] += item[0]


def _near(loaded_items: list[_Item], partner_items: list[_Item], ideal: float) -> Iterator[tuple[_Item, _Item | None]]:
    """Moves and swaps that hand over about the ideal. The larger load falls and then rises with what is handed
    over, so for each item of the shorter list only its two nearest counterparts need a look."""
    for give in _neighbours(loaded_items, ideal):
        yield give, None
    if len(loaded_items) <= len(partner_items):
        for give in loaded_items:
            for take in _neighbours(partner_items, give[0] - ideal):
                yield give, take
    else:
        for take in partner_items:
            for give in _neighbours(loaded_items, take[0] + ideal):
                yield give, take


def _neighbours(ordered: list[_Item], load: float) -> list[_Item]:
    at = bisect_left(ordered, (load, -1))
    return ordered[max(at - 1, 0) : at + 1]


def _least(scaled: F64) -> list[int]:
    """The least loaded partitions, least first."""
    if len(scaled) <= _PARTNERS:
        return [int(p) for p in np.argsort(scaled, kind="stable")]
    few = np.sort(np.argpartition(scaled, _PARTNERS)[:_PARTNERS])
    return [int(p) for p in few[np.argsort(scaled[few], kind="stable")]]
