"""Whether it is worth asking: a circuit breaker, as a passive machine with the clock passed in.

Closed: ask. After ``failures`` failures in a row it is open: do not ask for ``cooldown`` seconds. Then half open: one
call is let through as a probe, the others are not. Success closes the breaker, failure opens it again for twice as
long, up to ``longest``.

A caller with one call at a time asks ``allow``. Where many calls run at once each takes a ticket from ``enter`` and
hands it back with its result: the result of a call that began before the breaker last opened is then ignored.

Not thread-safe: its driver holds a lock or is one thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from unskew.core.errors import ConfigError

__all__ = ["CLOSED", "HALF_OPEN", "OPEN", "Breaker"]

CLOSED, OPEN, HALF_OPEN = "closed", "open", "half open"


@dataclass
class Breaker:
    """``allow`` (or ``enter``) before each call, then ``success`` or ``failure``.

    ``probe_timeout``: seconds after which the next probe is let through where one has no result yet. None: as long as
    the pause before it; infinite for a driver that hands back every ticket. Methods take ``now``, the time in seconds
    of any clock that does not go back, and ``ticket``, what ``enter`` returned for the call.

    >>> breaker = Breaker(failures=1, cooldown=1.0)
    >>> breaker.failure(now=0.0)
    >>> breaker.allow(0.5), breaker.allow(1.0), breaker.allow(1.0)
    (False, True, False)
    """

    failures: int = 5
    cooldown: float = 1.0
    longest: float = 30.0
    probe_timeout: float | None = None
    _in_a_row: int = field(default=0, init=False)
    _pause: float = field(default=0.0, init=False)
    _open_until: float | None = field(default=None, init=False)
    _probe_until: float | None = field(default=None, init=False)
    _turn: int = field(default=0, init=False)  # another one each time it opens, and for each probe

    def __post_init__(self) -> None:
        if self.failures < 1:
            raise ConfigError("failures", self.failures, "1 or more")
        if not 0.0 < self.cooldown <= self.longest < float("inf"):
            raise ConfigError("cooldown", (self.cooldown, self.longest), "0 < cooldown <= longest, in seconds")
        if self.probe_timeout is not None and not self.probe_timeout > 0.0:
            raise ConfigError("probe_timeout", self.probe_timeout, "seconds above 0, or None for the last pause")

    def state(self, now: float) -> str:
        """ "closed", "open" or "half open"."""
        if self._open_until is None:
            return CLOSED
        return OPEN if now < self._open_until and self._probe_until is None else HALF_OPEN

    def wait(self, now: float) -> float:
        """Seconds until it is worth to ask ``allow`` again."""
        return 0.0 if self._open_until is None else max(self._next_probe(self._open_until) - now, 0.0)

    def allow(self, now: float) -> bool:
        """Whether to make the call. Half open, the first to ask is the one that may."""
        return self.enter(now) is not None

    def enter(self, now: float) -> int | None:
        """A ticket for a call, to be handed back to ``success``, ``failure`` or ``abandoned``; None: do not call."""
        if self._open_until is not None:
            if now < self._next_probe(self._open_until):
                return None
            self._probe_until = now + (self._pause if self.probe_timeout is None else self.probe_timeout)
            self._turn += 1
        return self._turn

    def success(self, ticket: int | None = None) -> None:
        """A call was answered."""
        if ticket in (None, self._turn):
            self._in_a_row, self._pause, self._open_until, self._probe_until = 0, 0.0, None, None

    def failure(self, now: float, ticket: int | None = None) -> None:
        """A call was not answered."""
        if ticket not in (None, self._turn):
            return
        self._in_a_row += 1
        probing = self._probe_until is not None
        if self._open_until is not None and not probing:
            return  # of a call that had begun before it opened
        if probing or self._in_a_row >= self.failures:
            self._pause = min(self._pause * 2, self.longest) if self._pause else self.cooldown
            self._open_until, self._probe_until, self._turn = now + self._pause, None, self._turn + 1

    def abandoned(self, ticket: int) -> None:
        """The caller gave up before there was a result: nothing is known of the service, the next call may probe."""
        if ticket == self._turn:
            self._probe_until = None

    def _next_probe(self, open_until: float) -> float:
        return open_until if self._probe_until is None else self._probe_until
