"""When a replica looks at the rounds of a stream next, as a value: each method gives the next value.

A look costs a request to the store, so most reports wait a little for others to come. The last report that a round
waits for, and news while an agent waits for its answer, are looked at now. A named tuple, for speed: it changes with
every report.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import NamedTuple

__all__ = ["WakeUps"]

_COALESCE, _MOST_COALESCE = 0.01, 0.05
"""A wake-up that is not urgent is put off by so much of a DSYNC, and by at most so many seconds."""
_IDLE = 30.0
_USE = 1.0  # seconds that the time of the last use may be off
_NEVER = float("inf")


class WakeUps(NamedTuple):
    """``look_at`` and ``used`` (by an agent) are times of this replica's clock. ``missing`` are the live agents that
    the open round waited for when it was looked at last, ``unreported`` how many of them have not reported here since.
    ``rounds``: the open round and the last merged one, as far as this replica knows."""

    look_at: float
    used: float
    delay: float = 0.0
    live: AbstractSet[str] = frozenset()
    missing: AbstractSet[str] = frozenset()
    unreported: int = 0
    rounds: tuple[int, int] = (0, 0)

    # -- what wakes

    def now(self, now: float) -> WakeUps:
        """Look at once."""
        return self if self.look_at <= now else self._replace(look_at=now)

    def soon(self, now: float) -> WakeUps:
        """Look when others have had time to come as well."""
        return self if self.look_at <= now + self.delay else self._replace(look_at=now + self.delay)

    def after_use(self, now: float) -> WakeUps:
        """An agent is here."""
        return self if now - self.used < _USE else self._replace(used=now)

    def after_report(self, agent: str, now: float) -> WakeUps:
        """A report was stored. The last one that is missing is looked at now. Where an agent reports twice in a round
        that may be too early, which does no harm."""
        wake_ups = self._replace(unreported=self.unreported - 1) if agent in self.missing else self
        return wake_ups.soon(now) if wake_ups.unreported > 0 else wake_ups.now(now)

    def after_news(self, rounds: tuple[int, int] | None, now: float, *, waiting: bool) -> WakeUps:
        """Another replica did something, or this one, which it knows. ``waiting``: an agent waits for an answer."""
        if rounds is not None and rounds[0] <= self.rounds[0] and rounds[1] <= self.rounds[1]:
            return self
        return self.now(now) if waiting else self.soon(now)

    # -- what the driver does

    def before_look(self) -> WakeUps:
        """What comes from now on may be missed by this look."""
        return self._replace(look_at=_NEVER)

    def after_look(
        self, live: AbstractSet[str], missing: AbstractSet[str], rounds: tuple[int, int], dsync: float
    ) -> WakeUps:
        """The store said this."""
        delay = min(_COALESCE * dsync, _MOST_COALESCE)
        return self._replace(delay=delay, live=live, missing=missing, unreported=len(missing), rounds=rounds)

    def before_seal(self) -> WakeUps:
        """Who reports from now on does so in the next round, which waits for everybody again."""
        return self._replace(missing=self.live, unreported=len(self.live))

    def after_merge(self, epoch: int) -> WakeUps:
        """A round was merged here."""
        return self._replace(rounds=(epoch + 1, epoch))

    def after_wait(self, seconds: float, now: float) -> WakeUps:
        """Nothing is due for so long."""
        return self if self.look_at <= now + seconds else self._replace(look_at=now + seconds)

    def is_idle(self, now: float, longest_round: float, *, waiting: bool) -> bool:
        """Whether no agent has been here for so long that none is expected."""
        return not waiting and now - self.used > max(_IDLE, longest_round)
