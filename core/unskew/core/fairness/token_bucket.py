"""So many a second and so many at once, for each of many names: token buckets as a passive machine.

A bucket is one number, the time at which it will be full again (virtual scheduling). One that is full is the same as
none, so it costs nothing to forget it. Of more names than ``most`` those that asked least recently are forgotten.
"""

from __future__ import annotations

from collections import OrderedDict

from unskew.core.errors import ConfigError

__all__ = ["TokenBuckets"]


class TokenBuckets:
    """``rate`` tokens a second for each name, at most those of ``seconds`` at once, but one at least.

    >>> buckets = TokenBuckets(rate=10.0, seconds=0.2)
    >>> [round(buckets.take("etl", now=0.0), 6) for _ in range(3)]
    [0.0, 0.0, 0.1]
    >>> buckets.take("etl", now=0.1)
    0.0
    """

    def __init__(self, rate: float, seconds: float, most: int = 10_000) -> None:
        if not 0.0 < rate < float("inf") or not 0.0 <= seconds < float("inf"):
            raise ConfigError("rate", (rate, seconds), "tokens a second above 0, and seconds from 0 on")
        self.rate, self.seconds, self._most = rate, seconds, most
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, name: str, now: float, debt: float = 0.0, rate: float | None = None) -> float:
        """Seconds until there is a token. It is taken where these are at most ``debt``; the next one is then as much
        later. ``now`` never goes back; ``rate``: of this name, if not that of all."""
        token = 1.0 / (rate or self.rate)
        full_at = max(self._full_at.get(name, now), now) + token
        wait = max(0.0, full_at - now - max(self.seconds, token))
        if wait <= debt + 1e-9:
            self._full_at[name] = full_at
            if len(self._full_at) > self._most:
                self._full_at.popitem(last=False)
        self._full_at.move_to_end(name)
        return wait if wait > 1e-9 else 0.0
