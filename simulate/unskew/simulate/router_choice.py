"""Which router a windowed aggregation should have: Holistic's selection rule (section 7) and its Eq. 3.

The rule: if the number of groups is constant and far below the rows of a worker in a window, shuffle; else AM or cAM.
"Far below" is made a figure by Eq. 3: the partial results of a shuffle, at most one for each of the keys on each worker
(Proposition 1), may not outnumber the rows of the largest task, else merging would cost more than it spares. The
paper's two regimes are the two far ends. Between them keys are few enough for a shuffle, but so many that whole ones
could be as even: there the linear cost of the slowest task and of what must be merged decides.

Deviations from the paper: that comparison; the largest task of Eq. 3 is the one with whole keys, which a shuffle would
relieve; of AM and cAM the one that evens what costs more, keys or rows. Between the regimes PK often costs less than
either (``benchmarks/holistic_figures.py``): the paper's rule does not know it, and neither does this one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from unskew.core.errors import ConfigError
from unskew.core.quality.measures import LinearCost

__all__ = ["Recommendation", "Workload", "affordable", "most_fragments", "recommend"]

_ABOVE = 2  # mean keys that two choices leave the fullest worker with above its share (measured: 1 to 7)


@dataclass(frozen=True)
class Workload:
    """An expected window: rows, distinct keys, and rows of the heaviest key (None: all keys have the same).
    ``constant``: whether the number of keys stays the same when the stream grows."""

    rows: int
    keys: int
    workers: int
    heaviest: int | None = None
    constant: bool = True

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ConfigError("rows", self.rows, "1 or more: an empty window has nothing to route")
        if not 1 <= self.keys <= self.rows:
            raise ConfigError("keys", self.keys, f"1 to {self.rows}, the rows of the window")
        if self.workers < 1:
            raise ConfigError("workers", self.workers, "1 or more")
        if self.heaviest is not None and not self.rows <= self.heaviest * self.keys <= self.rows * self.keys:
            least = math.ceil(self.rows / self.keys)
            raise ConfigError("heaviest", self.heaviest, f"{least} to {self.rows}: a mean key's rows to all rows")


@dataclass(frozen=True)
class Recommendation:
    """A router by name, and why. ``whole`` and ``shuffled`` are the two predicted costs of a window, in rows: the
    slowest task and the merging, keys kept whole as well as can be or spread over all workers."""

    router: str
    reason: str
    whole: float
    shuffled: float


def affordable(fragments: int, largest: int) -> bool:
    """Holistic, Eq. 3: merging the partial results costs no more than the largest task."""
    return fragments <= largest


def most_fragments(rows: int, keys: int, workers: int) -> int:
    """Proposition 1: the most partial results that a window can leave; a row makes one at most."""
    return min(rows, keys * workers)


def recommend(window: Workload, cost: LinearCost | None = None) -> Recommendation:
    """Holistic's selection rule.

    >>> recommend(Workload(rows=1_000_000, keys=4, workers=16)).router
    'shuffle'
    >>> recommend(Workload(rows=60_000, keys=40_000, workers=16)).router
    'cam'
    """
    cost = cost or LinearCost()
    whole, shuffled = _whole(window, cost), _shuffled(window, cost)
    router, reason = _chosen(window, whole, shuffled, _affine(window, cost))
    return Recommendation(router, reason, whole, shuffled)


def _chosen(window: Workload, whole: float, shuffled: float, affine: str) -> tuple[str, str]:
    fragments, largest = most_fragments(window.rows, window.keys, window.workers), _largest(window)
    evens = f"{affine} keeps every key whole and evens {'keys' if affine == 'am' else 'rows'}"
    if window.workers == 1:
        return "hash", "There is one worker: nothing to choose."
    if not window.constant:
        return affine, f"The number of groups grows with the stream, and with it what a shuffle must merge; {evens}."
    if not affordable(fragments, largest):
        return affine, (
            f"A shuffle could leave {fragments:,} partial results to merge, more than the {largest:,} rows of the"
            f" largest task (Eq. 3); {evens}."
        )
    if whole <= shuffled:
        return affine, (
            f"{window.keys:,} groups are few enough to shuffle, but kept whole a window costs {whole:,.0f} rows,"
            f" shuffled {shuffled:,.0f}; {evens}."
        )
    return "shuffle", (
        f"{window.keys:,} groups are constant and far fewer than a worker's rows: shuffled a window costs"
        f" {shuffled:,.0f} rows, with whole keys {whole:,.0f}."
    )


def _affine(window: Workload, cost: LinearCost) -> str:
    """AM where keys cost more than rows do, else cAM."""
    return "am" if cost.per_key * window.keys > cost.per_row * window.rows else "cam"


def _shuffled(window: Workload, cost: LinearCost) -> float:
    """Even rows, every key everywhere."""
    share = window.rows / window.workers
    merged = most_fragments(window.rows, window.keys, window.workers)
    return cost.per_row * share + cost.per_key * min(window.keys, share) + cost.per_fragment * merged


def _largest(window: Workload) -> int:
    """The least that the largest task can be with whole keys: the heaviest key's rows, or, if all are alike, of the
    fullest worker, which has a whole number of them."""
    alike = math.ceil(window.keys / window.workers) * window.rows / window.keys
    heaviest = alike if window.heaviest is None else window.heaviest
    return math.ceil(max(window.rows / window.workers, heaviest))


def _whole(window: Workload, cost: LinearCost) -> float:
    """Whole keys on one of two choices. When a key first comes nobody knows how heavy it will be: the fullest worker
    ends about two mean keys above its share, if no key alone is more than that."""
    rows = max(window.rows / window.workers + _ABOVE * window.rows / window.keys, _largest(window))
    return cost.per_row * rows + cost.per_key * window.keys / window.workers + cost.per_fragment * window.keys
