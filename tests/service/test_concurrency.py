"""What the service adds to asyncio."""

from __future__ import annotations

import asyncio

import pytest

from tests.service.engines import run
from unskew.service.concurrency import Signal, SingleFlight


def test_a_signal_wakes_who_waits_and_stays_set_until_it_is_cleared() -> None:
    """Whoever waits for one that is set does not wait."""

    async def main() -> None:
        signal = Signal()
        waiting = asyncio.create_task(signal.wait(60.0))
        await asyncio.sleep(0)
        signal.set()
        assert await waiting
        assert await signal.wait(60.0)
        signal.clear()
        assert not await signal.wait(0.0)

    run(main())


def test_a_cancellation_that_comes_while_a_signal_is_set_is_not_lost() -> None:
    """A watch that is closed in the moment of a report would go on for ever."""

    async def main() -> None:
        signal = Signal()
        waiting = asyncio.create_task(signal.wait(60.0))
        await asyncio.sleep(0)
        signal.set()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(main())


def test_a_call_that_has_ended_is_not_the_answer_to_who_asks_next() -> None:
    """Also in the moment before it is removed: else a loop around it would never end, and hold up all others."""

    async def main() -> None:
        flight: SingleFlight[int] = SingleFlight()
        answers = iter(range(3))

        async def ask() -> int:
            return next(answers)

        first = flight.begin("parts", ask)
        await asyncio.sleep(0)
        assert first.done()
        assert await flight.once("parts", ask) == 1
        assert await flight.once("parts", ask) == 2

    run(main())
