"""How reports get to Redis and back: together where many come at once, each with its outcome, and over the net once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.contract.laws import LEASE, committed
from tests.servers import Server
from unskew.core.rounds.round_log import ReportKey, ReportOutcome
from unskew.service.errors import NotFoundError, UnavailableError
from unskew.service.stores import open_store
from unskew.service.stores.ports import Store

pytestmark = pytest.mark.anyio

AGENTS = 100


@pytest.fixture
async def stores(empty_redis: Server, anyio_backend: str) -> AsyncIterator[tuple[Store, Store]]:
    """Two replicas'."""
    made = tuple(open_store(f"{empty_redis.url}?timeout=5&deadline=10") for _ in range(2))
    await made[0].put_stream("clicks", b"")
    yield made[0], made[1]
    for one in made:
        await one.close()


def name(number: int, seq: int = 1) -> ReportKey:
    return ReportKey(f"agent {number:03}", 1, seq)


def data(number: int) -> bytes:
    return f"{number} ".encode() * 2000


def called(server: Server, command: str) -> int:
    found: Any = server.info("commandstats").get(f"cmdstat_{command}", {})
    return int(found.get("calls", 0))


def sent(server: Server) -> int:
    """Bytes that it sent to anybody."""
    return int(server.info("stats")["total_net_output_bytes"])


async def report(store: Store, numbers: range, seq: int = 1) -> list[ReportOutcome]:
    return list(await asyncio.gather(*(store.report("clicks", name(n, seq), data(n), LEASE) for n in numbers)))


async def test_reports_that_come_at_once_go_together_and_none_is_lost(
    stores: tuple[Store, Store], empty_redis: Server
) -> None:
    """A hundred of them with a handful of requests."""
    await report(stores[0], range(1))  # the script is known
    before = called(empty_redis, "evalsha")
    assert await report(stores[0], range(1, AGENTS)) == [ReportOutcome.STORED] * (AGENTS - 1)
    assert called(empty_redis, "evalsha") - before < AGENTS // 10
    await stores[0].seal("clicks", 1)
    found = await stores[1].sealed("clicks", 1)
    assert [(one.key, one.data) for one in found] == [(name(n), data(n)) for n in range(AGENTS)]


async def test_each_of_those_that_go_together_has_its_own_outcome(stores: tuple[Store, Store]) -> None:
    """Merged, repeated twice in the same breath, older, new."""
    store = stores[0]
    await report(store, range(3), seq=5)
    await store.seal("clicks", 1)
    await store.commit("clicks", committed(1, (name(0, 5), name(1, 5), name(2, 5))))
    wanted = [(name(0, 5), "merged"), (name(1, 4), "older"), (name(2, 6), "stored"), (name(2, 6), "repeated")]
    found = await asyncio.gather(*(store.report("clicks", key, b"x", LEASE) for key, _ in wanted))
    assert [outcome.value for outcome in found] == [value for _, value in wanted]


async def test_what_was_written_here_is_not_read_back(stores: tuple[Store, Store], empty_redis: Server) -> None:
    """Of a sealed round only what another replica wrote comes over the net; that one has to ask for the rest."""
    mine, theirs = stores
    await report(mine, range(40))
    await report(theirs, range(40, 50))
    await mine.seal("clicks", 1)
    every = [(name(n), data(n)) for n in range(50)]
    sizes = []
    for store in stores:
        before = sent(empty_redis)
        assert [(one.key, one.data) for one in await store.sealed("clicks", 1)] == every
        sizes.append(sent(empty_redis) - before)
    ours, others = (sum(len(data(n)) for n in numbers) for numbers in (range(40), range(40, 50)))
    assert others <= sizes[0] < others + ours / 2
    assert ours <= sizes[1] < ours + others / 2


async def test_of_two_reports_of_one_name_the_stored_one_is_read(
    stores: tuple[Store, Store], empty_redis: Server
) -> None:
    """Redis went back to an older state, and another replica wrote the name with other data: ours does not count."""
    mine, theirs = stores
    assert await mine.report("clicks", name(1), b"ours", LEASE) is ReportOutcome.STORED
    empty_redis.ask("DEL", "{unskew:clicks}:r:1", "{unskew:clicks}:i:1", "{unskew:clicks}:q")
    assert await theirs.report("clicks", name(1), b"theirs", LEASE) is ReportOutcome.STORED
    await mine.seal("clicks", 1)
    assert [one.data for one in await mine.sealed("clicks", 1)] == [b"theirs"]


async def test_who_gives_up_takes_nobody_with_it(stores: tuple[Store, Store], empty_redis: Server) -> None:
    """The others of the same request get their outcomes, and what was under way is stored."""
    empty_redis.pause()
    tasks = [asyncio.ensure_future(stores[0].report("clicks", name(n), data(n), LEASE)) for n in range(5)]
    await asyncio.sleep(0.05)
    tasks[2].cancel()
    empty_redis.resume()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(found[2], asyncio.CancelledError)
    assert [one for number, one in enumerate(found) if number != 2] == [ReportOutcome.STORED] * 4
    assert await report(stores[0], range(5)) == [ReportOutcome.REPEATED] * 5


async def test_all_that_wait_are_told_that_redis_is_away_and_the_next_go_through(
    stores: tuple[Store, Store], empty_redis: Server
) -> None:
    """Also those that have not been sent yet: within one deadline, not one after another's."""
    store = open_store(f"{empty_redis.url}?timeout=0.1&deadline=0.3")
    await stores[0].report("clicks", name(0), b"", LEASE)
    empty_redis.pause()
    loop = asyncio.get_running_loop()
    first = asyncio.ensure_future(store.report("clicks", name(1), b"", LEASE))
    await asyncio.sleep(0.05)
    began = loop.time()
    found = await asyncio.gather(first, *(store.report("clicks", name(n), b"", LEASE) for n in range(2, 30)),
                                 return_exceptions=True)  # fmt: skip
    assert loop.time() - began < 6.0  # one after the other they take eight
    assert all(isinstance(one, UnavailableError) for one in found), found
    empty_redis.resume()
    again = await stores[0].report("clicks", name(3), b"", LEASE)
    assert again in (ReportOutcome.STORED, ReportOutcome.REPEATED)
    await store.close()


async def test_reports_of_a_stream_that_is_gone_are_refused_together(stores: tuple[Store, Store]) -> None:
    await stores[0].delete_stream("clicks")
    found = await asyncio.gather(
        *(stores[0].report("clicks", name(n), b"", LEASE) for n in range(5)), return_exceptions=True
    )
    assert all(isinstance(one, NotFoundError) for one in found)
