"""Streams, histograms and plans: what a plan is made from, that it is made once, and what a change of a stream does."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import numpy as np
import pytest

from tests.planning import key_hashes, some_histogram
from tests.service.engines import Log, a_report, engines, run, skewed
from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Version
from unskew.core.rounds.round_digests import NOTHING_SEEN
from unskew.core.stream_spec import Part, StreamSpec
from unskew.service.errors import NotFoundError
from unskew.service.events.events import PlanBuilt, PlanServed, StoreCalled, StreamChanged
from unskew.wire import plan_from_bytes

BALANCED = StreamSpec(8, "balanced")


def test_a_stream_is_put_found_listed_and_deleted():
    """The same again changes nothing; what is gone is not found, whoever asks."""

    async def main() -> None:
        async with engines(count=2) as (one, other):
            info, created = await one.put_stream("clicks", BALANCED)
            again, repeated = await other.put_stream("clicks", BALANCED)
            assert (created, repeated, info) == (True, False, again)
            assert (info.version, info.digest, info.epoch, info.agents, info.dsync) == (None, "", 0, 0, 20.0)
            await one.put_stream("visits", StreamSpec(4, "kip"))
            assert [found.name for found in await other.list_streams("", 10)] == ["clicks", "visits"]
            assert [found.spec.policy for found in await other.list_streams("clicks", 10)] == ["kip"]
            await one.delete_stream("clicks")
            for ask in (other.get_stream("clicks"), one.delete_stream("clicks"), one.build_plan("clicks")):
                with pytest.raises(NotFoundError, match="clicks"):
                    await ask
            with pytest.raises(ConfigError, match="stream"):
                await one.put_stream("not a name", BALANCED)

    run(main())


def test_a_plan_of_another_replica_is_found_before_its_news():
    async def main() -> None:
        async with engines(count=2) as (one, other):
            await one.put_stream("clicks", BALANCED)
            built = await one.build_plan("clicks", histogram=skewed())
            assert (await other.get_plan("clicks")).digest == built.digest
            assert (await other.get_stream("clicks")).version == built.version

    run(main())


def test_a_report_counts_once_and_the_highest_run_counts():
    """Repeated and older reports say so and change nothing; a re-run replaces."""

    async def main() -> None:
        async with engines() as (engine,):
            await engine.put_stream("clicks", BALANCED)
            light, heavy = skewed(), skewed(heavy=8)
            assert not await engine.report_histogram("clicks", Part("app", 0), light)
            assert await engine.report_histogram("clicks", Part("app", 0), heavy)
            first = plan_from_bytes((await engine.build_plan("clicks", fresh=True)).plan)
            assert first.info.rows == light.total
            assert not await engine.report_histogram("clicks", Part("app", 0, run=2), heavy)
            assert await engine.report_histogram("clicks", Part("app", 0, run=1), light)
            second = plan_from_bytes((await engine.build_plan("clicks", fresh=True)).plan)
            assert second.info.rows == heavy.total

    run(main())


def test_a_plan_is_from_the_batch_itself_or_from_those_before_it():
    """``fresh`` counts the batch; else a history with decay does; both say what they were made from."""

    async def main() -> None:
        async with engines() as (engine,):
            await engine.put_stream("clicks", StreamSpec(8, "balanced", history=2, decay=0.5))
            for batch in range(3):
                await engine.report_histogram("clicks", Part("app", batch), skewed(seed=batch + 1))
            same = await engine.build_plan("clicks", 1, fresh=True)
            assert plan_from_bytes(same.plan).info.rows == skewed().total
            assert same.reason.endswith("from batch 1")
            before = await engine.build_plan("clicks", 3)
            expected = skewed(seed=3).merge(skewed(seed=2).decay(0.5))
            assert plan_from_bytes(before.plan).info.rows == expected.total
            assert before.reason.endswith("from 2 batches, batch 1 to batch 2")

    run(main())


def test_parts_that_have_not_come_are_named_in_the_reason():
    async def main() -> None:
        async with engines() as (engine,):
            await engine.put_stream("clicks", BALANCED)
            for part in (0, 2):
                await engine.report_histogram("clicks", Part("app", 5, part=part, parts=3), skewed(seed=part + 1))
            built = await engine.build_plan("clicks", 5, fresh=True)
            assert "batch 5 (2 of 3 parts)" in built.reason
            assert plan_from_bytes(built.plan).info.rows == 2 * skewed().total

    run(main())


def test_asked_again_a_batch_has_the_same_plan():
    """Though later reports came and later plans were made; from any replica; new or kept."""

    async def main() -> None:
        async with engines(count=2) as (one, other):
            await one.put_stream("clicks", BALANCED)
            await one.report_histogram("clicks", Part("app", 0), skewed())
            first = await one.build_plan("clicks", 1)
            kept = await one.build_plan("clicks", 2)
            assert (first.outcome, kept.outcome) == ("new", "kept")
            assert kept.digest == first.digest
            await one.report_histogram("clicks", Part("app", 2), skewed(seed=9))
            assert (await one.build_plan("clicks", 3)).digest != first.digest
            for batch, before in ((1, first), (2, kept)):
                again = await other.build_plan("clicks", batch)
                assert (again.outcome, again.plan, again.version) == ("repeated", before.plan, before.version)
                assert f"batch:{batch}:previous" in again.reason

    run(main())


def test_a_decision_that_changes_nothing_keeps_the_plan_and_its_version():
    async def main() -> None:
        async with engines() as (engine,):
            await engine.put_stream("clicks", BALANCED)
            first = await engine.build_plan("clicks", histogram=skewed())
            again = await engine.build_plan("clicks", histogram=skewed())
            assert (again.outcome, again.version, again.plan) == ("kept", first.version, first.plan)

    run(main())


def test_where_nothing_was_reported_rows_are_hashed_and_later_reports_are_used():
    """The present plan stays, plain hashing if there is none; neither is the batch's for ever."""

    async def main() -> None:
        async with engines() as (engine,):
            await engine.put_stream("clicks", BALANCED)
            empty = await engine.build_plan("clicks", 0, fresh=True)
            assert empty.outcome == "nothing reported"
            assert empty.reason.startswith("plain hashing: no histogram of batch 0")
            assert plan_from_bytes(empty.plan).info.policy == "hash"
            again = await engine.build_plan("clicks", 0)
            assert (again.outcome, again.version) == ("nothing reported", empty.version)
            assert again.reason.startswith("the present plan stays")
            await engine.report_histogram("clicks", Part("app", 0), skewed())
            assert (await engine.build_plan("clicks", 0, fresh=True)).outcome == "new"
            none = Histogram.empty()
            assert (await engine.build_plan("clicks", histogram=none)).outcome == "nothing reported"

    run(main())


def test_versions_follow_each_other_and_name_the_one_before():
    async def main() -> None:
        async with engines() as (engine,):
            await engine.put_stream("clicks", BALANCED)
            plans = [
                plan_from_bytes((await engine.build_plan("clicks", histogram=skewed(seed=seed))).plan)
                for seed in range(1, 5)
            ]
            for before, plan in pairwise(plans):
                assert plan.version == before.version.next()
                assert plan.info.previous == before.version
                assert plan.info.stream == "clicks"

    run(main())


@pytest.mark.parametrize("policy", ["balanced", "kip", "auto", "cg", "mixed", "dalton", "prompt", "hash"])
def test_another_number_of_partitions_is_planned_anew(policy: str):
    """Also where nothing more is reported: the present plan is of another number, so it does not stay."""

    async def main() -> None:
        async with engines() as (engine,):
            await engine.put_stream("clicks", StreamSpec(8, policy))
            await engine.report_histogram("clicks", Part("app", 0), skewed())
            old = plan_from_bytes((await engine.build_plan("clicks", 1)).plan)
            await engine.put_stream("clicks", StreamSpec(5, policy))
            built = await engine.build_plan("clicks", 2)
            new = plan_from_bytes(built.plan)
            assert (built.outcome, new.partitions, new.version) == ("new", 5, old.version.next())
            assert "8 partitions before, 5 now" in built.reason
            assert new.info.previous == old.version
            assert new.info.moved_rows > 0
            await engine.put_stream("clicks", StreamSpec(3, policy))
            nothing = await engine.build_plan("clicks", histogram=Histogram.empty())
            assert plan_from_bytes(nothing.plan).partitions == 3

    run(main())


def test_other_key_types_begin_anew_without_the_old_histograms():
    """Their hashes are of other values: neither history nor the plan before says anything of them."""

    async def main() -> None:
        async with engines() as (engine,):
            await engine.put_stream("clicks", StreamSpec(8, "balanced", key_types=("string",)))
            await engine.report_histogram("clicks", Part("app", 0), skewed())
            old = await engine.build_plan("clicks", 1)
            await engine.put_stream("clicks", StreamSpec(8, "balanced", key_types=("bigint",)))
            nothing = await engine.build_plan("clicks", 2)
            assert nothing.outcome == "nothing reported"
            await engine.report_histogram("clicks", Part("app", 2), skewed(seed=4))
            built = await engine.build_plan("clicks", 3)
            plan = plan_from_bytes(built.plan)
            assert (built.outcome, plan.key_types, plan.info.rows) == ("new", ("bigint",), skewed().total)
            assert plan.version > nothing.version > old.version

    run(main())


def test_replicas_that_plan_one_batch_at_once_make_one_plan():
    """All answer with the same bytes, and there is one version."""

    async def main() -> None:
        async with engines(count=3) as replicas:
            await replicas[0].put_stream("clicks", StreamSpec(8, "auto"))
            await replicas[0].report_histogram("clicks", Part("app", 0), some_histogram(50_000, 2_000))
            asked = [engine.build_plan("clicks", 1) for engine in replicas for _ in range(10)]
            built = await asyncio.gather(*asked)
            assert len({(one.plan, one.version) for one in built}) == 1
            assert {one.version.number for one in built} == {1}

    run(main())


def test_plans_of_several_batches_at_once_are_all_made_one_after_another():
    """Each is made from the one that is there: none is lost, none has a number twice."""

    async def main() -> None:
        async with engines(count=3) as replicas:
            await replicas[0].put_stream("clicks", BALANCED)
            for batch in range(6):
                await replicas[0].report_histogram("clicks", Part("app", batch), skewed(seed=batch + 1))
            built = await asyncio.gather(
                *(replicas[batch % 3].build_plan("clicks", batch, fresh=True) for batch in range(6))
            )
            plans = sorted((plan_from_bytes(one.plan) for one in built), key=lambda plan: plan.version)
            assert [plan.version.number for plan in plans] == [1, 2, 3, 4, 5, 6]
            assert all(after.info.previous == before.version for before, after in pairwise(plans))

    run(main())


def test_batches_whose_plan_is_kept_at_the_same_time_are_each_remembered():
    """The same routes under the next version, for several batches at once: each has a version of its own."""

    async def main() -> None:
        async with engines(count=3) as replicas:
            await replicas[0].put_stream("clicks", StreamSpec(8, "hash"))
            await replicas[0].report_histogram("clicks", Part("app", 0), skewed())
            await replicas[0].build_plan("clicks")
            built = await asyncio.gather(*(replicas[batch % 3].build_plan("clicks", batch) for batch in range(1, 7)))
            assert {one.outcome for one in built} == {"kept"}
            assert len({one.version for one in built}) == 6
            for batch, one in enumerate(built, 1):
                assert (await replicas[0].build_plan("clicks", batch)).plan == one.plan

    run(main())


def test_a_plan_is_got_by_version_or_as_the_latest_and_not_twice():
    async def main() -> None:
        log = Log()
        async with engines(observer=log) as (engine,):
            await engine.put_stream("clicks", BALANCED)
            with pytest.raises(NotFoundError, match="no plan yet"):
                await engine.get_plan("clicks")
            first = await engine.build_plan("clicks", histogram=skewed())
            second = await engine.build_plan("clicks", histogram=skewed(seed=2))
            assert (await engine.get_plan("clicks")).plan == second.plan
            assert (await engine.get_plan("clicks", first.version)).plan == first.plan
            had = await engine.get_plan("clicks", if_none_match=second.digest)
            assert (had.not_modified, had.plan, had.digest) == (True, b"", second.digest)
            assert not (await engine.get_plan("clicks", if_none_match=first.digest)).not_modified
            with pytest.raises(NotFoundError, match=r"no plan 7\.7"):
                await engine.get_plan("clicks", Version(7, 7))
            with pytest.raises(NotFoundError, match="visits"):
                await engine.get_plan("visits", first.version)
            asked = len([call for call in log.of(StoreCalled) if call.op == "plan"])
            for _ in range(100):
                await engine.get_plan("clicks", first.version)
                await engine.get_plan("clicks")
            assert len([call for call in log.of(StoreCalled) if call.op == "plan"]) <= asked + 20
            assert [built.outcome for built in log.of(PlanBuilt)] == ["new", "new"]
            assert {changed.what for changed in log.of(StreamChanged)} == {"created"}
            assert log.of(PlanServed)[2].version is None

    run(main())


def test_a_stream_put_again_has_newer_versions_than_before():
    """Its plans are not those of the stream that was deleted."""

    async def main() -> None:
        async with engines(count=2) as (one, other):
            await one.put_stream("clicks", BALANCED)
            old = await one.build_plan("clicks", histogram=skewed())
            await other.delete_stream("clicks")
            await other.put_stream("clicks", BALANCED)
            new = await other.build_plan("clicks", histogram=skewed())
            assert new.version > old.version
            with pytest.raises(NotFoundError):
                await other.get_plan("clicks", old.version)

    run(main())


def test_a_key_is_explained_under_any_version():
    async def main() -> None:
        async with engines() as (engine,):
            await engine.put_stream("clicks", BALANCED)
            first = await engine.build_plan("clicks", histogram=skewed())
            await engine.build_plan("clicks", histogram=skewed(seed=2))
            key = int(key_hashes(500, 1)[0])
            old, new = await engine.explain("clicks", key, first.version), await engine.explain("clicks", key)
            assert old.kind.startswith("hot")
            assert new.kind == "tail"
            assert old.version == first.version
            assert new.version == (await engine.get_stream("clicks")).version
            with pytest.raises(NotFoundError):
                await engine.explain("clicks", key, Version(1, 1))

    run(main())


def test_dalton_plans_from_what_the_agents_learned():
    """A key that they found to be worth most on partition 3 goes there."""

    async def main() -> None:
        async with engines() as (engine,):
            await engine.put_stream("clicks", StreamSpec(4, "dalton", {"epsilon": 0.0}))
            key = int(key_hashes(500, 1)[0])
            histogram = Histogram.from_counts(key_hashes(500, 1), np.concatenate([[3000], np.full(499, 10)]), None)
            placed = set()
            for best in (1, 3):
                values = [-1.0] * 4
                values[best] = 0.5
                report = a_report(seq=best, key=key, values=values, rows=5000)
                assert (await engine.sync("clicks", report, 5.0, NOTHING_SEEN)).merged
                await engine.build_plan("clicks", histogram=histogram)
                explained = await engine.explain("clicks", key)
                placed.add(explained.partitions[int(np.argmax(explained.shares))])
            assert placed == {1, 3}

    run(main())
