"""The settings of ``for_each_batch``, checked: plain values, which Spark Connect can pickle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from unskew.core.errors import ConfigError
from unskew.core.freshness.ways import Fresh
from unskew.core.scaling.elastic import Elastic
from unskew.spark.frame.keys import AUTO, Columns, quoted
from unskew.spark.streaming.queries import check_given

__all__ = ["Fresh", "StreamingSettings", "names_only"]

_GUESSED = 10.0


@dataclass(frozen=True)
class StreamingSettings:
    """The arguments of ``Unskew.for_each_batch``; ``key`` and ``spread`` are names of columns."""

    key: tuple[str, ...]
    checkpoint: str
    name: str
    spread: tuple[str, ...] = (AUTO,)
    fresh: Fresh = "auto"
    learn: bool = False
    threshold: int = 10_000
    deadline: float = 0.2
    persist: bool = False
    column: str | None = None
    interval: float | None = None
    elastic: Elastic | None = None

    def __post_init__(self) -> None:
        check_given(self.checkpoint, self.name)
        if self.fresh not in get_args(Fresh):
            raise ConfigError("fresh", self.fresh, get_args(Fresh))
        if self.learn and self.fresh == "same":
            raise ConfigError("fresh", self.fresh, "'auto' where learn=True: tasks count their rows themselves")
        if isinstance(self.threshold, bool) or not isinstance(self.threshold, int) or self.threshold < 0:
            raise ConfigError("threshold", self.threshold, "a whole number of rows, 0 or more")
        if not 0.0 <= self.deadline <= 60.0:
            raise ConfigError("deadline", self.deadline, "seconds, 0 to 60")
        if self.learn and self.elastic is not None:
            raise ConfigError(
                "elastic", self.elastic, "None where learn=True: a Q-table is for one number of partitions"
            )
        if self.interval is not None and not 0.0 < self.interval <= 1e6:
            raise ConfigError("interval", self.interval, "seconds above 0")
        if self.interval is None and self.elastic is not None:
            raise ConfigError("interval", None, "the trigger's seconds, against which elastic= holds a batch's time")

    @property
    def pace(self) -> float:
        """Seconds from one batch to the next, as given or guessed."""
        return _GUESSED if self.interval is None else self.interval

    @property
    def keys(self) -> Columns:
        return list(self.key)

    @property
    def spread_columns(self) -> Columns:
        return AUTO if self.spread == (AUTO,) else list(self.spread)

    def spread_of_pin(self, names: tuple[str, ...]) -> Columns:
        """The spread columns that a pin names. What "auto" stood for are names as they stand, dots and all."""
        if not names:
            return self.spread_columns
        return [quoted(name) for name in names] if self.spread == (AUTO,) else list(names)


def names_only(what: str, given: Columns) -> tuple[str, ...]:
    """Columns by their names: what a pin can hold, and another process understands."""
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, (list, tuple)) else ()
    if not names or not all(isinstance(one, str) and one for one in names):
        raise ConfigError(
            what,
            given,
            "names of columns, which a pin keeps as text: add an expression as a column first, with withColumn",
        )
    return tuple(str(one) for one in names)
