"""Advice on parallelism as it is shown and pushed: the same from every replica, and never what was right once."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.service.engines import Cuttable, Log, engines, run, skewed, until
from unskew.core.scaling.values import BatchStats
from unskew.core.stream_spec import BatchWork, Part, StreamSpec, Work
from unskew.service.api.verbs import ScaleAnswer
from unskew.service.engine.base import Tuning
from unskew.service.engine.engine import Engine
from unskew.service.engine.scaling_advice import TimedBatch, scale_of
from unskew.service.errors import NotFoundError
from unskew.service.events.events import ScaleAdvised, StoreCalled
from unskew.service.events.metrics import Metrics
from unskew.service.stores.records import PartKey
from unskew.wire.streams import work_to_bytes

SLOW = BatchWork(tuple(Work(at, 100, 10, 10, 2.0) for at in range(4)), 10.0, 9.9, 1.0, 8.9)
LIGHT = BatchWork(tuple(Work(at, 100, 10, 10, 0.1) for at in range(4)), 10.0, 1.0, 0.1, 0.9)


async def report(engine: Engine, numbers: range, batch: BatchWork = SLOW, run: int = 0) -> None:
    for number in numbers:
        await engine.report_batch("clicks", Part("app", number, run), batch)


def shown(metrics: Metrics) -> tuple[float | None, float | None]:
    found = metrics.registry.get_sample_value
    about = {"stream": "clicks"}
    return found("unskew_scale_partitions", {**about, "stage": "reduce"}), found("unskew_scale_zone", about)


def test_each_replica_that_shows_advice_shows_the_present_one() -> None:
    """One was asked for it once; the others hear of batches. None was asked again, yet all show the same."""

    async def main() -> None:
        each = [Metrics(), Metrics(), Metrics()]
        shared = Cuttable()
        tuning = Tuning(poll=0.05)
        replicas = [Engine(shared, observer=metrics, tuning=tuning) for metrics in each]
        for replica in replicas:
            await replica.start()
        asked, told, silent = replicas
        await asked.put_stream("clicks", StreamSpec(4))
        await asked.get_scale("clicks")
        assert shown(each[0]) == (4, 0)
        await report(told, range(5))
        await until(lambda: shown(each[0]) == shown(each[1]) == (5, 3))
        assert shown(each[2]) == (None, None)  # it says nothing rather than something old
        await report(silent, range(5, 30), LIGHT)
        await until(lambda: len({shown(metrics) for metrics in each}) == 1 and shown(each[0])[1] == 1)
        for replica in replicas:
            await replica.close()
        await shared.close()

    run(main())


def test_advice_that_nobody_takes_is_given_again_as_it_was() -> None:
    """Not in smaller steps, as if what was never tried had not paid."""
    slow = TimedBatch(16, BatchStats(10.0, 13.0, 1.0, 11.0, 1_000, 100))
    advised = [scale_of([slow] * batches, 16, 0).reduce_tasks for batches in (5, 10, 60)]
    assert advised == [27] * 3


def test_what_was_advised_goes_with_its_stream() -> None:
    async def main() -> None:
        metrics = Metrics()
        async with engines(observer=metrics, tuning=Tuning(poll=0.05)) as (engine,):
            await engine.put_stream("clicks", StreamSpec(4))
            await report(engine, range(5))
            await until(lambda: shown(metrics) == (5, 3))
            await engine.delete_stream("clicks")
            assert shown(metrics) == (None, None)
            await asyncio.sleep(0.2)  # a few turns of what looks after the shown ones
            assert shown(metrics) == (None, None)
            await engine.put_stream("clicks", StreamSpec(6))
            assert (await engine.get_scale("clicks")).reduce_tasks == 6

    run(main())


def test_a_store_that_does_not_answer_leaves_what_was_shown() -> None:
    """And what looks after it goes on when the store is there again."""

    async def main() -> None:
        metrics, store = Metrics(), Cuttable()
        async with engines(store, observer=metrics, tuning=Tuning(poll=0.05)) as (engine,):
            await engine.put_stream("clicks", StreamSpec(4))
            await report(engine, range(5))
            await until(lambda: shown(metrics) == (5, 3))
            store.cut = True
            skipped = ("unskew_skipped_total", {"what": "advice"})
            await until(lambda: bool(metrics.registry.get_sample_value(*skipped)))
            assert shown(metrics) == (5, 3)
            store.cut = False
            await report(engine, range(5, 30), LIGHT)
            await until(lambda: shown(metrics)[1] == 1)

    run(main())


def test_a_watcher_is_told_after_a_report_and_ends_with_the_stream() -> None:
    """Long before it would look by itself."""

    async def main() -> None:
        async with engines(tuning=Tuning(poll=60.0)) as (engine,):
            await engine.put_stream("clicks", StreamSpec(4))
            watch = engine.watch_scale("clicks")
            first: ScaleAnswer = await anext(watch)
            assert first.zone == 0
            began = time.monotonic()
            await report(engine, range(5))
            second: ScaleAnswer = await anext(watch)
            assert (second.zone, second.since >= first.since) == (3, True)
            assert time.monotonic() - began < 40.0
            await engine.delete_stream("clicks")
            with pytest.raises(NotFoundError):
                await anext(watch)

    run(main())


def test_a_closing_service_ends_its_watchers() -> None:
    async def main() -> None:
        async with engines(tuning=Tuning(poll=60.0)) as (engine,):
            await engine.put_stream("clicks", StreamSpec(4))
            watch = engine.watch_scale("clicks")
            await anext(watch)
            waiting = asyncio.ensure_future(anext(watch, None))
            await asyncio.sleep(0)
            await engine.close()
            assert await asyncio.wait_for(waiting, 60.0) is None

    run(main())


def test_every_replica_knows_when_the_last_report_came() -> None:
    """By the report itself, so one that has just begun knows it too."""

    async def main() -> None:
        now, store = [5000.0], Cuttable()
        async with engines(store, clock=lambda: now[0]) as (engine,):
            await engine.put_stream("clicks", StreamSpec(4))
            created = (await engine.get_scale("clicks")).since
            assert created == (await engine.get_stream("clicks")).created
            now[0] = created + 100.0
            await report(engine, range(3))
            now[0] += 50.0
            late = Engine(store)
            assert (await late.get_scale("clicks")).since == pytest.approx(created + 100.0)
            await late.close()

    run(main())


def test_a_batch_that_runs_again_counts_as_it_was_the_last_time() -> None:
    async def main() -> None:
        async with engines() as (engine,):
            await engine.put_stream("clicks", StreamSpec(4))
            await report(engine, range(5))
            assert (await engine.get_scale("clicks")).action == "out"
            await report(engine, range(4, 5), LIGHT, run=1)
            assert (await engine.get_scale("clicks")).zone == 1

    run(main())


def test_a_later_query_whose_batches_begin_at_0_again_is_heard() -> None:
    """Of two sources, or after a fresh checkpoint, numbers say nothing of what came last. It was taken for idle."""

    async def main() -> None:
        now, store = [5000.0], Cuttable()
        async with engines(store, clock=lambda: now[0]) as (engine,):
            await engine.put_stream("clicks", StreamSpec(4))
            await report(engine, range(50))
            before = await engine.get_scale("clicks")
            now[0] = before.since + 5000.0
            for number in range(40):
                await engine.report_batch("clicks", Part("another", number), LIGHT)
            after, late = await engine.get_scale("clicks"), Engine(store, clock=lambda: now[0])
            assert after.since == pytest.approx(now[0])
            assert after == await late.get_scale("clicks")
            await late.close()

    run(main())


def test_what_the_release_before_reported_is_taken_for_new() -> None:
    """It does not say when it came. Who takes workers from idle streams must not hear that it is one."""

    async def main() -> None:
        store = Cuttable()
        async with engines(store) as (engine,):
            await engine.put_stream("clicks", StreamSpec(4))
            made = time.time()
            for number in range(3):
                key = PartKey("work", "old", number, 0, 0, 1)
                await store.put_part("clicks", key, work_to_bytes(SLOW))
            await asyncio.sleep(0.05)
            first = await engine.get_scale("clicks")
            assert first.since >= made + 0.05
            assert (await engine.get_scale("clicks")).since == first.since

    run(main())


def test_a_look_that_ends_after_its_stream_was_deleted_shows_nothing() -> None:
    """Else a gauge of a stream that is gone stays until the replica is restarted."""

    async def main() -> None:
        metrics = Metrics()
        async with engines(observer=metrics) as (engine,):
            await engine.put_stream("clicks", StreamSpec(4))
            await report(engine, range(5))
            run_, gate, inside = engine._base.run, asyncio.Event(), asyncio.Event()

            async def slow(*args: Any, **named: Any) -> Any:
                inside.set()
                await gate.wait()
                return await run_(*args, **named)

            engine._base.run = slow  # type: ignore[method-assign]
            look = asyncio.ensure_future(engine.get_scale("clicks"))
            await inside.wait()
            await engine.delete_stream("clicks")
            gate.set()
            await asyncio.wait([look])
            look.exception()
            assert shown(metrics) == (None, None)

    run(main())


def test_looking_after_what_is_shown_does_not_keep_a_stream_alive() -> None:
    """And reads nothing where nothing was reported: only whether there was anything."""

    async def main() -> None:
        store = Cuttable()
        async with engines(store, tuning=Tuning(poll=0.02)) as (engine,):
            await engine.put_stream("clicks", StreamSpec(4))
            await report(engine, range(5))
            await engine.get_scale("clicks")
            await asyncio.sleep(0.1)
            store.asked.clear()
            await until(lambda: store.asked.count("marks") >= 5)
            assert {op for op in store.asked if op != "ping"} == {"marks"}

    run(main())


def test_asking_again_reads_nothing_twice() -> None:
    """Whoever is asked after each batch would else read 64 of them each time."""

    async def main() -> None:
        log = Log()
        async with engines(observer=log) as (engine,):
            await engine.put_stream("clicks", StreamSpec(4))
            await engine.report_histogram("clicks", Part("app", 0), skewed())
            await report(engine, range(20))
            before = await engine.get_scale("clicks")
            log.clear()
            assert await engine.get_scale("clicks") == before
            assert sum(call.op == "parts" for call in log.of(StoreCalled)) == 0
            advised = log.of(ScaleAdvised)[-1]
            assert (advised.reduce_tasks, advised.reason) == (before.reduce_tasks, before.reason)
            log.clear()
            await report(engine, range(20, 22))
            await engine.get_scale("clicks")
            assert sum(call.op == "parts" for call in log.of(StoreCalled)) == 2

    run(main())
