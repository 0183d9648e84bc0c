"""Settings of the whole suite."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path

import pytest
from hypothesis import settings

from tests import jvm

HERE = Path(__file__).parent
QUICK = ("unit", "property", "client")
"""Folders whose tests need neither Java nor Redis nor a browser."""
BEGAN = pytest.StashKey[tuple[float, float]]()

# CI judges a change: it runs the same examples every time, so that a red run is the change's own doing. Everywhere
# else Hypothesis looks for new ones.
# Without a deadline for an example: on a shared machine one that is stopped for a moment is no wrong answer.
settings.register_profile("everywhere", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "everywhere")

jvm.use()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what ``make test-quick`` runs."""
    folder = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
    dear = any(item.get_closest_marker(name) for name in ("long", "slow", "spark"))
    if folder in QUICK and not dear:
        item.add_marker("quick")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[BEGAN] = time.monotonic(), os.getloadavg()[0]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What a run's time means: it is that of quiet cores where nothing else was running when it began."""
    began, load = config.stash[BEGAN]
    took, cores = time.monotonic() - began, os.cpu_count()
    terminalreporter.write_line(f"{took:.0f} s on {cores} cores; load of other work when it began: {load:.1f}")


def pytest_collection_finish() -> None:
    """What was collected lives to the end: no collection of garbage need look at it."""
    gc.collect()
    gc.freeze()
