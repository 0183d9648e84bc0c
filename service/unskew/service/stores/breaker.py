"""When not to ask a store that does not answer: a passive machine, time passed in.

After ``failures`` operations in a row without an answer it opens, and operations fail at once instead of each waiting
for its deadline. ``rest`` seconds later one is let through as a probe: if it gets an answer all are let through, else
it rests again, twice as long up to ``most``. What was asked before it opened says nothing about the time after.
"""

from __future__ import annotations

from unskew.core.errors import ConfigError

__all__ = ["Breaker"]


class Breaker:
    """
    >>> breaker = Breaker(failures=1, rest=1.0)
    >>> breaker.failed(breaker.enter(0.0), now=0.0)
    >>> breaker.enter(0.5), breaker.enter(1.0) is None, breaker.enter(1.0)
    (None, False, None)
    """

    def __init__(self, failures: int = 5, rest: float = 0.25, most: float = 2.0) -> None:
        if failures < 1 or not 0.0 < rest <= most:
            raise ConfigError("breaker", (failures, rest, most), "1 failure or more; 0 < rest <= most, seconds")
        self._failures, self._rest, self._most = failures, rest, most
        self._row = 0
        self._until: float | None = None
        self._pause = rest
        self._probing = False
        self._turn = 0

    @property
    def open(self) -> bool:
        return self._until is not None

    def enter(self, now: float) -> int | None:
        """A ticket to ask with, or none. ``succeeded``, ``failed`` or ``abandoned`` must take it back."""
        if self._until is not None:
            if self._probing or now < self._until:
                return None
            self._probing, self._turn = True, self._turn + 1
        return self._turn

    def succeeded(self, ticket: int | None) -> None:
        if ticket == self._turn:
            self._row, self._until, self._pause, self._probing = 0, None, self._rest, False

    def failed(self, ticket: int | None, now: float) -> None:
        if ticket != self._turn:
            return
        self._row += 1
        if self._probing:
            self._pause = min(2.0 * self._pause, self._most)
        if self._probing or self._row >= self._failures:
            self._until, self._probing, self._turn = now + self._pause, False, self._turn + 1

    def abandoned(self, ticket: int | None) -> None:
        """The caller gave up before there was an answer: nothing is known, the next one may probe."""
        if ticket == self._turn:
            self._probing = False
