"""The services under fuzz: one over memory and one over a real Redis, each in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.runs import warm
from tests.fuzz.target import Target, started
from tests.servers import single


@pytest.fixture(scope="session")
def target() -> Iterator[Target]:
    with started("memory") as found:
        warm(found)
        yield found


@pytest.fixture(scope="session")
def redis_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with single(tmp_path_factory.mktemp("redis")) as server, started(server.url) as found:
        warm(found)
        yield found
