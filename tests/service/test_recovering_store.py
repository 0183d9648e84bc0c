"""A store that lost what it had: streams go on in a newer life, once for all replicas, and deleted ones stay deleted.

Over a real Redis; a replica has connections of its own. What a wipe means to callers of a whole service is in
``test_outages``."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers import Server, single
from tests.service.engines import Log, a_report, run, skewed, until
from unskew.core.plan.plan import Plan
from unskew.core.rounds.round_digests import NOTHING_SEEN
from unskew.core.rounds.round_log import Commit, ReportKey
from unskew.core.stream_spec import StreamSpec
from unskew.service.engine.base import Tuning
from unskew.service.engine.engine import Engine
from unskew.service.errors import NotFoundError, UnavailableError
from unskew.service.events.events import StreamChanged
from unskew.service.stores import open_store
from unskew.wire import plan_from_bytes

SPEC = StreamSpec(4, "balanced", dsync=0.5, dsync_min=0.5)
NEVER = NOTHING_SEEN


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with single(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis(redis_server: Server) -> Server:
    redis_server.ask("FLUSHALL")
    return redis_server


class Replicas:
    """So many engines over one Redis, each with a store and a log of its own."""

    def __init__(self, server: Server, count: int = 3, tuning: Tuning | None = None) -> None:
        self.server = server
        self.stores = [open_store(f"{server.url}?timeout=5&deadline=10") for _ in range(count)]
        self.logs = [Log() for _ in range(count)]
        self.engines = [
            Engine(store, observer=log, tuning=tuning) for store, log in zip(self.stores, self.logs, strict=True)
        ]

    async def __aenter__(self) -> list[Engine]:
        for engine in self.engines:
            await engine.start()
        await asyncio.gather(*(self._heard(store) for store in self.stores))
        return self.engines

    async def _heard(self, store: object) -> None:
        """Until there is a subscription: else what is told meanwhile is heard by nobody, which is another test."""
        await until(lambda: len(self.server.ask("PUBSUB", "CHANNELS")) == 1)
        await until(lambda: self.server.ask("PUBSUB", "NUMSUB", "unskew:news")[1] >= len(self.stores))

    async def __aexit__(self, *_: object) -> None:
        for engine in self.engines:
            await engine.close()
        for store in self.stores:
            await store.close()

    def restored(self) -> int:
        return sum(event.what == "restored" for log in self.logs for event in log.of(StreamChanged))


async def until_gone(engine: Engine, stream: str = "clicks") -> None:
    end = time.monotonic() + 60.0
    while True:
        try:
            await engine.get_stream(stream)
        except NotFoundError:
            return
        assert time.monotonic() < end, f"{stream} is still there"
        await asyncio.sleep(0.01)


async def agreed(*engines: Engine) -> list[Plan]:
    """The latest plan as each replica hands it out, once the news of it has come to all."""
    end = time.monotonic() + 60.0
    while True:
        latest = [plan_from_bytes((await engine.get_plan("clicks")).plan) for engine in engines]
        if len({plan.version for plan in latest}) == 1:
            return latest
        assert time.monotonic() < end, f"still {[str(plan.version) for plan in latest]}"
        await asyncio.sleep(0.01)


def test_a_wiped_stream_goes_on_once_for_all_replicas_with_its_routes(redis: Server):
    """Each replica is asked something else at the same time; one of them puts it back, under one new incarnation."""

    async def main() -> None:
        replicas = Replicas(redis)
        async with replicas as (one, two, three):
            await one.put_stream("clicks", SPEC)
            old = await one.build_plan("clicks", histogram=skewed())
            before = await one.sync("clicks", a_report(), 5.0, NEVER)
            for engine in (two, three):
                await engine.get_plan("clicks")
                await engine.get_stream("clicks")
            redis.ask("FLUSHALL")
            found = await asyncio.gather(
                one.get_stream("clicks"),
                two.sync("clicks", a_report("b"), 5.0, NEVER),
                three.build_plan("clicks", histogram=skewed(seed=2)),
                return_exceptions=True,
            )
            assert found[0].spec == SPEC
            assert found[1].incarnation > before.incarnation
            assert replicas.restored() == 1
            latest = await agreed(one, two, three)
            assert latest[0].version.incarnation == found[1].incarnation
            assert latest[0].version > old.version
            first = await replicas.stores[0].plan("clicks", type(old.version)(found[1].incarnation, 1))
            assert first is not None
            assert first.digest == old.digest
            assert plan_from_bytes(first.data).info.previous == old.version
            assert "put back" in plan_from_bytes(first.data).info.reason

    run(main())


def test_agents_that_wait_for_a_round_when_the_store_is_wiped_are_still_answered(redis: Server):
    """Their reports are sent again by the replicas that took them, and counted once in the new life."""

    async def main() -> None:
        replicas = Replicas(redis, 2)
        async with replicas as (one, two):
            await one.put_stream("clicks", SPEC)
            await two.get_stream("clicks")
            await asyncio.gather(*(e.sync("clicks", a_report(n), 5.0, NEVER) for e, n in ((one, "a"), (two, "b"))))
            await one.sync("clicks", a_report("c"), 5.0, NEVER)
            waiting = [
                asyncio.create_task(engine.sync("clicks", a_report(name, 2), 10.0, NEVER))
                for engine, name in ((one, "a"), (two, "b"))
            ]
            await until(lambda: len(redis.ask("KEYS", "{unskew:clicks}:i:*")) > 0)
            redis.ask("FLUSHALL")
            found = await asyncio.gather(*waiting)
            assert all(one.merged for one in found), found
            assert len({one.incarnation for one in found}) == 1
            assert replicas.restored() == 1

    run(main())


def test_a_stream_that_was_deleted_does_not_come_back(redis: Server):
    """Not from a replica that has it in its cache, not after a wipe, and not where the wipe came before."""

    async def main() -> None:
        replicas = Replicas(redis)
        async with replicas as (one, two, three):
            for stream in ("clicks", "views"):
                await one.put_stream(stream, SPEC)
                for engine in (two, three):
                    await engine.build_plan(stream, histogram=skewed())
                    await engine.sync(stream, a_report(), 0.0, NEVER)
            await one.delete_stream("clicks")
            for engine in (two, three):
                await until_gone(engine)
                with pytest.raises(NotFoundError):
                    await engine.sync("clicks", a_report(seq=2), 0.0, NEVER)
            redis.ask("FLUSHALL")
            for engine in (one, two, three):
                await until_gone(engine)
            await one.delete_stream("views")  # lost before it was deleted: that counts all the same
            for engine in (one, two, three):
                await until_gone(engine, "views")
            assert replicas.restored() == 0
            info, created = await two.put_stream("clicks", SPEC)
            assert created
            assert (info.version, info.epoch) == (None, 0)

    run(main())


def test_a_stream_is_on_the_list_again_when_the_list_is_asked_for(redis: Server):
    async def main() -> None:
        async with Replicas(redis, 2) as (one, two):
            for number in range(5):
                await one.put_stream(f"s{number}", SPEC)
            await one.delete_stream("s3")
            await two.list_streams("", 10)
            redis.ask("FLUSHALL")
            assert [info.name for info in await two.list_streams("", 2)] == ["s0", "s1"]
            assert [info.name for info in await two.list_streams("s1", 10)] == ["s2", "s4"]
            assert [info.name for info in await one.list_streams("", 10)] == ["s0", "s1", "s2", "s4"]

    run(main())


def test_a_store_that_comes_back_with_an_older_state_is_noticed(tmp_path: Path):
    """A snapshot of before: plans and rounds that were told are missing in it. No number comes twice: a new life."""

    async def main(server: Server) -> None:
        replicas = Replicas(server, 2, Tuning(fresh=0.0, poll=0.2))
        async with replicas as (one, two):
            await one.put_stream("clicks", SPEC)
            await one.build_plan("clicks", histogram=skewed())
            await one.sync("clicks", a_report(), 5.0, NEVER)
            server.ask("SAVE")
            lost = await one.build_plan("clicks", histogram=skewed(seed=2))
            told = await one.sync("clicks", a_report(seq=2), 5.0, NEVER)
            assert (lost.version.number, told.answer.epoch) == (2, 2)
            server.kill()
            server.start()
            found = await two.sync("clicks", a_report("b"), 10.0, NEVER)  # has seen nothing of what was lost
            assert found.merged
            latest = plan_from_bytes((await one.get_plan("clicks")).plan)
            assert latest.version.incarnation > lost.version.incarnation
            assert latest.digest == lost.digest, "the newest that anybody was given"
            known = told.answer.seen
            found = await one.sync("clicks", a_report(seq=3), 10.0, known)
            assert (found.incarnation, found.answer.epoch) > known[:2]
            assert (await two.sync("clicks", a_report("b", 2), 10.0, known)).incarnation == found.incarnation
            assert replicas.restored() == 1

    with single(tmp_path, "save 3600 1000000") as server:
        run(main(server))


def test_a_round_that_was_told_and_is_lost_begins_a_new_life(tmp_path: Path):
    """As above, where only the round is missing."""

    async def main(server: Server) -> None:
        replicas = Replicas(server, 1)
        async with replicas as (one,):
            await one.put_stream("clicks", SPEC)
            server.ask("SAVE")
            told = await one.sync("clicks", a_report(), 5.0, NEVER)
            server.kill()
            server.start()
            found = await one.sync("clicks", a_report(seq=2), 10.0, told.answer.seen)
            assert (found.merged, found.incarnation > told.incarnation) == (True, True)

    with single(tmp_path, "save 3600 1000000") as server:
        run(main(server))


def test_a_lost_round_whose_number_is_given_away_again_begins_a_new_life(tmp_path: Path):
    """The replica that answered it is dead. Another one, which has not seen it, has merged a round of the same number
    before the agent reports again: the agent shows what it was told."""

    async def main(server: Server) -> None:
        replicas = Replicas(server, 2, Tuning(poll=0.2))
        async with replicas as (one, two):
            await one.put_stream("clicks", SPEC)
            server.ask("SAVE")
            told = await one.sync("clicks", a_report(), 10.0, NEVER)
            await one.close()
            server.kill()
            server.start()
            other = await two.sync("clicks", a_report("b"), 10.0, NEVER)
            assert other.answer.version == told.answer.version
            found = await two.sync("clicks", a_report(seq=2), 10.0, told.answer.seen)
            assert (found.merged, found.incarnation > told.incarnation) == (True, True)

    with single(tmp_path, "save 3600 1000000") as server:
        run(main(server))


def test_what_no_replica_remembers_has_to_be_put_again(redis: Server):
    """And what was seen too long ago may have been deleted since: it is not put back."""

    async def main() -> None:
        async with Replicas(redis, 1) as (one,):
            await one.put_stream("clicks", SPEC)
            redis.ask("FLUSHALL")
        async with Replicas(redis, 1) as (other,):
            with pytest.raises(NotFoundError, match="put it first"):
                await other.get_stream("clicks")

    run(main())


def test_watchers_are_sent_the_first_plan_that_routes_otherwise(redis: Server):
    """The wipe itself is no news to them: the plan of the new life routes as the old one."""

    async def main() -> None:
        replicas = Replicas(redis, 2, Tuning(poll=0.1))
        async with replicas as (one, two):
            await one.put_stream("clicks", SPEC)
            old = await one.build_plan("clicks", histogram=skewed())
            watch = two.watch_plans("clicks")
            assert (await anext(watch)).digest == old.digest
            following = asyncio.ensure_future(anext(watch))
            redis.ask("FLUSHALL")
            await until(lambda: replicas.restored() == 1)
            new = await one.build_plan("clicks", histogram=skewed(seed=2))
            assert new.digest != old.digest
            assert (await following).digest == new.digest
            assert new.version > old.version
            await watch.aclose()

    run(main())


class Watching:
    """A store that remembers what was to be merged, whether or not an answer came."""

    def __init__(self, url: str, merges: dict[int, set[tuple[ReportKey, ...]]]) -> None:
        self._store, self._merges = open_store(url), merges

    def __getattr__(self, op: str) -> Any:
        return getattr(self._store, op)

    async def commit(self, stream: str, commit: Commit) -> bool:
        if commit.names:  # else another was faster: of a merged round there are no reports
            self._merges.setdefault(commit.epoch, set()).add(commit.names)
        return await self._store.commit(stream, commit)


async def agent(engine: Engine, name: str, told: list[ReportKey], going: list[bool]) -> None:
    """Sends each report until it is told that it is merged, whatever is said meanwhile."""
    while going:
        key = ReportKey(name, 1, len(told) + 1)
        report = a_report(name, key.seq, dsync=0.5)
        try:
            found = await engine.sync("clicks", report, 1.0, NEVER)
        except UnavailableError:
            await asyncio.sleep(0.02)
            continue
        if found.merged:
            told.append(key)


@pytest.mark.parametrize("troubles", [1, pytest.param(6, marks=pytest.mark.long)])
def test_no_round_is_lost_or_repeated_through_outages(tmp_path: Path, troubles: int):
    """Redis silent for longer than any timeout, its connections cut, killed and started again with what is on its
    disk: every report that was told to be merged is in one round, and all replicas would merge that alike."""

    async def main(server: Server) -> None:
        merges: dict[int, set[tuple[ReportKey, ...]]] = {}
        stores = [Watching(server.url, merges) for _ in range(2)]
        engines = [Engine(store) for store in stores]  # type: ignore[arg-type]
        for engine in engines:
            await engine.start()
        await engines[0].put_stream("clicks", SPEC)
        told: dict[str, list[ReportKey]] = {name: [] for name in "abcd"}
        going = [True]
        agents = [asyncio.create_task(agent(engines[at % 2], name, told[name], going)) for at, name in enumerate(told)]

        async def more() -> None:
            goal = {name: len(done) + 4 for name, done in told.items()}
            await until(lambda: all(len(told[name]) >= wanted for name, wanted in goal.items()), 60.0)

        await more()
        for _ in range(troubles):
            server.pause()
            await asyncio.sleep(1.8)
            server.resume()
            await more()
            server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            server.ask("CLIENT", "KILL", "TYPE", "pubsub")
            await more()
            server.kill()
            await asyncio.sleep(0.3)
            await asyncio.to_thread(server.start)
            await more()
        going.clear()
        await asyncio.gather(*agents)
        view = await stores[0].round("clicks")
        for engine in engines:
            await engine.close()
        for store in stores:
            await store.close()
        assert not [pair for pair in merges.items() if len(pair[1]) != 1], "who merges is of no account"
        assert sorted(merges) == list(range(1, view.merged + 1))
        counted = Counter(key for names in merges.values() for key in next(iter(names)))
        assert set(counted.values()) == {1}
        assert {key for done in told.values() for key in done} == set(counted)

    with single(tmp_path, "appendonly yes", "appendfsync always") as server:
        run(main(server), 240.0)
