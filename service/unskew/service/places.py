"""Places for work, handed out in turns by identity (``core.fairness.fair_queue``)."""

from __future__ import annotations

import asyncio

from unskew.core.fairness.fair_queue import FairQueue
from unskew.service.caller import caller
from unskew.service.errors import LimitError

__all__ = ["Places"]

_MOST_WAITING = 1000


class Places:
    """So many places at once (``FairQueue``), handed out in equal shares of cost by identity; the others wait."""

    def __init__(self, slots: int, small: float, small_slots: int = 1, most: int = _MOST_WAITING) -> None:
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(slots, small, most, small_slots)

    async def take(self, cost: float) -> asyncio.Future[None]:
        """A place for the caller's work, when it is its turn; ``give_back`` ends it."""
        place = asyncio.get_running_loop().create_future()
        if not self._queue.put(caller(), cost, place):
            raise LimitError(
                f"{len(self._queue)} plans and histograms wait here for their turn, too many of them of "
                f"{caller() or 'this caller'}; try again in a second",
                reason="computations",
                retry=1.0,
            )
        self._begin()
        try:
            await place
        except BaseException:
            self.give_back(place)
            raise
        return place

    def give_back(self, place: asyncio.Future[None]) -> None:
        self._queue.end(place)
        self._begin()

    def _begin(self) -> None:
        while (place := self._queue.begin()) is not None:
            if not place.cancelled():  # else its caller, who is about to see that, gives it back
                place.set_result(None)
