"""A store that does not answer, and a replica that goes: what is still answered, and what ends how."""

from __future__ import annotations

import asyncio

import pytest

from tests.service.engines import Cuttable, Log, a_report, engines, run, skewed, until
from unskew.core.rounds.round_digests import NOTHING_SEEN
from unskew.core.stream_spec import Part, StreamSpec
from unskew.service.engine.base import Tuning
from unskew.service.engine.engine import Engine
from unskew.service.errors import UnavailableError
from unskew.service.events.events import Skipped, StoreCalled
from unskew.service.stores.memory import MemoryStore

BALANCED = StreamSpec(8, "balanced")
HASTY = Tuning(fresh=0.0, poll=0.05, retry=0.01, cached_wait=5.0)


def test_the_last_plan_known_is_served_and_said_to_be_stale():
    """By the latest; by version it is not stale, since a version never changes. And again fresh afterwards."""

    async def main() -> None:
        store, log = Cuttable(), Log()
        async with engines(store, tuning=HASTY, observer=log) as (engine,):
            await engine.put_stream("clicks", BALANCED)
            built = await engine.build_plan("clicks", histogram=skewed())
            store.cut = True
            latest = await engine.get_plan("clicks")
            assert (latest.plan, latest.stale) == (built.plan, True)
            had = await engine.get_plan("clicks", if_none_match=built.digest)
            assert (had.not_modified, had.stale) == (True, True)
            await asyncio.sleep(0.06)
            by_version = await engine.get_plan("clicks", built.version)
            assert (by_version.plan, by_version.stale) == (built.plan, False)
            assert (await engine.explain("clicks", 1)).kind == "tail"
            store.cut = False
            assert not (await engine.get_plan("clicks")).stale
            assert any(event.what == "plan" and "the cached one is served" in event.reason for event in log.of(Skipped))
            assert {call.error for call in log.of(StoreCalled)} == {None, "UnavailableError"}

    run(main())


def test_where_nothing_is_known_the_caller_is_told_that_the_store_is_away():
    """Each verb; none of them hangs."""

    async def main() -> None:
        store = Cuttable()
        async with engines(store, tuning=HASTY) as (engine,):
            store.cut = True
            for ask in (
                engine.put_stream("clicks", BALANCED),
                engine.get_stream("clicks"),
                engine.list_streams("", 10),
                engine.delete_stream("clicks"),
                engine.report_histogram("clicks", Part("app", 0), skewed()),
                engine.build_plan("clicks", 0),
                engine.get_plan("clicks"),
                anext(engine.watch_plans("clicks")),
                engine.sync("clicks", a_report(), 5.0, NOTHING_SEEN),
                engine.get_scale("clicks"),
                engine.explain("clicks", 1),
            ):
                with pytest.raises(UnavailableError):
                    await asyncio.wait_for(ask, 30.0)

    run(main())


def test_a_watch_outlives_a_store_that_is_away():
    """Nothing is sent meanwhile, and the newest afterwards."""

    async def main() -> None:
        store = Cuttable()
        async with engines(store, tuning=HASTY) as (engine,):
            await engine.put_stream("clicks", BALANCED)
            watch = engine.watch_plans("clicks")
            first = asyncio.ensure_future(anext(watch))
            await asyncio.sleep(0.02)
            store.cut = True
            await asyncio.sleep(0.15)
            assert not first.done()
            store.cut = False
            built = await engine.build_plan("clicks", histogram=skewed())
            assert (await asyncio.wait_for(first, 60)).digest == built.digest
            await watch.aclose()

    run(main())


def test_a_round_goes_on_when_the_store_is_back():
    """The waiting agent gets its answer, and its report counts once."""

    async def main() -> None:
        store = Cuttable()
        async with engines(store, tuning=HASTY) as (engine,):
            await engine.put_stream("clicks", StreamSpec(4, dsync=0.2, dsync_min=0.2))
            await asyncio.gather(*(engine.sync("clicks", a_report(name), 5.0, NOTHING_SEEN) for name in "ab"))
            waiting = asyncio.create_task(engine.sync("clicks", a_report("a", 2), 60.0, NOTHING_SEEN))
            await until(lambda: store.answered.count("report") == 3)
            store.cut = True
            await asyncio.sleep(0.5)
            assert not waiting.done()
            with pytest.raises(UnavailableError):
                await engine.sync("clicks", a_report("b", 2), 0.0, NOTHING_SEEN)
            store.cut = False
            found = await waiting
            assert found.merged
            assert [name.seq for commit in store.commits for name in commit.names if name.agent == "a"] == [1, 2]

    run(main())


def test_a_stream_that_the_store_lost_begins_anew_above_its_old_numbers():
    """Wiped: whoever puts the stream again gets versions and answers that are news to everybody."""

    async def main() -> None:
        store = Cuttable(lambda: 1e9)
        async with engines(store, tuning=HASTY) as (engine,):
            await engine.put_stream("clicks", BALANCED)
            plan = await engine.build_plan("clicks", histogram=skewed())
            old = await engine.sync("clicks", a_report(workers=8), 5.0, NOTHING_SEEN)
            store.store = MemoryStore(lambda: 1e9)
            await engine.put_stream("clicks", BALANCED)
            again = await engine.build_plan("clicks", histogram=skewed())
            assert again.version > plan.version
            assert (await engine.get_plan("clicks")).plan == again.plan
            known = old.answer.seen
            new = await engine.sync("clicks", a_report(seq=2, workers=8), 5.0, known)
            assert new.merged
            assert (new.incarnation, new.answer.epoch) > known[:2]
            assert new.answer.epoch == 1

    run(main())


def test_close_finishes_what_is_under_way_and_takes_nothing_new():
    """A build ends with its plan, a sync with what there is, a watch ends; then all verbs are refused."""

    async def main() -> None:
        before = asyncio.all_tasks()
        engine = Engine(store := Cuttable())
        await engine.start()
        await engine.put_stream("clicks", StreamSpec(4, "auto", dsync=3600.0, dsync_min=3600.0))
        assert (await engine.sync("clicks", a_report("a"), 60.0, NOTHING_SEEN)).merged
        building = asyncio.create_task(engine.build_plan("clicks", histogram=skewed(50_000)))
        waiting = asyncio.create_task(engine.sync("clicks", a_report("b"), 60.0, NOTHING_SEEN))
        watch = engine.watch_plans("clicks", "nothing")
        watching = asyncio.ensure_future(anext(watch, None))
        await until(lambda: store.answered.count("report") == 2)
        await asyncio.wait_for(engine.close(), 60)
        assert building.done()
        assert building.result().outcome == "new"
        assert not waiting.result().merged
        assert waiting.result().answer.epoch == 1
        await asyncio.wait_for(watching, 60)
        await store.close()
        for ask in (engine.get_plan("clicks"), engine.build_plan("clicks"), anext(engine.watch_plans("clicks"))):
            with pytest.raises(UnavailableError, match="shutting down"):
                await ask
        assert asyncio.all_tasks() == before

    run(main())
