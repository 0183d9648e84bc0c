"""The stores that the laws are tried on, and a real Redis for them: one server for each test process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.contract.backends import Backend, MemoryBackend, UrlBackend
from tests.servers import Server, single

pytest.register_assert_rewrite("tests.contract.laws")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with single(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def empty_redis(redis_server: Server) -> Server:
    """Nothing is in it, and nothing is set as it was not at its start."""
    redis_server.ask("FLUSHALL")
    return redis_server


@pytest.fixture(params=["memory", "redis"])
async def backend(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[Backend]:
    made: Backend
    if request.param == "memory":
        made = MemoryBackend()
    else:
        server = request.getfixturevalue("empty_redis")
        made = UrlBackend(server.url, lambda: server.ask("FLUSHALL"))
    yield made
    await made.close()
