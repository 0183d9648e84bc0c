"""How far plans made from the batches before are trusted: a passive machine, one batch's figures in, a mode out.

A plan predicts the imbalance of its batch. If the batch is less even than predicted, the stream has drifted faster than
plans follow. After ``misses`` such batches in a row the next batches are counted before they are placed (``"same"``);
if even those plans miss, batches go by plain hash. In every mode the plan from the batches before is judged as well:
when it would have been right as often in a row, it is used again.

A miss must exceed the scatter that a draw of so many rows has anyway, and counts only if plain hash would have been no
worse: a plan that is less good than predicted and still much better than hash stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from unskew.core.errors import ConfigError

__all__ = ["BatchImbalance", "Mode", "Trust", "TrustRules"]

Mode: TypeAlias = Literal["previous", "same", "hash"]


@dataclass(frozen=True)
class TrustRules:
    """``tolerance``: by what share of the predicted imbalance the observed one may be higher."""

    misses: int = 3
    tolerance: float = 0.25

    def __post_init__(self) -> None:
        if isinstance(self.misses, bool) or not isinstance(self.misses, int) or self.misses < 1:
            raise ConfigError("misses", self.misses, "a whole number of batches in a row, 1 or more")
        if not 0.0 < self.tolerance <= 10.0:
            raise ConfigError("tolerance", self.tolerance, "above 0 and up to 10 (0.25: a quarter above predicted)")


@dataclass(frozen=True)
class BatchImbalance:
    """A batch's imbalances, fullest partition over the mean.

    ``predicted`` by its plan, ``observed`` of its rows, and ``by_hash`` if they had been hashed; ``other_predicted``
    and ``other`` are those of the plan from the batches before. ``noise`` is the relative scatter of such figures.
    """

    predicted: float
    observed: float
    by_hash: float
    other_predicted: float
    other: float
    noise: float = 0.0


@dataclass(frozen=True)
class Trust:
    """The mode for the next batch, and how many batches in a row speak for another one. ``surprised``: the last batch
    was less even than the plan from those before it predicted."""

    mode: Mode = "previous"
    missed: int = 0
    right: int = 0
    surprised: bool = False

    def after(self, batch: BatchImbalance, rules: TrustRules) -> tuple[Trust, str | None]:
        """The next state, and what has changed in words, or None."""
        surprised = _exceeds(batch.other_predicted, batch.other, batch, rules)
        missed = self.missed + 1 if _misses(batch.predicted, batch.observed, batch, rules) else 0
        right = 0 if _misses(batch.other_predicted, batch.other, batch, rules) else self.right + 1
        if self.mode != "previous" and right >= rules.misses:
            change = f"plans from the batches before would have been right for {right} batches: used again"
            return Trust(surprised=surprised), change
        if self.mode == "hash" or missed < rules.misses:
            return Trust(self.mode, missed, right, surprised), None
        figures = (
            f"predicted imbalance {batch.predicted:.2f}, observed {batch.observed:.2f}, by hash {batch.by_hash:.2f}"
        )
        if self.mode == "previous":
            change = f"{missed} batches in a row missed ({figures}): batches are counted before they are placed"
            return Trust("same", surprised=surprised), change
        change = f"{missed} counted batches in a row missed ({figures}): by plain hash for now"
        return Trust("hash", surprised=surprised), change


def _exceeds(predicted: float, observed: float, batch: BatchImbalance, rules: TrustRules) -> bool:
    return observed > predicted * (1.0 + rules.tolerance) * (1.0 + batch.noise)


def _misses(predicted: float, observed: float, batch: BatchImbalance, rules: TrustRules) -> bool:
    return _exceeds(predicted, observed, batch, rules) and observed > batch.by_hash / (1.0 + rules.tolerance)
