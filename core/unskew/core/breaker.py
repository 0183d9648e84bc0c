"""Whether it is worth asking: a circuit breaker, as a passive machine with the clock passed in.

Closed: ask. After ``failures`` failures in a row it is open: do not ask for ``cooldown`` seconds. Then half open: one
asks, the others do not; success closes it, failure opens it again for twice as long, up to ``longest``. One who asks
and never tells the result does not block it: after another cooldown the next one may.

Not thread-safe: its driver holds a lock or is one thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from unskew.core.errors import ConfigError

__all__ = ["CLOSED", "HALF_OPEN", "OPEN", "Breaker"]

CLOSED, OPEN, HALF_OPEN = "closed", "open", "half open"


@dataclass
class Breaker:
    """``allow`` before each call, then ``success`` or ``failure``."""

    failures: int = 5
    cooldown: float = 1.0
    longest: float = 30.0
    _in_a_row: int = field(default=0, init=False)
    _pause: float = field(default=0.0, init=False)
    _until: float | None = field(default=None, init=False)
    _probing: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.failures < 1:
            raise ConfigError("failures", self.failures, "1 or more")
        if not 0.0 < self.cooldown <= self.longest < float("inf"):
            raise ConfigError("cooldown", (self.cooldown, self.longest), "0 < cooldown <= longest, in seconds")

    def state(self, now: float) -> str:
        if self._until is None:
            return CLOSED
        return OPEN if now < self._until and not self._probing else HALF_OPEN

    def wait(self, now: float) -> float:
        """Seconds until it is worth to ask ``allow`` again."""
        return 0.0 if self._until is None else max(self._until - now, 0.0)

    def allow(self, now: float) -> bool:
        """Whether to make the call. Half open, the first to ask is the one that may."""
        if self._until is None:
            return True
        if now < self._until:
            return False
        self._probing, self._until = True, now + self._pause
        return True

    def success(self) -> None:
        self._in_a_row, self._pause, self._until, self._probing = 0, 0.0, None, False

    def failure(self, now: float) -> None:
        self._in_a_row += 1
        if self._until is not None and not self._probing:
            return  # of a call that had begun before it opened
        if self._probing or self._in_a_row >= self.failures:
            self._pause = min(self._pause * 2, self.longest) if self._pause else self.cooldown
            self._until, self._probing = now + self._pause, False
