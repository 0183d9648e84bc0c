"""Readiness writes: a Redis that is full, read-only or cannot save answers a PING and takes no report. The replica says
so in plain words, by a metric of its own, and goes on with what it can read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from redis.exceptions import OutOfMemoryError, ReadOnlyError, ResponseError

from tests.doses import some_of
from tests.servers import Server, free_ports, single
from tests.service.engines import run, skewed
from tests.service.faces import served
from tests.service.test_outages import in_time
from unskew.core.stream_spec import StreamSpec
from unskew.service.app.main import _Ready
from unskew.service.engine.engine import Engine
from unskew.service.errors import UnavailableError, WritesRefusedError
from unskew.service.stores import open_store
from unskew.service.stores.redis.failures import refuses_writes, unavailable


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with single(tmp_path) as one:
        yield one


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), "Redis is full"),
        (ReadOnlyError("You can't write against a read only replica."), "read-only replica"),
        (ResponseError("MISCONF Redis is configured to save RDB snapshots"), "cannot save to its disk"),
        (ResponseError("NOREPLICAS Not enough good replicas to write."), "min-replicas-to-write"),
        (ResponseError("ERR OOM command not allowed script: f_1, on @user_script:9."), "Redis is full"),
    ],
)
def test_a_refused_write_is_told_from_no_answer_and_says_why(error: Exception, words: str) -> None:
    told = unavailable(error)
    assert isinstance(told, WritesRefusedError)
    assert words in told.message
    assert refuses_writes(error)


@pytest.mark.parametrize("error", [ResponseError("ERR syntax"), ConnectionError("refused"), TimeoutError("OOM")])
def test_what_is_no_refusal_is_not_taken_for_one(error: Exception) -> None:
    assert not refuses_writes(error)


def test_readiness_says_that_writes_are_refused_and_forgets_it_afterwards() -> None:
    """One check a second at most, however many probes."""

    async def main() -> None:
        asked, trouble = [0], [WritesRefusedError("store: Redis is full")]

        async def ping() -> None:
            asked[0] += 1
            if trouble:
                raise trouble[0]

        ready = _Ready(ping)
        assert [await ready.trouble() for _ in range(50)] == ["the store refuses writes: store: Redis is full"] * 50
        assert (ready.writes_refused, asked[0]) == (True, 1)
        for why, refused in ((UnavailableError("away"), False), (None, False)):
            trouble[:] = [] if why is None else [why]  # type: ignore[list-item]
            ready._until = 0.0
            assert bool(await ready.trouble()) is (why is not None)
            assert ready.writes_refused is refused

    run(main())


def test_the_probe_is_one_small_key_that_goes_by_itself(server: Server) -> None:
    async def main() -> None:
        store = open_store(f"{server.url}?prefix=mine")
        for _ in range(5):
            await store.ping()
        await store.close()

    run(main())
    assert server.ask("KEYS", "*") == [b"mine:probe"]
    assert server.ask("GET", "mine:probe") == b""
    assert 0 < server.ask("TTL", "mine:probe") <= 60


FAULTS = {
    "full": (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0"), "Redis is full"),
    "read-only": (("REPLICAOF", "127.0.0.1", str(free_ports(1)[0])), ("REPLICAOF", "NO", "ONE"), "read-only replica"),
    "too few replicas": (
        ("CONFIG", "SET", "min-replicas-to-write", "1"),
        ("CONFIG", "SET", "min-replicas-to-write", "0"),
        "min-replicas-to-write",
    ),
}


@pytest.mark.parametrize("fault", some_of(FAULTS, "full"))
def test_a_redis_that_takes_no_write_makes_a_replica_unready_and_says_why(server: Server, fault: str) -> None:
    """503 in plain words; ``store_up`` stays 1, because it answers; and all is well again by itself."""
    begin, end, words = FAULTS[fault]
    with served("engine", store=server.url) as service, httpx.Client(base_url=service.base, trust_env=False) as web:

        def told(line: str) -> bool:
            return line in httpx.get(service.metrics, trust_env=False).text.splitlines()

        in_time("ready", lambda: web.get("/readyz").status_code == 200)
        server.ask(*begin)
        in_time("not ready", lambda: web.get("/readyz").status_code == 503)
        problem = web.get("/readyz").json()
        assert problem["detail"].startswith("the store refuses writes: store: Redis ")
        assert words in problem["detail"]
        in_time("told", lambda: told("unskew_store_writes_refused 1.0"))
        assert told("unskew_store_up 1.0")
        server.ask(*end)
        in_time("ready again", lambda: web.get("/readyz").status_code == 200)
        in_time("told again", lambda: told("unskew_store_writes_refused 0.0"))


def test_a_full_redis_is_read_from_however_often_it_refuses_a_write(server: Server) -> None:
    """Refusals are answers: they do not open the breaker, which would keep plans back that Redis has."""

    async def main() -> None:
        store = open_store(server.url)
        engine = Engine(store)
        await engine.put_stream("clicks", StreamSpec(8, "balanced"))
        built = await engine.build_plan("clicks", histogram=skewed())
        await asyncio.to_thread(server.ask, "CONFIG", "SET", "maxmemory", "1")
        for _ in range(20):
            with pytest.raises(WritesRefusedError, match="full"):
                await engine.ping()
        await asyncio.sleep(0.15)
        found = await engine.get_plan("clicks")
        assert (found.plan, found.stale) == (built.plan, False)
        await engine.close()
        await store.close()

    run(main())
