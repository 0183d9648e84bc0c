"""What happened to a stream as it is shown: by every replica, over all partitions, and never in the way of the work."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.service.engines import Cuttable, Log, a_report, engines, run, skewed, until
from unskew.core.rounds.round_digests import NOTHING_SEEN
from unskew.core.stream_spec import BatchWork, Part, StreamSpec, Work
from unskew.service.engine.base import Tuning
from unskew.service.engine.engine import Engine
from unskew.service.events.events import Skipped, StreamChanged
from unskew.service.rest.overview import each_once

EVEN = BatchWork(tuple(Work(at, 100) for at in range(4)), 10.0, 2.5, 1.0, 1.5)


async def planned(engine: Engine, stream: str = "clicks", batch: int = 1) -> Any:
    await engine.report_histogram(stream, Part("app", batch), skewed(seed=batch))
    return await engine.build_plan(stream, batch, fresh=True)


async def noted(engine: Engine) -> None:
    """Until what is waiting is written down."""
    await asyncio.wait_for(engine._history._waiting.join(), 60.0)


def test_every_replica_shows_what_any_of_them_did() -> None:
    """The plan with what hashing would give, the batch, the round; also one that begins only then."""

    async def main() -> None:
        store = Cuttable()
        async with engines(store, 2) as (one, other):
            await one.put_stream("clicks", StreamSpec(4, dsync=1.0, dsync_min=1.0))
            built = await planned(one)
            await other.report_batch(
                "clicks", Part("app/query", 1), BatchWork(EVEN.work, 10.0, 2.5, 1.0, 1.5, built.version)
            )
            await other.sync("clicks", a_report(), 5.0, NOTHING_SEEN)
            await noted(one)
            await noted(other)
            late = Engine(store)
            for engine in (one, other, late):
                seen = await engine.overview("clicks")
                assert [note.version for note in seen.plans] == [str(built.version)]
                assert seen.expected is not None
                assert seen.expected.hash_imbalance == seen.plans[0].by_hash
                assert seen.expected.plan_imbalance == pytest.approx(1.0, abs=0.01)
                assert sum(seen.expected.by_hash) == sum(seen.expected.by_plan) == skewed().total
                assert (seen.batches[0].source, seen.batches[0].rows, seen.batches[0].seconds) == (
                    "app/query",
                    400,
                    2.5,
                )
                assert seen.batches[0].version == str(built.version)
                assert [(note.epoch, note.reports) for note in seen.rounds] == [(1, 1)]
                assert seen.observed is not None
                assert (seen.observed.loads, seen.observed.imbalance) == ([100] * 4, 1.0)
            await late.close()

    run(main())


@pytest.mark.parametrize("parts", [1, 2])
def test_imbalance_is_over_all_partitions_also_those_that_had_no_rows(parts: int) -> None:
    """All rows in the first of 16, before there was a plan: 16 times the mean. It was shown as 1.00, even."""

    async def main() -> None:
        async with engines() as (engine,):
            await engine.put_stream("clicks", StreamSpec(16))
            for part in range(parts):
                await engine.report_batch("clicks", Part("app", 1, 0, part, parts), BatchWork((Work(0, 1000),)))
            if parts > 1:
                await planned(engine, batch=2)
            await noted(engine)
            seen = await engine.overview("clicks")
            assert seen.observed is not None
            assert (seen.observed.imbalance, len(seen.observed.loads)) == (16.0, 16)
            assert seen.batches[-1].imbalance == 16.0

    run(main())


def test_a_batch_that_was_reported_again_is_shown_once_as_it_was_last() -> None:
    async def main() -> None:
        async with engines() as (engine,):
            await engine.put_stream("clicks", StreamSpec(4))
            await engine.report_batch("clicks", Part("app", 1), EVEN)
            await engine.report_batch("clicks", Part("app", 1, 1), BatchWork((Work(0, 50),)))
            await engine.report_batch("clicks", Part("app", 2), EVEN)
            await noted(engine)
            shown = each_once((await engine.overview("clicks")).batches)
            assert [(note.batch, note.rows) for note in shown] == [(1, 50), (2, 400)]

    run(main())


class Stuck(Cuttable):
    """A store that takes no note, or never answers one."""

    def __init__(self, trouble: Exception | None = None) -> None:
        super().__init__()
        self.trouble, self.notes_taken, self.open = trouble, 0, asyncio.Event()

    async def note(self, *args: Any) -> None:
        if self.trouble is not None:
            raise self.trouble
        await self.open.wait()
        self.notes_taken += 1
        await self.store.note(*args)


def test_nothing_waits_for_what_is_written_down() -> None:
    """With a store that never answers a note: plans, reports and rounds as ever, what does not fit is told, and the
    service ends in time."""

    async def main() -> None:
        log, store = Log(), Stuck()
        async with engines(store, observer=log) as (engine,):
            await engine.put_stream("clicks", StreamSpec(4))
            began = time.monotonic()
            await planned(engine)
            for number in range(1200):
                await engine.report_batch("clicks", Part("app", number), EVEN)
            await engine.sync("clicks", a_report(), 0.0, NOTHING_SEEN)
            assert time.monotonic() - began < 60.0
            assert {event.what for event in log.of(Skipped)} == {"note"}
            began = time.monotonic()
        assert time.monotonic() - began < 30.0

    run(main())


def test_what_the_store_refuses_is_told_and_the_next_is_written() -> None:
    async def main() -> None:
        log, store = Log(), Stuck(ValueError("none of your notes"))
        async with engines(store, observer=log) as (engine,):
            await engine.put_stream("clicks", StreamSpec(4))
            await engine.report_batch("clicks", Part("app", 1), EVEN)
            await until(lambda: len(log.of(Skipped)) == 2)
            assert "none of your notes" in log.of(Skipped)[0].reason
            store.trouble = None
            store.open.set()
            await engine.report_batch("clicks", Part("app", 2), EVEN)
            await noted(engine)
            assert [note.batch for note in (await engine.overview("clicks")).batches] == [2]

    run(main())


def test_what_waits_to_be_written_is_no_part_of_another_stream_of_the_same_name() -> None:
    async def main() -> None:
        log, store = Log(), Stuck()
        async with engines(store, observer=log) as (engine,):
            await engine.put_stream("clicks", StreamSpec(4))
            for number in range(5):
                await engine.report_batch("clicks", Part("old", number), EVEN)
            await engine.delete_stream("clicks")
            await engine.put_stream("clicks", StreamSpec(4))
            assert [event.what for event in log.of(StreamChanged)] == ["created", "deleted", "created"]
            await engine.report_batch("clicks", Part("new", 1), EVEN)
            store.open.set()
            await noted(engine)
            seen = await engine.overview("clicks")
            # One may have been on its way to the store when the stream was deleted; the other four were not.
            assert seen.batches[-1].source == "new"
            assert len(seen.batches) <= 2

    run(main())


# -- lists ----------------------------------------------------------------------------------------------------


def test_a_page_is_full_of_streams_that_are_wanted_wherever_they_stand() -> None:
    """Others' streams are passed over by their names alone, however many there are."""

    async def main() -> None:
        log = Log()
        async with engines(observer=log) as (engine,):
            for number in range(450):
                await engine.put_stream(f"a/{number:03}", StreamSpec(2))
            for number in range(5):
                await engine.put_stream(f"z/{number}", StreamSpec(2))

            def mine(name: str) -> bool:
                return name.startswith("z/") or name == "a/100"

            first = await engine.list_streams("", 3, mine)
            assert [info.name for info in first] == ["a/100", "z/0", "z/1"]
            assert [info.name for info in await engine.list_streams("z/1", 3, mine)] == ["z/2", "z/3", "z/4"]
            assert [one.info.name for one in await engine.summaries("z/4", 3, mine)] == []
            assert len(await engine.list_streams("", 1000)) == 455

    run(main(), 60.0)


def test_many_who_look_at_the_list_cost_as_much_as_one() -> None:
    """For a few seconds; and what another life of the stream was like is not shown."""

    async def main() -> None:
        store = Cuttable()
        async with engines(store, tuning=Tuning(summary_age=60.0)) as (engine,):
            for name in ("a", "b"):
                await engine.put_stream(name, StreamSpec(4))
                await planned(engine, name)
            await noted(engine)
            first = await engine.summaries("", 10)
            assert all(one.plan is not None and one.plan.imbalance == pytest.approx(1.0, abs=0.01) for one in first)
            store.asked.clear()
            for _ in range(5):
                assert await engine.summaries("", 10) == first
            assert set(store.asked) - {"ping"} == {"streams"}
            await engine.delete_stream("a")
            await engine.put_stream("a", StreamSpec(4))
            assert (await engine.summaries("", 1))[0].plan is None

    run(main())
