"""Redis behind Sentinels and as a cluster, once for each test process: tests that use them share an xdist group."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import servers

pytest.register_assert_rewrite("tests.contract.laws")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def sentinels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Sentinels]:
    with servers.sentinels(tmp_path_factory.mktemp("sentinels")) as topology:
        yield topology


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Cluster]:
    with servers.cluster(tmp_path_factory.mktemp("cluster")) as topology:
        yield topology
