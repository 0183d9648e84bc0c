"""Watches of plans: what is sent, to how many, how late, and when they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.service.engines import Cuttable, Log, engines, run, skewed, until
from unskew.core.stream_spec import Part, StreamSpec
from unskew.service.api.verbs import Fetched
from unskew.service.engine.base import Tuning
from unskew.service.engine.engine import Engine
from unskew.service.errors import NotFoundError, UnavailableError
from unskew.service.events.events import StoreCalled, WatchersSeen
from unskew.service.stores.memory import MemoryStore
from unskew.service.stores.records import News
from unskew.wire import plan_from_bytes

BALANCED = StreamSpec(8, "balanced")


async def collect(engine: Engine, into: list[Fetched], if_none_match: str = "") -> None:
    async for fetched in engine.watch_plans("clicks", if_none_match):
        into.append(fetched)


async def stop(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_a_watcher_gets_the_present_plan_and_then_each_newer():
    """On every replica, in order, also where there was none at first."""

    async def main() -> None:
        async with engines(count=2) as (one, other):
            await one.put_stream("clicks", BALANCED)
            seen: list[list[Fetched]] = [[], []]
            tasks = [
                asyncio.create_task(collect(engine, into)) for engine, into in zip((one, other), seen, strict=True)
            ]
            await asyncio.sleep(0.02)
            assert seen == [[], []]
            built = []
            for seed in range(1, 6):
                built.append(await one.build_plan("clicks", histogram=skewed(seed=seed)))
                await until(lambda: all(len(into) == len(built) for into in seen))
            for into in seen:
                assert [fetched.plan for fetched in into] == [one.plan for one in built]
            await stop(*tasks)

    run(main())


def test_a_plan_that_the_watcher_has_is_not_sent():
    """By digest: neither at first, nor where a later version routes the same."""

    async def main() -> None:
        async with engines() as (engine,):
            await engine.put_stream("clicks", BALANCED)
            await engine.report_histogram("clicks", Part("app", 0), skewed())
            first = await engine.build_plan("clicks", 1)
            seen: list[Fetched] = []
            task = asyncio.create_task(collect(engine, seen, first.digest))
            kept = await engine.build_plan("clicks", 2)
            assert (kept.outcome, kept.version) == ("kept", first.version.next())
            new = await engine.build_plan("clicks", histogram=skewed(seed=2))
            await until(lambda: len(seen) > 0)
            assert [fetched.digest for fetched in seen] == [new.digest]
            await stop(task)

    run(main())


def test_a_slow_watcher_gets_the_newest_and_not_what_was_replaced():
    async def main() -> None:
        async with engines() as (engine,):
            await engine.put_stream("clicks", BALANCED)
            first = await engine.build_plan("clicks", histogram=skewed())
            watch = engine.watch_plans("clicks")
            assert (await anext(watch)).digest == first.digest
            for seed in range(2, 6):
                newest = await engine.build_plan("clicks", histogram=skewed(seed=seed))
            await until(lambda: engine._watching._channels["clicks"].record.version == newest.version)
            assert (await asyncio.wait_for(anext(watch), 60)).digest == newest.digest
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(anext(watch), 0.05)

    run(main())


def test_thousands_of_watchers_cost_the_store_one_look():
    """All get the plan, of which the store is asked once; when they go, nothing is left."""

    async def main() -> None:
        log = Log()
        async with engines(observer=log) as (engine,):
            await engine.put_stream("clicks", BALANCED)
            seen: list[Fetched] = []
            tasks = [asyncio.create_task(collect(engine, seen)) for _ in range(3000)]
            await until(lambda: log[-1] == WatchersSeen("clicks", 3000) or len(log.of(WatchersSeen)) >= 3000)
            await asyncio.sleep(0)
            asked = len(log.of(StoreCalled))
            built = await engine.build_plan("clicks", histogram=skewed())
            await until(lambda: len(seen) == 3000)
            assert {fetched.digest for fetched in seen} == {built.digest}
            assert len({id(fetched.plan) for fetched in seen}) == 1
            assert len(log.of(StoreCalled)) - asked < 20
            await stop(*tasks)
            assert log.of(WatchersSeen)[-1].watchers == 0
            assert not engine._watching._channels

    run(main())


class Deaf(Cuttable):
    """No news ever comes from this store."""

    def __getattr__(self, op: str):
        return self._silence if op == "news" else super().__getattr__(op)

    async def _silence(self) -> AsyncIterator[News]:
        await asyncio.Event().wait()
        yield News("", "")


def test_news_that_is_lost_is_looked_for():
    async def main() -> None:
        async with engines(Deaf(), count=2, tuning=Tuning(poll=0.05)) as (one, other):
            await one.put_stream("clicks", BALANCED)
            seen: list[Fetched] = []
            task = asyncio.create_task(collect(other, seen))
            built = await one.build_plan("clicks", histogram=skewed())
            await until(lambda: len(seen) == 1)
            assert seen[0].digest == built.digest
            await stop(task)

    run(main())


def test_a_listener_that_broke_off_is_begun_anew():
    """And what may have been missed meanwhile is looked for."""

    class Hoarse(Cuttable):
        calls = 0

        def __getattr__(self, op: str):
            return self._hoarse if op == "news" else super().__getattr__(op)

        async def _hoarse(self) -> AsyncIterator[News]:
            self.calls += 1
            if self.calls < 3:
                raise UnavailableError("no connection")
            async for news in self.store.news():
                yield news

    async def main() -> None:
        async with engines(store := Hoarse(), tuning=Tuning(retry=0.01, poll=60.0)) as (engine,):
            await engine.put_stream("clicks", BALANCED)
            seen: list[Fetched] = []
            task = asyncio.create_task(collect(engine, seen))
            await until(lambda: store.calls == 3)
            await engine.build_plan("clicks", histogram=skewed())
            await until(lambda: len(seen) == 1)
            await stop(task)

    run(main())


def test_a_watch_of_no_stream_is_refused_and_of_one_that_goes_ends():
    async def main() -> None:
        async with engines(count=2) as (one, other):
            with pytest.raises(NotFoundError, match="clicks"):
                await anext(other.watch_plans("clicks"))
            await one.put_stream("clicks", BALANCED)
            task = asyncio.create_task(collect(other, []))
            await asyncio.sleep(0.02)
            await one.delete_stream("clicks")
            with pytest.raises(NotFoundError, match="clicks"):
                await asyncio.wait_for(task, 60)

    run(main())


def test_a_stream_that_begins_anew_is_news_to_a_new_watch():
    async def main() -> None:
        async with engines(store := MemoryStore(lambda: 1e9)) as (engine,):
            for _ in range(2):
                await engine.put_stream("clicks", BALANCED)
                built = await engine.build_plan("clicks", histogram=skewed())
                fetched = await asyncio.wait_for(anext(engine.watch_plans("clicks")), 60)
                assert plan_from_bytes(fetched.plan).version == built.version
                await store.delete_stream("clicks")

    run(main())
