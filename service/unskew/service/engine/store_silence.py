"""How long a call waits for the store where it could be answered from what is known here: a passive machine.

The first call of an outage waits for its patience, all others for what is left of it: once the store is known not to
answer nobody waits. It is asked all the same, behind the callers' backs, and its first answer ends the silence.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StoreSilence"]


@dataclass
class StoreSilence:
    """``now``: seconds of any clock that does not go back. Callers of different patience share one silence, so a store
    that is slow for one is not away for another.

    >>> silence = StoreSilence()
    >>> silence.asked(now=10.0)
    >>> silence.left(0.25, now=10.0), silence.left(0.25, now=10.125), silence.left(0.25, now=99.0)
    (0.25, 0.125, 0.0)
    """

    _since: float | None = None

    def asked(self, now: float) -> None:
        """A small question was sent."""
        if self._since is None:
            self._since = now

    def answered(self) -> None:
        """Any answer came."""
        self._since = None

    def left(self, patience: float, now: float) -> float:
        """Seconds that a call of this patience may wait now."""
        return patience if self._since is None else max(0.0, self._since + patience - now)
