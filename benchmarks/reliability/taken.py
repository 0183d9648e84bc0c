"""What a figure is taken with, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any

__all__ = ["Dose", "Figure", "Taken", "p99"]


@dataclass(frozen=True)
class Dose:
    """How much is tried: ``quick`` takes fewer inputs, runs and seconds; ``soak`` is how long figure 13 lasts."""

    folder: Path
    quick: bool = False
    soak: float = 3600.0
    inputs: int = 1_000_000

    def of(self, quick: int, full: int) -> int:
        return quick if self.quick else full


@dataclass(frozen=True)
class Taken:
    """``said`` is the cell of the table; ``met`` is None where nothing was measured; ``values`` are the numbers."""

    said: str
    met: bool | None
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Figure:
    """A row of the table: what is measured, which mark it has, and what measures it."""

    number: int
    what: str
    mark: str
    take: Callable[[Dose], Taken]


def p99(seconds: Sequence[float]) -> float:
    return quantiles(seconds, n=100)[98]
