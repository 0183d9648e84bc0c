"""Bytes of requests and of answers that are in this process: bounded as a whole and for each identity.

A reservation holds the bytes of one request, from before its body comes until it is answered, or those of an answer,
from before it is sent until its caller has taken it. Where there is no room an answer may wait, and a caller that has
sent nothing yet; one whose bytes are here already is refused.
"""

from __future__ import annotations

import asyncio

from unskew.service.errors import LimitError

__all__ = ["ByteBudget", "Reservation"]


class ByteBudget:
    """At most ``most`` bytes, and ``most_each`` of one identity; where that is not given, no more than there is room
    left: alone it has half. At most ``most_waiting`` wait for room. ``peak`` is the most since ``forget_peak``."""

    def __init__(self, most: int, most_each: int | None = None, most_waiting: int = 200) -> None:
        self.most, self._most_each, self.most_waiting = most, most_each, most_waiting
        self.taken = self.peak = 0
        self.of: dict[str, int] = {}
        self.waiting: dict[asyncio.Future[None], tuple[Reservation, int]] = {}

    def bound_of(self, name: str, own: int | None) -> int:
        """How many bytes this identity may have now; ``own``: if its credential says so."""
        if own or self._most_each:
            return own or self._most_each or 0
        return (self.most - self.taken + self.of.get(name, 0)) // 2

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
    """What one request or answer of this identity holds; a ``with`` block gives it back. ``own``: bytes that the
    identity may have, if its credential says so."""

    __slots__ = ("_budget", "_name", "_own", "size")

    def __init__(self, budget: ByteBudget, name: str, own: int | None = None) -> None:
        self._budget, self._name, self._own, self.size = budget, name, own, 0

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *_why: object) -> None:
        self.resize(0)

    def fits(self, size: int) -> bool:
        budget, more = self._budget, size - self.size
        bound = budget.bound_of(self._name, self._own)
        return more <= 0 or (budget.taken + more <= budget.most and budget.of.get(self._name, 0) + more <= bound)

    def resize(self, size: int) -> None:
        """Hold so many bytes; a ``LimitError`` where there is no room for them."""
        budget = self._budget
        if not self.fits(size):
            bound = budget.bound_of(self._name, self._own)
            raise LimitError(
                f"{self._name or 'callers without a credential'} or all callers together have more bytes in flight "
                f"here than are allowed, {bound:,} and {budget.most:,}; try again in a second, or send less",
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
        """The same, waiting for room for so long at most. For an answer, or a request of which nothing is read yet."""
        waiting = self._budget.waiting
        if self.fits(size) or len(waiting) >= self._budget.most_waiting:
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
