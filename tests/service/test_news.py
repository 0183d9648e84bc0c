"""The news channel of Redis, on which anybody may publish anything for every database: what is no news is counted and
dropped, whatever ends the listener it begins again, and a replica without news says so."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.servers import Server, single
from tests.service.engines import Cuttable, Log, engines, run, until
from tests.service.faces import served
from tests.service.processes import logged, process, until_told
from unskew.service.engine.base import Tuning
from unskew.service.engine.engine import Engine
from unskew.service.events.events import Skipped
from unskew.service.stores import open_store
from unskew.service.stores.records import MISSED, News
from unskew.service.stores.redis.replies import news_of
from unskew.service.stores.redis.store import RedisStore

JUNK = [
    b"", b"x", b"plan", b"plan ", b" clicks", b"round clicks 1", b"round clicks a b", b"round clicks 1 2 3 4",
    b"round clicks " + b"9" * 17 + b" 1", b"\xff\xfe", b"plan a b", b"plan " + b"a" * 201, b"shutdown clicks",
    b"plan clicks\n", b"missed ", b"plan cl\xc3\xafcks", b"x" * 1_000_000,
]  # fmt: skip


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with single(tmp_path) as one:
        yield one


@pytest.mark.parametrize("message", JUNK, ids=range(len(JUNK)))
def test_what_is_no_news_is_known_as_such(message: bytes) -> None:
    assert news_of(message) is None


def test_news_are_read_with_their_numbers_and_their_database() -> None:
    read = news_of(b"round eu/clicks 5 4 db3")
    assert read == (News("eu/clicks", "round"), b"db3")
    assert read[0].rounds == (5, 4)
    assert news_of(b"plan clicks") == (News("clicks", "plan"), b"")


def heard(database: int, *messages: tuple[bytes, bytes]) -> list[tuple[str, str, Any]]:
    """What a listener of this database is given of these messages."""

    async def main() -> list[tuple[str, str, Any]]:
        store = open_store(f"redis://127.0.0.1:1/{database}")
        assert isinstance(store, RedisStore)
        inbox = store._hub.listen()
        for message in messages:
            store._take_message(message)
        store._hub.close()
        return [(one.what, one.stream, one.rounds) async for one in inbox]

    return run(main())


def test_the_numbers_of_a_round_are_taken_from_the_database_s_own_channel_only() -> None:
    """Those of another database would say that a round is merged which is not."""
    last, shared = (b"unskew:news", b"round a 5 4"), (b"unskew:news", b"round b 5 4 db3")
    own = b"unskew:news:3", b"round c 5 4"
    assert heard(0, last, shared) == [("round", "a", (5, 4))]
    assert heard(3, last, shared, own) == [("round", "a", None), ("round", "c", (5, 4))]


def test_two_databases_of_one_redis_do_not_hear_each_other_and_the_last_release_hears_both(server: Server) -> None:
    """A replica of the release before this one listens to the shared channel and takes a third word for no numbers."""

    async def main() -> list[bytes]:
        zero, three = open_store(f"{server.url}/0"), open_store(f"{server.url}/3")
        listeners = zero.news(), three.news()
        await subscribed(server, "unskew:news", 2)
        import redis.asyncio

        published = []
        async with redis.asyncio.Redis(port=server.port) as client, client.pubsub() as old:
            await old.subscribe("unskew:news")
            assert (await old.get_message(timeout=30))["type"] == "subscribe"
            await three.put_stream("three", b"")
            await zero.put_stream("zero", b"")
            assert (await anext(listeners[0])).stream == "zero"
            assert (await anext(listeners[1])).stream == "three"
            for _ in range(2):
                published.append((await old.get_message(timeout=30))["data"])
        await zero.close()
        await three.close()
        return published

    assert run(main()) == [b"stream three db3", b"stream zero"]


async def subscribed(server: Server, channel: str, count: int) -> None:
    await until(lambda: server.ask("PUBSUB", "NUMSUB", channel)[1] == count, 60.0)


def test_messages_that_are_none_are_counted_and_the_next_news_still_come(server: Server) -> None:
    async def main() -> None:
        store = open_store(server.url)
        news = store.news()
        await subscribed(server, "unskew:news", 1)
        for message in JUNK:
            server.ask("PUBLISH", "unskew:news", message)
        await store.put_stream("clicks", b"")
        assert await asyncio.wait_for(anext(news), 60.0) == News("clicks", "stream")
        state = store.news_state()
        assert (state.trouble, state.dropped) == ("", len(JUNK))
        await store.close()

    run(main())


def test_a_subscription_that_is_refused_is_told_and_made_again(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Said once in the log; afterwards whoever listens is told that something may have been missed."""
    caplog.set_level("INFO", "unskew.service")

    async def main() -> None:
        store = open_store(server.url)
        news = store.news()
        await subscribed(server, "unskew:news", 1)
        server.ask("ACL", "SETUSER", "default", "-subscribe")
        server.ask("CLIENT", "KILL", "TYPE", "pubsub")
        await until(lambda: "permission" in store.news_state().trouble, 60.0)
        await asyncio.sleep(1.0)
        server.ask("ACL", "SETUSER", "default", "+subscribe")
        assert await asyncio.wait_for(anext(news), 60.0) == MISSED
        assert store.news_state().trouble == ""
        await store.close()

    run(main())
    lines = [record.getMessage() for record in caplog.records if record.name == "unskew.service"]
    assert [line.partition(",")[0] for line in lines] == ["no news from Redis", "news from Redis come again"]


def test_a_fault_of_ours_in_the_subscription_does_not_end_it(server: Server) -> None:
    async def main() -> None:
        store = open_store(server.url)
        assert isinstance(store, RedisStore)
        take, store._take_message = store._take_message, broken  # type: ignore[method-assign]
        news = store.news()
        await subscribed(server, "unskew:news", 1)
        assert store._subscription is not None
        server.ask("PUBLISH", "unskew:news", "plan clicks")
        await until(lambda: "ZeroDivisionError" in store.news_state().trouble, 60.0)
        store._subscription._take = take
        assert await asyncio.wait_for(anext(news), 60.0) == MISSED
        await store.close()

    def broken(_message: object) -> None:
        raise ZeroDivisionError

    run(main())


def test_the_engine_s_listener_outlives_news_that_end_or_fail_or_cannot_be_taken() -> None:
    """A store whose news raise what nobody thought of: said, and listened to again, with the watches looked at."""

    class Failing(Cuttable):
        times = 0

        async def news(self) -> AsyncIterator[News]:
            self.times += 1
            yield News("clicks", "plan")
            if self.times < 4:
                raise IndexError("list index out of range")
            await asyncio.sleep(60.0)

    async def main() -> None:
        store, log = Failing(), Log()
        async with engines(store, tuning=Tuning(retry=0.01), observer=log) as (engine,):
            assert isinstance(engine, Engine)
            await until(lambda: store.times == 4, 60.0)
            reasons = {event.reason for event in log.of(Skipped) if event.what == "news"}
            assert reasons == {"an error of the service itself, IndexError: list index out of range"}
            assert engine.news_state().trouble == ""
            engine._listener._take = lambda _news: 1 / 0  # type: ignore[assignment,return-value]
            engine._listener._hand_on(None)
            assert any("ZeroDivisionError" in event.reason for event in log.of(Skipped))

    run(main())


def test_a_service_tells_that_it_hears_nothing_is_ready_all_the_same_and_ends_well(
    tmp_path: Path, server: Server
) -> None:
    """By ``/readyz``, metrics and one line; after junk and without news SIGTERM ends it with 0."""
    with process(tmp_path, "--store", server.url) as service:
        run(subscribed(server, "unskew:news", 1))
        server.ask("PUBLISH", "unskew:news", "x")
        until_told(service, "unskew_news_dropped_total 1.0")
        assert httpx.get(service.url("/readyz"), trust_env=False).json() == {"status": "ready"}
        server.ask("ACL", "SETUSER", "default", "-subscribe")
        server.ask("CLIENT", "KILL", "TYPE", "pubsub")
        until_told(service, "unskew_news_up 0.0")
        ready = httpx.get(service.url("/readyz"), trust_env=False)
        assert ready.status_code == 200
        assert "no news of the store come" in ready.json()["degraded"]
        server.ask("ACL", "SETUSER", "default", "+subscribe")
        until_told(service, "unskew_news_up 1.0")
        assert httpx.get(service.url("/readyz"), trust_env=False).json() == {"status": "ready"}
        server.ask("PUBLISH", "unskew:news", "x")
        until_told(service, "unskew_news_dropped_total 2.0")
        service.run.send_signal(signal.SIGTERM)
        assert service.run.wait(60) == 0
    lines = [str(line["message"]) for line in logged(tmp_path)]
    assert sum("is no news" in line for line in lines) == 1
    assert sum("no news from Redis" in line for line in lines) == 1


def test_a_replica_hears_of_another_s_change_at_once_after_junk(server: Server) -> None:
    """Ten milliseconds, not the five seconds after which a replica looks by itself."""
    with served("engine", store=server.url) as one, served("engine", store=server.url) as other:
        run(subscribed(server, "unskew:news", 2))
        server.ask("PUBLISH", "unskew:news", "x")
        for service in (one, other):
            page = f"{service.base}/v1/streams/clicks"
            httpx.put(page, json={"partitions": 3}, trust_env=False)
            assert httpx.get(page, trust_env=False).status_code == 200
        httpx.delete(f"{one.base}/v1/streams/clicks", trust_env=False)
        asyncio.run(asyncio.sleep(0.5))
        lost = httpx.get(f"{other.base}/v1/streams/clicks/scale", trust_env=False)  # by the settings that are cached
        assert lost.status_code == 404
