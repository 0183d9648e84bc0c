"""Bytes of requests that are in this process: bounded as a whole and for each identity, and taken before they are read.

A reservation holds the bytes of one request, from before its body comes until it is answered. Where there is no room a
caller that has sent nothing yet may wait; one whose bytes are here already is refused.
"""

from __future__ import annotations

import asyncio

from unskew.service.errors import LimitError

__all__ = ["ByteBudget", "Reservation"]

_MOST_WAITING = 200


class ByteBudget:
    """At most ``most`` bytes, and ``most_each`` of one identity. ``peak`` is the most since ``forget_peak``."""

    def __init__(self, most: int, most_each: int) -> None:
        self.most, self.most_each = most, most_each
        self.taken = self.peak = 0
        self.of: dict[str, int] = {}
        self.waiting: dict[asyncio.Future[None], tuple[Reservation, int]] = {}

    def grant(self) -> None:
        """Give room to those who wait and have some now, the first ones first."""
        for granted, (reservation, size) in list(self.waiting.items()):
            if not granted.done() and reservation.fits(size):
                reservation.resize(size)
                granted.set_result(None)

    def forget_peak(self) -> int:
        peak, self.peak = self.peak, self.taken
        return peak


class Reservation:
    """What one request of this identity holds; a ``with`` block gives it back. ``most``: bytes of the identity, if not
    as many as of any."""

    __slots__ = ("_budget", "_most", "_name", "size")

    def __init__(self, budget: ByteBudget, name: str, most: int | None = None) -> None:
        self._budget, self._name, self._most, self.size = budget, name, most or budget.most_each, 0

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *_why: object) -> None:
        self.resize(0)

    def fits(self, size: int) -> bool:
        budget, more = self._budget, size - self.size
        return more <= 0 or (budget.taken + more <= budget.most and budget.of.get(self._name, 0) + more <= self._most)

    def resize(self, size: int) -> None:
        """Hold so many bytes; a ``LimitError`` where there is no room for them."""
        budget = self._budget
        if not self.fits(size):
            raise LimitError(
                f"{self._name or 'callers without a credential'} or all callers together have more bytes in flight "
                f"here than are allowed, {self._most:,} and {budget.most:,}; try again in a second, or send less",
                reason="bytes",
                retry=1.0,
            )
        more = size - self.size
        self.size = size
        budget.taken += more
        budget.peak = max(budget.peak, budget.taken)
        left = budget.of.get(self._name, 0) + more
        if left:
            budget.of[self._name] = left
        else:
            budget.of.pop(self._name, None)
        if more < 0 and budget.waiting:
            budget.grant()

    async def wait(self, size: int, seconds: float) -> None:
        """The same, waiting for room for so long at most. Only for a request of which nothing has been read yet."""
        waiting = self._budget.waiting
        if self.fits(size) or len(waiting) >= _MOST_WAITING:
            self.resize(size)
            return
        granted = asyncio.get_running_loop().create_future()
        waiting[granted] = (self, size)
        try:
            await asyncio.wait((granted,), timeout=seconds)
        finally:
            waiting.pop(granted, None)
        if not granted.done():
            self.resize(size)
