"""What only a shared store can do wrong: be away, be slow, be full, forget, lose its scripts, keep things for ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.laws import LEASE, committed, merge, part, plan
from tests.servers import Server, single
from unskew.core.rounds.round_log import ReportKey, ReportOutcome
from unskew.service.errors import LimitError, UnavailableError
from unskew.service.stores import open_store
from unskew.service.stores.address import Address
from unskew.service.stores.limits import Limits
from unskew.service.stores.ports import Store
from unskew.service.stores.records import MISSED, PartOutcome, PlanOutcome
from unskew.service.stores.redis.redis_client import Patience
from unskew.service.stores.redis.store import RedisStore

pytestmark = pytest.mark.anyio

WAIT = 60.0


@pytest.fixture
async def store(empty_redis: Server, anyio_backend: str) -> AsyncIterator[Store]:
    made = open_store(f"{empty_redis.url}?timeout=5&deadline=10")
    yield made
    await made.close()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """One to stop, fill and set, that no other test sees."""
    with single(tmp_path) as server:
        yield server


async def fill(store: Store, stream: str) -> None:
    """Something of everything that a stream can have."""
    record, _ = await store.put_stream(stream, b"spec")
    await store.put_part(stream, part(0, 1), b"counts")
    assert await store.put_plan(stream, plan(record.incarnation, 1, "batch:1"), None) is PlanOutcome.STORED
    for seq in (1, 2):
        await store.report(stream, ReportKey("ann", 1, seq), b"", LEASE)
        if seq == 1:
            await merge(store, 1, stream)


def keys(server: Server) -> list[bytes]:
    return sorted(key for key in server.ask("KEYS", "*") if key not in (b"unskew:streams", b"unskew:used:"))


async def answers(store: Store) -> Any:
    """The first answer that comes, in time."""
    return await in_the_end(lambda: store.streams("", 9))


async def in_the_end(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Of a store with short time-outs, which a busy machine may exceed."""
    end = time.monotonic() + WAIT
    while True:
        try:
            return await ask()
        except UnavailableError:
            assert time.monotonic() < end, "it does not recover"
            await asyncio.sleep(0.05)


# -- keys


async def test_every_key_of_a_stream_is_under_one_hash_tag_and_expires_in_the_same_moment(
    store: Store, empty_redis: Server
) -> None:
    """A cluster keeps them together, and no part of a stream outlives another."""
    await fill(store, "a:b/c")
    found = keys(empty_redis)
    assert len(found) > 10
    assert all(key.startswith(b"{unskew:a:b/c}:") for key in found)
    assert len({empty_redis.ask("PEXPIRETIME", key) for key in found}) == 1
    left = empty_redis.ask("PTTL", found[0]) / 1000.0
    assert 0.89 * 30 * 86_400 <= left <= 30 * 86_400


async def test_a_used_stream_stays_and_its_keys_are_put_off_together(store: Store, empty_redis: Server) -> None:
    """When half of its time is gone the next that asks for it gives it all of it again."""
    await fill(store, "clicks")
    soon = int(time.time() * 1000) + 13 * 86_400_000
    empty_redis.ask("HSET", "{unskew:clicks}:m", "expires", soon)
    for key in keys(empty_redis):
        empty_redis.ask("PEXPIREAT", key, soon)
    assert await store.stream("clicks") is not None
    moments = {empty_redis.ask("PEXPIRETIME", key) for key in keys(empty_redis)}
    assert len(moments) == 1
    assert moments.pop() > soon + 10 * 86_400_000


async def test_streams_do_not_all_expire_at_once(store: Store, empty_redis: Server) -> None:
    """Their times to live are spread over a tenth."""
    for number in range(30):
        await store.put_stream(f"s{number}", b"")
    left = [empty_redis.ask("PTTL", f"{{unskew:s{number}}}:m") / 86_400_000 for number in range(30)]
    assert max(left) - min(left) > 0.5


async def test_an_expired_stream_is_gone_and_off_the_list_and_starts_anew(store: Store, empty_redis: Server) -> None:
    """Nothing of its old life is found in the new one, not even what an eviction left behind."""
    await fill(store, "clicks")
    await store.put_stream("views", b"")
    empty_redis.ask("DEL", "{unskew:clicks}:m")
    assert await store.stream("clicks") is None
    assert [one.name for one in await store.streams("", 9)] == ["views"]
    assert empty_redis.ask("ZRANGE", "unskew:streams", 0, -1) == [b"views"]
    _, created = await store.put_stream("clicks", b"spec")
    assert created
    assert await store.plan("clicks") is None
    assert await store.batches("clicks", "histogram", None, 9) == ()
    assert (await store.round("clicks")).members == ()
    assert len([key for key in keys(empty_redis) if b"clicks" in key]) == 1


async def test_an_expired_stream_makes_room_for_its_owner_but_not_at_once(store: Store, empty_redis: Server) -> None:
    """A place that was just claimed may be that of a stream that is about to be there; after a minute it is not."""
    for name in ("a", "b"):
        await store.put_stream(name, b"", owner="ann", most=2)
    empty_redis.ask("DEL", "{unskew:a}:m")
    with pytest.raises(LimitError):
        await store.put_stream("c", b"", owner="ann", most=2)
    empty_redis.ask("ZADD", "unskew:owned:ann", "XX", 1, "a")
    _, created = await store.put_stream("c", b"", owner="ann", most=2)
    assert created
    assert set(empty_redis.ask("ZRANGE", "unskew:owned:ann", 0, -1)) == {b"b", b"c"}


async def test_charges_that_are_wrong_are_put_right_where_there_is_no_room(empty_redis: Server) -> None:
    """Left by a replica that died: not while something may be under way, and then by what the streams have."""
    store = open_store(f"{empty_redis.url}?timeout=5&deadline=10", limits=Limits(owner_bytes=2000))
    for name in ("a", "gone"):
        await store.put_stream(name, b"", owner="ann")
        await store.put_part(name, part(0, 2), b"x" * 400)
    empty_redis.ask("DEL", "{unskew:gone}:m")
    empty_redis.ask("HINCRBY", "unskew:used:ann", "a", 900)
    empty_redis.ask("HINCRBY", "unskew:used:ann", "", 900)
    for stamp in ("99999999999", "1"):
        empty_redis.ask("HSET", "unskew:used:ann", " a", stamp, " gone", stamp)
        store._charges._counted.clear()  # type: ignore[attr-defined]  # it counts once in ten seconds
        put = store.put_part("a", part(1, 2), b"x" * 400)
        if stamp == "1":
            await put
        else:
            with pytest.raises(LimitError, match="hold 1,914 bytes"):
                await put
    assert int(empty_redis.ask("HGET", "unskew:used:ann", "")) == 2 * 507
    await store.close()


async def test_a_merged_round_leaves_nothing_but_its_answer(store: Store, empty_redis: Server) -> None:
    """What is kept grows with agents, not with rounds."""
    await fill(store, "clicks")
    before = keys(empty_redis)
    for seq in range(3, 40):
        await merge(store, seq - 1)
        await store.report("clicks", ReportKey("ann", 1, seq), b"", LEASE)
    assert len(keys(empty_redis)) == len(before)


async def test_prefixes_keep_two_services_apart(store: Store, empty_redis: Server) -> None:
    """The same stream under another prefix is another stream."""
    other = open_store(f"{empty_redis.url}?prefix=other&timeout=5&deadline=10")
    await fill(store, "clicks")
    assert await other.stream("clicks") is None
    assert await other.streams("", 9) == ()
    await other.put_stream("clicks", b"")
    assert {key for key in keys(empty_redis) if b"other" in key} == {b"other:streams", b"{other:clicks}:m"}
    await other.close()


async def test_large_answers_are_read_in_pieces_that_belong_together(empty_redis: Server) -> None:
    """While one reads piece by piece, runs of the batch come and the round is merged: never parts of two runs."""
    address = Address("single", (("127.0.0.1", empty_redis.port),))
    store = RedisStore(address, reply=500, patience=Patience(5.0, 10.0))
    await store.put_stream("clicks", b"")
    keys = [part(number, 40, run=7) for number in range(40)]
    await asyncio.gather(*(store.put_part("clicks", key, b"7" * 90) for key in keys))
    assert [(one.key, one.data) for one in await store.parts("clicks", "histogram", 3)] == [
        (k, b"7" * 90) for k in keys
    ]
    names = [ReportKey(f"agent {number:02}", 1, 1) for number in range(40)]
    await asyncio.gather(*(store.report("clicks", name, b"x" * 600, LEASE) for name in names))
    await store.seal("clicks", 1)
    assert [(one.key, len(one.data)) for one in await store.sealed("clicks", 1)] == [(name, 600) for name in names]

    async def again() -> None:
        for run in range(8, 40):
            for number in range(3):
                await store.put_part("clicks", part(number, 40, run=run), str(run % 10).encode() * 400)
                await asyncio.sleep(0.005)

    rerun, seen = asyncio.create_task(again()), set()
    while not rerun.done():
        found = await store.parts("clicks", "histogram", 3)
        run = found[0].key.run
        assert {(one.key.run, one.data[:1]) for one in found} == {(run, str(run % 10).encode())}
        seen.add(run)
    await rerun
    assert len(seen) > 3
    reading = asyncio.create_task(store.sealed("clicks", 1))
    assert await store.commit("clicks", committed(1, tuple(names)))
    assert len(await reading) in (0, 40)
    await store.close()


# -- forgetting and refusing


async def test_lost_scripts_are_sent_again(store: Store, empty_redis: Server) -> None:
    """A server that started anew, or that somebody cleaned, does not know them."""
    await store.put_stream("clicks", b"")
    empty_redis.ask("SCRIPT", "FLUSH")
    assert await store.report("clicks", ReportKey("ann", 1, 1), b"", LEASE) is ReportOutcome.STORED


async def test_a_report_that_redis_lost_is_taken_again(store: Store, empty_redis: Server) -> None:
    """The agent sends it until an answer names it: it must not be told for ever that it is there."""
    await store.put_stream("clicks", b"")
    await store.report("clicks", ReportKey("ann", 1, 1), b"", LEASE)
    await store.seal("clicks", 1)
    empty_redis.ask("DEL", "{unskew:clicks}:r:1")
    assert await store.report("clicks", ReportKey("ann", 1, 1), b"", LEASE) is ReportOutcome.STORED
    await merge(store, 1)
    assert (await merge(store, 2)).names == (ReportKey("ann", 1, 1),)


async def test_a_full_redis_refuses_what_it_cannot_keep_and_changes_nothing(own_server: Server) -> None:
    """Reading, sealing, merging and deleting go on: they make room again."""
    store = open_store(f"{own_server.url}?timeout=5&deadline=10")
    await fill(store, "clicks")
    own_server.ask("CONFIG", "SET", "maxmemory", "1mb")
    before = await store.round("clicks")
    with pytest.raises(UnavailableError, match="full"):
        await store.put_part("clicks", part(0, 1, batch=4), b"x")
    with pytest.raises(UnavailableError, match="full"):
        await store.report("clicks", ReportKey("bob", 1, 1), b"x", LEASE)
    assert (await store.round("clicks")).reported == before.reported
    assert await store.batches("clicks", "histogram", None, 9) == (3,)
    await merge(store, 2)
    assert await store.delete_stream("clicks")
    own_server.ask("CONFIG", "SET", "maxmemory", "0")
    await fill(store, "clicks")
    await store.close()


async def test_a_user_with_the_rights_of_the_prefix_is_enough(own_server: Server) -> None:
    """ACL: the keys and the channel of the prefix, and no dangerous command. What Redis refuses is said so."""
    commands = "+@hash +@sortedset +@set +@scripting +@keyspace +get +set +publish +subscribe +time +ping"
    rules = f"on >secret/1 ~{{mine:* ~mine:* &mine:* {commands} -@dangerous"
    own_server.ask("ACL", "SETUSER", "unskew", *rules.split())
    own_server.ask("ACL", "SETUSER", "default", "off")
    where = f"127.0.0.1:{own_server.port}"
    store = open_store(f"redis://unskew:secret%2F1@{where}?prefix=mine&timeout=5&deadline=10")
    await store.ping()
    await fill(store, "clicks")
    assert [one.name for one in await store.streams("", 9)] == ["clicks"]
    assert await store.delete_stream("clicks")
    await store.close()
    for wrong in (f"redis://unskew:wrong@{where}?prefix=mine", f"redis://unskew:secret%2F1@{where}?prefix=yours"):
        refused = open_store(wrong)
        with pytest.raises(UnavailableError, match="refuses") as raised:
            await refused.put_stream("clicks", b"")
        assert "wrong" not in raised.value.message
        await refused.close()


# -- away and slow


async def test_a_redis_that_is_away_is_said_so_in_time_and_found_again(own_server: Server) -> None:
    """The same store goes on when Redis is back on its port, empty: streams are gone and are put again, newer."""
    store = open_store(own_server.url)
    record, _ = await store.put_stream("clicks", b"")
    own_server.kill()
    for _ in range(8):  # enough that the breaker opens
        started = time.monotonic()
        with pytest.raises(UnavailableError):
            await store.stream("clicks")
        assert time.monotonic() - started < 15.0
    own_server.start()
    assert await answers(store) == ()
    again, created = await store.put_stream("clicks", b"")
    assert created
    assert again.incarnation > record.incarnation
    await store.close()


async def test_a_redis_that_hangs_costs_each_caller_its_deadline_and_then_nothing(own_server: Server) -> None:
    """Connected and silent. The breaker opens, many callers fail at once, one probe at a time looks again."""
    store = open_store(f"{own_server.url}?timeout=0.1&deadline=0.3")
    assert isinstance(store, RedisStore)
    await in_the_end(lambda: store.put_stream("clicks", b""))
    own_server.pause()
    started = time.monotonic()
    results = await asyncio.gather(*(store.stream("clicks") for _ in range(20)), return_exceptions=True)
    assert all(isinstance(result, UnavailableError) for result in results)
    assert time.monotonic() - started < 5.0  # one after the other they take six
    started = time.monotonic()
    results = await asyncio.gather(*(store.stream("clicks") for _ in range(200)), return_exceptions=True)
    assert all(isinstance(result, UnavailableError) for result in results)
    assert sum("has not answered for a while" in str(result) for result in results) >= 199  # all but a probe
    assert time.monotonic() - started < 20.0
    own_server.resume()
    assert [one.name for one in await answers(store)] == ["clicks"]
    await store.close()


async def test_what_was_done_behind_a_lost_answer_is_not_done_twice(own_server: Server) -> None:
    """The request came through, its answer did not: sent again it says that it was done."""
    store = open_store(f"{own_server.url}?timeout=0.1&deadline=0.3")
    record, _ = await in_the_end(lambda: store.put_stream("clicks", b""))
    await in_the_end(lambda: store.put_part("clicks", part(0, 1, batch=1), b""))  # the script is known
    asked = [
        lambda: store.put_part("clicks", part(0, 1), b""),
        lambda: store.report("clicks", ReportKey("ann", 1, 1), b"", LEASE),
        lambda: store.put_plan("clicks", plan(record.incarnation, 1, "batch:1"), None),
    ]
    own_server.pause()
    for ask in asked:
        with pytest.raises(UnavailableError):
            await ask()
    own_server.resume()
    await answers(store)
    assert await in_the_end(asked[0]) in (PartOutcome.REPEATED, PartOutcome.STORED)
    assert await in_the_end(asked[1]) in (ReportOutcome.REPEATED, ReportOutcome.STORED)
    assert await in_the_end(asked[2]) is PlanOutcome.STORED
    await store.close()
    store = open_store(f"{own_server.url}?timeout=5&deadline=10")
    assert len(await store.parts("clicks", "histogram", 3)) == 1
    assert (await merge(store, 1)).names == (ReportKey("ann", 1, 1),)
    await store.close()


async def test_listeners_hear_again_after_redis_was_away(own_server: Server) -> None:
    """The subscription is made anew without anybody's help."""
    store = open_store(f"{own_server.url}?timeout=5&deadline=10")
    news = store.news()
    own_server.kill()
    own_server.start()
    await answers(store)

    async def change() -> None:
        for number in range(1000):
            await store.put_stream("clicks", f"{number}".encode())
            await asyncio.sleep(0.02)

    changing = asyncio.create_task(change())
    while (one := await asyncio.wait_for(anext(news), WAIT)) == MISSED:
        pass
    assert one.stream == "clicks"
    changing.cancel()
    await store.close()


async def test_a_cancelled_call_leaves_no_wrong_answer_to_the_next(store: Store) -> None:
    """A connection whose answer nobody waited for is not used again."""
    for number in range(20):
        await store.put_stream(f"s{number}", f"spec {number}".encode())
    for turn in range(60):
        calls = [asyncio.create_task(store.stream(f"s{number}")) for number in range(20)]
        await asyncio.sleep(0.0002 * (turn % 7))
        for call in calls[::2]:
            call.cancel()
        found = await asyncio.gather(*calls, return_exceptions=True)
        for number, record in enumerate(found):
            if not isinstance(record, asyncio.CancelledError):
                assert not isinstance(record, BaseException)
                assert record is not None
                assert (record.name, record.spec) == (f"s{number}", f"spec {number}".encode())


async def test_a_connection_that_is_closed_while_it_is_written_to_is_a_lost_one(
    empty_redis: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """redis-py lets errors of the transport through, which are neither its own nor the system's: ask again."""
    made = open_store(f"{empty_redis.url}?timeout=5&deadline=10")
    assert isinstance(made, RedisStore)
    client = made._client._client
    asked, errors = client.execute_command, [AttributeError("no 'writelines'"), TypeError("not callable")]

    async def closing(*words: Any) -> Any:
        if errors:
            raise errors.pop()
        return await asked(*words)

    monkeypatch.setattr(client, "execute_command", closing)
    record, _ = await made.put_stream("s", b"spec")
    assert (record.name, errors) == ("s", [])
    await made.close()


async def test_one_redis_has_one_host() -> None:
    """More of them are a mistake for Sentinel or cluster, and are not passed over."""
    from unskew.core.errors import ConfigError

    with pytest.raises(ConfigError, match="sentinel"):
        RedisStore(Address("single", (("a", 1), ("b", 2))))
