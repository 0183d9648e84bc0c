"""Cooperative learning over the engine: who is in a round, who gets which answer, how often, and on which replica."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tests.planning import key_hashes
from tests.service.engines import Cuttable, Log, a_report, engines, run, until
from unskew.core.errors import WireError
from unskew.core.rounds.agent import Agent, AgentSettings, AgentTick, Answered, Routed, SendReport, Tuples
from unskew.core.rounds.round_digests import NOTHING_SEEN, SeenRound
from unskew.core.stream_spec import StreamSpec
from unskew.service.api.verbs import Synced
from unskew.service.engine.base import Tuning
from unskew.service.engine.engine import Engine
from unskew.service.errors import ConflictError, NotFoundError
from unskew.service.events.events import AgentsSeen, RoundMerged
from unskew.service.stores.memory import MemoryStore
from unskew.simulate.fleet import Fleet
from unskew.wire.round_messages import answer_from_bytes

NEVER = NOTHING_SEEN
QUICK = StreamSpec(4, "dalton", dsync=0.2, dsync_min=0.2, dsync_max=0.2)
SLOW = StreamSpec(4, "dalton", dsync=3600.0, dsync_min=3600.0)


async def agree(engine: Engine, *agents: str, seq: int = 1, wait: float = 60.0, **more: object) -> list[Synced]:
    """All of them report, and wait."""
    reports = [a_report(agent, seq, **more) for agent in agents]
    return list(await asyncio.gather(*(engine.sync("clicks", report, wait, NEVER) for report in reports)))


def test_a_round_is_answered_when_every_live_agent_is_in_it():
    """At once: nobody waits for DSYNC, and all get the same."""

    async def main() -> None:
        async with engines() as (engine,):
            await engine.put_stream("clicks", SLOW)
            await agree(engine, "a", "b", "c")
            first = asyncio.gather(*(engine.sync("clicks", a_report(name, 2), 60.0, NEVER) for name in "ab"))
            await asyncio.sleep(0.3)
            assert not first.done()
            last = await engine.sync("clicks", a_report("c", 2), 60.0, NEVER)
            answers = [*await first, last]
            assert {found.answer.epoch for found in answers} == {2}
            assert all(found.merged and found.answer is last.answer for found in answers)
            assert last.answer.records == 300
            assert last.answer.merged == (("a", 1, 2), ("b", 1, 2), ("c", 1, 2))
            assert 0.0 <= last.age < 60.0
            info = await engine.get_stream("clicks")
            assert (info.epoch, info.agents, info.dsync) == (2, 3, 3600.0)
            assert last.incarnation == (await engine.sync("clicks", a_report("c", 3), 0.0, NEVER)).incarnation > 0

    run(main())


def test_no_round_waits_for_a_guest():
    """Three in one round, none in the next: it is done when the one that holds a lease has reported."""

    async def main() -> None:
        async with engines() as (engine,):
            await engine.put_stream("clicks", SLOW)
            await agree(engine, "driver")
            for seq, tasks in ((2, 3), (3, 0)):
                for task in range(tasks):
                    guest = replace(a_report(f"task-{task}", seq), guest=True)
                    assert not (await engine.sync("clicks", guest, 0.0, NEVER)).merged
                (found,) = await agree(engine, "driver", seq=seq)
                assert len(found.answer.merged) == tasks + 1
                assert found.answer.records == 100 * (tasks + 1)
                assert (await engine.get_stream("clicks")).agents == 1

    run(main())


def test_who_does_not_wait_asks_again_and_is_answered():
    """Without a wait there is nothing new; the same report again gets the answer, and that every time."""

    async def main() -> None:
        async with engines() as (engine,):
            await engine.put_stream("clicks", SLOW)
            await agree(engine, "a", "b")
            assert (await engine.sync("clicks", a_report("a", 2), 0.0, SeenRound(2**60, 0))).answer is None
            await agree(engine, "b", seq=2)
            for _ in range(2):
                again = await engine.sync("clicks", a_report("a", 2), 0.0, SeenRound(2**60, 0))
                assert again.merged
                assert again.answer.epoch == 2

    run(main())


def test_who_missed_its_round_is_told_that_its_report_counted():
    """The newest answer as if it were in it: its own tuples among those of all, and its name."""

    async def main() -> None:
        async with engines(count=2) as (one, other):
            await one.put_stream("clicks", SLOW)
            await agree(one, "a", "b")
            await one.sync("clicks", a_report("a", 2), 0.0, NEVER)
            await agree(one, "b", seq=2)
            store = one._base.store
            late = await store.round("clicks")
            assert late.merged == 2
            for seq in (3, 4):
                b = asyncio.create_task(agree(one, "b", seq=seq))
                view = await store.round("clicks")
                while "b" not in view.reported:
                    await asyncio.sleep(0.005)
                    view = await store.round("clicks")
                await store.seal("clicks", view.open)
                (found,) = await b
            for engine in (one, other):
                again = await engine.sync("clicks", a_report("a", 2), 0.0, NEVER)
                assert again.merged
                assert again.answer.epoch == found.answer.epoch == 4
                assert ("a", 1, 2) in again.answer.merged
                assert again.answer.records == 200
                assert again.answer.loads.tolist() == [200] * 4
                assert again.answer.table == found.answer.table

    run(main())


def test_an_older_report_than_the_last_is_not_taken():
    async def main() -> None:
        async with engines() as (engine,):
            await engine.put_stream("clicks", SLOW)
            for seq in (1, 2):
                await agree(engine, "a", seq=seq)
            late = await engine.sync("clicks", a_report("a", 1), 5.0, NEVER)
            assert (late.merged, late.answer.epoch) == (False, 2)
            assert (await engine.get_stream("clicks")).epoch == 2

    run(main())


def test_what_does_not_fit_the_stream_is_refused():
    """Another number of workers, counts that no sum could hold, a stream that is not there."""

    async def main() -> None:
        async with engines() as (engine,):
            await engine.put_stream("clicks", SLOW)
            with pytest.raises(ConflictError, match="5 workers, stream 'clicks' has 4"):
                await engine.sync("clicks", a_report(workers=5), 0.0, NEVER)
            with pytest.raises(WireError, match=r"report\.loads"):
                await engine.sync("clicks", a_report(rows=2**41), 0.0, NEVER)
            with pytest.raises(NotFoundError, match="visits"):
                await engine.sync("visits", a_report(), 0.0, NEVER)

    run(main())


def test_a_dead_agent_blocks_nobody():
    """It holds a round up to its deadline, until its lease is over; then the others go on without it."""

    async def main() -> None:
        log = Log()
        async with engines(observer=log) as (engine,):
            await engine.put_stream("clicks", QUICK)
            await agree(engine, "a", "b", "dead", dsync=0.2)
            seconds = []
            for seq in range(2, 12):
                began = time.monotonic()
                answers = await agree(engine, "a", "b", seq=seq, dsync=0.2)
                seconds.append(time.monotonic() - began)
                assert all(found.merged for found in answers)
                assert answers[0].answer.records == 200
            assert 0.25 < seconds[0] < 30.0
            assert min(seconds[2:]) < 0.25  # each takes longer if it waits for its deadline
            assert "deadline" in {merged.outcome for merged in log.of(RoundMerged)}
            assert {seen.agents for seen in log.of(AgentsSeen)} >= {3, 2}

    run(main())


def test_a_sealed_round_is_merged_by_another_where_its_replica_is_gone():
    """Once, with all that was reported."""

    async def main() -> None:
        store, log = Cuttable(), Log()
        async with engines(store, observer=log) as (engine,):
            await engine.put_stream("clicks", SLOW)
            await agree(engine, "a", "b")
            waiting = asyncio.create_task(engine.sync("clicks", a_report("a", 2), 60.0, NEVER))
            await until(lambda: store.answered.count("report") == 3)
            await store.seal("clicks", 2)
            found = await waiting
            assert found.merged
            assert found.answer.merged == (("a", 1, 2),)
            assert log.of(RoundMerged)[-1].outcome == "taken over"
            assert [commit.epoch for commit in store.commits] == [1, 2]

    run(main())


def test_replicas_share_the_rounds_of_a_stream_and_merge_each_once():
    """Each report is in exactly one round, and all replicas give the same answer."""

    async def main() -> None:
        store = Cuttable()
        async with engines(store, count=3) as replicas:
            await replicas[0].put_stream("clicks", StreamSpec(4, "dalton", dsync=1.0, dsync_min=1.0))
            names = [f"agent-{number}" for number in range(9)]
            for seq in range(1, 7):
                answers = await asyncio.gather(
                    *(
                        replicas[number % 3].sync("clicks", a_report(name, seq), 60.0, NEVER)
                        for number, name in enumerate(names)
                    )
                )
                assert all(found.merged for found in answers)
                if seq > 1:
                    assert {found.answer.records for found in answers} == {900}
                    assert len({found.answer.table.values.tobytes() for found in answers}) == 1
            counted = Counter(name for commit in store.commits for name in commit.names)
            assert set(counted.values()) == {1}
            assert len(counted) == 54
            epochs = [commit.epoch for commit in store.commits]
            assert epochs == list(range(1, len(epochs) + 1))

    run(main())


def test_agents_over_the_engine_learn_what_a_fleet_does():
    """Row by row the same workers as in the in-process simulation, through reports and answers as bytes."""
    workers, agents, dsync, rows = 8, 4, 2000, 40_000
    rng = np.random.default_rng(3)
    share = 1.0 / np.arange(1, 401) ** 1.3
    hashes = key_hashes(400)[rng.choice(400, rows, p=share / share.sum())]
    fleet = Fleet(agents, workers, float(dsync))
    expected = fleet.route(hashes)
    alone = Fleet(agents, workers, None).route(hashes)
    assert not np.array_equal(expected, alone)

    async def main() -> np.ndarray:
        partners = [
            Agent(AgentSettings(f"agent-{number:04}", workers, float(dsync), number)) for number in range(agents)
        ]
        out = np.empty(rows, np.int32)
        spec = StreamSpec(workers, "dalton", dsync=dsync, dsync_min=dsync, dsync_max=dsync)
        async with engines(count=2) as replicas:
            await replicas[0].put_stream("clicks", spec)
            met = False  # the first reports go to one replica: on a busy machine half of them could be a round
            for agent in partners:
                agent.handle(AgentTick(), 0.0)
            for start in range(0, rows, dsync // 4):
                whose = np.arange(start, start + dsync // 4)
                sent = []
                for number, agent in enumerate(partners):
                    mine = whose[whose % agents == number]
                    for action in agent.handle(Tuples(hashes[mine], None), float(start + dsync // 4)):
                        if isinstance(action, Routed):
                            out[mine] = action.workers
                        elif isinstance(action, SendReport):
                            sent.append((number, agent, action.report))
                answers = await asyncio.gather(
                    *(replicas[number % 2 * met].sync("clicks", report, 60.0, NEVER) for number, _, report in sent)
                )
                met = met or bool(sent)
                for (_, agent, _), found in zip(sent, answers, strict=True):
                    assert found.merged
                    agent.handle(Answered(found.answer, 0.0), float(start + dsync // 4))
            assert (await replicas[1].get_stream("clicks")).epoch == rows // dsync
        return out

    assert np.array_equal(run(main()), expected)


def test_dsync_doubles_where_the_reducer_is_slow_and_halves_where_it_is_idle():
    """Agents that waited for the reducer ask, and are heard; when it idles for longer than it works it comes back."""

    async def main() -> None:
        store = Cuttable(clock := Clock())
        async with engines(store) as (engine,):
            await engine.put_stream("clicks", StreamSpec(4, "dalton", dsync=8.0, dsync_min=2.0, dsync_max=64.0))
            seq, dsync = 1, 8.0
            (found,) = await agree(engine, "a", seq=seq, dsync=dsync)
            for expected in (16.0, 32.0, 64.0, 64.0):
                for longer in (False, True):
                    seq += 1
                    (found,) = await agree(engine, "a", seq=seq, dsync=dsync, longer=longer)
                dsync = found.answer.dsync
                assert dsync == expected
            for _ in range(12):
                seq, clock.now = seq + 1, clock.now + dsync
                (found,) = await agree(engine, "a", seq=seq, dsync=dsync)
                dsync = found.answer.dsync
            assert dsync < 64.0
            assert (await engine.get_stream("clicks")).dsync == dsync

    run(main())


class Clock:
    """The store's, by hand."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def test_another_number_of_partitions_goes_on_with_what_was_learned():
    """Reports of the open round and the answer before are resized; agents of the old number are refused."""

    async def main() -> None:
        store = Cuttable()
        async with engines(store) as (engine,):
            await engine.put_stream("clicks", SLOW)
            await agree(engine, "a", "b", values=[0.4, 0.3, 0.2, 0.1])
            old = asyncio.create_task(engine.sync("clicks", a_report("a", 2), 60.0, NEVER))
            await until(lambda: store.answered.count("report") == 3)
            await engine.put_stream("clicks", StreamSpec(6, "dalton", dsync=3600.0))
            new = await engine.sync("clicks", a_report("b", 1, session=2, workers=6), 60.0, NEVER)
            assert new.answer.table.workers == 6
            assert new.answer.loads.tolist() == [200, 200, 200, 200, 100, 100]
            assert (await old).answer is new.answer
            with pytest.raises(ConflictError):
                await engine.sync("clicks", a_report("a", 3), 0.0, NEVER)

    run(main())


def test_a_stream_that_goes_ends_the_waits_for_its_rounds():
    async def main() -> None:
        store = Cuttable()
        async with engines(store, tuning=Tuning(poll=0.05)) as (engine,):
            await engine.put_stream("clicks", SLOW)
            await agree(engine, "a", "b")
            waiting = asyncio.create_task(engine.sync("clicks", a_report("a", 2), 60.0, NEVER))
            await until(lambda: store.answered.count("report") == 3)
            await engine.delete_stream("clicks")
            with pytest.raises(NotFoundError):
                await waiting
            await engine.put_stream("clicks", SLOW)
            (found,) = await agree(engine, "a", seq=3)
            assert (found.answer.epoch, found.merged) == (1, True)

    run(main())


def test_what_cannot_be_read_of_a_round_does_not_hold_it_up():
    """Another release may have written it: the others are merged, and its agent is answered too."""

    async def main() -> None:
        store, log = Cuttable(), Log()
        async with engines(store, observer=log) as (engine,):
            await engine.put_stream("clicks", SLOW)
            await agree(engine, "a", "b")
            kept = store.store._streams["clicks"].rounds
            waiting = asyncio.create_task(engine.sync("clicks", a_report("a", 2), 60.0, NEVER))
            await until(lambda: bool(kept.epochs.get(2)))
            for key, report in kept.epochs[2].items():
                kept.epochs[2][key] = type(report)(key, b"\xff\xff", report.arrived)
            (found,) = await agree(engine, "b", seq=2)
            assert found.answer.records == 100
            assert (await waiting).merged
            assert any("a: " in event.reason for event in log if hasattr(event, "reason"))

    run(main())


def test_a_thousand_agents_are_answered_together():
    """One answer, read once; the driver looks at the store seldom, not once a report."""

    async def main() -> None:
        store = Cuttable()
        async with engines(store) as (engine,):
            await engine.put_stream("clicks", StreamSpec(4, "dalton", dsync=20.0))
            names = [f"agent-{number:04}" for number in range(1000)]
            await agree(engine, *names)
            store.asked.clear()
            answers = await agree(engine, *names, seq=2)
            assert len({id(found.answer) for found in answers}) == 1
            assert answers[0].answer.records == 100_000
            assert store.asked.count("report") == 1000
            assert store.asked.count("round") < 50
            assert store.asked.count("answer") < 5
            assert answer_from_bytes(store.commits[-1].answer).records == 100_000

    run(main())


def test_an_agent_of_a_stream_that_began_anew_gets_a_greater_incarnation():
    """What the agents have shown is the least that a new stream begins above, within an hour of the clock."""

    async def main() -> None:
        shown = int((time.time() + 1800) * 1e6)
        async with engines(MemoryStore(time.time)) as (engine,):
            await engine.put_stream("clicks", SLOW)
            await engine.sync("clicks", a_report(), 0.0, SeenRound(shown, 40))
            await engine.sync("clicks", a_report("b"), 0.0, SeenRound(2**52, 40))
            await engine.delete_stream("clicks")
            await engine.put_stream("clicks", SLOW)
            (found,) = await agree(engine, "a")
            assert found.incarnation > shown
            assert found.answer.incarnation == found.incarnation

    run(main())
