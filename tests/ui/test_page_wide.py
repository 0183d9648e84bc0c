"""The web page of a stream with 1,000 partitions and 500 hot keys: it opens at once, and updates are no burden."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import CDPSession, Page, expect

from tests.service.processes import process
from tests.ui.conftest import Opened
from tests.ui.drawn import bars, mean_line, settled
from tests.ui.play import SOURCE, wide
from unskew.client import Client
from unskew.core.stream_spec import BatchWork, Part, Work

pytestmark = pytest.mark.xdist_group("ui")

_OPENS, _UPDATES = 2.0, 0.1  # seconds: until it is drawn; of the main thread, for one update


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Client]]:
    with (
        process(tmp_path_factory.mktemp("wide")) as service,
        Client(f"grpc://127.0.0.1:{service.grpc}", timeout=60.0) as client,
    ):
        wide(client)
        yield service.url(""), client


def _busy(session: CDPSession) -> float:
    """Seconds of the main thread so far: its own time, whatever else the machine does."""
    found = session.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in found if one["name"] == "TaskDuration"))


def _update(page: Page, session: CDPSession, client: Client, batch: int) -> float:
    """What it costs to show another batch: all partitions have other loads."""
    before = _busy(session)
    rows = tuple(Work(at, 100 + (at * 7919 + batch) % 900) for at in range(1000))
    client.report_batch("wide", Part(SOURCE, batch), BatchWork(rows))
    expect(page.locator(".tile").nth(2)).to_contain_text(f"batch {batch}")
    return _busy(session) - before


def test_it_opens_at_once_and_updates_in_little_time(opened: Opened, base: tuple[str, Client]) -> None:
    """1,000 partitions and 500 hot keys: drawn in under two seconds, another batch in under 100 ms. The best of a few:
    it is about the page, not about what else the machine has to do."""
    address, client = base
    shown = opened(address)
    page = shown.open()
    expect(page.locator("tbody tr")).to_have_count(1)
    opening = []
    while len(opening) < 10 and min(opening, default=_OPENS) >= _OPENS:
        started = time.monotonic()
        shown.open("/?anew#/streams/wide")
        settled(page)
        opening.append(time.monotonic() - started)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    updates = [_update(page, session, client, batch) for batch in (1, 2)]
    print(f"opens in {min(opening):.2f} s, updates in {1000 * min(updates):.0f} ms")  # noqa: T201 - shown where it fails
    assert min(opening) < _OPENS
    assert min(updates) < _UPDATES
    assert page.locator("main *").count() < 1500, "as many elements as for few partitions"
    shown.shot("wide-light")


def test_every_partition_is_drawn_and_every_hot_key_can_be_read(opened: Opened, base: tuple[str, Client]) -> None:
    """The outlines have all 1,000 partitions at their heights; the tables turn through all, a page at a time."""
    address, _ = base
    page = opened(address, "dark").open("/#/streams/wide")
    settled(page)
    found: dict[str, Any] = httpx.get(f"{address}/v1/streams/wide/overview", trust_env=False, timeout=60).json()
    for name, loads in (("hash", found["expected"]["by_hash"]), ("plan", found["expected"]["by_plan"])):
        drawn = bars(page, name)
        unit = drawn[0].base - mean_line(page)
        heights, over = [bar.height for bar in drawn], [load * 1000 / sum(loads) * unit for load in loads]
        assert len(heights) == 1000
        assert heights == pytest.approx(over, abs=1.5)
    pages = page.get_by_role("navigation", name="Pages of: Hot keys")
    expect(pages).to_contain_text("1 to 12 of 500")
    while not pages.get_by_role("button", name="Next").is_disabled():
        pages.get_by_role("button", name="Next").click()
    expect(pages).to_contain_text("493 to 500 of 500")
    assert page.evaluate("document.activeElement.textContent") == "Previous", "the focus is not lost at the end"
    last = page.get_by_role("group", name="Hot keys").locator("tbody tr").last
    expect(last).to_contain_text(found["plan"]["hot"][-1]["hash"])
