"""How often agents report: the adaptive interval DSYNC (Dalton, section 4.1, end, and Fig. 14b).

The paper: DSYNC doubles when an agent asked for it, and decreases when the reducer is idle for longer than it works.
Here it is x2 and /2 within bounds above 0. A plain value and its transition, one a round.

That rule alone flaps where an interval is long enough by the reducer's clock and too short by the agents' (their
messages take time too), or where the work of a round varies. So, beyond the paper, an interval that was refused leaves
a ``Bar``: to go back to it takes ``calm`` good rounds in a row, with work below 0.8 of what was complained of. Each
refusal doubles ``calm``; a return that lasts four times as many rounds clears the bar. If work does not get less, the
bar is tried again after 32 times as many. If it was not the reducer's work (under 0.8 of the interval: a slow network,
a lost message) there is nothing to wait for, and ``calm`` rounds are enough.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["Bar", "DsyncBounds", "Interval", "Round"]

_CALM = 2
_MOST_CALM = 256
_LASTS = 4
_RETRY = 32
_BELOW = 0.8
_OWN = 0.8


@dataclass(frozen=True)
class DsyncBounds:
    """dsync_min and dsync_max, in seconds."""

    least: float
    most: float


@dataclass(frozen=True)
class Round:
    """What one round showed. ``idle`` is from the end of the merge before to the first report, ``work`` the merge."""

    asked: bool
    idle: float | None  # None in the first round
    work: float
    blamed: float  # the work of the merge that a request complains of: the one before


@dataclass(frozen=True)
class Bar:
    """This interval was too short when the work was ``work``; it takes ``calm`` good rounds to go back to it."""

    interval: float
    work: float
    calm: int

    def opens(self, good: int, below: int) -> bool:
        """Whether so many good rounds, and so many at the end of them with less work, are enough to try again."""
        own = self.work >= _OWN * self.interval
        return below >= self.calm or good >= (_RETRY if own else 1) * self.calm


@dataclass(frozen=True)
class Interval:
    """DSYNC, and how many rounds in a row nobody asked, the reducer idled longer, the work was also below the bar."""

    value: float
    bars: tuple[Bar, ...] = ()
    unasked: int = 0
    good: int = 0
    below: int = 0

    def after(self, shown: Round, bounds: DsyncBounds) -> Interval:
        """The interval from the end of this round on."""
        return self._longer(shown, bounds) if shown.asked else self._quiet(shown, bounds)

    def _longer(self, shown: Round, bounds: DsyncBounds) -> Interval:
        doubled = min(2.0 * self.value, bounds.most)
        if doubled == self.value:
            return replace(self, unasked=0, good=0, below=0)
        old = self._bar(self.value)
        bar = Bar(self.value, shown.blamed, _CALM)
        if old is not None:
            bar = Bar(self.value, min(old.work, shown.blamed), min(2 * old.calm, _MOST_CALM))
        return Interval(doubled, (*self._without(self.value), bar))

    def _quiet(self, shown: Round, bounds: DsyncBounds) -> Interval:
        halved = max(self.value / 2.0, bounds.least)
        bar = self._bar(halved)
        # The first reports under a new value waited under the old one: they say nothing of the new.
        judged = self.unasked > 0 and halved < self.value
        good = judged and shown.idle is not None and shown.idle > shown.work
        below = good and bar is not None and shown.work < _BELOW * bar.work
        quiet = replace(
            self, unasked=self.unasked + 1, good=self.good + 1 if good else 0, below=self.below + 1 if below else 0
        )
        own = self._bar(self.value)
        if own is not None and quiet.unasked >= _LASTS * own.calm:
            quiet = replace(quiet, bars=self._without(self.value))
        free = bar is None or bar.opens(quiet.good, quiet.below)
        return Interval(halved, quiet.bars) if quiet.good and free else quiet

    def _bar(self, interval: float) -> Bar | None:
        return next((bar for bar in self.bars if bar.interval == interval), None)

    def _without(self, interval: float) -> tuple[Bar, ...]:
        return tuple(bar for bar in self.bars if bar.interval != interval)
