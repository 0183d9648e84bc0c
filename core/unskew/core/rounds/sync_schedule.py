"""Which batches of a query report: the one that is nearest to a DSYNC after the last (Dalton, section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["SyncSchedule"]

_SLOWER = 1.25


@dataclass(frozen=True)
class SyncSchedule:
    """Batches come every ``interval`` seconds. ``needs`` is the least DSYNC that they allow. ``took``: the seconds of
    the last batch; None before the second one, because the first after a start is slow."""

    interval: float
    needs: float
    first: bool = True
    took: float | None = None

    @classmethod
    def of(cls, interval: float) -> SyncSchedule:
        return cls(interval, interval)

    def after(self, seconds: float) -> SyncSchedule:
        """After a batch that took so long. Two slow ones in a row need a longer DSYNC."""
        if self.first:
            return replace(self, first=False)
        needs = 2.0 * min(seconds, seconds if self.took is None else self.took)
        slow = self.took is not None and needs > _SLOWER * self.needs
        return replace(self, needs=needs if slow else self.needs, took=seconds)

    def due(self, now: float, last: float, dsync: float) -> bool:
        """Whether the batch that begins now reports: it is the nearest one to a DSYNC after the last that did."""
        return not self.first and now + self.interval / 2.0 >= last + dsync
