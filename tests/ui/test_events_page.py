"""The page of ``unskew events --html`` in a real browser: what a log says is shown as text, and nobody is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.events.event_lines import events, write
from tests.ui.conftest import Opened
from unskew.cli.events.html_report import page as page_of
from unskew.cli.events.log_files import logs_at
from unskew.cli.events.read_log import read_log

pytestmark = pytest.mark.xdist_group("ui")

NASTY = "<img src=x onerror='document.title=1'><script>document.title=2</script>{{table}}"


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_the_page_is_readable_and_shows_text_of_a_log_as_text(
    opened: Opened, tmp_path: Path, scheme: str, width: int
) -> None:
    """In light and dark, on a desktop and on a phone; no accessibility rule is broken, nothing is cut away."""
    (log,) = logs_at(str(write(tmp_path / "log", events(NASTY, f"{NASTY}#1L"))))
    (tmp_path / "report.html").write_text(page_of([read_log(log.name, log.files)], 20), "utf-8")
    shown = opened("file://", scheme, width)
    page = shown.open(str(tmp_path / "report.html"))
    expect(page.get_by_role("img")).to_have_count(1)
    expect(page.locator("section")).to_have_count(2)
    expect(page.get_by_text("group_apply on <img").first).to_be_visible()
    assert page.title() == "unskew events"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert Axe().run(page).response["violations"] == []
    shown.shot(f"events-{scheme}")
