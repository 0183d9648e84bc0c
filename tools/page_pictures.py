"""Take the pictures of the service's page in docs/pictures, as a newcomer sees it after the README's three commands.

    python tools/page_pictures.py

A service, ``examples/live_stream.py`` for two changes of the hot keys, and a real Chromium (``tools/chromium.sh``).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from unskew.client import testing

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "pictures"
WIDTH, HEIGHT = 1100, 900
STREAM = "#/streams/clicks"


def main() -> None:
    chromium = subprocess.run(["bash", ROOT / "tools" / "chromium.sh"], check=True, capture_output=True, text=True)
    OUT.mkdir(parents=True, exist_ok=True)
    with testing.embedded() as service, sync_playwright() as playwright:
        job = [sys.executable, str(ROOT / "examples" / "live_stream.py"), "50", service.target, "0.5"]
        subprocess.run(job, check=True)
        alone = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium's sandbox refuses root
        browser = playwright.chromium.launch(executable_path=chromium.stdout.strip(), args=alone)
        for scheme in ("light", "dark"):
            taken(browser, service.http, scheme)
        browser.close()


def taken(browser: Browser, address: str, scheme: str) -> None:
    shown = browser.new_context(color_scheme=scheme, viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=1)
    page = shown.new_page()
    page.goto(f"{address}/{STREAM}")
    expect(page.locator("path.series.observed")).to_be_visible()
    explained(page)
    page.screenshot(path=OUT / f"page-{scheme}.png", full_page=True)
    if scheme == "light":
        page.screenshot(path=OUT / "page-top.png", clip={"x": 0, "y": 0, "width": WIDTH, "height": 795})
        page.goto(f"{address}/#/")
        expect(page.locator("tbody tr")).to_have_count(2)
        page.screenshot(path=OUT / "streams-light.png", clip={"x": 0, "y": 0, "width": WIDTH, "height": 330})
    shown.close()


def explained(page: Page) -> None:
    """The hottest key, as somebody who asks why."""
    page.get_by_role("group", name="Hot keys").get_by_role("button").first.click()
    expect(page.locator(".answer")).to_contain_text("partition")


if __name__ == "__main__":
    main()
