"""How far plans made from the batches before are to be trusted: a passive machine, one batch's figures in, a mode out.

A plan foretells the imbalance of its batch. Where the rows then lie otherwise the plan has missed, for the stream has
drifted faster than plans follow. After ``misses`` batches in a row the next batches are counted before they are placed
(``"same"``), and where even that misses they go by plain hash. Whatever places the batches, the plan made from those
before is judged beside it: when it would have been right as often in a row, it is trusted again.

A miss is judged beyond the scatter that drawing so many rows has by itself, and only if plain hash would have done no
worse: a plan that is less good than it said and still much better than hash stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from unskew.core.errors import ConfigError

__all__ = ["Mode", "Seen", "Trust", "TrustRules"]

Mode: TypeAlias = Literal["previous", "same", "hash"]


@dataclass(frozen=True)
class TrustRules:
    """``tolerance``: by what share of the foretold imbalance the observed one may be higher."""

    misses: int = 3
    tolerance: float = 0.25

    def __post_init__(self) -> None:
        if isinstance(self.misses, bool) or not isinstance(self.misses, int) or self.misses < 1:
            raise ConfigError("misses", self.misses, "a whole number of batches in a row, 1 or more")
        if not 0.0 < self.tolerance <= 10.0:
            raise ConfigError("tolerance", self.tolerance, "above 0 and up to 10 (0.25: a quarter above the foretold)")


@dataclass(frozen=True)
class Seen:
    """A batch: the imbalance (fullest partition over the mean) that its plan foretold, that its rows had, that they
    would have had by plain hash; and what the plan from the batches before foretold and would have given. ``noise`` is
    the relative scatter of such figures."""

    foretold: float
    observed: float
    by_hash: float
    other_foretold: float
    other: float
    noise: float = 0.0


@dataclass(frozen=True)
class Trust:
    """The mode for the next batch, and how many batches in a row speak for another one. ``surprised``: the last batch
    lay otherwise than the plan from those before it foretold."""

    mode: Mode = "previous"
    missed: int = 0
    right: int = 0
    surprised: bool = False

    def after(self, seen: Seen, rules: TrustRules) -> tuple[Trust, str | None]:
        """The next state, and in words what has changed, if anything has."""
        surprised = _far(seen.other_foretold, seen.other, seen, rules)
        missed = self.missed + 1 if _misses(seen.foretold, seen.observed, seen, rules) else 0
        right = 0 if _misses(seen.other_foretold, seen.other, seen, rules) else self.right + 1
        if self.mode != "previous" and right >= rules.misses:
            told = f"plans from the batches before would have been right for {right} batches: used again"
            return Trust(surprised=surprised), told
        if self.mode == "hash" or missed < rules.misses:
            return Trust(self.mode, missed, right, surprised), None
        figures = f"foretold imbalance {seen.foretold:.2f}, observed {seen.observed:.2f}, by hash {seen.by_hash:.2f}"
        if self.mode == "previous":
            told = f"{missed} batches in a row missed ({figures}): batches are counted before they are placed"
            return Trust("same", surprised=surprised), told
        told = f"{missed} counted batches in a row missed ({figures}): by plain hash for now"
        return Trust("hash", surprised=surprised), told


def _far(foretold: float, observed: float, seen: Seen, rules: TrustRules) -> bool:
    return observed > foretold * (1.0 + rules.tolerance) * (1.0 + seen.noise)


def _misses(foretold: float, observed: float, seen: Seen, rules: TrustRules) -> bool:
    return _far(foretold, observed, seen, rules) and observed > seen.by_hash / (1.0 + rules.tolerance)
