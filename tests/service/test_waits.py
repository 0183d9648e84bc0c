"""Waits that an event ends, all at once, in the tasks that they are in."""

from __future__ import annotations

import asyncio

import pytest

from tests.service.engines import run
from unskew.service.waits import Waits


async def forever() -> str:
    await asyncio.Event().wait()
    return "never"


async def at_once() -> str:
    await asyncio.sleep(0)
    return "done"


def test_the_event_ends_all_that_wait_and_their_tasks_go_on() -> None:
    """None is what each gets; what it does then is not cancelled."""

    async def main() -> None:
        waits, event = Waits(), asyncio.Event()

        async def one() -> str:
            found = await waits.until(event, forever())
            await asyncio.sleep(0)
            return "ended" if found is None else found

        tasks = [asyncio.ensure_future(one()) for _ in range(5)]
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in tasks)
        event.set()
        assert await asyncio.gather(*tasks) == ["ended"] * 5
        assert [task.cancelling() for task in tasks] == [0] * 5
        assert await waits.until(event, forever()) is None, "it came before"

    run(main())


def test_work_that_ends_first_is_what_is_got_and_nothing_is_left_behind() -> None:
    """Also for the next wait, when none was under way."""

    async def main() -> None:
        waits, event = Waits(), asyncio.Event()
        before = len(asyncio.all_tasks())
        for _ in range(3):
            assert await waits.until(event, at_once()) == "done"
            await asyncio.sleep(0.001)
            assert len(asyncio.all_tasks()) == before
        with pytest.raises(ZeroDivisionError):
            await waits.until(event, failing())

    async def failing() -> str:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    run(main())


def test_a_caller_that_goes_away_is_cancelled_and_not_answered() -> None:
    """Whether the event came as well or not."""

    async def main() -> None:
        for also in (False, True):
            waits, event = Waits(), asyncio.Event()
            task = asyncio.ensure_future(waits.until(event, forever()))
            await asyncio.sleep(0.01)
            task.cancel()
            if also:
                event.set()
            with pytest.raises(asyncio.CancelledError):
                await task

    run(main())


def test_the_event_does_not_end_a_wait_that_is_over() -> None:
    """A task that waited once and does something else now is left alone."""

    async def main() -> None:
        waits, event = Waits(), asyncio.Event()

        async def one() -> str:
            await waits.until(event, at_once())
            await asyncio.sleep(0.02)
            return "on"

        other = asyncio.ensure_future(waits.until(event, forever()))
        task = asyncio.ensure_future(one())
        await asyncio.sleep(0.005)
        event.set()
        assert await task == "on"
        assert await other is None

    run(main())
