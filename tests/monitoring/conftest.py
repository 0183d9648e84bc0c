"""Two replicas under load and a real Prometheus, for the tests of a file; they go with it: they take half a core."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.monitoring.load import World, world
from tests.monitoring.prometheus import Prometheus, program, prometheus


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Prometheus]]:
    """Two replicas under load, and who watches them."""
    program()
    folder = tmp_path_factory.mktemp("monitoring")
    with world(folder) as made, prometheus(folder, made.targets, "scraper") as watcher:
        yield made, watcher
