"""The way advised with a batch's plan: as core's machine says, by whichever replica, each batch counted once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import cycle

import numpy as np

from tests.service.engines import Log, engines, run
from unskew.cli.whatif.job import Job
from unskew.cli.whatif.replay import replay
from unskew.core.freshness.stream_planner import StreamPlanner
from unskew.core.freshness.way_scores import WayChoice
from unskew.core.freshness.ways import FIRST, Ways
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Version
from unskew.core.planners import Feedback, Origin
from unskew.core.stream_spec import Part, StreamSpec
from unskew.service.engine.batches import Evidence
from unskew.service.engine.engine import Engine
from unskew.service.engine.planning import PlanRequest, draft
from unskew.service.events.events import PlanBuilt
from unskew.simulate.key_streams import zipf_keys
from unskew.wire import plan_from_bytes
from unskew.wire.ways import ways_from_bytes

N, ROWS = 16, 4_000
SPEC = StreamSpec(N, "auto")


def hashes_of(hot: int, exponent: float = 1.5) -> np.ndarray:
    """Zipf, with other heavy keys for each ``hot``."""
    keys = zipf_keys(np.random.default_rng(hot), ROWS, 20_000, exponent).astype(np.uint64)
    return (keys + np.uint64(1_000_003 * hot)) * np.uint64(0x9E3779B97F4A7C15)


def histogram_of(hot: int, exponent: float = 1.5) -> Histogram:
    return Histogram.from_hashes(hashes_of(hot, exponent))


CALM = [histogram_of(1)] * 12
DRIFTING = [histogram_of(hot) for hot in range(6)]
EVEN = [histogram_of(hot, 0.0) for hot in range(6)]
MIXED = [histogram_of(hot, exponent) for hot, exponent in ((1, 1.5),) * 4 + ((2, 1.5), (3, 1.5), (3, 1.5), (4, 0.0))]


def by_core(histograms: list[Histogram], spec: StreamSpec = SPEC) -> list[WayChoice]:
    """What the machine says before each batch, and after the last one."""
    machine = Ways(StreamPlanner("clicks", spec))
    choices = [machine.next]
    for number, histogram in enumerate(histograms):
        machine.score(histogram, number)
        machine.plan_ahead(number)
        choices.append(machine.next)
    return choices


async def report(engine: Engine, batch: int, histogram: Histogram, source: str = "app") -> None:
    await engine.report_histogram("clicks", Part(source, batch), histogram)


async def advised(
    replicas: list[Engine], histograms: list[Histogram], spec: StreamSpec = SPEC, first: int = 0
) -> list[WayChoice]:
    """What is advised before each batch, and after the last one, by one replica after another."""
    await replicas[0].put_stream("clicks", spec)
    choices: list[WayChoice] = []
    for batch, (histogram, engine) in enumerate(zip([*histograms, None], cycle(replicas), strict=False), first):
        built = await engine.build_plan("clicks", batch)
        assert built.advice is not None
        choices.append(built.advice)
        if histogram is not None:
            await report(engine, batch, histogram)
    return choices


async def once(histograms: list[Histogram], spec: StreamSpec = SPEC) -> list[WayChoice]:
    """The same, and then the stream is gone, for a test that runs several."""
    async with engines() as replicas:
        choices = await advised(replicas, histograms, spec)
        await replicas[0].delete_stream("clicks")
        return choices


def ways_of(choices: list[WayChoice]) -> list[str]:
    return [choice.way for choice in choices]


# -- what is advised


def test_the_service_advises_as_the_machine_of_drivers_does_whichever_replica_is_asked() -> None:
    """The same way, runner-up, and figures to the last digit; with plans that are split, kept, and moved seldom."""

    async def main(spec: StreamSpec) -> None:
        async with engines(count=2) as replicas:
            await replicas[0].put_stream("clicks", spec)
            await report(replicas[0], 0, MIXED[0])
            assert await advised(replicas, MIXED[1:], spec, first=1) == by_core(MIXED, spec)[1:]
            await replicas[0].delete_stream("clicks")

    for spec in (SPEC, StreamSpec(N, "auto", {"splits": False}), StreamSpec(N, "kip"), StreamSpec(N, "balanced")):
        run(main(spec))


def test_the_service_advises_what_whatif_takes_for_one_log() -> None:
    """``unskew whatif --fresh auto`` on the same rows: the way of each batch."""
    logs = [hashes_of(hot) for hot in (1, 1, 1, 2, 3, 4, 4, 4)]
    job = Job(("auto",), N, ROWS, fresh="auto")
    taken = replay(np.concatenate(logs), job, Origin("clicks"), clock=lambda: 0.0).policies[0].taken

    async def main() -> None:
        async with engines() as replicas:
            choices = await advised(replicas, [Histogram.from_hashes(log) for log in logs])
            assert ways_of(choices)[1:-1] == list(taken)

    run(main())


def test_other_hot_keys_in_every_batch_are_counted_and_calm_ones_planned_ahead() -> None:
    """And an even stream stays on plain hash."""

    assert set(ways_of(run(once(DRIFTING)))) == {"same"}
    assert set(ways_of(run(once([histogram_of(1, 1.0)] * 8)))[-2:]) <= {"previous", "last"}
    assert set(ways_of(run(once(EVEN)))[2:]) == {"hash"}


def test_the_first_batch_of_all_is_counted_and_a_stream_on_plain_hash_never() -> None:
    assert run(once(CALM[:3]))[0] == FIRST
    plain = run(once(CALM[:3], StreamSpec(N, "hash")))
    assert set(ways_of(plain)) == {"previous"}
    assert "policy hash" in plain[-1].reason


# -- each batch once


def test_asked_again_a_batch_has_the_same_advice() -> None:
    """From any replica, after later batches; it is counted once."""

    async def main() -> None:
        log = Log()
        async with engines(count=2, observer=log) as (one, other):
            choices = await advised([one], MIXED)
            for batch, choice in enumerate(choices[1:], 1):
                again = await other.build_plan("clicks", batch)
                assert (again.outcome, again.advice) == ("repeated", choice)
            await report(one, len(MIXED), CALM[0])
            assert (await one.build_plan("clicks", len(MIXED) + 1)).advice == by_core([*MIXED, CALM[0]])[-1]
            assert [event.advice for event in log.of(PlanBuilt)][: len(choices)] == choices

    run(main())


def test_of_replicas_that_race_for_a_batch_one_counts_it() -> None:
    async def main() -> None:
        async with engines(count=3) as replicas:
            await replicas[0].put_stream("clicks", SPEC)
            for batch, expected in enumerate(by_core(MIXED)[1:], 1):
                await report(replicas[0], batch - 1, MIXED[batch - 1])
                built = await asyncio.gather(*(one.build_plan("clicks", batch) for one in replicas))
                assert [one.advice for one in built] == [expected] * 3

    run(main())


def test_plans_that_are_asked_for_otherwise_answer_the_last_advice_and_do_not_count() -> None:
    """From a histogram in the request, without a batch, or fresh. The plan of a counted batch is not mistaken for the
    one that the batches before it gave: that would make plans of before look as good as counting."""

    async def main() -> None:
        async with engines() as (engine,):
            await engine.put_stream("clicks", SPEC)
            assert (await engine.build_plan("clicks", histogram=DRIFTING[0])).advice is None
            for batch, histogram in enumerate(DRIFTING):
                before = (await engine.build_plan("clicks", batch)).advice
                assert before is not None
                assert before.way == "same"
                assert batch < 2 or before.runner_up == "hash"
                await report(engine, batch, histogram)
                for build in ({"batch": batch, "fresh": True}, {"histogram": histogram}, {}):
                    answer = (await engine.build_plan("clicks", **build)).advice  # type: ignore[arg-type]
                    assert answer == (before if batch else None), "nothing is stored before the first batch"
            assert "the last 4 batches" in before.reason

    run(main())


def test_batches_of_another_job_with_lower_numbers_count_too() -> None:
    """And when the newer job is over, the older one is advised by its own."""

    async def main() -> None:
        async with engines() as (engine,):
            await advised([engine], CALM[:2], first=1_000)
            choices = await advised([engine], DRIFTING)
            assert set(ways_of(choices)) == {"same"}
            assert f"the last {len(DRIFTING) + 1} batches" in choices[-1].reason

    run(main())


def test_batches_without_rows_do_not_count() -> None:
    async def main() -> None:
        async with engines() as (engine,):
            choices = await advised([engine], [CALM[0], Histogram.empty(), CALM[0]])
            assert choices[2] == choices[1]
            assert "over the last batch" in choices[3].reason

    run(main())


def test_the_history_shows_which_way_was_advised_and_why() -> None:
    async def main() -> None:
        async with engines() as (engine,):
            choices = await advised([engine], DRIFTING[:3])
            await asyncio.wait_for(engine._history._waiting.join(), 60.0)
            notes = (await engine.overview("clicks")).plans
            assert [(note.way, note.way_reason) for note in notes] == [(one.way, one.reason) for one in choices[1:]]

    run(main())


# -- where little is kept


def test_without_scores_the_batches_that_plans_are_made_from_are_gone_through() -> None:
    """A plan that was stored by a release before this one has none; and whoever asks late has no plan at all."""

    async def main() -> None:
        async with engines() as (engine,):
            await engine.put_stream("clicks", SPEC)
            for batch, histogram in enumerate([*CALM[:3], *MIXED]):
                await report(engine, batch, histogram)
            built = await engine.build_plan("clicks", 11)
            assert built.advice is not None
            assert built.advice == by_core(MIXED)[-1]

    run(main())


def test_scores_outlive_another_number_of_partitions() -> None:
    async def main() -> None:
        async with engines() as (engine,):
            await advised([engine], CALM[:4])
            choices = await advised([engine], CALM[:2], replace(SPEC, partitions=24), first=4)
            assert "the last 5 batches" in choices[-1].reason

    run(main())


def test_for_keys_of_other_types_the_scores_begin_anew() -> None:
    """Histograms of other hashes say nothing of these."""

    async def main() -> None:
        async with engines() as (engine,):
            await advised([engine], CALM[:4], replace(SPEC, key_types=("bigint",)))
            choices = await advised([engine], CALM[:2], replace(SPEC, key_types=("string",)), first=4)
            assert "over the last batch" in choices[-1].reason

    run(main())


def test_the_advice_is_a_pure_function_of_the_request() -> None:
    """The same request, the same bytes; and what it has learned names its batches."""
    evidence = Evidence(MIXED[0], "from batch 0", [(0, MIXED[0])])
    request = PlanRequest("clicks", SPEC, 1, evidence, Feedback(), "batch:1:previous", Version(1, 1))
    one, other = draft(request), draft(request)
    assert (one.data, one.advice, one.ways) == (other.data, other.advice, other.ways)
    stored = ways_from_bytes(one.ways)
    assert (stored.numbers, stored.previous) == ((0,), plan_from_bytes(one.data).version)
    assert draft(replace(request, evidence=replace(evidence, batches=None))).advice is None
