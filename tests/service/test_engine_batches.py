"""What batches took: feedback for plans, and advice on parallelism."""

from __future__ import annotations

import pytest

from tests.service.engines import Log, engines, run, skewed
from unskew.core.errors import ConfigError
from unskew.core.stream_spec import BatchWork, Part, StreamSpec, Work
from unskew.service.engine.batches import feedback_of
from unskew.service.errors import NotFoundError
from unskew.service.events.events import BatchSeen, ScaleAdvised
from unskew.service.stores.part_bytes import whole
from unskew.service.stores.records import PartKey, StoredPart
from unskew.wire import plan_from_bytes
from unskew.wire.streams import work_to_bytes


def work(seconds: list[float], interval: float = 0.0, **more: float) -> BatchWork:
    parts = tuple(Work(at, rows=100 * (at + 1), keys=10, seconds=took) for at, took in enumerate(seconds))
    return BatchWork(parts, interval, **more)


def stored(*batches: BatchWork) -> list[StoredPart]:
    return [
        StoredPart(PartKey("work", "app", 0, 0, at, len(batches)), work_to_bytes(batch))
        for at, batch in enumerate(batches)
    ]


def test_feedback_is_what_the_partitions_took_and_who_is_busy():
    """The busiest first, the idlest first, by their share of the interval."""
    feedback = feedback_of([whole(stored(work([0.1, 1.2, 0.8, 0.9, 0.3], interval=1.0)))])
    assert feedback.times[0].rows.tolist() == [100, 200, 300, 400, 500]
    assert feedback.times[0].seconds.tolist() == [0.1, 1.2, 0.8, 0.9, 0.3]
    assert (feedback.busy, feedback.idle) == ((1, 3), (0, 4))


def test_without_an_interval_partitions_are_compared_with_each_other():
    feedback = feedback_of([whole(stored(work([1.0, 1.0, 2.0, 0.5])))])
    assert (feedback.busy, feedback.idle) == ((2,), (3, 0, 1))
    assert feedback_of([whole(stored(work([0.0, 0.0])))]).times == ()
    assert feedback_of([whole(stored(work([])))]).times == ()


def test_parts_of_a_batch_add_up():
    feedback = feedback_of([whole(stored(work([0.5, 0.5], interval=2.0), work([1.5, 0.5], interval=2.0)))])
    (times,) = feedback.times
    assert (times.rows.tolist(), times.keys.tolist(), times.seconds.tolist()) == ([200, 400], [20, 20], [2.0, 1.0])
    assert (feedback.busy, feedback.idle) == ((0,), (1,))


def test_what_waits_counts_where_the_capacity_is_known():
    waiting = BatchWork((Work(0, seconds=0.5, queue=50, capacity=100.0), Work(1, seconds=0.5)), 1.0)
    assert (feedback_of([whole(stored(waiting))]).busy, feedback_of([whole(stored(waiting))]).idle) == ((0,), (1,))


def test_feedback_says_how_much_each_wants():
    """What it had of the rows, times what it can bear of that; 2 is as it should be and wants nothing."""
    feedback = feedback_of([whole(stored(work([1.6, 0.4, 0.8], interval=1.0)))])
    assert (feedback.busy, feedback.idle, feedback.fine) == ((0,), (1,), (2,))
    assert feedback.shares == pytest.approx({0: 100 / 600 / 2, 1: 200 / 600 * 2})


def test_partitions_that_have_not_reported_yet_are_taken_to_have_had_as_much_as_the_others():
    """A plan is made while reports come in: half of them make nobody ask for the double."""
    feedback = feedback_of([whole(stored(work([1.6, 0.8], interval=1.0)))], partitions=4)
    assert feedback.shares == pytest.approx({0: 100 / 600 / 2})


def test_busy_partitions_give_to_idle_ones_under_cg():
    """Consistent grouping: what was reported of the batch before moves virtual workers, as many as were signalled: 0
    had a tenth of the rows and can bear two fifths of that, which is 20 of the 512 virtual workers; it has 128."""

    async def main() -> None:
        async with engines() as (engine,):
            await engine.put_stream("clicks", StreamSpec(4, "cg"))
            await engine.report_histogram("clicks", Part("app", 0), skewed())
            before = plan_from_bytes((await engine.build_plan("clicks", 1)).plan)
            assert not await engine.report_batch("clicks", Part("app", 1), work([2.0, 0.8, 0.8, 0.1], interval=1.0))
            built = await engine.build_plan("clicks", 2)
            after = plan_from_bytes(built.plan)
            assert "108 changed hands" in built.reason
            assert (after.tail == 0).sum() < (before.tail == 0).sum()
            assert (after.tail == 3).sum() > (before.tail == 3).sum()

    run(main())


def test_work_is_taken_once():
    async def main() -> None:
        log = Log()
        async with engines(observer=log) as (engine,):
            await engine.put_stream("clicks", StreamSpec(2))
            batch = work([1.0, 2.0], interval=5.0, processing=2.5, map_time=0.5, reduce_time=2.0)
            assert not await engine.report_batch("clicks", Part("app", 3), batch)
            assert await engine.report_batch("clicks", Part("app", 3), batch)
            assert log.of(BatchSeen) == [BatchSeen("clicks", Part("app", 3), batch, partitions=2)]
            with pytest.raises(NotFoundError):
                await engine.report_batch("visits", Part("app", 3), batch)
            with pytest.raises(ConfigError, match="map_seconds"):
                await engine.report_batch("clicks", Part("app", 4), work([1.0], interval=5.0, processing=2.5))

    run(main())


def test_advice_is_to_hold_until_batches_have_reported():
    async def main() -> None:
        async with engines() as (engine,):
            await engine.put_stream("clicks", StreamSpec(6))
            scale = await engine.get_scale("clicks")
            assert (scale.reduce_tasks, scale.action, scale.zone) == (6, "hold", 0)
            assert "no batch has reported" in scale.reason
            with pytest.raises(NotFoundError):
                await engine.get_scale("visits")

    run(main())


def test_overloaded_batches_in_a_row_ask_for_more_tasks_and_light_ones_for_fewer():
    """Prompt's Algorithm 4 over the batches in their order, whatever the order in which they came."""

    async def main() -> None:
        log = Log()
        async with engines(observer=log, count=2) as (one, other):
            await one.put_stream("clicks", StreamSpec(4))
            await one.report_histogram("clicks", Part("app", 0, part=0, parts=3), skewed())
            heavy = work([1.0] * 4, interval=10.0, processing=9.9, map_time=1.0, reduce_time=8.9)
            for batch in (3, 1, 4, 0):
                await one.report_batch("clicks", Part("app", batch), heavy)
            waiting = await other.get_scale("clicks")
            assert (waiting.action, waiting.zone) == ("hold", 3)
            assert "4 of 5 batches" in waiting.reason
            await one.report_batch("clicks", Part("app", 2), heavy)
            scale = await other.get_scale("clicks")
            assert (scale.map_tasks, scale.reduce_tasks, scale.action, scale.zone) == (3, 5, "out", 3)
            light = work([0.1] * 8, interval=10.0, processing=1.0, map_time=0.1, reduce_time=0.9)
            for batch in range(5, 25):
                await one.report_batch("clicks", Part("app", batch), light)
            down = await other.get_scale("clicks")
            assert (down.action, down.zone, down.map_tasks + down.reduce_tasks) == ("in", 1, 10)
            advised = log.of(ScaleAdvised)[-1]
            assert (advised.map_tasks, advised.reduce_tasks, advised.reason) == (
                down.map_tasks,
                down.reduce_tasks,
                down.reason,
            )

    run(main())
