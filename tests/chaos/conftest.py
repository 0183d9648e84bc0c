"""One Redis and three replicas for all chaos tests of a process; those that use them share an xdist group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import servers
from tests.chaos.fleet import AOF, Replicas
from tests.chaos.proxy import NORMAL, ProxyLoop

pytest.register_assert_rewrite("tests.chaos.scenario")


@dataclass(eq=False)
class World:
    """Everything but the agents."""

    redis: servers.Server
    replicas: Replicas
    loop: ProxyLoop


@pytest.fixture(scope="session")
def proxies() -> Iterator[ProxyLoop]:
    loop = ProxyLoop()
    yield loop
    loop.close()


@pytest.fixture(scope="session")
def _world(tmp_path_factory: pytest.TempPathFactory, proxies: ProxyLoop) -> Iterator[World]:
    folder: Path = tmp_path_factory.mktemp("chaos")
    with servers.single(folder, *AOF) as redis:
        replicas = Replicas(folder, proxies, 3, redis)
        try:
            yield World(redis, replicas, proxies)
        finally:
            replicas.close()


@pytest.fixture
def world(_world: World) -> World:
    """All of it up and the network well, whatever the test before did."""
    if _world.redis.process is None or _world.redis.process.poll() is not None:
        _world.redis.start()
    for proxy in (*_world.replicas.fronts, *_world.replicas.backs):
        _world.loop.call(proxy.release)
        _world.loop.set(NORMAL, proxy)
    _world.replicas.start()
    return _world
