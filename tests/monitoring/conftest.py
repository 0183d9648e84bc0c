"""One world and one Prometheus for all tests of this folder: a worker of its own keeps them together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.monitoring.load import World, world
from tests.monitoring.prometheus import Prometheus, program, prometheus


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Prometheus]]:
    """Two replicas under load, and who watches them."""
    program()
    folder = tmp_path_factory.mktemp("monitoring")
    with world(folder) as made, prometheus(folder, made.targets, "scraper") as watcher:
        yield made, watcher
